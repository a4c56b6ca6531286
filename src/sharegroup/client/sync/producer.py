"""Blocking Producer, for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self, Unpack

from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.net import telemetry
from sharegroup.client.produce import producer
from sharegroup.client.produce.producer import CLOSE_SECONDS
from sharegroup.client.produce.transaction import Transaction as AsyncTransaction
from sharegroup.client.records import ConsumerGroupMetadata, Header, Offsets, RecordMetadata
from sharegroup.client.settings.client_config import ProducerOptions
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking, plain


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

    @property
    def is_confirmed(self) -> bool:
        """Whether brokers confirm records; not with ``acks=0``."""
        return self._client.is_confirmed

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Flush for up to ``timeout`` seconds; records left then fail with NetworkException."""
        if self._claims_close():
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
        headers = producer.taken_headers(headers)  # Both calls below need them.
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
    register_metric_for_subscription = plain(telemetry.register_metric_for_subscription)
    unregister_metric_from_subscription = plain(telemetry.unregister_metric_from_subscription)

    def transaction(self) -> Transaction:
        """Return a transaction for ``with``: committed at its end, aborted by an exception.

        The rules are those of `sharegroup.client.Producer.transaction`.
        """
        return Transaction(self._client.transaction())

    init_transactions = blocking(producer.Producer.init_transactions)
    begin_transaction = blocking(producer.Producer.begin_transaction)
    send_offsets_to_transaction = blocking(producer.Producer.send_offsets_to_transaction)
    commit_transaction = blocking(producer.Producer.commit_transaction)
    abort_transaction = blocking(producer.Producer.abort_transaction)
    is_in_transaction = plain(producer.Producer.is_in_transaction)


class Transaction:
    """One transaction, with blocking methods: see `sharegroup.client.Producer.transaction`."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> Self:
        LOOP_THREAD.run(self._transaction.__aenter__())
        return self

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        LOOP_THREAD.run(self._transaction.__aexit__(kind, error, trace))

    def send_offsets(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        """Commit offsets of a consumer group with this transaction."""
        LOOP_THREAD.run(self._transaction.send_offsets(offsets, group_metadata))

    def abort(self) -> None:
        """Abort now, without an error; the block may go on, but no longer send."""
        LOOP_THREAD.run(self._transaction.abort())


async def _outcome(future: producer.SendFuture, seconds: float | None) -> RecordMetadata:
    async with asyncio.timeout(seconds):
        return await future
