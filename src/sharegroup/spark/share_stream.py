"""What a query's reader does between two batches: settle the last one, acquire the next.

Spark asks for the next offset only after it has committed the batch that ends at the present
one, so the question itself says that the records may be acknowledged; there is no other sign
that always comes, and none is needed::

    advance(start)
      start not settled yet?  acknowledge start.acquired, as decided, the rest accepted
                              what is refused -> carry
      carry                   drop what lies below the group's start offset
      acquire                 carried records: acknowledge at once; the others: the next batch
      nothing?                start again, unchanged: a changed offset would be an empty batch

With the trigger availableNow the run ends at the offsets that were the last when it began.
Records of after that which a batch brings along are taken with it.  When a batch has no others,
they are given back and the run is over, unless another partition has not come that far: theirs
may wait behind these, and what is given back again and again is archived in the end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sharegroup.client.acknowledgements import AckRun
from sharegroup.client.admin_types import SharePartitionOffset
from sharegroup.client.offset_set import EMPTY, OffsetSet
from sharegroup.client.records import AcknowledgeType
from sharegroup.client.share_ranges import RECORDS_MAX, Acquisition
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId, TopicName, TopicPartition
from sharegroup.spark.carry import Acquired, Carry, Outcomes, offsets_of, recognise
from sharegroup.spark.offsets import StreamOffset
from sharegroup.spark.partition import Run

log = logging.getLogger(__name__)

POLL_MS = 500
"""How long one question waits for records; Spark asks again at once, and can stop meanwhile."""
POSITIONS_SECONDS = 1.0
"""How long what is known of the group's position is new enough."""
IDLE_SECONDS = 5.0
"""availableNow: what nobody hands out for so long is held by others, and not waited for."""
JOIN_SECONDS_MAX = 30.0
"""availableNow: how long to wait for partitions, or for a broker; Apache Kafka takes five seconds
for the first partitions of a new group."""
MISSING_SECONDS = 10.0
"""How often to say that a topic does not exist, to whoever waits for its records."""
ASK_SECONDS_MAX = 2.0
"""For questions whose answers are good to have and not needed."""


class Ranges(Protocol):
    """What is needed of `ShareRanges`."""

    async def acquire(self, *, records_max: int = ..., wait_ms: int) -> Acquisition: ...
    async def acknowledge(
        self, runs: Mapping[TopicPartition, Sequence[AckRun]]
    ) -> Mapping[TopicPartition, OffsetSet]: ...
    async def positions(self) -> Mapping[TopicPartition, SharePartitionOffset]: ...
    async def end_offsets(self) -> Mapping[TopicPartition, int]: ...
    async def topic_ids(self) -> Mapping[TopicName, TopicId | None]: ...
    def name_of(self, topic_id: TopicId) -> TopicName | None: ...
    @property
    def held(self) -> Mapping[TopicPartition, OffsetSet]: ...
    @property
    def assigned(self) -> frozenset[TopicPartition]: ...


class Decisions(Protocol):
    """What is needed of `DecisionFiles`."""

    def outcomes(self, batch: StreamOffset) -> Outcomes: ...


@dataclass(slots=True)
class Counts:
    """Records since the reader started, by what became of them."""

    acquired: int = 0
    redelivered: int = 0
    """Of those acquired, the ones that had been delivered before, to anyone."""
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    recognised: int = 0
    """Of those accepted or rejected, the ones that were carried: processed by an earlier run."""
    lost: int = 0
    """Acknowledgements that the broker did not confirm."""


class ShareStream:
    """See the module's text."""

    def __init__(self, ranges: Ranges, decisions: Decisions, *, query: str, load: str) -> None:
        self._ranges = ranges
        self._decisions = decisions
        self._query = query
        self._load = load
        self._settled: int | None = None
        self._carry = Carry()
        self._positions: Mapping[TopicPartition, SharePartitionOffset] = {}
        self._asked_at = float("-inf")
        self._told_at = float("-inf")
        self._targets: Mapping[TopicPartition, int] | None = None
        self._passed: set[TopicPartition] = set()
        """availableNow: partitions that handed out what lies behind their target."""
        self._wanted_at: float | None = None
        """availableNow: when a batch last had a record of before the run; None: no batch yet."""
        self.counts = Counts()

    async def advance(self, start: StreamOffset, *, records_max: int = RECORDS_MAX) -> StreamOffset:
        """The offset after ``start``, or ``start`` itself when there is nothing new."""
        await self._settle(start)
        await self._prune()
        if self._targets is None:
            fresh, _ = await self._fresh(records_max)
        else:
            fresh = await self._available_now(records_max, self._targets)
        if not fresh:
            await self._tell_of_missing_topics()
            return start
        names = dict(start.names)
        for key in fresh:
            names[key.topic_id] = self._name(key)
        return StreamOffset(
            start.subscription,
            start.seq + 1,
            start.query or self._query,
            self._load,
            fresh,
            self._carry,
            names,
        )

    @property
    def has_end(self) -> bool:
        """Whether the trigger is availableNow, and where the run ends is known."""
        return self._targets is not None

    async def stop_at_the_end(self) -> None:
        """Trigger availableNow: end at what are the last offsets now."""
        self._targets = await self._ranges.end_offsets()

    def report(self) -> dict[str, int | None]:
        """For Spark's progress; ``lag`` is the group's, as last heard, None before that."""
        lags = [one.lag for one in self._positions.values() if one.lag is not None]
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
            "recognised": counts.recognised,
            "lostAcknowledgements": counts.lost,
        }

    # The batch before.

    async def _settle(self, start: StreamOffset) -> None:
        if start.seq == self._settled:
            return
        if self._settled is None:
            self._carry = start.carry
        decided = self._decisions.outcomes(start)
        outcomes = {
            key: _with_default(offsets_of(runs), decided.get(key, {}))
            for key, runs in start.acquired.items()
        }
        self._carry = self._carry.with_refused(await self._acknowledge(outcomes))
        self._settled = start.seq

    async def _acknowledge(self, outcomes: Outcomes) -> Outcomes:
        """Send them; what was not confirmed comes back, in the same form."""
        left = await self._ranges.acknowledge(
            {key: _ack_runs(kinds) for key, kinds in outcomes.items()}
        )
        refused: dict[TopicPartition, dict[AcknowledgeType, OffsetSet]] = {}
        for key, kinds in outcomes.items():
            for kind, offsets in kinds.items():
                lost = offsets & left.get(key, EMPTY)
                self._count(kind, offsets.count - lost.count)
                self.counts.lost += lost.count
                if lost:
                    refused.setdefault(key, {})[kind] = lost
        return refused

    def _count(self, kind: AcknowledgeType, confirmed: int) -> None:
        if kind is AcknowledgeType.ACCEPT:
            self.counts.accepted += confirmed
        elif kind is AcknowledgeType.RELEASE:
            self.counts.released += confirmed
        else:
            self.counts.rejected += confirmed

    async def _prune(self) -> None:
        """Drop from the carry what nobody will deliver again."""
        if not self._carry.count or not await self.refresh_positions():
            return
        starts = {
            key: one.start_offset
            for key, one in self._positions.items()
            if one.start_offset is not None
        }
        self._carry = self._carry.from_offsets(starts)
        carried = {
            key.topic_id for sets in (self._carry.accept, self._carry.reject) for key in sets
        }
        if carried:
            await self._drop_deleted(carried)

    async def _drop_deleted(self, carried: set[TopicId]) -> None:
        topics = await self._topics()
        gone = carried - set(topics.values())
        if topics and gone:
            log.warning("topics.deleted ids=%s (their records can't come again)", gone)
            self._carry = self._carry.without_topics(gone)

    async def _tell_of_missing_topics(self) -> None:
        """A name that was misspelt looks like a topic without records."""
        if self._ranges.assigned or time.monotonic() - self._told_at < MISSING_SECONDS:
            return
        self._told_at = time.monotonic()
        missing = [name for name, topic_id in (await self._topics()).items() if topic_id is None]
        if missing:
            log.warning("topics.missing names=%s (waiting until they are made)", missing)

    async def _topics(self) -> Mapping[TopicName, TopicId | None]:
        """The subscribed topics; empty when nobody can say."""
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                return await self._ranges.topic_ids()
        except (KafkaError, TimeoutError) as error:
            log.info("topics.unknown error=%r", error)
            return {}

    async def refresh_positions(self) -> bool:
        """Ask where the group stands, unless it was asked just now; whether it is new."""
        if time.monotonic() - self._asked_at < POSITIONS_SECONDS:
            return False
        self._asked_at = time.monotonic()
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                self._positions = await self._ranges.positions()
        except (KafkaError, TimeoutError) as error:
            log.info("positions.unknown error=%r", error)
            return False
        return True

    # The next batch.

    async def _fresh(self, records_max: int) -> tuple[Acquired, KafkaError | None]:
        """Records that this query has not processed, and why there are none if that failed.

        What it has processed is settled at once.
        """
        deadline = time.monotonic() + POLL_MS / 1000
        while True:
            wait_ms = max(0, round((deadline - time.monotonic()) * 1000))
            acquisition = await self._ranges.acquire(records_max=records_max, wait_ms=wait_ms)
            acquired = {
                key: tuple(Run(*one) for one in ranges)
                for key, ranges in acquisition.ranges.items()
            }
            self._count_acquired(acquired)
            fresh, again = recognise(acquired, self._carry)
            if again:
                await self._settle_again(again)
            if fresh or acquisition.failure is not None or time.monotonic() >= deadline:
                return fresh, acquisition.failure

    async def _settle_again(self, again: Outcomes) -> None:
        refused = await self._acknowledge(again)
        confirmed = {
            key: {
                kind: some - refused.get(key, {}).get(kind, EMPTY) for kind, some in kinds.items()
            }
            for key, kinds in again.items()
        }
        self._carry = self._carry.without(confirmed)
        self.counts.recognised += sum(
            some.count for kinds in confirmed.values() for some in kinds.values()
        )

    def _count_acquired(self, acquired: Acquired) -> None:
        for run in (run for runs in acquired.values() for run in runs):
            self.counts.acquired += run.end - run.first
            if run.delivery_count > 1:
                self.counts.redelivered += run.end - run.first

    async def _available_now(
        self, records_max: int, targets: Mapping[TopicPartition, int]
    ) -> Acquired:
        """The next records of before the run began; empty when there are no more."""
        began = idle_since = time.monotonic()
        while True:
            fresh, failure = await self._fresh(records_max)
            if fresh:
                if await self._is_wanted(fresh, targets):
                    return fresh
                await self._give_back(fresh)
                return {}
            if failure is None and await self._is_done(targets):
                return {}
            now = time.monotonic()
            if failure is not None or not self._ranges.assigned:
                idle_since = now
            if now - began > JOIN_SECONDS_MAX and failure is not None:
                raise failure  # An empty run that looks like a success would be a lie.
            if now - idle_since > IDLE_SECONDS or now - began > JOIN_SECONDS_MAX:
                log.warning(
                    "available_now.ended_early assigned=%d (what is left is held by others)",
                    len(self._ranges.assigned),
                )
                return {}

    async def _is_wanted(self, fresh: Acquired, targets: Mapping[TopicPartition, int]) -> bool:
        """Whether the run takes these: for themselves, or for what may come after them.

        A partition hands out its lowest offsets first.  One that is behind its target has nothing
        left of before but what others hold, and that is waited for no longer than elsewhere.
        """
        now = time.monotonic()
        is_early = any(runs[0].first < targets.get(key, 0) for key, runs in fresh.items())
        if is_early or self._wanted_at is None:
            self._wanted_at = now
        self._passed |= {key for key, runs in fresh.items() if runs[-1].end > targets.get(key, 0)}
        if is_early or now - self._wanted_at > IDLE_SECONDS:
            return is_early
        await self.refresh_positions()
        return any(
            key not in self._passed and not self._is_settled(key, target)
            for key, target in targets.items()
            if target and key in self._ranges.assigned
        )

    async def _is_done(self, targets: Mapping[TopicPartition, int]) -> bool:
        """Whether everything that is assigned to us is settled up to the target."""
        await self.refresh_positions()
        assigned = self._ranges.assigned
        return bool(assigned) and all(
            self._is_settled(key, targets.get(key, 0)) for key in assigned
        )

    def _is_settled(self, key: TopicPartition, target: int) -> bool:
        """Whether the group is known to have come to the target, or to the end."""
        one = self._positions.get(key)
        return one is not None and (one.lag == 0 or (one.start_offset or 0) >= target)

    async def _give_back(self, fresh: Acquired) -> None:
        await self._acknowledge(
            {key: {AcknowledgeType.RELEASE: offsets_of(runs)} for key, runs in fresh.items()}
        )

    def _name(self, key: TopicPartition) -> TopicName:
        name = self._ranges.name_of(key.topic_id)
        assert name is not None, f"something was acquired of {key}, and its topic has no name"
        return name


def _with_default(
    held: OffsetSet, decided: Mapping[AcknowledgeType, OffsetSet]
) -> dict[AcknowledgeType, OffsetSet]:
    """The decisions, and accepted what they leave out."""
    outcomes = dict(decided)
    outcomes.pop(AcknowledgeType.ACCEPT, None)
    left = held
    for offsets in outcomes.values():
        left = left - offsets
    if left:
        outcomes[AcknowledgeType.ACCEPT] = left
    return outcomes


def _ack_runs(kinds: Mapping[AcknowledgeType, OffsetSet]) -> tuple[AckRun, ...]:
    return tuple(
        sorted(
            AckRun(first, end, int(kind))
            for kind, offsets in kinds.items()
            for first, end in offsets
        )
    )
