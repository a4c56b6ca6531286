"""Blocking Producer, for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.produce import producer
from sharegroup.client.produce.producer import CLOSE_SECONDS
from sharegroup.client.records import Header, RecordMetadata
from sharegroup.client.settings.client_config import ProducerOptions
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking


class SendFuture:
    """A future for the RecordMetadata of one sent record: `result` waits for it."""

    __slots__ = ("_future",)

    def __init__(self, future: producer.SendFuture) -> None:
        self._future = future

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome and return the RecordMetadata, or raise the record's error.

        Raises TimeoutError if the outcome is not known after ``timeout`` seconds.
        """
        if self._future.done():
            return self._future.result()
        return LOOP_THREAD.run(_outcome(self._future, timeout))


class Producer(BlockingClient[producer.Producer]):
    """Sends records to topics, with blocking methods.

    The methods are those of `sharegroup.client.Producer`.

    Example::

        with Producer(bootstrap_servers=bootstrap_servers) as producer:
            future = producer.send("orders", b"one apple", key=b"customer-7")
            print(future.result().offset)
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        client = producer.Producer(**options)
        super().__init__(client, client.client_id)

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Flush for up to ``timeout`` seconds; records left then fail with NetworkException."""
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
    ) -> SendFuture:
        """Queue one record, waiting for buffer space if necessary, and return its SendFuture.

        Timeouts and order are those of `sharegroup.client.Producer.send`.
        """
        with LOOP_THREAD.lock:
            future = self._client.send_now(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
        LOOP_THREAD.wake()
        if future is None:  # The topic's metadata is unknown, or the buffer has no room.
            waiting = self._client.send(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
            future = LOOP_THREAD.run(waiting)
        return SendFuture(future)

    send_and_wait = blocking(producer.Producer.send_and_wait)
    flush = blocking(producer.Producer.flush)


async def _outcome(future: producer.SendFuture, seconds: float | None) -> RecordMetadata:
    async with asyncio.timeout(seconds):
        return await future
