"""Blocking Consumer; heartbeats and fetches continue while the program works.

The functions of a rebalance listener run in the thread that polls or closes, so they may call the
consumer's methods:

    thread of the application: poll --> waits for a result or a call --> listener --> waits again
    loop's thread:                          poll needs the listener --'      '--> poll goes on
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from sharegroup.client.consume import consumer
from sharegroup.client.consume.consumer import CLOSE_SECONDS, ITERATION_SECONDS
from sharegroup.client.consume.consumer_record import ConsumerRecord
from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.net import telemetry
from sharegroup.client.records import (
    IllegalStateError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from sharegroup.client.settings.plain_consumer_config import ConsumerOptions
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking, plain
from sharegroup.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class _Call(NamedTuple):
    """A function of the listener to call, and the future of the poll that waits for it."""

    function: Callable[..., Any]
    partitions: frozenset[TopicPartition]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Consumer(BlockingClient[consumer.Consumer]):
    """Reads partitions of topics, as a member of a consumer group or alone, with blocking methods.

    The methods are those of `sharegroup.client.Consumer`.  One thread may poll.  The functions of
    a rebalance listener are plain functions here; they run in the thread that polls or closes.

    Example::

        with Consumer(
            "orders",
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            for record in consumer.poll(timeout=10):
                print(record.partition, record.offset, record.value)
            consumer.commit()
    """

    def __init__(
        self,
        *topics: str,
        listener: RebalanceListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        client = consumer.Consumer(*topics, listener=listener, **options)
        super().__init__(client, client._config.client_id)
        self._events: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        """Calls of the listener for the thread that waits, and None when its result is there."""
        client._call_listener = self._hand_over
        self._unreturned: pa.RecordBatch | None = None
        """The batch of a `poll_arrow` that has not returned it yet."""

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        # After an exception the records of the last poll are probably not all processed.
        self.close(commit=error is None)

    def close(self, timeout: float = CLOSE_SECONDS, *, commit: bool = True) -> None:
        """Commit automatically if configured, call the listener, and leave the group.

        ``commit=False`` leaves out the automatic commit.  Failures are logged: the offsets since
        the last commit are read again, and the membership ends after its timeout.
        """
        if self._claims_close():
            try:
                self._run(self._client.close(timeout, commit=commit))
            finally:  # Also after an error of the listener.
                self._end(_nothing())

    def subscribe(
        self,
        *topics: str | Iterable[str],
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose names match a pattern.

        `sharegroup.client.Consumer.subscribe` explains patterns.
        """
        LOOP_THREAD.run(self._subscribe(topics, pattern, listener))

    async def _subscribe(
        self,
        topics: tuple[str | Iterable[str], ...],
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener | None,
    ) -> None:
        self._client.subscribe(*topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """End the subscription or assignment; the consumer stays usable."""
        self._run(self._client.unsubscribe())

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return records as soon as there are any, or an empty list after ``timeout`` seconds.

        At most ``max_records`` are returned (default: ``max_poll_records``).
        """
        records = self._run(self._poll(timeout, max_records))
        with LOOP_THREAD.lock:
            unyielded = self._client._unyielded
            del unyielded[len(unyielded) - len(records) :]
        return records

    def poll_arrow(
        self, timeout: float = 1.0, max_records: int | None = None
    ) -> pa.RecordBatch | None:
        """Return records as one Arrow batch, or None when none came within ``timeout`` seconds.

        `sharegroup.client.Consumer.poll_arrow` describes the columns.
        """
        try:
            batch = self._run(self._poll_arrow(timeout, max_records))
        except BaseException:
            LOOP_THREAD.run(self._give_back())
            raise
        self._unreturned = None
        return batch

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records one by one, without end, as ``async for`` does in the asyncio client."""
        while True:
            self._run(self._poll(ITERATION_SECONDS, None))
            while True:
                with LOOP_THREAD.lock:
                    # Looked up for each record: a seek or a rebalance replaces the list.
                    unyielded = self._client._unyielded
                    if not unyielded:
                        break
                    record = unyielded.pop()
                yield record

    @property
    def group_id(self) -> str | None:
        """The id of the consumer group; None without a group."""
        return self._client.group_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; for a pattern of this client, those that match it now."""
        with LOOP_THREAD.lock:
            return self._client.subscription

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read; a rebalance changes them during `poll` only."""
        with LOOP_THREAD.lock:
            return self._client.assignment

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` was called for."""
        with LOOP_THREAD.lock:
            return self._client.paused

    @property
    def member_id(self) -> str:
        """The id of this member of its group; with the classic protocol, empty before it joins."""
        return self._client.member_id

    @property
    def coordinator_error(self) -> KafkaError | None:
        """The error of the last request to the group coordinator, which is retried; or None."""
        return self._client.coordinator_error

    health = plain(consumer.Consumer.health)
    group_metadata = plain(consumer.Consumer.group_metadata)
    positions = plain(consumer.Consumer.positions)
    start = blocking(consumer.Consumer.start)
    register_metric_for_subscription = plain(telemetry.register_metric_for_subscription)
    unregister_metric_from_subscription = plain(telemetry.unregister_metric_from_subscription)
    commit = blocking(consumer.Consumer.commit)
    committed = blocking(consumer.Consumer.committed)
    position = blocking(consumer.Consumer.position)
    beginning_offsets = blocking(consumer.Consumer.beginning_offsets)
    end_offsets = blocking(consumer.Consumer.end_offsets)
    offsets_for_times = blocking(consumer.Consumer.offsets_for_times)
    assign = plain(consumer.Consumer.assign)
    seek = plain(consumer.Consumer.seek)
    seek_to_beginning = plain(consumer.Consumer.seek_to_beginning)
    seek_to_end = plain(consumer.Consumer.seek_to_end)
    seek_to_time = plain(consumer.Consumer.seek_to_time)
    pause = plain(consumer.Consumer.pause)
    resume = plain(consumer.Consumer.resume)
    lag = plain(consumer.Consumer.lag)
    end_offset = plain(consumer.Consumer.end_offset)
    wakeup = plain(consumer.Consumer.wakeup)

    async def _poll(self, timeout: float, max_records: int | None) -> list[ConsumerRecord]:  # noqa: ASYNC109
        records = await self._client.poll(timeout, max_records)
        # Until they are returned, they count as not yielded: an interrupt neither loses them nor
        # lets `commit` commit offsets behind them.
        self._client._unyielded += records[::-1]
        return records

    async def _poll_arrow(
        self,
        timeout: float,  # noqa: ASYNC109
        max_records: int | None,
    ) -> pa.RecordBatch | None:
        batch = self._unreturned = await self._client.poll_arrow(timeout, max_records)
        return batch

    async def _give_back(self) -> None:
        """Go back to the first records of a batch that an interrupt has kept from the caller.

        The cancellation of its poll comes before this in the loop, so the poll has ended.
        """
        batch, self._unreturned = self._unreturned, None
        if batch is None:
            return
        names = ("topic", "partition", "offset", "leader_epoch")
        first: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic, partition, offset, epoch in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            where = TopicPartition(topic, partition)
            first.setdefault(where, OffsetAndMetadata(offset, "", epoch))
        for where in first.keys() & self._client.assignment:
            self._client.seek(where, first[where])

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop's thread, and the calls of the listener in this one."""
        if self._client._listener is None:
            return LOOP_THREAD.run(coroutine)
        # A new queue, because an interrupted call may have left events behind.
        events = self._events = queue.SimpleQueue()
        future = LOOP_THREAD.submit(coroutine)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                self._call(event)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    async def _hand_over(
        self, function: Callable[..., Any], partitions: frozenset[TopicPartition]
    ) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._events.put(_Call(function, partitions, loop, done))
        await done

    def _call(self, call: _Call) -> None:
        """Call a function of the listener; an exception of it is raised by the poll."""
        failure: Exception | None = None
        try:
            result = call.function(call.partitions)
        except Exception as error:  # noqa: BLE001  The application's; `poll` raises it.
            failure = error
        else:
            if inspect.iscoroutine(result):
                result.close()
                failure = IllegalStateError(
                    f"{call.function!r} is a coroutine function; the listener of a blocking "
                    "Consumer needs plain functions"
                )

        def finish() -> None:
            if call.done.done():
                return
            if failure is None:
                call.done.set_result(None)
            else:
                call.done.set_exception(failure)

        call.loop.call_soon_threadsafe(finish)


async def _nothing() -> None:
    """Do nothing: the client is closed already, and only the loop's thread is left."""
