"""Producer: sends batches of records to partition leaders, and writes each batch once.

    send --> partition queue --> request to the leader --> RecordMetadata, or an error
      waits while buffer_bytes are used      retries, in order, without doubles

`send` puts a record into the open batch of its partition and returns.  The sender takes the
batches that are full or have lingered.  Retriable failures are retried, over reconnects and
broker restarts, until ``delivery_timeout_ms``.  `partition_queue` explains the sequence numbers
that make this safe.  With a ``transactional_id`` the records of a block are committed together;
see `transaction_state` and `transactions`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from sharegroup.client.metrics.client_metrics import PRODUCER
from sharegroup.client.net import telemetry
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.produce.partition_queue import (
    RECORD_OVERHEAD_BYTES,
    Batch,
    PartitionQueue,
    RawRecord,
    Written,
)
from sharegroup.client.produce.partitioner import StickyPartition, partition_for_key
from sharegroup.client.produce.sender import Sender
from sharegroup.client.produce.transaction import Transaction
from sharegroup.client.produce.transaction_state import ProducerTransactions
from sharegroup.client.produce.transactions import Transactions
from sharegroup.client.records import (
    ConsumerGroupMetadata,
    Header,
    IllegalStateError,
    Offsets,
    RecordMetadata,
    TopicPartition,
    checked_offsets,
)
from sharegroup.client.settings.client_config import ProducerConfig, ProducerOptions, config_from
from sharegroup.errors import (
    BatchRefused,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
    first_error,
)

if TYPE_CHECKING:
    # Imported for its type alone: few producers send such records.
    from sharegroup.wire.batches.record_contents import EncodedRecord

CLOSE_SECONDS = 30.0
UNCONFIRMED_SECONDS = 5.0
"""How long `Producer.close` waits, after its ``timeout``, for brokers that confirm nothing."""


class SendFuture:
    """A future for the RecordMetadata of one sent record: await it for the metadata or error."""

    __slots__ = ("_batch", "_index", "_timestamp_ms", "fills_batch")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int, *, fills_batch: bool) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self.fills_batch = fills_batch
        """Whether this record completed its batch, so the batch is sent without lingering."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        # Many records share the batch's future: cancelling one waiter must not cancel it.
        try:
            yield from asyncio.shield(self._batch.done).__await__()
        except KafkaError:
            pass  # `result` raises the error of this record.
        except asyncio.CancelledError:
            # The caller has given up: asyncio must not log an error that comes later.
            self._batch.done.add_done_callback(_retrieved)
            raise
        return self.result()

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done.done()

    def exception(self) -> BaseException | None:
        """The error of the record, or None if it was written.

        Raises InvalidStateError while the outcome is not known.
        """
        error = self._batch.done.exception()
        record_errors = self._batch.record_errors
        if error is None or not record_errors:
            return error
        if self._index in record_errors:
            return record_errors[self._index]
        where = self._batch.where
        refused = BatchRefused(
            f"topic {where.topic!r} partition {where.partition}: the broker refused the batch for "
            f"{len(record_errors)} other records: {error}"
        )
        refused.__cause__ = error
        return refused

    def result(self) -> RecordMetadata:
        """Return the RecordMetadata, or raise the record's error.

        Raises InvalidStateError while the outcome is not known.
        """
        if self._batch.record_errors and (error := self.exception()) is not None:
            raise error
        written = self._batch.done.result()
        is_offset_known = written.base_offset >= 0
        return RecordMetadata(
            self._batch.where.topic,
            self._batch.where.partition,
            written.base_offset + self._index if is_offset_known else -1,
            self._timestamp_ms if written.log_append_ms < 0 else written.log_append_ms,
        )


def _retrieved(done: asyncio.Future[Written]) -> None:
    """Mark the exception of a future as retrieved."""
    if not done.cancelled():
        done.exception()


class Producer:
    """Sends records to topics; by default it is idempotent with ``acks="all"``.

    Example::

        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            future = await producer.send("orders", b"one apple", key=b"customer-7")
            print((await future).offset)

    Tests replace ``cluster``, the connections to the brokers, which then gets no metrics, and
    ``monotonic``, a clock in seconds.
    """

    def __init__(
        self,
        *,
        cluster: Cluster | None = None,
        monotonic: Callable[[], float] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._config = config_from(ProducerConfig, options)
        self._batch_bytes = min(self._config.batch_bytes, self._config.request_bytes_max)
        self._cluster = cluster or Cluster(self._config)
        self._telemetry = telemetry.Telemetry(self._cluster, self._labels)
        self._pushes_metrics = cluster is None
        self._monotonic = monotonic or time.monotonic
        name = self._config.transactional_id
        state = None if name is None else ProducerTransactions(name)
        self._sender = Sender(
            self._cluster,
            self._config,
            finished=self._finished,
            monotonic=self._monotonic,
            transaction=state,
        )
        self._transactions = None if state is None else self._made_transactions(state)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._unfinished: set[Batch] = set()
        self._buffered_bytes = 0
        self._space = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closed = False
        room = self._config.buffer_bytes
        metrics = self._cluster.metrics
        metrics.gauge(PRODUCER, "buffer-total-bytes", lambda: room)
        metrics.gauge(PRODUCER, "buffer-available-bytes", lambda: room - self._buffered_bytes)
        metrics.gauge(PRODUCER, "requests-in-flight", lambda: self._sender.requests_under_way)

    @property
    def client_id(self) -> str:
        """The client id in the brokers' logs and metrics."""
        return self._config.client_id

    @property
    def is_confirmed(self) -> bool:
        """Whether brokers confirm records; not with ``acks=0``."""
        return self._config.acks_number != 0

    metrics = telemetry.metrics
    client_instance_id = telemetry.client_instance_id
    register_metric_for_subscription = telemetry.register_metric_for_subscription
    unregister_metric_from_subscription = telemetry.unregister_metric_from_subscription

    def _labels(self) -> dict[str, str]:
        name = self._config.transactional_id
        return {} if name is None else {"transactional_id": name}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
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

        Waits at most ``max_block_ms`` for the topic's metadata and as long for buffer space, then
        raises RequestTimedOut.  Without ``partition`` equal keys go to one partition, the same as
        with Kafka's Java producer.  Order within a partition is the order of the calls.
        """
        self._start()
        headers = taken_headers(headers)
        future = self.send_now(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        if future is None:
            again = partial(
                self.send_now, topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )  # fmt: skip
            future = await self._when_possible(topic, _size(key, value, headers), again)
        if future.fills_batch:
            # Let the sender run: a loop of sends might not wait for anything else.
            await asyncio.sleep(0)
        return future

    async def send_content(
        self, topic: str, content: bytes, *, key: bytes | None, partition: int | None
    ) -> SendFuture:
        """Queue a record like `send` whose content is encoded by `record_content` already.

        ``key``, which is part of the content, chooses the partition as in `send`.
        """
        self._start()
        future = self._send_content_now(topic, content, key, partition)
        if future is None:
            again = partial(self._send_content_now, topic, content, key, partition)
            size = len(content) + RECORD_OVERHEAD_BYTES
            future = await self._when_possible(topic, size, again)
        return future

    async def _when_possible(
        self, topic: str, size: int, send_now: Callable[[], SendFuture | None]
    ) -> SendFuture:
        """Wait for what `send_now` lacks, until it has queued the record."""
        state = None if self._transactions is None else self._transactions.state
        number = 0 if state is None else state.number
        while True:
            if self._cluster.last_known_topic(topic) is None:
                await self._cluster.topic(
                    topic,
                    create=self._config.allow_auto_create_topics,
                    timeout_ms=self._config.max_block_ms,
                )
            else:
                await self._wait_for_space(size)
            if state is not None:
                # Meanwhile another task may have ended the transaction and begun the next.
                state.check_same(number)
            # Again and again, because after each wait another task may have taken the room.
            if (future := send_now()) is not None:
                return future

    def send_now(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture | None:
        """Queue one record without waiting; return None if that is not possible.

        It is not possible before the first `send`, while the topic's metadata is unknown, and
        while the buffer has no room.
        """
        self._check_running()
        if self._transactions is not None:
            self._transactions.state.check_open("send")
        headers = taken_headers(headers)
        size = _size(key, value, headers)
        known_topic = self._known_topic_with_room(topic, size)
        if known_topic is None:
            return None
        if timestamp_ms is None:
            stamp = time.time_ns() // 1_000_000
        else:
            stamp = _checked_timestamp(timestamp_ms)
        where = TopicPartition(topic, self._partition(known_topic, key, partition))
        batch, is_full = self._append(where, (key, value, stamp, headers), size, key)
        return SendFuture(batch, len(batch.records) - 1, stamp, fills_batch=is_full)

    def _send_content_now(
        self, topic: str, content: bytes, key: bytes | None, partition: int | None
    ) -> SendFuture | None:
        self._check_running()
        if self._transactions is not None:
            self._transactions.state.check_open("send")
        size = len(content) + RECORD_OVERHEAD_BYTES
        known_topic = self._known_topic_with_room(topic, size)
        if known_topic is None:
            return None
        stamp = time.time_ns() // 1_000_000
        where = TopicPartition(topic, self._partition(known_topic, key, partition))
        batch, is_full = self._append(where, (content, stamp), size, key, has_contents=True)
        return SendFuture(batch, len(batch.records) - 1, stamp, fills_batch=is_full)

    def _known_topic_with_room(self, topic: str, size: int) -> Topic | None:
        """Return the topic; None if its metadata is unknown, or the buffer has no room."""
        if size > self._config.request_bytes_max:
            raise MessageTooLarge(
                f"topic {topic!r}: the record has {size} bytes; request_bytes_max is "
                f"{self._config.request_bytes_max}"
            )
        has_room = self._buffered_bytes + size <= self._config.buffer_bytes
        is_possible = has_room and self._runner is not None
        return self._cluster.last_known_topic(topic) if is_possible else None

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until the broker has confirmed it."""
        return await (
            await self.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    async def flush(self) -> None:
        """Wait until every record sent so far has an outcome.

        Errors are not raised here; each SendFuture has its own.
        """
        pending = [batch.done for batch in self._unfinished]
        if not pending:
            return
        self._sender.flushing += 1
        self._sender.wake()
        try:
            await asyncio.wait(pending)
        finally:
            self._sender.flushing -= 1

    # Transactions.

    def transaction(self) -> Transaction:
        """Return a transaction for ``async with``: committed at its end, aborted by an exception.

        A producer has one transaction at a time.  Records that are sent meanwhile by other tasks
        belong to it; `send` outside of a transaction raises IllegalStateError.
        """
        self._transactional()
        return Transaction(self)

    async def init_transactions(self) -> None:
        """Get the producer id, which ends open transactions of the transactional id and fences
        older producers with it.

        The first transaction does so.  A program that reads its committed offsets first calls this
        before, so that no older instance changes them any more.
        """
        transactions = self._transactional()
        self._start()
        await transactions.initialize()

    async def begin_transaction(self) -> None:
        """Open a transaction; `transaction` does so, and ends it."""
        transactions = self._transactional()
        self._start()
        await transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets of a consumer group with the open transaction.

        Each is the offset of the next record to read.
        """
        await self._transactional().send_offsets(checked_offsets(offsets), group_metadata)

    async def commit_transaction(self) -> None:
        """Send what is left and commit; until then no reader of committed records sees any.

        Raises TransactionAbortable if a record or offset failed: the transaction must be aborted.
        If it raises RequestTimedOut or is cancelled, the commit goes on: call it again to learn
        its outcome.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the open transaction; records that were not sent fail with TransactionAborted."""
        await self._transactional().abort()

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, so that it can be committed or aborted."""
        return self._transactions is not None and self._transactions.state.is_open

    def _made_transactions(self, state: ProducerTransactions) -> Transactions:
        transactions = Transactions(
            self._cluster,
            self._config,
            state,
            flush=self._flush_transaction,
            abort_batches=self._sender.abort_batches,
        )
        self._sender.add_partitions = transactions.add_partitions
        return transactions

    async def _flush_transaction(self) -> None:
        await self.flush()
        await self._sender.partitions_added()

    def _transactional(self) -> Transactions:
        self._check_running()
        if self._transactions is None:
            raise IllegalStateError(
                "this producer has no transactions: give it a transactional_id when you make it"
            )
        return self._transactions

    # Its life.

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
    ) -> None:
        """Flush for up to ``timeout`` seconds; records left then fail with NetworkException.

        An open transaction is aborted.  With ``acks=0`` it takes up to `UNCONFIRMED_SECONDS` more
        until the brokers have what was sent.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(timeout):
                if self._transactions is not None:
                    await self._transactions.end_before_closing()
                await self.flush()
                await self._telemetry.stop()
        except TimeoutError:
            pass  # `_run` fails the remaining batches when the sender stops.
        finally:
            try:
                if not self.is_confirmed:
                    await self._hand_over()
            finally:
                # The connections first: the sender waits for its requests, which fail with them.
                self._cluster.close()
                self._sender.stop()
        if self._runner is not None:
            await self._runner

    async def _hand_over(self) -> None:
        """Wait until the brokers have what counts as sent already, because nobody confirms it.

        Also without a ``timeout`` of `close`: what was reported as sent would be abandoned.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(UNCONFIRMED_SECONDS):
                await self._cluster.finish()

    async def _run(self) -> None:
        """Run the sender; when it ends, fail the unfinished batches so that no waiter hangs."""
        reason = "the producer was closed"
        try:
            async with asyncio.TaskGroup() as tasks:
                background = []
                if self._transactions is not None:
                    background.append(tasks.create_task(self._transactions.run()))
                if self._pushes_metrics:
                    background.append(tasks.create_task(self._telemetry.run()))
                await self._sender.run()
                for task in background:
                    task.cancel()
        except ExceptionGroup as group:
            # A bug in this library: the next call raises the original exception.
            error = first_error(group)
            reason = f"the producer failed: {error!r}"
            raise error from None
        finally:
            if self._transactions is not None:
                self._transactions.close(NetworkException(reason))
            for batch in list(self._unfinished):
                self._finished(batch)
                text = f"topic {batch.where.topic!r} partition {batch.where.partition}: {reason}"
                if batch.error is not None:
                    text += f"; last error: {batch.error}"
                batch.done.set_exception(NetworkException(text))
                # Marks the exception as retrieved: asyncio must not log it at exit.
                batch.done.exception()

    def _start(self) -> None:
        if self._runner is None:
            self._check_running()
            self._loop = asyncio.get_running_loop()
            self._runner = self._loop.create_task(self._run(), name="producer")

    def _check_running(self) -> None:
        if self._closed:
            raise IllegalStateError("this producer is closed")
        if self._runner is not None and self._runner.done():
            # It ends before `close` only by a mistake of this library, which is raised here.
            self._runner.result()

    def _partition(self, topic: Topic, key: bytes | None, partition: int | None) -> int:
        count = len(topic.leaders)
        if partition is not None:
            if not isinstance(partition, int):
                raise TypeError(f"partition: expected int, got {type(partition).__name__}")
            if not 0 <= partition < count:
                raise UnknownTopicOrPartition(
                    f"topic {topic.name!r} has partitions 0 to {count - 1}; asked for {partition}"
                )
            return partition
        if key is not None:
            return partition_for_key(key, count)
        sticky = self._sticky_of(topic.name)
        current = sticky.current(topic.leaders)
        if self._cluster.is_doubtful(topic.leaders[current]):
            # Metadata names a dead broker as the leader until the cluster has noticed its death.
            sticky.move_on(self._cluster.answering_leaders(topic))
            current = sticky.current(topic.leaders)
        return current

    def _sticky_of(self, topic: str) -> StickyPartition:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartition(chance=random.random)
        return sticky

    def _append(
        self,
        where: TopicPartition,
        record: RawRecord | EncodedRecord,
        size: int,
        key: bytes | None,
        *,
        has_contents: bool = False,
    ) -> tuple[Batch, bool]:
        if self._transactions is not None:
            self._transactions.state.add_partition(where)
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = PartitionQueue(
                where,
                batch_bytes=self._batch_bytes,
                under_way_max=self._config.in_flight_max,
                idempotent=self._config.idempotent,
            )
        batch = queue.open_batch(size, has_contents)
        if batch is None:
            assert self._loop is not None, "the first record is sent by a running loop"
            future = self._loop.create_future()
            batch = Batch(queue, future, self._monotonic(), has_contents=has_contents)
            queue.waiting.append(batch)
            self._unfinished.add(batch)
            self._sender.activate(queue)
            self._sender.wake()
        batch.records.append(record)
        batch.bytes += size
        self._buffered_bytes += size
        # A second batch is opened only if this record cannot go into the one before.
        is_full = batch.bytes >= self._batch_bytes or len(queue.waiting) > 1
        # KIP-480: another partition when a batch is full, not for each record.
        if is_full and key is None:
            known_topic = self._cluster.last_known_topic(where.topic)
            self._sticky_of(where.topic).move_on(known_topic.leaders if known_topic else (0,))
        if is_full:
            self._sender.wake()
        return batch, is_full

    async def _wait_for_space(self, size: int) -> None:
        limit_ms = self._config.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while self._buffered_bytes + size > self._config.buffer_bytes:
                    self._space.clear()
                    await self._space.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"no room for {size} bytes within {limit_ms} ms: {self._buffered_bytes} of "
                f"buffer_bytes={self._config.buffer_bytes} are in use"
            ) from None

    def _finished(self, batch: Batch) -> None:
        self._unfinished.discard(batch)
        self._buffered_bytes -= batch.bytes
        self._space.set()


def taken_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the headers as they are now; a tuple is returned as it is.

    A batch is encoded later.  Until then the caller may change its list, or give the same one to
    the next record; at run time the headers may also be an iterator, which is read once.
    """
    if isinstance(headers, dict):
        raise TypeError("headers: expected (name, value) pairs, got dict; pass its items()")
    return tuple(headers)


def _size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the approximate size of a record in bytes, and check the types of its parts.

    A record that cannot be encoded is refused here, to its own sender.  Later it would fail the
    batch that it shares with other records.
    """
    size = RECORD_OVERHEAD_BYTES
    for name, content in (("key", key), ("value", value)):
        if content is not None:
            if not isinstance(content, bytes):
                raise TypeError(f"{name}: expected bytes or None, got {type(content).__name__}")
            size += len(content)
    for header_name, header_value in headers:
        if not isinstance(header_name, str):
            raise TypeError(f"a header's name: expected str, got {type(header_name).__name__}")
        if header_value is not None and not isinstance(header_value, bytes):
            raise TypeError(
                f"header {header_name!r}: expected bytes or None, got {type(header_value).__name__}"
            )
        # Most names are ASCII, whose characters are bytes.
        size += len(header_name if header_name.isascii() else header_name.encode()) + 4
        if header_value is not None:
            size += len(header_value)
    return size


def _checked_timestamp(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms: expected int, got {type(timestamp_ms).__name__}")
    # Brokers accept negative ones, so what a consumer reads can be sent on; -1 means no timestamp.
    if not -(2**63) <= timestamp_ms < 2**63:
        raise ValueError(f"timestamp_ms={timestamp_ms}; expected -(2**63) to 2**63 - 1")
    return timestamp_ms
