"""Known records, produced for as long as the trial lasts; a library that is not ours sends them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import Message, Producer

from tests.integration.spark.kills.sink import Place

PARTITIONS = 3
BACKLOG_MAX = 3_000
FLUSH_SECONDS_MAX = 60.0
CLIENT = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "message.timeout.ms": 120_000,
}
QUIET = logging.getLogger("kills.load")
QUIET.setLevel(logging.CRITICAL + 1)  # That a broker is away is no news here.


class Load:
    """Produces numbers, as long as not too many of them wait to be delivered."""

    def __init__(self, bootstrap: str, topic: str, delivered: Callable[[], int]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._delivered = delivered
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")
        self.produced: dict[Place, bytes] = {}
        """What the broker has confirmed."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self) -> None:
        """Produce no more; everything that was sent must have been confirmed."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException as failure:  # noqa: BLE001  Raised by `finish`.
            self._failure = failure

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, **CLIENT}, logger=QUIET)
        number = 0
        while not self._stopping.is_set():
            producer.poll(0)
            if number - self._delivered() > BACKLOG_MAX:
                producer.poll(0.01)
                continue
            producer.produce(
                self._topic,
                value=b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=self._confirmed,
            )
            number += 1
        assert producer.flush(FLUSH_SECONDS_MAX) == 0, "records are still queued"
        assert len(self.produced) == number, f"{len(self.produced)} of {number} are confirmed"

    def _confirmed(self, error: object, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.produced[partition, offset] = message.value() or b""
