"""ShareConsumer: one member of a share group (KIP-932).

    poll ---> inbox ---> application ---> settled ---> with the next fetch, commit, close
      |         ^
      '---> one fetch for each broker that leads an assigned partition

`poll` sends fetches when the inbox has nothing to hand out.  It sends them earlier when the
application polls quickly and the broker had more records.  A fetch continues after `poll`
returns, and the next `poll` hands out its records.  `ShareMember` runs the background tasks.

When a broker restarts, the share session with it is lost.  The records that were held are
delivered again, to any member.  Their acknowledgements are reported as failed (never sent) or
in doubt (sent, no answer).  The consumer joins the group again by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, Unpack

from sharegroup.client.net import telemetry
from sharegroup.client.records import (
    CloseReport,
    ConsumerHealth,
    Flow,
    IllegalStateError,
    TopicPartition,
    WakeupError,
    topic_names,
)
from sharegroup.client.settings.client_config import config_from
from sharegroup.client.settings.consumer_config import ShareConsumerConfig, ShareConsumerOptions
from sharegroup.client.share.consumer.acknowledgement_results import (
    AcknowledgementCallback as AcknowledgementCallback,
)
from sharegroup.client.share.consumer.record import Record, UnreadableDelivery, check_type
from sharegroup.client.share.consumer.share_member import ShareMember
from sharegroup.client.share.member.membership import new_member_id
from sharegroup.client.together import event_within
from sharegroup.errors import KafkaError, RequestTimedOut
from sharegroup.protocol_enums import AcknowledgeType

if TYPE_CHECKING:
    import pyarrow as pa

    from sharegroup.client.share.consumer.record_batches import HandedOut

    Records: TypeAlias = Record | Iterable[Record] | UnreadableDelivery | pa.RecordBatch | pa.Table

log = logging.getLogger(__name__)

Taken = TypeVar("Taken")
ITERATION_SECONDS = 1.0
"""The poll timeout of `async for`; it has no effect that the application can see."""

CLOSE_SECONDS = 30.0

ARROW_FACTOR = 4
"""Factor from ``max_poll_records`` to the default ``max_records`` of `poll_arrow`.

With the defaults it gives 2,000 records, as many as a share partition locks at once.
"""


class ShareConsumer:
    """Consumes records of topics together with the other members of a share group.

    In implicit mode the next `poll` or `commit` accepts the records of the last poll; `close`
    and the end of ``async with`` release them.  In explicit mode every record has to be settled
    before the next poll.  With ``in_flight_max`` or ``in_flight_bytes`` the application may poll
    while fewer records than that limit are unsettled.

    Example::

        async with ShareConsumer(
            "orders",
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            for record in await consumer.poll(timeout=10):
                record.accept()
            await consumer.commit()
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        self._config = config_from(ShareConsumerConfig, options)
        self._member_id = new_member_id()
        self._wake = asyncio.Event()
        self._member = ShareMember(self._config, self._member_id, self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._results = self._member.results
        self._telemetry = self._member.telemetry
        self._polling = False
        self._poll_ended_at = 0.0
        self._was_quick = False
        self._has_asked_ahead = False
        """Whether the node that brought records has asked for the next ones in this poll."""
        self._woken = False
        self._closed = False
        self._leaving: asyncio.Task[None] | None = None
        """Leaves the group after the end of a subscription, until a call has waited for it."""
        self._batches: list[HandedOut] = []
        self._is_unreturned = False
        """Whether a blocking poll has not returned its records, so none of them is accepted."""
        if topics:
            self.subscribe(topics)

    # Properties.

    @property
    def client_id(self) -> str:
        """The client id in the broker's logs and metrics."""
        return self._config.client_id

    @property
    def group_id(self) -> str:
        """The id of the share group."""
        return self._config.group_id

    @property
    def member_id(self) -> str:
        """The member id, which this client generated."""
        return self._member_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._member.group.membership.subscription)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group coordinator assigned, as of the last heartbeat.

        Partitions of topics whose names are not in the metadata yet are left out.
        """
        return self._member.group.assigned.named()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The group's lock duration in milliseconds; None before the first fetch."""
        return self._member.lock_ms

    @property
    def in_flight(self) -> int:
        """The number of records that are handed out and not settled."""
        return sum(table.open_count for table in self._member.tables())

    @property
    def flow(self) -> Flow:
        """The numbers of records that are requested, waiting and in flight, at this moment."""
        return self._member.flow()

    def health(self) -> ConsumerHealth:
        """Return the health at this moment: the membership, and brokers that are lost."""
        return self._member.group.health()

    metrics = telemetry.metrics
    client_instance_id = telemetry.client_instance_id
    register_metric_for_subscription = telemetry.register_metric_for_subscription
    unregister_metric_from_subscription = telemetry.unregister_metric_from_subscription

    # Start, close and subscription.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the background tasks, which join the group; `poll` does this by itself."""
        self._check_open()
        self._loop = asyncio.get_running_loop()
        await self._member.start()

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
    ) -> CloseReport:
        """Send outstanding acknowledgements, release unsettled records and leave the group.

        In implicit mode the records of the last poll are unsettled until the next `poll` or
        `commit`, so they are released, too.  Closing takes at most ``timeout`` seconds;
        `CloseReport.error` says if it is incomplete.
        """
        if self._closed:
            return CloseReport()
        self._closed = True
        # Ends a poll that another task waits in.
        self._wake.set()
        self._member.stop_watching()
        self._say_let_go()
        # In this order: what is settled by now is sent, and only the rest counts as released.
        pending_results, released = self._member.pending_results(), self._member.held()
        failure: Exception | None = None
        try:
            if self._member.is_running:
                async with asyncio.timeout(timeout):
                    failure = await self._left()
                    # Also after a failure: the consumer may have subscribed and polled since then.
                    await self._member.leave()
                    await self._member.telemetry.stop()
        except (TimeoutError, KafkaError) as error:
            failure = error
        finally:
            await self._member.stop()
        if failure is not None:
            log.warning(
                "event=consumer.close_incomplete group=%s member=%s error=%r action='the locks "
                "and the membership end after their timeouts'",
                self.group_id,
                self._member_id,
                failure,
            )
        # After `stop`, which reports what was left without an answer.
        self._results.run_callback()
        self._results.close()
        results = tuple(result for pending in pending_results for result in pending.results)
        return CloseReport(results, released, failure)

    def subscribe(self, *topics: str | Iterable[str]) -> None:
        """Subscribe to these topics instead of the topics subscribed to before.

        The topics may also be given as one list.  Without topics, and with an empty list, this is
        the same as `unsubscribe`, as in Kafka's own client, but does not wait: the next `poll` or
        `close` does.
        """
        self._check_open()
        names = topic_names(topics)
        self._member.group.membership.subscribe(names)
        if names:
            self._member.group.heartbeats.wake()
        # One at a time: a second call while the member leaves has nothing left to do.
        elif self._member.is_running and (self._leaving is None or self._leaving.done()):
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def unsubscribe(self) -> None:
        """Leave the group and release unsettled records; the consumer stays usable.

        Nothing is accepted implicitly.
        """
        self.subscribe()
        await self._wait_left()

    def _say_let_go(self) -> None:
        """Log the number of records of the last poll that implicit mode has not accepted."""
        if not self._config.explicit and (count := self.in_flight):
            log.warning(
                "event=consumer.released group=%s member=%s records=%d reason='no poll or commit "
                "followed the poll that returned them' action='they are delivered again; call "
                "commit() after the last record'",
                self.group_id,
                self._member_id,
                count,
            )

    async def _leave(self) -> None:
        try:
            await self._member.leave()
        finally:
            # Also if the request failed that leaves the group: it comes after all of this.
            for table in self._member.tables():
                # The sessions have ended, so the broker has released what was open.
                table.forget_open()
            if self._member.group.membership.subscription:
                # The application has subscribed again; `leave` stopped the heartbeats after that.
                self._member.group.heartbeats.wake()

    async def _left(self) -> KafkaError | None:
        """Wait until the member has left after `unsubscribe`; return why that failed, or None."""
        leaving = self._leaving
        if leaving is None:
            return None
        await asyncio.wait([leaving])  # Unlike await, this does not pass on a cancellation.
        self._leaving = None
        try:
            leaving.result()
        except KafkaError as error:
            return error
        return None

    async def _wait_left(self) -> None:
        if (error := await self._left()) is not None:
            raise error

    # Records.

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  It ends in an empty list, not in an error.
        max_records: int | None = None,
    ) -> list[Record]:
        """Return records as soon as there are any, or an empty list after ``timeout`` seconds.

        At most ``max_records`` are returned (default: ``max_poll_records``).  Failures of the
        membership and of fetches are raised here, too.  WakeupError follows `wakeup`.  In explicit
        mode without a window IllegalStateError means that unsettled records are left.
        """
        fetched = self._config.max_poll_records
        limit = fetched if max_records is None else max_records
        inbox = self._member.inbox

        def take(room: int) -> list[Record]:
            return inbox.take(room, now=time.monotonic())

        records = await self._poll(time.monotonic() + timeout, limit, fetched, take) or []
        self._member.metrics.records_consumed.add(len(records))
        return records

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  As `poll`.
        max_records: int | None = None,
    ) -> pa.RecordBatch | None:
        """Return records as one Arrow batch, or None when none came within ``timeout`` seconds.

        Columns: topic, partition, offset, timestamp, key, value, headers, delivery_count.  Pass
        the batch, or a filtered part of it, to `accept`, `release`, `reject` or `renew`.
        The default of ``max_records`` is four times ``max_poll_records``, because columns are
        efficient in bulk.  Needs pyarrow and numpy (the extra ``arrow``).  Deserializers do not
        apply to columns.
        """
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.share.consumer import record_batches

        config, member = self._config, self._member
        if config.key_deserializer is not None or config.value_deserializer is not None:
            raise IllegalStateError("poll_arrow returns bytes: deserializers are not applied")
        limit = ARROW_FACTOR * config.max_poll_records if max_records is None else max_records

        def take(room: int) -> record_batches.HandedOut | None:
            pieces = member.inbox.take_columns(room, now=time.monotonic())
            return record_batches.handed_out(pieces) if pieces else None

        handed_out = await self._poll(
            time.monotonic() + timeout, limit, max(limit, config.max_poll_records), take
        )
        if handed_out is None:
            return None
        self._batches = [batch for batch in self._batches if batch.is_open]
        self._batches.append(handed_out)
        member.metrics.records_consumed.add(handed_out.batch.num_rows)
        return handed_out.batch

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Yield records one by one, without end.

        Implicit mode: a record is accepted when the next one is requested, or by `commit`; after
        ``break`` call `commit` to accept the last one.  Explicit mode: the records of one poll
        must be settled before the next poll, unless there is a window (``in_flight_max``,
        ``in_flight_bytes``).
        """
        while True:
            for record in await self.poll(ITERATION_SECONDS, self._iteration_size()):
                yield record

    def wakeup(self) -> None:
        """Raise WakeupError in the poll that is waiting; if none waits, in the next poll.

        This is the only method that may be called from any thread and from a signal handler.
        """
        self._woken = True
        if self._loop is not None:
            # An event of asyncio may be set by its own loop only.
            self._loop.call_soon_threadsafe(self._wake.set)

    def acknowledge(
        self, records: Records, acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record, several records, a batch of `poll_arrow`, or an UnreadableBatch.

        The type may be changed until the next `poll`, `commit` or `close`.  Any part of a batch
        is accepted, filtered or sliced, if it has the columns topic, partition and offset.  A
        batch and a part both set the type of all their records, also of those that have one; if
        the acknowledgement of one was sent, IllegalStateError is raised and none is changed.  The
        error that `poll` raised for unreadable offsets stands for all of these offsets.
        """
        check_type(acknowledge_type)
        if isinstance(records, Record | UnreadableDelivery):
            records.settle(acknowledge_type)
        # An isinstance would have to import pyarrow first.
        elif hasattr(records, "schema"):
            # Imported here because it needs pyarrow, an optional dependency.
            from sharegroup.client.share.consumer import record_batches

            tables = list(self._member.tables())
            record_batches.settle(records, acknowledge_type, tables, self._batches)
        else:
            for record in records:
                record.settle(acknowledge_type)

    def accept(self, records: Records) -> None:
        """Acknowledge records as processed."""
        self.acknowledge(records, AcknowledgeType.ACCEPT)

    def release(self, records: Records) -> None:
        """Make records available for another delivery."""
        self.acknowledge(records, AcknowledgeType.RELEASE)

    def reject(self, records: Records) -> None:
        """Archive records without further deliveries, because they cannot be processed."""
        self.acknowledge(records, AcknowledgeType.REJECT)

    def renew(self, records: Records) -> None:
        """Renew acquisition locks; for a batch, every lock that covers one of its records."""
        self.acknowledge(records, AcknowledgeType.RENEW)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, acknowledge_type: AcknowledgeType
    ) -> None:
        """Acknowledge one offset, for a record or a range that came with an exception."""
        check_type(acknowledge_type)
        for table in self._member.tables():
            if table.topic_partition == (topic, partition) and table.holds(offset):
                table.settle_offset(offset, acknowledge_type)
                return
        raise IllegalStateError(
            f"topic {topic!r} partition {partition} offset {offset} is not held by this member"
        )

    async def commit(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  The requests go on when it has passed.
        *,
        wait: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send outstanding acknowledgements and return their outcome by partition.

        None means durable.  NetworkException means in doubt: sent without an answer.  With any
        other error the acknowledgements had no effect; they were retried while that could help
        and the acquisition lock lasted.

        The result of a partition is about the acknowledgements that this commit sent.  For other
        partitions, if there is no callback, it is about the acknowledgements that fetches
        carried since the last commit; an error is kept in preference to a success.  An older
        failure of a partition that this commit sent acknowledgements for is logged instead.

        After ``timeout`` seconds (default: ``default_api_timeout_ms``) RequestTimedOut is raised;
        the outcome then goes to the callback or to the next commit.  With ``wait=False`` the call
        does not wait, and the result is empty.
        """
        self._check_open()
        self._accept_open()
        pending_results = self._member.pending_results()
        if not wait:
            return {}
        limit = self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                # One after the other, because all are under way already: the order costs no time.
                for pending in pending_results:
                    await pending.done.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"group {self.group_id!r}: no response to acknowledgements within {limit} s"
            ) from None
        self._results.run_callback()
        return self._results.for_commit(
            result for pending in pending_results for result in pending.results
        )

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Set the function that `poll`, `commit` and `close` call with every outcome.

        None removes it.  An exception of the callback is raised by the call that ran it.
        """
        self._results.callback = callback

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    # Inside a poll.

    async def _poll(
        self, deadline: float, limit: int, fetched: int, take: Callable[[int], Taken]
    ) -> Taken | None:
        """Return what ``take`` returns for up to ``limit`` records, or None at the deadline.

        One fetch asks for ``fetched`` records.
        """
        await self._begin_poll()
        try:
            ahead = await self._fetch_ahead(limit, fetched)
            while not self._closed:
                room = self._member.window.to_hand_out(limit, self._member.tables())
                if room and (records_taken := take(room)):
                    if not ahead:
                        # No fetch is sent that could carry the acknowledgements.
                        self._member.flush()
                    return records_taken
                if not await self._wait(deadline, limit, fetched, has_room=room > 0):
                    return None
                ahead = await self._fetch_ahead(limit, fetched)
            raise IllegalStateError("this consumer was closed during a poll")
        finally:
            self._end_poll()

    async def _begin_poll(self) -> None:
        if self._polling:
            raise IllegalStateError("poll is already running in another task")
        if not self._member.group.membership.subscription:
            raise IllegalStateError(
                f"consumer of group {self.group_id!r} is not subscribed to any topics; call "
                f"subscribe with the topics before poll"
            )
        away_seconds = time.monotonic() - self._poll_ended_at
        self._was_quick = away_seconds * 1000 < self._config.fetch_ahead_ms
        self._has_asked_ahead = False
        self._polling = True
        try:
            await self.start()
            await self._wait_left()
            self._member.poll_began()
            self._close_last_batch()
            self._results.run_callback()
            self._raise_failures()
        except BaseException:
            self._end_poll()
            # An application that catches this and polls again must not block the event loop.
            await asyncio.sleep(0)
            raise

    def _end_poll(self) -> None:
        self._polling = False
        self._poll_ended_at = time.monotonic()
        self._member.poll_ended()

    async def _wait(self, deadline: float, limit: int, fetched: int, *, has_room: bool) -> bool:
        """Send fetches and wait for an event; return False when the time is up."""
        member = self._member
        # Cleared before anything is looked at, so an event after this line is not lost.
        self._wake.clear()
        self._results.run_callback()
        self._raise_failures()
        member.ask_fetches(fetched)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        # Settling helps only a poll that waits for room; any other would be woken by each record
        # for nothing.
        tables = [] if has_room else list(member.tables())
        for table in tables:
            table.on_settled = self._wake.set
        # The broker waits for the next fetch, so it is sent before this task runs again.
        member.on_records = lambda: self._ask_ahead(limit, fetched)
        try:
            # True in any case: records may have arrived at the last moment, so look once more.
            await event_within(self._wake, remaining)
        finally:
            member.on_records = None
            for table in tables:
                table.on_settled = None
        return True

    async def _fetch_ahead(self, limit: int, fetched: int) -> bool:
        """Send the next fetches before this poll decodes its records; return whether it did.

        The broker then works at the same time as the client.  It is done only if the
        application polls quickly and this poll empties the inbox.
        """
        is_asked, self._has_asked_ahead = self._has_asked_ahead, False
        if not is_asked:
            if not self._ask_ahead(limit, fetched):
                return False
            # Let the tasks send the requests now: the application may not yield for a long time.
            await asyncio.sleep(0)
            self._has_asked_ahead = False
        return True

    def _ask_ahead(self, limit: int, fetched: int) -> bool:
        if self._was_quick and self._member.ends_with(limit):
            self._member.ask_fetches(fetched, ahead=True)
            self._has_asked_ahead = True
        return self._has_asked_ahead

    def _close_last_batch(self) -> None:
        for table in self._member.tables():
            table.release_undecided()
        if not self._config.explicit:
            self._accept_open()
        elif not self._config.has_window:
            for table in self._member.tables():
                if unsettled_count := table.open_count - table.kept_count:
                    raise IllegalStateError(
                        f"{unsettled_count} records of topic {table.topic!r} partition "
                        f"{table.partition} are not acknowledged; in explicit mode, acknowledge "
                        "them before the next poll, or set in_flight_max to keep records in flight"
                    )

    def _accept_open(self) -> None:
        if not self._config.explicit and not self._is_unreturned:
            for table in self._member.tables():
                table.accept_open()

    def _raise_failures(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup was called")
        member = self._member
        if member.group.heartbeats.failure is not None:
            raise member.group.heartbeats.failure
        # One at a time: the next call raises the other error.
        report, member.group.heartbeats.report = member.group.heartbeats.report, None
        if report is not None:
            raise report
        failure, member.failure = member.failure, None
        if failure is not None:
            raise failure

    def _iteration_size(self) -> int:
        # In implicit mode one record per poll: the next poll accepts all records of the last
        # one, also those that were not yielded yet.
        return self._config.max_poll_records if self._config.explicit else 1
