"""Transactions in a log: by a real producer on Kafka, written behind the requests on ours.

Our broker has no transaction coordinator yet; what its share groups make of transactions that
are in a log is the same question.
"""

from __future__ import annotations

import time
from itertools import count

from confluent_kafka import Producer

from sharegroup.wire.markers import encode_marker
from sharegroup.wire.records import SimpleRecord, encode_batch
from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

_producers = count(900_001)


class Transaction:
    """One transaction on partition 0 of a topic; all records of a write are one batch."""

    def __init__(self, scene: Scene, topic: Topic) -> None:
        self._scene = scene
        self._topic = topic
        self._end = scene.offset(topic)
        self._producer_id = next(_producers)
        self._sequence = 0
        self._producer: Producer | None = None
        if scene.peer.append is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": scene.peer.bootstrap_servers,
                    "transactional.id": scene.new_name("transaction"),
                    "linger.ms": 20,
                }
            )
            self._producer.init_transactions(30)
            self._producer.begin_transaction()

    def write(self, size: int, key: bytes | None = None) -> None:
        values = [b"%d" % number for number in range(size)]
        if self._producer is not None:
            for value in values:
                self._producer.produce(self._topic.name, value, key, partition=0)
            assert self._producer.flush(30) == 0
        else:
            batch = encode_batch(
                [SimpleRecord(key, value, _now_ms()) for value in values],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
                is_transactional=True,
            )
            self._append(batch)
            self._sequence += size

    def commit(self) -> None:
        self._end_it(is_commit=True)

    def abort(self) -> None:
        self._end_it(is_commit=False)

    def _end_it(self, *, is_commit: bool) -> None:
        """Returns when the marker is in the log, one offset past the records."""
        before = self._scene.offset(self._topic)
        if self._producer is not None:
            if is_commit:
                self._producer.commit_transaction(30)
            else:
                self._producer.abort_transaction(30)
            self._producer = None
            wait_for(lambda: self._scene.offset(self._topic) > before, "the marker")
        else:
            marker = encode_marker(
                is_commit=is_commit,
                producer_id=self._producer_id,
                producer_epoch=0,
                timestamp=_now_ms(),
            )
            self._append(marker)

    def _append(self, batch: bytearray) -> None:
        append = self._scene.peer.append
        assert append is not None
        append(self._topic.name, batch)


def _now_ms() -> int:
    return int(time.time() * 1000)
