"""Settles the last micro-batch of a query and acquires the next one.

Spark asks for the next offset only after it has committed the batch that ends at the current
offset.  So the call itself says that the records may be acknowledged.  Spark gives no other signal
reliably::

    advance(start)
      start not settled yet?  acknowledge start.acquired, as decided, the rest accepted
                              refused acknowledgements -> carry
      acquire                 carried records: acknowledge at once; the others: the next batch
      carry                   drop the records below the group's start offset
      nothing?                return start unchanged: a new offset would be an empty batch

With the trigger availableNow the run ends at the end offsets at the time when it began.  A batch
may also contain later records.  If it contains only later records, they are released and the run
ends, unless another partition has not reached its end offset.  In that case they are processed: the
earlier records may be delivered only after them, and records that are released again and again are
archived in the end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.client.records import IdlePeriod
from sharegroup.client.share.ranges.share_ranges import AcquiredRanges
from sharegroup.client.share.session.acknowledgements import TYPE_MASK, UNSTARTED, AckRun
from sharegroup.client.share.session.acquired_records import RECORDS_MAX, acquired_offsets
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import AcquiredByPartition, Carry, DecidedOffsets, recognise
from sharegroup.spark.offsets import StreamOffset

log = logging.getLogger(__name__)

POLL_MS = 500
"""Time that one call waits for records; Spark calls again at once, and can stop in between."""
POSITIONS_SECONDS = 1.0
"""Time for which the known positions of the group are recent enough."""
IDLE_SECONDS = 5.0
"""availableNow: time without new records after which the rest counts as held by other members."""
JOIN_SECONDS_MAX = 30.0
"""availableNow: maximum time to wait for an assignment or for a broker.

Apache Kafka takes five seconds for the first assignment of a new group.
"""
MISSING_SECONDS = 10.0
"""Time between two warnings that a subscribed topic does not exist."""
DELETED_SECONDS = 60.0
"""Time for which no broker knows a topic before it counts as deleted.

A broker that has just started, or is behind the controller, does not know every topic.
"""
ASK_SECONDS_MAX = 2.0
"""Maximum duration of requests whose responses are useful but not required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """The waits of a stream, each explained at its constant."""

    poll_ms: int = POLL_MS
    positions_seconds: float = POSITIONS_SECONDS
    idle_seconds: float = IDLE_SECONDS
    join_seconds_max: float = JOIN_SECONDS_MAX
    deleted_seconds: float = DELETED_SECONDS


TIMES_DEFAULT = StreamTimes()


class Ranges(Protocol):
    """The part of `ShareRanges` that `ShareStream` uses."""

    async def acquire(self, *, records_max: int = ..., wait_ms: int) -> AcquiredRanges: ...
    def acquire_ahead(self, *, records_max: int) -> None: ...
    async def acknowledge(
        self, runs: Mapping[TopicIdPartition, Sequence[AckRun]]
    ) -> Mapping[TopicIdPartition, OffsetSet]: ...
    def check_delays(self, keys: Iterable[TopicIdPartition]) -> None: ...
    async def positions(self) -> Mapping[TopicIdPartition, SharePartitionOffset]: ...
    async def end_offsets(self) -> Mapping[TopicIdPartition, int]: ...
    async def topic_ids(self) -> Mapping[TopicName, TopicId | None]: ...
    def name_of(self, topic_id: TopicId) -> TopicName | None: ...
    @property
    def held(self) -> Mapping[TopicIdPartition, OffsetSet]: ...
    @property
    def assigned(self) -> frozenset[TopicIdPartition]: ...
    @property
    def idle(self) -> IdlePeriod | None: ...


class Decisions(Protocol):
    """The part of `DecisionFiles` that `ShareStream` uses."""

    def outcomes(self, batch: StreamOffset) -> DecidedOffsets: ...
    def announce(self, query: str) -> None: ...


@dataclass(slots=True)
class Counts:
    """Numbers of records since the reader started."""

    acquired: int = 0
    redelivered: int = 0
    """Acquired records that had been delivered before, to any member."""
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    gone: int = 0
    """Offsets whose records were deleted between the acquisition and the read."""
    recognised: int = 0
    """Accepted or rejected records that were carried: an earlier run has processed them."""
    lost: int = 0
    """Acknowledgements that the broker did not confirm."""


class ShareStream:
    """The progress of a query: settles a micro-batch and acquires the next one."""

    def __init__(
        self,
        ranges: Ranges,
        decisions: Decisions,
        *,
        query: str,
        load: str,
        times: StreamTimes = TIMES_DEFAULT,
    ) -> None:
        self._times = times
        self._unknown_since: dict[TopicId, float] = {}
        """When the brokers' answers began to lack the ids of topics with carried records."""
        self._ranges = ranges
        self._decisions = decisions
        self._query = query
        self._load = load
        self._settled: int | None = None
        self._decides = False
        """Whether a batch of the query had decisions, in this run or before."""
        self._carry = Carry()
        self._positions: Mapping[TopicIdPartition, SharePartitionOffset] = {}
        self._asked_at = float("-inf")
        self._told_at = float("-inf")
        self._targets: Mapping[TopicIdPartition, int] | None = None
        self._passed: set[TopicIdPartition] = set()
        """availableNow: partitions that delivered records behind their target offset."""
        self._wanted_at: float | None = None
        """availableNow: the time of the last batch with a record below its target offset.

        It begins with the time of the first batch; None before that."""
        self.counts = Counts()

    async def advance(self, start: StreamOffset, *, records_max: int = RECORDS_MAX) -> StreamOffset:
        """Settle the batch at ``start``, acquire the next one and return its offset.

        Returns ``start`` itself if there are no new records.
        """
        await self._settle(start)
        if self._targets is None:
            fresh, _ = await self._fresh(records_max, self._times.poll_ms)
        else:
            fresh = await self._available_now(records_max, self._targets)
        # After the acquisition: records acquired ahead may be below the start offset by now, if
        # their log was deleted, or their locks ended and another member has settled them.
        await self._prune()
        if not fresh:
            await self._tell_of_missing_topics()
            return start
        # The carry may have topics of which this batch has no records.
        names = dict(start.names)
        for key in fresh:
            names[key.topic_id] = self._name(key)
        # The id in the checkpoint outlives readers: a restarted query is the same member, and finds
        # its decisions, whose files are marked with it.
        query = start.query or self._query
        if self._decides:
            # Before Spark logs the offset, which says so.
            self._decisions.announce(query)
        return StreamOffset(
            start.subscription,
            start.seq + 1,
            query,
            self._load,
            fresh,
            self._carry,
            names,
            self._decides,
        )

    async def acquire_ahead(self, end: StreamOffset, records_max: int) -> None:
        """Begin to acquire the next batch while the one that ends at ``end`` runs.

        This happens only if the batch is limited by ``records_max``, because otherwise it has all
        records that the group's locks allow, or all that there are.
        """
        count = sum(run.offset_count for runs in end.acquired.values() for run in runs)
        if count >= records_max:
            self._ranges.acquire_ahead(records_max=records_max)

    def runs_again(self, batch: StreamOffset) -> None:
        """Note that a batch that an earlier run has logged runs now, after a restart.

        Its offset names the `load()` of that run, and its decisions are stored under this one.
        """
        if batch.load == self._load:
            return
        try:
            self._decisions.announce(batch.query)
        except OSError as error:
            # A query that decides nothing needs no folder; one that decides fails at its decision,
            # which has the same folder.
            log.info("event=outcomes.not_announced query=%s error=%r", batch.query, error)

    @property
    def has_end(self) -> bool:
        """Whether the trigger is availableNow and the end offsets of the run are known."""
        return self._targets is not None

    async def stop_at_the_end(self) -> None:
        """Let the run end at the current end offsets, for the trigger availableNow."""
        # Asked once for each run: with later end offsets a busy topic would never let it end.
        self._targets = await self._ranges.end_offsets()

    def report(self) -> dict[str, int | str | None]:
        """Return figures for Spark's progress reports.

        ``lag`` is the last known lag of the group, or None until it is known.  ``idleSeconds`` is
        0 and ``idleCause`` is None unless the client has warned that its member is idle.
        """
        idle = self._ranges.idle
        # The lag of one partition may be unknown; it must not hide that of the others.
        lags = [position.lag for position in self._positions.values() if position.lag is not None]
        counts = self.counts
        return {
            "lag": sum(lags) if lags else None,
            "held": sum(offsets.count for offsets in self._ranges.held.values()),
            "carried": self._carry.count,
            "acquired": counts.acquired,
            "redelivered": counts.redelivered,
            "accepted": counts.accepted,
            "released": counts.released,
            "rejected": counts.rejected,
            "gone": counts.gone,
            "recognised": counts.recognised,
            "lostAcknowledgements": counts.lost,
            "idleSeconds": 0 if idle is None else round(idle.seconds),
            "idleCause": None if idle is None else idle.knowledge,
        }

    # The previous batch.

    async def _settle(self, start: StreamOffset) -> None:
        # Spark asks with the same offset again when the last call found no records.
        if start.seq == self._settled:
            return
        # After a start the checkpoint has the carry; later the one in memory is newer.
        if self._settled is None:
            self._carry = start.carry
        decided = self._decisions.outcomes(start)
        # It never becomes false again: from the first decision on, a missing folder is an error and
        # does not mean "accept" (ADR 0043).
        self._decides |= start.decides or bool(decided)
        outcomes = {
            key: _with_default(acquired_offsets(runs), decided.get(key, {}))
            for key, runs in start.acquired.items()
        }
        delayed = {key for key, kinds in decided.items() if max(kinds, default=0) > TYPE_MASK}
        if delayed:
            # Before anything is acknowledged. A restarted query holds none of these records.
            self._ranges.check_delays(delayed)
        self._carry = self._carry.with_refused(await self._acknowledge(outcomes))
        # Only now: if the acknowledgement raises, the next call settles the batch again.
        self._settled = start.seq

    async def _acknowledge(self, outcomes: DecidedOffsets) -> DecidedOffsets:
        """Send acknowledgements and return those that were not confirmed."""
        unconfirmed = await self._ranges.acknowledge(
            {key: _ack_runs(kinds) for key, kinds in outcomes.items()}
        )
        refused: dict[TopicIdPartition, dict[int, OffsetSet]] = {}
        for key, kinds in outcomes.items():
            for kind, offsets in kinds.items():
                # Not an error: the locks may have ended, or a restart has lost them. Whether the
                # record comes again is up to the broker; the carry recognises it then.
                lost = offsets & unconfirmed.get(key, EMPTY)
                self._count(kind, offsets.count - lost.count)
                self.counts.lost += lost.count
                if lost:
                    refused.setdefault(key, {})[kind] = lost
        return refused

    def _count(self, kind: int, confirmed: int) -> None:
        if kind == AcknowledgeType.ACCEPT:
            self.counts.accepted += confirmed
        elif kind & TYPE_MASK == AcknowledgeType.RELEASE:
            self.counts.released += confirmed
        elif kind == AcknowledgeType.GAP:
            self.counts.gone += confirmed
        else:
            self.counts.rejected += confirmed

    async def _prune(self) -> None:
        """Drop the records from the carry that will not be delivered again."""
        if not self._carry.count or not await self.refresh_positions():
            return
        starts = {
            key: position.start_offset
            for key, position in self._positions.items()
            if position.start_offset is not None
        }
        # Below the start offset all records are settled, so the broker delivers none of them again.
        self._carry = self._carry.from_offsets(starts)
        carried = {
            key.topic_id for sets in (self._carry.accept, self._carry.reject) for key in sets
        }
        if carried:
            await self._drop_deleted(carried)

    async def _drop_deleted(self, carried: set[TopicId]) -> None:
        topics = await self._topics()
        if not topics:
            return  # No broker has answered.
        now, since = time.monotonic(), self._unknown_since
        self._unknown_since = {
            topic_id: since.get(topic_id, now) for topic_id in carried - set(topics.values())
        }
        # If the broker knows all names, one of them is that of a topic that was made anew.
        wait_seconds = self._times.deleted_seconds if None in topics.values() else 0.0
        deleted = {
            topic_id
            for topic_id, began in self._unknown_since.items()
            if now - began >= wait_seconds
        }
        if deleted:
            log.warning(
                "event=topics.deleted ids=%s action='their records cannot be delivered again'",
                deleted,
            )
            self._carry = self._carry.without_topics(deleted)

    async def _tell_of_missing_topics(self) -> None:
        """Warn about missing topics, because a misspelt name looks like a topic without records."""
        if self._ranges.assigned or time.monotonic() - self._told_at < MISSING_SECONDS:
            return
        self._told_at = time.monotonic()
        missing = [name for name, topic_id in (await self._topics()).items() if topic_id is None]
        if missing:
            log.warning(
                "event=topics.missing names=%s action='the stream waits until they are created'",
                missing,
            )

    async def _topics(self) -> Mapping[TopicName, TopicId | None]:
        """Return the ids of the subscribed topics; empty if no broker answers."""
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                return await self._ranges.topic_ids()
        except (KafkaError, TimeoutError) as error:
            log.info("event=topics.unknown error=%r", error)
            return {}

    async def refresh_positions(self) -> bool:
        """Request the group's positions unless they are recent; return whether they are new."""
        if time.monotonic() - self._asked_at < self._times.positions_seconds:
            return False
        # Also if the request fails: a broker that is away must not delay each batch by a timeout.
        self._asked_at = time.monotonic()
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                self._positions = await self._ranges.positions()
        except (KafkaError, TimeoutError) as error:
            log.info("event=positions.unknown error=%r", error)
            return False
        return True

    # The next batch.

    async def _fresh(
        self, records_max: int, wait_ms: int
    ) -> tuple[AcquiredByPartition, KafkaError | None]:
        """Acquire records that this query has not processed; return them and an error, if any.

        Carried records, which the query has processed, are acknowledged at once.
        """
        # One deadline for all rounds: Spark stops a query between calls, so none may take long.
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            wait_ms = max(0, ceil((deadline - time.monotonic()) * 1000))
            acquisition = await self._ranges.acquire(records_max=records_max, wait_ms=wait_ms)
            self._count_acquired(acquisition.ranges)
            fresh, again = recognise(acquisition.ranges, self._carry)
            if again:
                await self._settle_again(again)
            # All records may have been carried ones; then the call goes on waiting for new ones.
            if fresh or acquisition.failure is not None or time.monotonic() >= deadline:
                return fresh, acquisition.failure

    async def _settle_again(self, again: DecidedOffsets) -> None:
        refused = await self._acknowledge(again)
        confirmed = {
            key: {
                kind: offsets - refused.get(key, {}).get(kind, EMPTY)
                for kind, offsets in kinds.items()
            }
            for key, kinds in again.items()
        }
        self._carry = self._carry.without(confirmed)
        self.counts.recognised += sum(
            offsets.count for kinds in confirmed.values() for offsets in kinds.values()
        )

    def _count_acquired(self, acquired: AcquiredByPartition) -> None:
        for run in (run for runs in acquired.values() for run in runs):
            self.counts.acquired += run.offset_count
            if run.delivery_count > 1:
                self.counts.redelivered += run.offset_count

    async def _available_now(
        self, records_max: int, targets: Mapping[TopicIdPartition, int]
    ) -> AcquiredByPartition:
        """Acquire the next records of an availableNow run; empty if the run is over."""
        times = self._times
        began = idle_since = time.monotonic()
        wait_ms = 0  # Because after the last batch the run is over, and no records will come.
        while True:
            fresh, failure = await self._fresh(records_max, wait_ms)
            wait_ms = times.poll_ms
            if fresh:
                if await self._is_wanted(fresh, targets):
                    return fresh
                await self._release(fresh)
                return {}
            if failure is None and await self._is_done(targets):
                return {}
            now = time.monotonic()
            # An outage, and the time before the first assignment, do not count as idle.
            if failure is not None or not self._ranges.assigned:
                idle_since = now
            if now - began > times.join_seconds_max and failure is not None:
                raise failure  # Otherwise a failed run would look like an empty one.
            if now - idle_since > times.idle_seconds or now - began > times.join_seconds_max:
                log.warning(
                    "event=available_now.ended_early assigned=%d reason='other members hold the "
                    "remaining records, or their delay is not over'",
                    len(self._ranges.assigned),
                )
                return {}

    async def _is_wanted(
        self, fresh: AcquiredByPartition, targets: Mapping[TopicIdPartition, int]
    ) -> bool:
        """Return whether the run processes these records.

        It does so if some are below their target, or if records below a target may follow. A share
        partition delivers its lowest offsets first. After it has delivered records behind its
        target, only other members can hold records below it. The run waits for those at most
        ``idle_seconds``.
        """
        now = time.monotonic()
        is_early = any(runs[0].first_offset < targets.get(key, 0) for key, runs in fresh.items())
        if is_early or self._wanted_at is None:
            self._wanted_at = now
        self._passed |= {
            key for key, runs in fresh.items() if runs[-1].end_offset > targets.get(key, 0)
        }
        if is_early or now - self._wanted_at > self._times.idle_seconds:
            return is_early
        await self.refresh_positions()
        return any(
            key not in self._passed and not self._is_settled(key, target)
            for key, target in targets.items()
            if target and key in self._ranges.assigned
        )

    async def _is_done(self, targets: Mapping[TopicIdPartition, int]) -> bool:
        """Return whether all assigned partitions are settled up to their targets."""
        # Before the first assignment nothing is known, and no partitions would look like finished
        # ones.
        assigned = self._ranges.assigned
        if not assigned:
            return False
        # Recent positions are from before the acknowledgement of the last batch.
        self._asked_at = float("-inf")
        await self.refresh_positions()
        return all(self._is_settled(key, targets.get(key, 0)) for key in assigned)

    def _is_settled(self, key: TopicIdPartition, target: int) -> bool:
        """Return whether the group is known to have settled all records below the target."""
        position = self._positions.get(key)
        return position is not None and (
            position.lag == 0 or (position.start_offset or 0) >= target
        )

    async def _release(self, fresh: AcquiredByPartition) -> None:
        await self._acknowledge(
            {key: {UNSTARTED: acquired_offsets(runs)} for key, runs in fresh.items()}
        )

    def _name(self, key: TopicIdPartition) -> TopicName:
        name = self._ranges.name_of(key.topic_id)
        assert name is not None, f"records of {key} were acquired, but its topic has no name"
        return name


def _with_default(held: OffsetSet, decided: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
    """Return the decisions, with all undecided offsets accepted."""
    outcomes = dict(decided)
    # Not needed: records without a decision are accepted, and so are these.
    outcomes.pop(AcknowledgeType.ACCEPT, None)
    # Rows that the query filtered out have no decision either; they are accepted like the others.
    undecided = held
    for offsets in outcomes.values():
        undecided = undecided - offsets
    if undecided:
        outcomes[AcknowledgeType.ACCEPT] = undecided
    return outcomes


def _ack_runs(kinds: Mapping[int, OffsetSet]) -> tuple[AckRun, ...]:
    return tuple(
        sorted(
            AckRun(first, end, int(kind))
            for kind, offsets in kinds.items()
            for first, end in offsets
        )
    )
