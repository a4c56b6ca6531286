"""ShareConsumer without an event loop: heartbeats and fetches go on while the program works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from sharegroup.client import share_consumer
from sharegroup.client.consumer_config import ShareConsumerOptions
from sharegroup.client.outcomes import AcknowledgementCallback
from sharegroup.client.records import (
    AcknowledgementResult,
    AcknowledgeType,
    CloseReport,
    Record,
    TopicPartition,
    UnreadableRecord,
)
from sharegroup.client.share_consumer import CLOSE_SECONDS, ITERATION_SECONDS
from sharegroup.client.sync.blocking import BlockingClient, ExceptionType, Trace, blocking, plain
from sharegroup.client.sync.loop_thread import LOOP_THREAD
from sharegroup.errors import KafkaError


class _Record(Record):
    """A record whose methods may be called from any thread: see `loop_thread`."""

    __slots__ = ()

    def accept(self) -> None:
        self.settle(AcknowledgeType.ACCEPT)

    def release(self) -> None:
        self.settle(AcknowledgeType.RELEASE)

    def reject(self) -> None:
        self.settle(AcknowledgeType.REJECT)

    def renew(self) -> None:
        self.settle(AcknowledgeType.RENEW)

    def settle(self, acknowledge_type: AcknowledgeType) -> None:
        with LOOP_THREAD.lock:
            Record.settle(self, acknowledge_type)
        LOOP_THREAD.wake()


class _UnreadableRecord(UnreadableRecord):
    """The same for a record that could not be read."""

    __slots__ = ()
    accept, release, reject = _Record.accept, _Record.release, _Record.reject
    renew, settle = _Record.renew, _Record.settle


class ShareConsumer(BlockingClient[share_consumer.ShareConsumer]):
    """Consumes records of topics; see `sharegroup.client.ShareConsumer`, method by method.

    Records may be settled in any thread; one thread polls.

    Example::

        with ShareConsumer(
            "orders",
            bootstrap_servers=bootstrap,
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

    def __exit__(self, kind: ExceptionType, error: BaseException | None, trace: Trace) -> None:
        # Records in hand when an exception passes were hardly all processed: not accepted.
        self.close(accept_open=error is None)

    def close(self, timeout: float = CLOSE_SECONDS, *, accept_open: bool = True) -> CloseReport:
        """Send what is settled, give back what is not, leave the group; within ``timeout``."""
        if not self._open:
            return CloseReport()
        report = self._end(self._client.close(timeout, accept_open=accept_open))
        self._call_back()
        return report

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Records as soon as there are some, or none after ``timeout`` seconds."""
        if not self._polled:
            LOOP_THREAD.run(self._poll(timeout, max_records))
        records, self._polled = self._polled, []
        self._call_back()
        return records

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, for ever; each poll's as `poll` returns them."""
        while True:
            yield from self.poll(ITERATION_SECONDS, self._client._iteration_size())

    def commit(
        self, timeout: float | None = None, *, wait: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send what is settled and wait for what becomes of it, by partition."""
        results = LOOP_THREAD.run(self._client.commit(timeout, wait=wait))
        self._call_back()
        return results

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have every outcome reported, in the thread that polls, commits or closes."""
        self._callback = callback
        with LOOP_THREAD.lock:
            # Outcomes that nobody hears of by callback are part of what `commit` returns.
            remember = None if callback is None else self._outcomes.append
            self._client.set_acknowledgement_commit_callback(remember)

    @property
    def group_id(self) -> str:
        """The share group."""
        return self._client.group_id

    @property
    def member_id(self) -> str:
        """The id that this member chose for itself."""
        return self._client.member_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        with LOOP_THREAD.lock:
            return self._client.subscription

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned to this member, as far as known."""
        with LOOP_THREAD.lock:
            return self._client.assignment

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay locked for this member; None before the first fetch."""
        return self._client.acquisition_lock_timeout_ms

    @property
    def in_flight(self) -> int:
        """How many records are handed out and not settled."""
        with LOOP_THREAD.lock:
            return self._client.in_flight

    start = blocking(share_consumer.ShareConsumer.start)
    unsubscribe = blocking(share_consumer.ShareConsumer.unsubscribe)
    poll_arrow = blocking(share_consumer.ShareConsumer.poll_arrow)
    subscribe = plain(share_consumer.ShareConsumer.subscribe)
    acknowledge = plain(share_consumer.ShareConsumer.acknowledge)
    accept = plain(share_consumer.ShareConsumer.accept)
    release = plain(share_consumer.ShareConsumer.release)
    reject = plain(share_consumer.ShareConsumer.reject)
    renew = plain(share_consumer.ShareConsumer.renew)
    acknowledge_offset = plain(share_consumer.ShareConsumer.acknowledge_offset)
    commit_async = plain(share_consumer.ShareConsumer.commit_async)
    wakeup = plain(share_consumer.ShareConsumer.wakeup)

    async def _poll(self, timeout: float, max_records: int | None) -> None:  # noqa: ASYNC109
        # Kept until they are handed out: an interrupt in between must not lose them, because
        # in implicit mode the next poll would accept them.
        records = await self._client.poll(timeout, max_records)
        for record in records:
            # The layout is the same; made as what they are, they would cost asyncio users time.
            record.__class__ = _UnreadableRecord if type(record) is UnreadableRecord else _Record
        self._polled = records

    def _call_back(self) -> None:
        while self._outcomes:
            outcome = self._outcomes.pop(0)
            if self._callback is not None:
                self._callback(outcome)
