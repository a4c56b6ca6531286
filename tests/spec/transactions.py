"""Transactions of a real producer, for what share groups and compaction make of them."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for
from tests.support.limits import HANGING_SECONDS


class Transaction:
    """One transaction on partition 0 of a topic; all records of a write are one batch."""

    def __init__(self, scene: Scene, topic: Topic) -> None:
        self._scene = scene
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": scene.peer.bootstrap_servers,
                "transactional.id": scene.new_name("transaction"),
                "linger.ms": 20,
            }
        )
        self._producer.init_transactions(HANGING_SECONDS)
        self._producer.begin_transaction()

    def write(self, size: int, key: bytes | None = None) -> None:
        for number in range(size):
            self._producer.produce(self._topic.name, b"%d" % number, key, partition=0)
        assert self._producer.flush(HANGING_SECONDS) == 0

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[float], None]) -> None:
        """Returns when the marker is in the log, one offset past the records."""
        before = self._scene.offset(self._topic)
        end(30)
        wait_for(lambda: self._scene.offset(self._topic) > before, "the marker")
