"""Producer: batches of records to the leaders of their partitions, each written once.

    send --> partition queue --> request to the leader --> RecordMetadata, or an error
      waits while buffer_bytes are used      retries, in order, without doubles

`send` puts a record into the open batch of its partition and returns; the sender takes the
batches that are full or have lingered.  What may be retried is, over reconnects and broker
restarts, until ``delivery_timeout_ms``; the numbering that makes this safe is explained in
`partition_queue`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from sharegroup.client.client_metrics import PRODUCER
from sharegroup.client.cluster import Cluster, Topic
from sharegroup.client.config import ProducerConfig, ProducerOptions, config_from
from sharegroup.client.partition_queue import (
    RECORD_OVERHEAD_BYTES,
    Batch,
    PartitionQueue,
    RawRecord,
)
from sharegroup.client.partitioner import StickyPartition, partition_for_key
from sharegroup.client.records import Header, IllegalStateError, RecordMetadata, TopicPartition
from sharegroup.client.sender import Sender
from sharegroup.errors import (
    MessageTooLarge,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
)

CLOSE_SECONDS = 30.0


class Delivery:
    """The outcome of one `send`: awaiting it gives the RecordMetadata, or raises the error."""

    __slots__ = ("_batch", "_index", "_timestamp_ms", "fills_batch")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int, *, fills_batch: bool) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self.fills_batch = fills_batch
        """Whether its batch leaves with it."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        # Many records share the batch's future: cancelling one waiter must not cancel it.
        yield from asyncio.shield(self._batch.done).__await__()
        return self.result()

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done.done()

    def exception(self) -> BaseException | None:
        """Why it was not written, or None: it was; InvalidStateError while that is not known."""
        return self._batch.done.exception()

    def result(self) -> RecordMetadata:
        """The outcome; InvalidStateError while it is not known."""
        written = self._batch.done.result()
        known = written.base_offset >= 0
        return RecordMetadata(
            self._batch.where.topic,
            self._batch.where.partition,
            written.base_offset + self._index if known else -1,
            self._timestamp_ms if written.log_append_ms < 0 else written.log_append_ms,
        )


class Producer:
    """Sends records; idempotent and ``acks="all"`` unless told otherwise.

    Example::

        async with Producer(bootstrap_servers=bootstrap) as producer:
            delivery = await producer.send("orders", b"one apple", key=b"customer-7")
            print((await delivery).offset)
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        self._config = config_from(ProducerConfig, options)
        self._batch_bytes = min(self._config.batch_bytes, self._config.request_bytes_max)
        self._cluster = Cluster(self._config)
        self._sender = Sender(self._cluster, self._config, finished=self._finished)
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
        """As the brokers know this client."""
        return self._config.client_id

    def metrics(self) -> dict[str, dict[str, float]]:
        """What this client counted and measured, by Kafka's groups and names."""
        return self._cluster.metrics.read()

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
    ) -> Delivery:
        """Queue one record; returns as soon as it has a place, waits while there is none.

        Without ``partition`` equal keys go to one partition, the same as with Kafka's Java
        producer.  Order within a partition is the order of the calls.
        """
        if self._runner is None:
            self._check_running()
            self._loop = asyncio.get_running_loop()
            self._runner = self._loop.create_task(self._run(), name="producer")
        while (
            delivery := self.send_now(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )
        ) is None:  # fmt: skip
            if self._cluster.last_known_topic(topic) is None:
                limit_ms = self._config.max_block_ms
                await self._cluster.topic(topic, create=True, timeout_ms=limit_ms)
            else:
                await self._wait_for_space(_size(key, value, headers))
        if delivery.fills_batch:
            # A loop of sends that never waits would keep the sender from running.
            await asyncio.sleep(0)
        return delivery

    def send_now(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery | None:
        """`send` without waiting; None when that is impossible.

        That is before the first `send`, while its topic is not known, and while there is no room.
        """
        self._check_running()
        size = _size(key, value, headers)
        if size > self._config.request_bytes_max:
            raise MessageTooLarge(
                f"topic {topic!r}: a record of {size} bytes; request_bytes_max is "
                f"{self._config.request_bytes_max}"
            )
        known = self._cluster.last_known_topic(topic)
        has_room = self._buffered_bytes + size <= self._config.buffer_bytes
        if known is None or not has_room or self._runner is None:
            return None
        if timestamp_ms is None:
            stamp = time.time_ns() // 1_000_000
        else:
            stamp = _checked_timestamp(timestamp_ms)
        where = TopicPartition(topic, self._partition(known, key, partition))
        batch, is_full = self._append(where, (key, value, stamp, headers), size)
        return Delivery(batch, len(batch.records) - 1, stamp, fills_batch=is_full)

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
        """`send`, and wait for the outcome."""
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
        """Wait until everything sent so far has an outcome; each outcome is its delivery's."""
        pending = [batch.done for batch in self._unfinished]
        if not pending:
            return
        self._sender.flushing += 1
        self._sender.wake()
        try:
            await asyncio.wait(pending)
        finally:
            self._sender.flushing -= 1

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
    ) -> None:
        """Flush for up to ``timeout`` seconds; what is left then fails with NetworkException."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            pass  # Every batch that is left gets its error below.
        finally:
            self._cluster.close()
            self._sender.stop()
        if self._runner is not None:
            await self._runner

    async def _run(self) -> None:
        """The sender; when it ends, for whatever reason, nobody waits for an outcome in vain."""
        reason = "the producer was closed"
        try:
            await self._sender.run()
        except ExceptionGroup as group:
            # A fault of this library: whoever calls next gets it as it was raised.
            error = first_of(group)
            reason = f"the producer failed: {error!r}"
            raise error from None
        finally:
            for batch in list(self._unfinished):
                self._finished(batch)
                text = f"topic {batch.where.topic!r} partition {batch.where.partition}: {reason}"
                batch.done.set_exception(NetworkException(text))
                # Who does not wait for an outcome does not want to read of it at exit.
                batch.done.exception()

    def _check_running(self) -> None:
        if self._closed:
            raise IllegalStateError("this producer is closed")
        if self._runner is not None and self._runner.done():
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
        return self._sticky_of(topic.name).current(count)

    def _sticky_of(self, topic: str) -> StickyPartition:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartition(chance=random.random)
        return sticky

    def _append(
        self,
        where: TopicPartition,
        record: RawRecord,
        size: int,
    ) -> tuple[Batch, bool]:
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = PartitionQueue(
                where,
                batch_bytes=self._batch_bytes,
                under_way_max=self._config.in_flight_max,
                idempotent=self._config.idempotent,
            )
        batch = queue.open_batch(size)
        if batch is None:
            assert self._loop is not None, "the first record is sent by a running loop"
            done = self._loop.create_future()
            batch = Batch(queue, done, time.monotonic())
            queue.waiting.append(batch)
            self._unfinished.add(batch)
            self._sender.activate(queue)
            self._sender.wake()
        batch.records.append(record)
        batch.bytes += size
        self._buffered_bytes += size
        is_full = batch.bytes >= self._batch_bytes or len(queue.waiting) > 1
        if is_full and record[0] is None:
            known = self._cluster.last_known_topic(where.topic)
            self._sticky_of(where.topic).move_on(len(known.leaders) if known else 1)
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
                f"no room for {size} bytes in {limit_ms} ms: {self._buffered_bytes} of "
                f"buffer_bytes={self._config.buffer_bytes} are in use"
            ) from None

    def _finished(self, batch: Batch) -> None:
        self._unfinished.discard(batch)
        self._buffered_bytes -= batch.bytes
        self._space.set()


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The first error that is none of errors."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """About how many bytes a record takes.

    What could not be encoded is found here, where its sender is told, and not in the batch that
    it would share with others.
    """
    size = RECORD_OVERHEAD_BYTES
    for name, part in (("key", key), ("value", value)):
        if part is not None:
            if not isinstance(part, bytes):
                raise TypeError(f"{name}: expected bytes or None, got {type(part).__name__}")
            size += len(part)
    if isinstance(headers, dict):
        raise TypeError("headers: expected (name, value) pairs, got dict; pass its items()")
    for title, content in headers:
        if not isinstance(title, str):
            raise TypeError(f"a header's name: expected str, got {type(title).__name__}")
        if content is not None and not isinstance(content, bytes):
            raise TypeError(
                f"header {title!r}: expected bytes or None, got {type(content).__name__}"
            )
        size += len(title.encode()) + (0 if content is None else len(content)) + 4
    return size


def _checked_timestamp(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms: expected int, got {type(timestamp_ms).__name__}")
    if not 0 <= timestamp_ms < 2**63:
        raise ValueError(f"timestamp_ms={timestamp_ms}; expected 0 to 2**63 - 1")
    return timestamp_ms
