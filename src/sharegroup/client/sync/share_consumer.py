"""Blocking ShareConsumer; heartbeats and fetches continue while the program works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Unpack

from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.net import telemetry
from sharegroup.client.records import (
    AcknowledgementResult,
    CloseReport,
    Flow,
    TopicPartition,
    topic_names,
)
from sharegroup.client.settings.consumer_config import ShareConsumerOptions
from sharegroup.client.share.consumer import share_consumer
from sharegroup.client.share.consumer.acknowledgement_results import AcknowledgementCallback
from sharegroup.client.share.consumer.record import Record, UnreadableRecord
from sharegroup.client.share.consumer.share_consumer import CLOSE_SECONDS, ITERATION_SECONDS
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking, plain
from sharegroup.durations import Duration
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import AcknowledgeType

if TYPE_CHECKING:
    import pyarrow as pa


class _Record(Record):
    """A record whose methods may be called from any thread, under the lock of `loop_thread`."""

    __slots__ = ()

    def accept(self) -> None:
        self.settle(AcknowledgeType.ACCEPT)

    def release(self, *, delay: Duration | None = None) -> None:
        with LOOP_THREAD.lock:
            Record.release(self, delay=delay)
        LOOP_THREAD.wake()

    def reject(self) -> None:
        self.settle(AcknowledgeType.REJECT)

    def renew(self) -> None:
        self.settle(AcknowledgeType.RENEW)

    def settle(self, acknowledge_type: AcknowledgeType) -> None:
        with LOOP_THREAD.lock:
            Record.settle(self, acknowledge_type)
        LOOP_THREAD.wake()


class _UnreadableRecord(UnreadableRecord):
    """A record that could not be deserialized, with methods for any thread."""

    __slots__ = ()
    accept, release, reject = _Record.accept, _Record.release, _Record.reject
    renew, settle = _Record.renew, _Record.settle


class ShareConsumer(BlockingClient[share_consumer.ShareConsumer]):
    """Consumes records of topics as a member of a share group, with blocking methods.

    The methods are those of `sharegroup.client.ShareConsumer`.  One thread may poll; records may
    be settled in any thread.

    Example::

        with ShareConsumer(
            "orders",
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            for record in consumer.poll(timeout=10):
                record.accept()
            consumer.commit()
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        client = share_consumer.ShareConsumer(*topics, **options)
        super().__init__(client, client._config.client_id)
        self._callback: AcknowledgementCallback | None = None
        self._outcomes: list[AcknowledgementResult] = []
        self._polled: list[Record] = []
        self._polled_batch: pa.RecordBatch | None = None

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> CloseReport:
        """Send outstanding acknowledgements, release unsettled records and leave the group.

        In implicit mode the records of the last poll are unsettled until the next `poll` or
        `commit`, so they are released, too.  Closing takes at most ``timeout`` seconds;
        `CloseReport.error` says if it is incomplete.
        """
        if not self._claims_close():
            return CloseReport()
        report = self._end(self._client.close(timeout))
        self._call_back()
        return report

    def subscribe(self, *topics: str | Iterable[str]) -> None:
        """Subscribe to these topics instead of the topics subscribed to before.

        The topics may also be given as one list.  Without topics, and with an empty list, this is
        the same as `unsubscribe`, as in Kafka's own client.
        """
        names = topic_names(topics)
        if not names:
            self.unsubscribe()
            return
        with LOOP_THREAD.lock:
            self._client.subscribe(*names)
        LOOP_THREAD.wake()

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return records as soon as there are any, or an empty list after ``timeout`` seconds.

        At most ``max_records`` are returned (default: ``max_poll_records``).
        """
        if not self._polled:
            LOOP_THREAD.run(self._poll(timeout, max_records))
        records, self._polled = self._polled, []
        self._client._is_unreturned = self._polled_batch is not None
        self._call_back()
        return records

    def poll_arrow(
        self, timeout: float = 1.0, max_records: int | None = None
    ) -> pa.RecordBatch | None:
        """Return records as one Arrow batch, or None when none came within ``timeout`` seconds.

        `sharegroup.client.ShareConsumer.poll_arrow` describes the columns.
        """
        if self._polled_batch is None:
            LOOP_THREAD.run(self._poll_arrow(timeout, max_records))
        batch, self._polled_batch = self._polled_batch, None
        self._client._is_unreturned = bool(self._polled)
        return batch

    def __iter__(self) -> Iterator[Record]:
        """Yield records one by one, without end, as ``async for`` does in the asyncio client."""
        while True:
            yield from self.poll(ITERATION_SECONDS, self._client._iteration_size())

    def commit(
        self, timeout: float | None = None, *, wait: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send outstanding acknowledgements and return their outcome by partition.

        None means durable; `sharegroup.client.ShareConsumer.commit` explains the errors.
        """
        results = LOOP_THREAD.run(self._client.commit(timeout, wait=wait))
        self._call_back()
        return results

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Set the function that is called with every outcome; None removes it.

        It runs in the thread that polls, commits or closes.
        """
        self._callback = callback
        with LOOP_THREAD.lock:
            # Without a callback the asyncio client keeps the outcomes for the next `commit`.
            remember = None if callback is None else self._outcomes.append
            self._client.set_acknowledgement_commit_callback(remember)

    @property
    def group_id(self) -> str:
        """The id of the share group."""
        return self._client.group_id

    @property
    def member_id(self) -> str:
        """The member id, which this client generated."""
        return self._client.member_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        with LOOP_THREAD.lock:
            return self._client.subscription

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group coordinator assigned, as of the last heartbeat.

        Partitions of topics whose names are not in the metadata yet are left out.
        """
        with LOOP_THREAD.lock:
            return self._client.assignment

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The group's lock duration in milliseconds; None before the first fetch."""
        return self._client.acquisition_lock_timeout_ms

    @property
    def in_flight(self) -> int:
        """The number of records that are handed out and not settled."""
        with LOOP_THREAD.lock:
            return self._client.in_flight

    @property
    def flow(self) -> Flow:
        """The numbers of records that are requested, waiting and in flight, at this moment."""
        with LOOP_THREAD.lock:
            return self._client.flow

    health = plain(share_consumer.ShareConsumer.health)
    start = blocking(share_consumer.ShareConsumer.start)
    register_metric_for_subscription = plain(telemetry.register_metric_for_subscription)
    unregister_metric_from_subscription = plain(telemetry.unregister_metric_from_subscription)
    unsubscribe = blocking(share_consumer.ShareConsumer.unsubscribe)
    acknowledge = plain(share_consumer.ShareConsumer.acknowledge)
    accept = plain(share_consumer.ShareConsumer.accept)
    release = plain(share_consumer.ShareConsumer.release)
    reject = plain(share_consumer.ShareConsumer.reject)
    renew = plain(share_consumer.ShareConsumer.renew)
    acknowledge_offset = plain(share_consumer.ShareConsumer.acknowledge_offset)
    wakeup = plain(share_consumer.ShareConsumer.wakeup)

    async def _poll(self, timeout: float, max_records: int | None) -> list[Record]:  # noqa: ASYNC109
        # The records are kept until they are returned.  If an interrupt lost them, the next
        # poll or commit would accept them in implicit mode.
        records = await self._client.poll(timeout, max_records)
        for record in records:
            # Both classes have the same layout.  Choosing the class when records are decoded
            # would cost time in the asyncio client.
            record.__class__ = _UnreadableRecord if type(record) is UnreadableRecord else _Record
        self._polled = records
        self._client._is_unreturned = bool(records)
        return records

    async def _poll_arrow(
        self,
        timeout: float,  # noqa: ASYNC109
        max_records: int | None,
    ) -> pa.RecordBatch | None:
        # Kept for the same reason.
        batch = self._polled_batch = await self._client.poll_arrow(timeout, max_records)
        self._client._is_unreturned = batch is not None
        return batch

    def _call_back(self) -> None:
        while self._outcomes:
            outcome = self._outcomes.pop(0)
            if self._callback is not None:
                self._callback(outcome)
