"""The delivery state of one share partition: the state of each record for one share group.

One total map from offset to `InFlightState`, stored as runs. Records below ``start_offset`` are
settled for good; records from ``end_offset`` on were never delivered.

      settled        in flight: available, acquired, settled out of order        not seen
    ----------|-----------------------------------------------------------|-----------------
         start_offset                                                end_offset

Pure: no I/O, no clock, no threads; time comes in as ``now_ms``. A method either raises and changes
nothing, or changes the state and returns the `Delta` that must be durable before the caller
replies. None means that nothing must be written. There is no undo: a caller whose write fails drops
the object and restores another from the state log (ADR 0004). Acquisition locks are not durable on
purpose: after a crash their records are available again.

Costs are O(log runs + runs touched) and do not depend on the number of records in a range. Four
heaps make that possible: see `run_heaps`.

Records that wait for their copy (ARCHIVING) hold no lock and do not count as in flight. So a
dead-letter queue that cannot be written stops no delivery until there are ``runs_max`` runs.

This module does not know the group's members or sessions, read the log, or write the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Self

from sharegroup.core.delivery.acknowledgement import (
    check_held,
    check_order,
    check_renewable,
    claims,
    tells_apart,
)
from sharegroup.core.delivery.acquisition import AcquireBudget, Range, entries, holes, stretches
from sharegroup.core.delivery.delivery import (
    ABSENT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DELAYED,
    IN_MEMORY,
    NEW,
    REASONS,
    TERMINAL,
    AckBatch,
    Acquired,
    AcquireRequest,
    Acquisition,
    DeadLetterRange,
    Delta,
    InFlightState,
    LogBatches,
    Reason,
    RecordState,
    SharePartitionLimits,
    Snapshot,
    StateBatch,
    delayed,
    joined,
    renewed,
    settled,
    stored,
)
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run
from sharegroup.core.delivery.run_heaps import RunsInState, TimedRuns
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType

EVERY_RUN = 2**63 - 1
"""No limit to the number of runs that one call changes."""


class SharePartition:
    """The state of each record of a topic partition for one share group, as a map of runs."""

    __slots__ = (
        "_absent_count",
        "_accepted_count",
        "_archiving",
        "_available",
        "_counts",
        "_delays",
        "_failed_count",
        "_locks",
        "_runs",
    )

    def __init__(self, start_offset: int) -> None:
        self._runs: OffsetRuns[InFlightState] = OffsetRuns(start_offset)
        self._counts = [0] * len(RecordState)  # Offsets in the map, by state.
        self._available = RunsInState(self._runs, AVAILABLE)
        self._archiving = RunsInState(self._runs, ARCHIVING)
        self._locks = TimedRuns(self._runs, ACQUIRED, attrgetter("lock_deadline_ms"))
        self._delays = TimedRuns(self._runs, DELAYED, attrgetter("due_ms"))
        self._accepted_count = 0
        self._failed_count = 0
        self._absent_count = 0

    @classmethod
    def restore(cls, start_offset: int, batches: Iterable[StateBatch], *, log_end: int) -> Self:
        """Rebuild a share partition from the state log, for the offsets below ``log_end``.

        Offsets that the log lost will be written again with other records, which must not inherit
        an old acknowledgement. Offsets between the batches were acquired or never reached; they
        become new. Due times must be those of the caller's clock, and lie ahead of it.
        """
        # The log may end before the state, if a crash kept the state and lost the records.
        partition = cls(min(start_offset, log_end))
        for batch in sorted(batches):
            # Kafka never stores ACQUIRED either (KIP-932): a lock means nothing after a restart.
            assert batch.state not in IN_MEMORY, (
                f"{batch}: locks are never durable, and a delay is a due time"
            )
            # The start offset may lie within a batch: what is below it is settled.
            first, end = max(batch.first, partition.end_offset), min(batch.end, log_end)
            if first < end:
                partition._append(first, NEW)
                # `told_apart` is not durable, so after a restart every returned record counts as
                # suspicious.
                reason = REASONS.get(batch.reason) if batch.state is ARCHIVING else None
                due_ms = batch.due_ms if batch.state is AVAILABLE else 0
                state = DELAYED if due_ms else batch.state
                value = InFlightState(state, batch.delivery_count, reason=reason, due_ms=due_ms)
                partition._append(end, value)
        # The stored start offset may trail: as in Kafka, it is that of the last write.
        partition._advance_start()
        return partition

    @property
    def start_offset(self) -> int:
        """The first offset that is not settled for good."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """The first offset that was never delivered."""
        return self._runs.end

    @property
    def outcomes(self) -> tuple[int, int, int]:
        """The numbers of records that were accepted, that failed for good, and that were none.

        Of this object.  Those failed that were rejected or exhausted their deliveries; unreadable
        ones do not count.  A member found no record at offsets that it acknowledged as a gap.
        """
        return self._accepted_count, self._failed_count, self._absent_count

    def next_fetch_offset(self) -> int:
        """Return the offset to read the log from: the first available record, or the end offset."""
        run = self._available.lowest()
        return self._runs.end if run is None else run.first

    def takeable_count(self, first: int, end: int, *, count_max: int) -> int:
        """Return the number of available or unseen offsets in a range, at most ``count_max``."""
        count = max(0, end - max(first, self._runs.end))
        for run in self._runs.between(first, end):
            if count >= count_max:
                break
            if run.value.state is AVAILABLE:
                count += min(run.end, end) - max(run.first, first)
        return min(count, count_max)

    def next_expiry_ms(self) -> int | None:
        """Return the earliest end of a lock or a delay; None while there is neither."""
        lock_ms = self._locks.next_ms()
        if not self._counts[DELAYED]:
            return lock_ms
        due_ms = self._delays.next_ms()
        return due_ms if lock_ms is None or due_ms is None else min(lock_ms, due_ms)

    def is_full(self, limits: SharePartitionLimits) -> bool:
        """Return whether ``runs_max`` or ``delayed_max`` is reached, so no new records are taken
        for now.
        """
        return len(self._runs) >= limits.runs_max or self._counts[DELAYED] >= limits.delayed_max

    def can_acquire(self, limits: SharePartitionLimits) -> bool:
        """Return whether an acquire can take records, if the log has any at `next_fetch_offset`."""
        # Only locked records count: those that are available again have their room already, so they
        # can be acquired although no new ones can (spec limit-5).
        if limits.paused or self._counts[ACQUIRED] >= limits.in_flight_max:
            return False
        return self._counts[AVAILABLE] > 0 or not self.is_full(limits)

    def acquire(
        self,
        member_id: MemberId,
        log: LogBatches,
        *,
        request: AcquireRequest,
        limits: SharePartitionLimits,
        now_ms: int,
    ) -> Acquisition:
        """Lock available records in ``log`` for ``member_id``, the lowest offsets first.

        Records that were returned too often are delivered alone: see `acquisition`.

        All records of the map that are not settled are in flight already, so acquiring an available
        one needs no room; only unseen records need it. Offsets without a record are archived on the
        way. They are the only reason for a delta, because locks are not durable.
        """
        assert member_id, "a member that acquires has an id"
        assert log.position <= self._runs.end, f"{log.position} was read, past {self._runs.end}"
        log_end = log.end
        if request.records_max <= 0 or limits.paused or log_end <= log.position:
            return Acquisition()
        record_ranges = stretches(log)
        # First, because a hole may lie within an available run, which would be acquired below.
        absent = self._archive_absent(holes(log, record_ranges))
        if not record_ranges:
            absent += self._pass_over(log_end)
            return Acquisition((), self._delta(absent) if absent else None)
        lock_deadline_ms = now_ms + limits.lock_ms
        # Below 0 if a log batch was completed above the limit, or the limit was lowered.
        locks_left = limits.in_flight_max - self._counts[ACQUIRED]
        budget = AcquireBudget(log, request, locks_left=locks_left, limits=limits)
        if request.free is not None:
            taken = self._lock_free(member_id, lock_deadline_ms, request.free, budget)
            return Acquisition(
                entries(taken, log, request), self._delta(absent) if absent else None
            )
        taken = self._lock_waiting(member_id, lock_deadline_ms, log.firsts[0], budget)
        # While records are isolated, nothing else may come with them, not even new records.
        if not budget.isolating and not self.is_full(limits):
            # Records that are still available will be acquired later: they keep their room.
            budget.locks_left -= self._counts[AVAILABLE]
            absent += self._lock_unseen(member_id, lock_deadline_ms, record_ranges, budget, taken)
            # Only if all stretches were taken: the map is total, so it cannot pass over a part of
            # the log before it.
            absent += self._pass_over(log_end if record_ranges[-1][1] <= self._runs.end else 0)
        return Acquisition(
            entries(taken, log, request),
            self._delta(absent) if absent else None,
        )

    def acknowledge(
        self,
        member_id: MemberId,
        acks: Sequence[AckBatch],
        *,
        limits: SharePartitionLimits,
        now_ms: int,
    ) -> Delta | None:
        """Settle, release or renew records of ``member_id``; either all of ``acks`` or none.

        A renewed lock lasts for the group's lock duration from now on. It is not part of the delta,
        so a request that only renews writes nothing. Offsets below the start offset are settled
        already and are ignored. A lock is lost at its deadline, even if `expire` was not called
        yet.
        """
        # All checks come before the first change, because there is no undo (ADR 0004).
        check_order(acks, start_offset=self._runs.start, end_offset=self._runs.end)
        # Of the whole request: a worker accepts the good records in one batch and releases the bad
        # one in another.
        told_apart = tells_apart(acks)
        changing: list[Run[InFlightState]] = []
        accepted_count = failed_count = absent_count = 0
        for ack in acks:
            for first, end, ack_type in claims(ack):
                for run in self._runs.between(first, end):
                    check_held(run, member_id, now_ms)
                    if ack_type == AcknowledgeType.RENEW:
                        check_renewable(run, limits)
                        value = renewed(run.value, lock_deadline_ms=now_ms + limits.lock_ms)
                    else:
                        value = settled(
                            run.value,
                            ack_type,
                            limits=limits,
                            told_apart=told_apart or run.value.told_apart,
                        )
                        if value.state is ACKNOWLEDGED:
                            accepted_count += run.end - run.first
                        elif value.state is AVAILABLE:
                            value = delayed(value, ack, limits=limits, now_ms=now_ms)
                        elif ack_type == AcknowledgeType.GAP:
                            absent_count += run.end - run.first
                        else:
                            failed_count += run.end - run.first
                    changing.append(Run(run.first, run.end, value))
        self._accepted_count += accepted_count
        self._failed_count += failed_count
        self._absent_count += absent_count
        return self._change(changing)

    def release_member(self, member_id: MemberId, *, limits: SharePartitionLimits) -> Delta | None:
        """Release all records of a member whose session ended. The cost is O(all runs)."""
        held = [run for run in self._runs if run.value.member_id == member_id]
        return self._release_held(held, limits)

    def release_unreadable(
        self, member_id: MemberId, ranges: Iterable[Range], *, limits: SharePartitionLimits
    ) -> Delta | None:
        """Release records that were just acquired for the member, because the log cannot read them.

        The attempt counts as a delivery, so they reach their delivery count limit in the end.
        """
        held = [
            run
            for first, end in ranges
            for run in self._runs.between(first, end)
            if run.value.member_id == member_id
        ]
        return self._release_held(held, limits, Reason.UNREADABLE)

    def dead_letters(self, *, limits: SharePartitionLimits, runs_max: int) -> list[DeadLetterRange]:
        """Return records that wait for their copy, in order, from ``runs_max`` runs at most."""
        dead_letters: list[DeadLetterRange] = []
        lowest = self._archiving.lowest()
        if lowest is None:
            return dead_letters
        # Runs in other states count, too, so that one call takes a limited time.
        for run in islice(self._runs.between(lowest.first, self._runs.end), runs_max):
            state, delivery_count, *_, reason, _ = run.value
            if state is not ARCHIVING:
                continue
            if reason is None:
                # Apache Kafka wrote the state, so the delivery count is the only evidence.
                is_exhausted = delivery_count >= limits.delivery_count_max
                reason = Reason.EXHAUSTED if is_exhausted else Reason.REJECTED
            dead_letters.append(DeadLetterRange(run.first, run.end, delivery_count, reason))
        return dead_letters

    def archived(self, copied: Iterable[Range]) -> Delta | None:
        """Archive the copied records; skip those that the log lost or that were settled before."""
        archived_runs: list[Run[InFlightState]] = []
        for first, end in copied:
            archived_runs += [
                Run(run.first, run.end, InFlightState(ARCHIVED, run.value.delivery_count))
                for run in self._runs.between(first, end)
                if run.value.state is ARCHIVING
            ]
            for run in self._runs.between(end, end + 1):
                if run.value.state is ARCHIVING:
                    self._archiving.note(end)  # The rest of a run that was split.
        return self._change(archived_runs, was=ARCHIVING)

    def expire(
        self, *, limits: SharePartitionLimits, now_ms: int, runs_max: int = EVERY_RUN
    ) -> Delta | None:
        """Release records whose lock deadline has passed, from ``runs_max`` runs at most.

        Call it again while `next_expiry_ms` has passed. The delay does no harm: a lock is lost at
        its deadline, even before its records are released.
        """
        return self._release_held(self._locks.pop_due(now_ms, runs_max=runs_max), limits)

    def end_delays(self, *, now_ms: int, runs_max: int = EVERY_RUN) -> list[Range]:
        """Make records available whose delay is over, from ``runs_max`` runs at most.

        Returns their ranges. Nothing is written, because they are stored as available. Call it
        again while `next_expiry_ms` has passed.
        """
        if not self._counts[DELAYED]:
            return []
        due = self._delays.pop_due(now_ms, runs_max=runs_max)
        self._change(
            [
                Run(first, end, value._replace(state=AVAILABLE, due_ms=0))
                for first, end, value in due
            ],
            was=DELAYED,
        )
        return [(first, end) for first, end, _ in due]

    def move_log_start(self, log_start: int) -> Delta | None:
        """Forget all records below ``log_start``, even acquired ones: the log has deleted them."""
        if log_start <= self._runs.start:
            return None
        if log_start > self._runs.end:
            # The map is total, so it must reach the offset at which it is cut.
            self._append(log_start, NEW)
        self._drop_before(log_start)
        self._advance_start()
        # Without batches, too: lag and start offset of the group change at once, not with the next
        # acknowledgement as in Kafka (differences.md).
        return self._delta([])

    def see(self, end: int) -> None:
        """Make the offsets below ``end`` available that are not in the map yet.

        Nothing durable changes, because a restart takes such offsets for new ones.
        """
        if end > self._runs.end:
            self._append(end, NEW)

    def checkpoint(self) -> Delta:
        """Return all durable state at once: what `restore` needs to rebuild this share partition.

        Acquired records are written as they were before their acquisition, because locks are not
        durable.
        """
        batches = [
            StateBatch(run.first, run.end, AVAILABLE, run.value.delivery_count - 1)
            if run.value.state is ACQUIRED
            else stored(*run)
            for run in self._runs
        ]
        # `restore` makes offsets without a batch new, so new runs need none.
        return self._delta(batch for batch in batches if batch[2:4] != NEW[:2])

    def runs(self, first: int = 0) -> Iterator[Run[InFlightState]]:
        """Return the runs from ``first`` on; the partition must not change meanwhile."""
        return self._runs.between(first, self._runs.end)

    def snapshot(self) -> Snapshot:
        """Return the current counts, in constant time."""
        return Snapshot(
            start_offset=self._runs.start,
            end_offset=self._runs.end,
            available_count=self._counts[AVAILABLE],
            acquired_count=self._counts[ACQUIRED],
            acknowledged_count=self._counts[ACKNOWLEDGED],
            archiving_count=self._counts[ARCHIVING],
            archived_count=self._counts[ARCHIVED],
            delayed_count=self._counts[DELAYED],
            run_count=len(self._runs),
        )

    def check(self) -> None:
        """Assert the invariants by counting everything anew; for tests."""
        self._runs.check()
        counts = [0] * len(self._counts)
        for run in self._runs:
            first, end, value = run
            counts[value.state] += end - first
            assert (value.state is ACQUIRED) == bool(value.member_id), value
            assert value.reason is None or value.state is ARCHIVING, value
            assert (value.state is DELAYED) == (value.due_ms > 0), value
            if value.state is AVAILABLE:
                self._available.check(run)
            elif value.state is ARCHIVING:
                self._archiving.check(run)
            elif value.state is ACQUIRED:
                assert value.delivery_count >= 1, value
                self._locks.check(run)
            elif value.state is DELAYED:
                self._delays.check(run)
        assert counts == self._counts, f"counted {counts}, kept {self._counts}"
        head = next(iter(self._runs), None)
        assert head is None or head.value.state not in TERMINAL, f"{head} is settled for good"

    def _lock_waiting(
        self, member_id: MemberId, lock_deadline_ms: int, log_first: int, budget: AcquireBudget
    ) -> list[Acquired]:
        """Acquire available records of the map, from ``log_first`` on.

        Each run is acquired before the next is looked up, because an offset may be in the heap
        twice.
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
                # Released while the log was read, or to be isolated: a later acquire takes it.
                still_available.append(run.first)
            if first < end:
                count = run.value.delivery_count + 1
                locked = InFlightState(
                    ACQUIRED, count, member_id, lock_deadline_ms, run.value.told_apart
                )
                self._runs.overlay([Run(first, end, locked)])
                self._counts[AVAILABLE] -= end - first
                self._counts[ACQUIRED] += end - first
                self._locks.note((lock_deadline_ms, first, end))
                taken.append(Acquired(first, end, count))
                if end < run.end:
                    still_available.append(end)
        # Only after the loop, in which `lowest` would return them again.
        for first in still_available:
            self._available.note(first)
        return taken

    def _lock_free(
        self,
        member_id: MemberId,
        lock_deadline_ms: int,
        free: Sequence[Range],
        budget: AcquireBudget,
    ) -> list[Acquired]:
        """Acquire available records of these ranges."""
        locked: list[Run[InFlightState]] = []
        for range_first, range_end in free:
            for first, run_end, value in self._runs.between(range_first, range_end):
                if budget.locks_left <= 0 or first >= budget.stop:
                    break
                if value.state is not AVAILABLE:
                    continue
                end = budget.take(first, run_end, 0 if value.told_apart else value.delivery_count)
                if first < end:
                    count = value.delivery_count + 1
                    lock = (ACQUIRED, count, member_id, lock_deadline_ms, value.told_apart)
                    locked.append(Run(first, end, InFlightState(*lock)))
        self._change(locked, was=AVAILABLE)
        for _, end, _ in locked:
            if end < self._runs.end:
                self._available.note(end)  # The rest of the run, if there is any.
        return [Acquired(first, end, value.delivery_count) for first, end, value in locked]

    def _lock_unseen(
        self,
        member_id: MemberId,
        lock_deadline_ms: int,
        record_ranges: list[Range],
        budget: AcquireBudget,
        taken: list[Acquired],
    ) -> list[StateBatch]:
        """Acquire unseen records within the budget; return the holes that the map now includes."""
        absent: list[StateBatch] = []
        locked = InFlightState(ACQUIRED, 1, member_id, lock_deadline_ms)
        for stretch_first, stretch_end in record_ranges:
            first = max(stretch_first, self._runs.end)
            end = budget.take(first, stretch_end, unseen=True)
            # The stretch lies below the end of the map, or the budget is spent.
            if end <= first:
                continue
            absent += self._pass_over(first)
            self._append(end, locked)
            self._locks.note((lock_deadline_ms, first, end))
            taken.append(Acquired(first, end, 1))
        return absent

    def _pass_over(self, end: int) -> list[StateBatch]:
        """Extend the map to ``end`` over offsets at which the log holds nothing to deliver."""
        first = self._runs.end
        if end <= first:
            return []
        self._append(end, ABSENT)
        self._advance_start()
        return [StateBatch(first, end, *ABSENT[:2])]

    def _archive_absent(self, absent: list[Range]) -> list[StateBatch]:
        """Archive available offsets at which the log holds no record any more."""
        archived = [
            Run(run.first, run.end, InFlightState(ARCHIVED, run.value.delivery_count))
            for first, end in absent
            for run in self._runs.between(first, end)
            # Kafka, too, archives only AVAILABLE ones: the member that has locked an offset
            # acknowledges it as a gap.
            if run.value.state is AVAILABLE
        ]
        if not archived:
            return []
        self._runs.overlay(archived)
        for first, end, _ in archived:
            self._counts[AVAILABLE] -= end - first
            self._counts[ARCHIVED] += end - first
            if end < self._runs.end:
                self._available.note(end)  # The hole may have split an available run.
        self._advance_start()
        return [StateBatch(first, end, *value[:2]) for first, end, value in archived]

    def _release_held(
        self,
        held: Iterable[Run[InFlightState]],
        limits: SharePartitionLimits,
        failure: Reason = Reason.EXHAUSTED,
    ) -> Delta | None:
        # `told_apart` is lost: a lock or session that ended, or an unreadable batch, is a failed
        # delivery, so the records are isolated again (differences.md).
        released = [
            Run(
                first,
                end,
                settled(value, AcknowledgeType.RELEASE, limits=limits, failure=failure),
            )
            for first, end, value in held
        ]
        if failure is not Reason.UNREADABLE:
            self._failed_count += sum(
                end - first for first, end, value in released if value.state is not AVAILABLE
            )
        return self._change(released)

    def _change(self, runs: list[Run[InFlightState]], was: RecordState = ACQUIRED) -> Delta | None:
        """Give ``runs``, which all have the state ``was``, their new value; return the delta."""
        if not runs:
            return None
        self._runs.overlay(runs)
        counts = self._counts  # A local name: this loop runs for each settled run.
        for first, end, value in runs:
            counts[was] -= end - first
            counts[value.state] += end - first
            if value.state is AVAILABLE:
                self._available.note(first)
            elif value.state is ARCHIVING:
                self._archiving.note(first)
            elif value.state is ACQUIRED:
                self._locks.note((value.lock_deadline_ms, first, end))
            elif value.state is DELAYED:
                self._delays.note((value.due_ms, first, end))
        # Before the delta, which has the new start offset; Kafka writes the one before the change
        # and the new one with the next write (differences.md).
        self._advance_start()
        written = [
            # The usual case without a call: this loop runs for each settled run.
            StateBatch(first, end, ACKNOWLEDGED, value.delivery_count)
            if value.state is ACKNOWLEDGED
            else stored(first, end, value)
            for first, end, value in runs
            if value.state is not ACQUIRED
        ]
        return self._delta(written) if written else None

    def _append(self, end: int, value: InFlightState) -> None:
        """Extend the map to ``end``, and note the run in its heap by the run's first offset."""
        first = self._runs.end
        self._runs.append(end, value)
        self._counts[value.state] += end - first
        if first == end:
            return
        if value.state is AVAILABLE:
            # Not `first`: the new offsets may have joined the run before them.
            self._available.note(self._runs.at(first).first)
        elif value.state is ARCHIVING:
            self._archiving.note(self._runs.at(first).first)
        elif value.state is DELAYED:
            self._delays.note((value.due_ms, first, end))

    def _advance_start(self) -> None:
        """Forget the leading runs that are settled for good."""
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
        """Forget everything below ``offset``, in any state."""
        for first, end, value in self._runs.between(self._runs.start, offset):
            self._counts[value.state] -= end - first
        self._runs.drop_before(offset)
        # A run that was cut begins at a new offset, which its heap does not have.
        for run in self._runs.between(offset, offset + 1):
            if run.value.state is AVAILABLE:
                self._available.note(offset)
            elif run.value.state is ARCHIVING:
                self._archiving.note(offset)

    def _delta(self, batches: Iterable[StateBatch]) -> Delta:
        start, counts = self._runs.start, self._counts
        complete = counts[ACKNOWLEDGED] + counts[ARCHIVED]
        return Delta(start, complete, joined(batches, start_offset=start))
