"""The delivery state of one (group, topic-partition): which record is where in its life.

One total map from offset to `Delivery`, kept as runs.  Records below ``start_offset`` are
settled for good; records from ``end_offset`` on were never handed out.

      settled        in flight: available, acquired, settled out of order        not seen
    ----------|-----------------------------------------------------------|-----------------
         start_offset                                                end_offset

Pure: no I/O, no clock, no locks; time comes in as ``now_ms``.  A method either raises and
changes nothing, or changes the state and returns the `Delta` that must be durable before
the caller answers; None means that there is nothing to write.  There is no way back: a
caller whose write fails drops the object and restores another from the state log.  Locks are
not durable on purpose: after a crash the records are simply available again.

Costs are O(log runs + runs touched) and do not depend on how many records a range covers.
Three heaps make it so: see `run_heaps`.

Records that wait for their copy (ARCHIVING) hold no lock and take no room from those in flight,
so a dead-letter queue that cannot be written stops nobody until ``runs_max`` runs are held.

It does not know the group's membership or sessions, read the log, or write the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from sharegroup.core.acknowledgement import (
    check_held,
    check_order,
    check_renewable,
    claims,
    tells_apart,
)
from sharegroup.core.acquisition import Budget, Range, entries, holes, stretches
from sharegroup.core.delivery import (
    ABSENT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NEW,
    TERMINAL,
    Ack,
    AckBatch,
    Acquired,
    Acquisition,
    DeadLetter,
    Delivery,
    Delta,
    Limits,
    LogBatches,
    Reason,
    RecordState,
    StateBatch,
    Wanted,
    joined,
    renewed,
    settled,
)
from sharegroup.core.offset_runs import OffsetRuns, Run
from sharegroup.core.run_heaps import LockEnds, RunsInState
from sharegroup.ids import MemberId

EVERY_RUN = 2**63 - 1
"""No limit to the runs that one call changes."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A share partition at one moment, for everyone who only looks."""

    start_offset: int
    end_offset: int
    available_count: int
    acquired_count: int
    acknowledged_count: int
    archiving_count: int
    archived_count: int
    run_count: int

    @property
    def delivery_complete_count(self) -> int:
        """Terminal offsets at or above the start offset."""
        return self.acknowledged_count + self.archived_count


class SharePartition:
    """See the module's text."""

    __slots__ = ("_archiving", "_available", "_counts", "_locks", "_runs")

    def __init__(self, start_offset: int) -> None:
        self._runs: OffsetRuns[Delivery] = OffsetRuns(start_offset)
        self._counts = [0] * (max(TERMINAL) + 1)  # Offsets in the map, by state.
        self._available = RunsInState(self._runs, AVAILABLE)
        self._archiving = RunsInState(self._runs, ARCHIVING)
        self._locks = LockEnds(self._runs)

    @classmethod
    def restore(cls, start_offset: int, batches: Iterable[StateBatch], *, log_end: int) -> Self:
        """Rebuild from the state log what concerns the log up to ``log_end``.

        What the log lost will be written again with other records, which must not inherit an
        old acknowledgement.  Offsets between the batches were locked or never reached: new.
        """
        partition = cls(min(start_offset, log_end))
        for batch in sorted(batches):
            assert batch.state is not ACQUIRED, f"{batch} is a lock: locks are never durable"
            first, end = max(batch.first, partition.end_offset), min(batch.end, log_end)
            if first < end:
                partition._append(first, NEW)
                partition._append(end, Delivery(batch.state, batch.delivery_count))
        partition._advance_start()
        return partition

    @property
    def start_offset(self) -> int:
        """The first offset that is not settled for good."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """The first offset that was never handed out."""
        return self._runs.end

    def next_fetch_offset(self) -> int:
        """Where to read the log next: the first available record, else the first unseen one."""
        run = self._available.lowest()
        return self._runs.end if run is None else run.first

    def next_expiry_ms(self) -> int | None:
        """When the next lock ends; None while nothing is locked."""
        return self._locks.next_ms()

    def is_full(self, limits: Limits) -> bool:
        """Whether so many runs are held that no new record is taken until some are settled."""
        return len(self._runs) >= limits.runs_max

    def can_acquire(self, limits: Limits) -> bool:
        """Whether an acquire at `next_fetch_offset` can take anything, given records there."""
        if self._counts[ACQUIRED] >= limits.in_flight_max:
            return False
        return self._counts[AVAILABLE] > 0 or not self.is_full(limits)

    def acquire(
        self,
        member_id: MemberId,
        log: LogBatches,
        *,
        wanted: Wanted,
        limits: Limits,
        now_ms: int,
    ) -> Acquisition:
        """Lock available records in ``log`` for ``member_id``, the lowest offsets first.

        Records that came back too often are delivered by themselves: see `acquisition`.

        Room: every record of the map that is not settled is in flight, so locking one that waits
        needs none; only records that were never seen do.  Offsets without a record are archived
        on the way; they are the only reason for a delta.
        """
        assert member_id, "a member that acquires has an id"
        assert log.position <= self._runs.end, f"{log.position} was read, past {self._runs.end}"
        log_end = log.end
        if wanted.records_max <= 0 or log_end <= log.position:
            return Acquisition()
        found = stretches(log)
        absent = self._archive_absent(holes(log, found))
        if not found:
            absent += self._pass_over(log_end)
            return Acquisition((), self._delta(absent) if absent else None)
        lock_until_ms = now_ms + limits.lock_ms
        locks_left = limits.in_flight_max - self._counts[ACQUIRED]
        budget = Budget(
            log, wanted, locks_left=locks_left, delivery_count_max=limits.delivery_count_max
        )
        taken = self._lock_waiting(member_id, lock_until_ms, log.firsts[0], budget)
        if not budget.isolating and not self.is_full(limits):
            # What still waits will be locked again some day: it keeps its room.
            budget.locks_left -= self._counts[AVAILABLE]
            absent += self._lock_unseen(member_id, lock_until_ms, found, budget, taken)
            absent += self._pass_over(log_end if found[-1][1] <= self._runs.end else 0)
        return Acquisition(
            entries(taken, log, wanted),
            self._delta(absent) if absent else None,
        )

    def acknowledge(
        self, member_id: MemberId, acks: Sequence[AckBatch], *, limits: Limits, now_ms: int
    ) -> Delta | None:
        """Settle, give back or keep for longer what ``member_id`` holds; all of ``acks`` or none.

        A renewed lock holds for the group's whole duration from now on and is no part of the
        delta: a request that only renews has nothing to write.  What lies below the start offset
        is settled already and passes in silence.  A lock that has ended is lost from that moment
        on, whether `expire` has come by or not.
        """
        check_order(acks, start_offset=self._runs.start, end_offset=self._runs.end)
        told_apart = tells_apart(acks)
        changing: list[Run[Delivery]] = []
        for ack in acks:
            for first, end, ack_type in claims(ack):
                for run in self._runs.between(first, end):
                    check_held(run, member_id, now_ms)
                    if ack_type == Ack.RENEW:
                        check_renewable(run, limits)
                        value = renewed(run.value, lock_until_ms=now_ms + limits.lock_ms)
                    else:
                        value = settled(
                            run.value,
                            ack_type,
                            limits=limits,
                            told_apart=told_apart or run.value.told_apart,
                        )
                    changing.append(Run(run.first, run.end, value))
        return self._change(changing)

    def release_member(self, member_id: MemberId, *, limits: Limits) -> Delta | None:
        """The member's session ended: give back all that it holds.  Looks at every run."""
        held = [run for run in self._runs if run.value.member_id == member_id]
        return self._give_back(held, limits)

    def release_unreadable(
        self, member_id: MemberId, ranges: Iterable[Range], *, limits: Limits
    ) -> Delta | None:
        """The log cannot read what was just locked for the member: give it back untouched.

        That counts as a delivery, so it ends some day.
        """
        held = [
            run
            for first, end in ranges
            for run in self._runs.between(first, end)
            if run.value.member_id == member_id
        ]
        return self._give_back(held, limits, Reason.UNREADABLE)

    def dead_letters(self, *, limits: Limits, runs_max: int) -> list[DeadLetter]:
        """What waits for its copy, the lowest offsets first, from ``runs_max`` runs at most."""
        found: list[DeadLetter] = []
        lowest = self._archiving.lowest()
        if lowest is None:
            return found
        for run in islice(self._runs.between(lowest.first, self._runs.end), runs_max):
            state, delivery_count, *_, reason = run.value
            if state is not ARCHIVING:
                continue
            if reason is None:
                is_exhausted = delivery_count >= limits.delivery_count_max
                reason = Reason.EXHAUSTED if is_exhausted else Reason.REJECTED
            found.append(DeadLetter(run.first, run.end, delivery_count, reason))
        return found

    def archived(self, copied: Iterable[Range]) -> Delta | None:
        """What was copied is settled; passes over what the log lost or who settled it before."""
        done: list[Run[Delivery]] = []
        for first, end in copied:
            done += [
                Run(run.first, run.end, Delivery(ARCHIVED, run.value.delivery_count))
                for run in self._runs.between(first, end)
                if run.value.state is ARCHIVING
            ]
            for run in self._runs.between(end, end + 1):
                if run.value.state is ARCHIVING:
                    self._archiving.note(end)  # What was one run may go on here.
        return self._change(done, was=ARCHIVING)

    def expire(self, *, limits: Limits, now_ms: int, runs_max: int = EVERY_RUN) -> Delta | None:
        """Give back what was held for too long, from ``runs_max`` runs at most.

        Call it again while `next_expiry_ms` has passed.  Nothing is late by that: a lock that
        has ended is lost, whether it was given back yet or not.
        """
        return self._give_back(self._locks.pop_due(now_ms, runs_max=runs_max), limits)

    def move_log_start(self, log_start: int) -> Delta | None:
        """The log was truncated from below: those records are gone, whoever holds them."""
        if log_start <= self._runs.start:
            return None
        if log_start > self._runs.end:
            self._append(log_start, NEW)
        self._drop_before(log_start)
        self._advance_start()
        return self._delta([])

    def checkpoint(self) -> Delta:
        """All that is durable, from nothing: what `restore` needs to make this partition again.

        A lock is written as what it was taken from, as if it had never been.
        """
        batches = [
            StateBatch(run.first, run.end, AVAILABLE, run.value.delivery_count - 1)
            if run.value.state is ACQUIRED
            else StateBatch(run.first, run.end, *run.value[:2])
            for run in self._runs
        ]
        return self._delta(batch for batch in batches if batch[2:] != NEW[:2])

    def runs(self) -> Iterator[Run[Delivery]]:
        """The map itself, in order; the partition must not change meanwhile."""
        return iter(self._runs)

    def snapshot(self) -> Snapshot:
        """The counts of this moment; costs nothing to speak of."""
        return Snapshot(
            start_offset=self._runs.start,
            end_offset=self._runs.end,
            available_count=self._counts[AVAILABLE],
            acquired_count=self._counts[ACQUIRED],
            acknowledged_count=self._counts[ACKNOWLEDGED],
            archiving_count=self._counts[ARCHIVING],
            archived_count=self._counts[ARCHIVED],
            run_count=len(self._runs),
        )

    def check(self) -> None:
        """Assert what must always hold, counting everything anew; for tests."""
        self._runs.check()
        counts = [0] * len(self._counts)
        for run in self._runs:
            first, end, value = run
            counts[value.state] += end - first
            assert (value.state is ACQUIRED) == bool(value.member_id), value
            assert value.reason is None or value.state is ARCHIVING, value
            if value.state is AVAILABLE:
                self._available.check(run)
            elif value.state is ARCHIVING:
                self._archiving.check(run)
            elif value.state is ACQUIRED:
                assert value.delivery_count >= 1, value
                self._locks.check(run)
        assert counts == self._counts, f"counted {counts}, kept {self._counts}"
        head = next(iter(self._runs), None)
        assert head is None or head.value.state not in TERMINAL, f"{head} is settled for good"

    def _lock_waiting(
        self, member_id: MemberId, lock_until_ms: int, log_first: int, budget: Budget
    ) -> list[Acquired]:
        """Lock what is available in the map, from ``log_first`` on.

        Each run is locked before the next is looked up: an offset may be in the heap twice.
        """
        taken: list[Acquired] = []
        still_available: list[int] = []
        while budget.locks_left > 0:
            run = self._available.lowest()
            if run is None or run.first >= budget.stop:
                break
            self._available.pop()
            first = max(run.first, log_first)
            suspicion = 0 if run.value.told_apart else run.value.delivery_count
            end = budget.take(first, run.end, suspicion)
            if run.first < first or end == first:
                # Given back while the log was being read, or to be isolated: another time.
                still_available.append(run.first)
            if first < end:
                count = run.value.delivery_count + 1
                locked = Delivery(ACQUIRED, count, member_id, lock_until_ms, run.value.told_apart)
                self._runs.overlay([Run(first, end, locked)])
                self._counts[AVAILABLE] -= end - first
                self._counts[ACQUIRED] += end - first
                self._locks.note((lock_until_ms, first, end))
                taken.append(Acquired(first, end, count))
                if end < run.end:
                    still_available.append(end)
        for first in still_available:
            self._available.note(first)
        return taken

    def _lock_unseen(
        self,
        member_id: MemberId,
        lock_until_ms: int,
        found: list[Range],
        budget: Budget,
        taken: list[Acquired],
    ) -> list[StateBatch]:
        """Grow the map by what the budget permits; return the holes that were passed."""
        absent: list[StateBatch] = []
        locked = Delivery(ACQUIRED, 1, member_id, lock_until_ms)
        for stretch_first, stretch_end in found:
            first = max(stretch_first, self._runs.end)
            end = budget.take(first, stretch_end)
            if end <= first:
                continue
            absent += self._pass_over(first)
            self._append(end, locked)
            self._locks.note((lock_until_ms, first, end))
            taken.append(Acquired(first, end, 1))
        return absent

    def _pass_over(self, end: int) -> list[StateBatch]:
        """Grow the map to ``end`` where the log holds nothing to deliver."""
        first = self._runs.end
        if end <= first:
            return []
        self._append(end, ABSENT)
        self._advance_start()
        return [StateBatch(first, end, *ABSENT[:2])]

    def _archive_absent(self, absent: list[Range]) -> list[StateBatch]:
        """Archive what is available where the log holds no record any more."""
        archived = [
            Run(run.first, run.end, Delivery(ARCHIVED, run.value.delivery_count))
            for first, end in absent
            for run in self._runs.between(first, end)
            if run.value.state is AVAILABLE
        ]
        if not archived:
            return []
        self._runs.overlay(archived)
        for first, end, _ in archived:
            self._counts[AVAILABLE] -= end - first
            self._counts[ARCHIVED] += end - first
            if end < self._runs.end:
                self._available.note(end)  # What was one available run may go on behind the hole.
        self._advance_start()
        return [StateBatch(first, end, *value[:2]) for first, end, value in archived]

    def _give_back(
        self,
        held: Iterable[Run[Delivery]],
        limits: Limits,
        failure: Reason = Reason.EXHAUSTED,
    ) -> Delta | None:
        return self._change(
            [
                Run(first, end, settled(value, Ack.RELEASE, limits=limits, failure=failure))
                for first, end, value in held
            ]
        )

    def _change(self, runs: list[Run[Delivery]], was: RecordState = ACQUIRED) -> Delta | None:
        """Put ``runs``, all in one state until now, into their new one or under a new lock."""
        if not runs:
            return None
        self._runs.overlay(runs)
        counts = self._counts
        for first, end, value in runs:
            counts[was] -= end - first
            counts[value.state] += end - first
            if value.state is AVAILABLE:
                self._available.note(first)
            elif value.state is ARCHIVING:
                self._archiving.note(first)
            elif value.state is ACQUIRED:
                self._locks.note((value.lock_until_ms, first, end))
        self._advance_start()
        written = [
            StateBatch(first, end, *value[:2])
            for first, end, value in runs
            if value.state is not ACQUIRED
        ]
        return self._delta(written) if written else None

    def _append(self, end: int, value: Delivery) -> None:
        """Grow the map; a run that begins or goes on here is known by its first offset."""
        first = self._runs.end
        self._runs.append(end, value)
        self._counts[value.state] += end - first
        if first == end:
            return
        if value.state is AVAILABLE:
            self._available.note(self._runs.at(first).first)
        elif value.state is ARCHIVING:
            self._archiving.note(self._runs.at(first).first)

    def _advance_start(self) -> None:
        """Forget the prefix that is settled for good."""
        if not len(self._runs) or self._runs.head.state not in TERMINAL:
            return
        start = self._runs.start
        for first, end, value in self._runs:
            if value.state not in TERMINAL:
                break
            self._counts[value.state] -= end - first
            start = end
        self._runs.drop_before(start)

    def _drop_before(self, offset: int) -> None:
        """Forget everything below ``offset``, whatever its state."""
        for first, end, value in self._runs.between(self._runs.start, offset):
            self._counts[value.state] -= end - first
        self._runs.drop_before(offset)
        for run in self._runs.between(offset, offset + 1):
            if run.value.state is AVAILABLE:
                self._available.note(offset)
            elif run.value.state is ARCHIVING:
                self._archiving.note(offset)

    def _delta(self, batches: Iterable[StateBatch]) -> Delta:
        start, counts = self._runs.start, self._counts
        complete = counts[ACKNOWLEDGED] + counts[ARCHIVED]
        return Delta(start, complete, joined(batches, start_offset=start))
