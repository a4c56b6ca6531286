"""ShareConsumer: one member of a share group (KIP-932).

    poll ---> inbox ---> application ---> settled ---> with the next fetch, commit, close
      |         ^
      '---> one fetch for each broker that leads an assigned partition

Fetches are sent by `poll` when nothing is left to hand out, and ahead of that when the
application is quick and the broker had more; they go on when `poll` returns, and what they
bring is there for the next one.  What runs in the background is `ShareMember`'s.

A broker that restarts costs the session with it: what was held is delivered again, to
anyone, and acknowledgements of it are reported as failed (never sent) or in doubt (sent, no
answer).  The consumer joins again by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from sharegroup.client.config import config_from
from sharegroup.client.consumer_config import ShareConsumerConfig, ShareConsumerOptions
from sharegroup.client.flow import Flow
from sharegroup.client.membership import new_member_id
from sharegroup.client.outcomes import AcknowledgementCallback as AcknowledgementCallback
from sharegroup.client.records import (
    AcknowledgeType,
    CloseReport,
    IllegalStateError,
    Record,
    TopicPartition,
    WakeupError,
)
from sharegroup.client.share_member import ShareMember
from sharegroup.errors import KafkaError, RequestTimedOut

if TYPE_CHECKING:
    import pyarrow as pa

    from sharegroup.client.record_batches import HandedOut

log = logging.getLogger(__name__)

Taken = TypeVar("Taken")
ITERATION_SECONDS = 1.0
"""How long `async for` waits in one poll; nobody sees it."""

CLOSE_SECONDS = 30.0

ARROW_FACTOR = 4
"""So many times as many records come from one `poll_arrow` as from one `poll`: by default the
2,000 that a partition has locks for."""


class ShareConsumer:
    """Consumes records of topics together with the other members of a share group.

    In implicit mode the next `poll`, `commit` or `close` accepts what the last poll returned.
    In explicit mode every record has to be settled before the next poll; with ``in_flight_max``
    or ``in_flight_bytes`` polls go on while fewer than that are unsettled.

    Example::

        async with ShareConsumer(
            "orders",
            bootstrap_servers=bootstrap,
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
        self.flow = Flow(self._member)
        """How much it takes, changed while it runs."""
        self._outcomes = self._member.outcomes
        self._polling = False
        self._poll_ended_at = 0.0
        self._was_quick = False
        self._woken = False
        self._closed = False
        self._batches: list[HandedOut] = []
        if topics:
            self.subscribe(*topics)

    # What it is.

    @property
    def client_id(self) -> str:
        """The name it gives itself in the broker's logs and metrics."""
        return self._config.client_id

    @property
    def group_id(self) -> str:
        """The share group."""
        return self._config.group_id

    @property
    def member_id(self) -> str:
        """The id that this member chose for itself."""
        return self._member_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._member.membership.subscription)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned to this member, as far as known."""
        return self._member.assigned.named()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay locked for this member; None before the first fetch."""
        return self._member.lock_ms

    @property
    def in_flight(self) -> int:
        """How many records are handed out and not settled."""
        return sum(held.open_count for held in self._member.tables())

    def metrics(self) -> dict[str, dict[str, float]]:
        """Every metric now, by group and name, as Kafka's Java client names them."""
        return self._member.cluster.metrics.read()

    # Life.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Records in hand when an exception passes were hardly all processed: not accepted.
        await self.close(accept_open=error is None)

    async def start(self) -> None:
        """Begin to join the group; `poll` does it too."""
        self._check_open()
        self._loop = asyncio.get_running_loop()
        await self._member.start()

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
        *,
        accept_open: bool = True,
    ) -> CloseReport:
        """Send what is settled, give back what is not, leave the group; within ``timeout``.

        In implicit mode ``accept_open=False`` gives back what the last poll returned.
        """
        if self._closed:
            return CloseReport()
        self._closed = True
        self._wake.set()
        self._member.stop_watching()
        if accept_open:
            self._accept_open()
        tickets, released = self._member.tickets(), self._member.held()
        failure: Exception | None = None
        try:
            if self._member.is_running:
                async with asyncio.timeout(timeout):
                    await self._member.leave()
        except (TimeoutError, KafkaError) as error:
            failure = error
            log.warning(
                "consumer.close_incomplete group=%s member=%s error=%r "
                "(locks and membership end by their timeouts)",
                self.group_id,
                self._member_id,
                error,
            )
        finally:
            await self._member.stop()
        self._outcomes.run_callback()
        self._outcomes.close()
        results = tuple(result for ticket in tickets for result in ticket.results)
        return CloseReport(results, released, failure)

    def subscribe(self, *topics: str) -> None:
        """Replace the subscription."""
        if not topics:
            raise ValueError("subscribe needs a topic; unsubscribe leaves the group")
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"topic {topic!r}: expected str, got {type(topic).__name__}")
            if not topic.strip():
                raise ValueError(f"topic {topic!r}: expected a name")
        self._member.membership.subscribe(tuple(sorted(set(topics))))
        self._member.heartbeats.wake()

    async def unsubscribe(self) -> None:
        """Leave the group as `close` does, and stay usable; what is not settled goes back."""
        self._check_open()
        self._accept_open()
        self._member.membership.subscribe(())
        if self._member.is_running:
            await self._member.leave()
            for held in self._member.tables():
                held.forget_open()

    # Records.

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  It ends in an empty list, not in an error.
        max_records: int | None = None,
    ) -> list[Record]:
        """Records as soon as there are some, or none after ``timeout`` seconds."""
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
        """`poll` as columns: one batch as soon as there is something, or None after ``timeout``.

        Columns: topic, partition, offset, timestamp, key, value, headers, delivery_count.  Give
        the batch, or a filtered part of it, to `accept`, `release`, `reject` or `renew`.
        ``max_records`` is four times ``max_poll_records`` unless given: columns pay in bulk.
        Needs pyarrow and numpy (the extra ``arrow``); deserializers don't apply to columns.
        """
        from sharegroup.client import record_batches  # Not imported for those who don't use it.

        config, member = self._config, self._member
        if config.key_deserializer is not None or config.value_deserializer is not None:
            raise IllegalStateError("poll_arrow hands out bytes: deserializers don't apply")
        limit = ARROW_FACTOR * config.max_poll_records if max_records is None else max_records

        def take(room: int) -> record_batches.HandedOut | None:
            pieces = member.inbox.take_columns(room, now=time.monotonic())
            return record_batches.handed_out(pieces) if pieces else None

        handed = await self._poll(
            time.monotonic() + timeout, limit, max(limit, config.max_poll_records), take
        )
        if handed is None:
            return None
        self._batches = [one for one in self._batches if one.is_open]
        self._batches.append(handed)
        member.metrics.records_consumed.add(handed.batch.num_rows)
        return handed.batch

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records one by one, for ever.

        Implicit mode: a record is accepted when the next one is asked for, or by `commit` and
        `close`.  Explicit mode: what is yielded from one poll must be settled by its end, unless
        there is a window (``in_flight_max``, ``in_flight_bytes``).
        """
        while True:
            for record in await self.poll(ITERATION_SECONDS, self._iteration_size()):
                yield record

    def wakeup(self) -> None:
        """End the poll that is waiting, or else the next one, with a WakeupError.

        The one method that may be called from any thread, and from a signal handler.
        """
        self._woken = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def acknowledge(
        self,
        records: Record | Iterable[Record] | pa.RecordBatch | pa.Table,
        acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Choose what becomes of a record, of several, or of a batch of `poll_arrow`.

        May be changed until the next `poll`, `commit` or `close`.  Of a batch any part will do,
        filtered or cut, as long as it has its topic, partition and offset.
        """
        if isinstance(records, Record):
            records.settle(acknowledge_type)
        elif hasattr(records, "schema"):
            from sharegroup.client import record_batches

            tables = list(self._member.tables())
            record_batches.settle(records, acknowledge_type, tables, self._batches)
        else:
            for record in records:
                record.settle(acknowledge_type)

    def accept(self, records: Record | Iterable[Record] | pa.RecordBatch | pa.Table) -> None:
        """`acknowledge` as done."""
        self.acknowledge(records, AcknowledgeType.ACCEPT)

    def release(self, records: Record | Iterable[Record] | pa.RecordBatch | pa.Table) -> None:
        """`acknowledge` as to be delivered again."""
        self.acknowledge(records, AcknowledgeType.RELEASE)

    def reject(self, records: Record | Iterable[Record] | pa.RecordBatch | pa.Table) -> None:
        """`acknowledge` as never to be done."""
        self.acknowledge(records, AcknowledgeType.REJECT)

    def renew(self, records: Record | Iterable[Record] | pa.RecordBatch | pa.Table) -> None:
        """Have locks begin anew.  Of a batch: all locks that its records are under, as a whole."""
        self.acknowledge(records, AcknowledgeType.RENEW)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, acknowledge_type: AcknowledgeType
    ) -> None:
        """`acknowledge` by position, for a record that came with an exception."""
        for held in self._member.tables():
            if held.topic_partition == (topic, partition) and held.holds(offset):
                held.settle_offset(offset, acknowledge_type)
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
        """Send what is settled, wait until nothing is under way; what the broker said.

        By partition: None: durable.  NetworkException: in doubt, sent without an answer.  Any
        other error: no effect; what could be tried again was, while its lock lived.  A result is
        about what this commit sent.  For partitions that it sent nothing of, and without a
        callback, it is about what went with fetches since the last commit, errors first; an
        older failure that has no place here is logged.  After ``timeout`` seconds
        RequestTimedOut is raised; the outcome then goes to the callback, or comes with the next
        commit.  With ``wait=False`` nothing is waited for, and the result is empty.
        """
        self._check_open()
        self._accept_open()
        tickets = self._member.tickets()
        if not wait:
            return {}
        limit = self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                for ticket in tickets:
                    await ticket.done.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"group {self.group_id!r}: acknowledgements without an answer for {limit} s"
            ) from None
        self._outcomes.run_callback()
        return self._outcomes.for_commit(result for ticket in tickets for result in ticket.results)

    def commit_async(self) -> None:
        """`commit` with ``wait=False``, as other clients call it."""
        self._check_open()
        self._accept_open()
        self._member.tickets()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have every outcome reported, from inside `poll`, `commit` and `close`; None: no more.

        What the callback raises comes out of the call that it was called from.
        """
        self._outcomes.callback = callback

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    # Inside a poll.

    async def _poll(
        self, deadline: float, limit: int, fetched: int, take: Callable[[int], Taken]
    ) -> Taken | None:
        """What ``take`` finds, up to ``limit`` records; ``fetched`` are asked for at a time."""
        await self._begin_poll()
        try:
            ahead = await self._fetch_ahead(limit, fetched)
            while not self._closed:
                room = self._member.window.to_hand_out(limit, self._member.tables())
                if room and (taken := take(room)):
                    if not ahead:
                        self._member.flush()  # What is settled has no fetch to go along with.
                    return taken
                if not await self._wait(deadline, fetched, has_room=room > 0):
                    return None
                ahead = await self._fetch_ahead(limit, fetched)
            raise IllegalStateError("this consumer was closed during a poll")
        finally:
            self._end_poll()

    async def _begin_poll(self) -> None:
        if self._polling:
            raise IllegalStateError("poll runs already in another task")
        if not self._member.membership.subscription:
            raise IllegalStateError("poll needs a subscription: call subscribe first")
        away = time.monotonic() - self._poll_ended_at
        self._was_quick = away * 1000 < self._config.fetch_ahead_ms
        self._polling = True
        try:
            await self.start()
            self._member.poll_began()
            self._close_last_batch()
            self._outcomes.run_callback()
            self._raise_failures()
        except BaseException:
            self._end_poll()
            await asyncio.sleep(0)  # A loop that catches this and polls again must not be alone.
            raise

    def _end_poll(self) -> None:
        self._polling = False
        self._poll_ended_at = time.monotonic()
        self._member.poll_ended()

    async def _wait(self, deadline: float, fetched: int, *, has_room: bool) -> bool:
        """Have something fetched and wait for anything to happen; False: time is up."""
        member = self._member
        self._wake.clear()
        self._outcomes.run_callback()
        self._raise_failures()
        member.ask_fetches(fetched)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        watched = [] if has_room else list(member.tables())
        for held in watched:
            held.on_settled = self._wake.set
        try:
            async with asyncio.timeout(remaining):
                await self._wake.wait()
        except TimeoutError:
            return True  # Once more: something may have come at the last moment.
        finally:
            for held in watched:
                held.on_settled = None
        return True

    async def _fetch_ahead(self, limit: int, fetched: int) -> bool:
        """Ask for more, for who is quick, before what is there is made: the broker works then."""
        if not (self._was_quick and self._member.ends_with(limit)):
            return False
        self._member.ask_fetches(fetched, ahead=True)
        await asyncio.sleep(0)  # The application may not yield for long; this sends the requests.
        return True

    def _close_last_batch(self) -> None:
        if not self._config.explicit:
            self._accept_open()
        elif not self._config.has_window:
            for held in self._member.tables():
                if held.open_count:
                    raise IllegalStateError(
                        f"{held.open_count} records of topic {held.topic!r} partition "
                        f"{held.partition} are not acknowledged; explicit mode needs that before "
                        "the next poll (in_flight_max=... allows for records in flight)"
                    )

    def _accept_open(self) -> None:
        if not self._config.explicit:
            for held in self._member.tables():
                held.accept_open()

    def _raise_failures(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup was called")
        member = self._member
        if member.heartbeats.failure is not None:
            raise member.heartbeats.failure
        for source in (member.heartbeats.report, member.failure):
            if source is not None:
                member.heartbeats.report = member.failure = None
                raise source

    def _iteration_size(self) -> int:
        # One by one, so that a record not yet yielded is never accepted.
        return self._config.max_poll_records if self._config.explicit else 1
