"""Producer without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from sharegroup.client import producer
from sharegroup.client.config import ProducerOptions
from sharegroup.client.producer import CLOSE_SECONDS
from sharegroup.client.records import Header, RecordMetadata
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking
from sharegroup.client.sync.loop_thread import LOOP_THREAD


class Delivery:
    """The outcome of one `send`."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: producer.Delivery) -> None:
        self._delivery = delivery

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome; TimeoutError when it is not known after ``timeout`` seconds."""
        if self._delivery.done():
            return self._delivery.result()
        return LOOP_THREAD.run(_outcome(self._delivery, timeout))


class Producer(BlockingClient[producer.Producer]):
    """Sends records; see `sharegroup.client.Producer`.

    Example::

        with Producer(bootstrap_servers=bootstrap) as producer:
            delivery = producer.send("orders", b"one apple", key=b"customer-7")
            print(delivery.result().offset)
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        client = producer.Producer(**options)
        super().__init__(client, client.client_id)

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Flush for up to ``timeout`` seconds; what is left then fails with NetworkException."""
        if self._open:
            self._end(self._client.close(timeout))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; returns as soon as it has a place, waits while there is none."""
        with LOOP_THREAD.lock:
            delivery = self._client.send_now(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
        LOOP_THREAD.wake()
        if delivery is None:  # Its topic is not known yet, or there is no room.
            waiting = self._client.send(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
            delivery = LOOP_THREAD.run(waiting)
        return Delivery(delivery)

    send_and_wait = blocking(producer.Producer.send_and_wait)
    flush = blocking(producer.Producer.flush)


async def _outcome(delivery: producer.Delivery, seconds: float | None) -> RecordMetadata:
    async with asyncio.timeout(seconds):
        return await delivery
