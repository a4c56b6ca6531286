"""A share partition as one would explain it: one cell per offset, every question a full scan.

Slow and obvious on purpose; `test_share_partition` holds the real one equal to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    Delta,
    LogBatches,
    Reason,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.errors import InvalidRecordState, InvalidRequest, KafkaError
from sharegroup.protocol_enums import AcquireMode

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
ARCHIVING, DELAYED = RecordState.ARCHIVING, RecordState.DELAYED
Durable = tuple[RecordState, int, int, int]
"""State, delivery count, due time and the number of the reason."""
NEW: Durable = (AVAILABLE, 0, 0, 0)


@dataclass(frozen=True)
class Cell:
    state: RecordState
    count: int
    member_id: str = ""
    lock_deadline_ms: int = 0
    told_apart: bool = False
    reason: Reason | None = None
    due_ms: int = 0


@dataclass
class PartitionModel:
    """Cells for the offsets from ``start`` to ``end - 1``."""

    start: int = 0
    end: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    accepted_count: int = 0
    failed_count: int = 0
    absent_count: int = 0

    def in_state(self, state: RecordState) -> list[int]:
        return [offset for offset, cell in sorted(self.cells.items()) if cell.state is state]

    def run_count(self) -> int:
        return len(list(groupby(cell for _, cell in sorted(self.cells.items()))))

    def next_fetch_offset(self) -> int:
        return min(self.in_state(AVAILABLE), default=self.end)

    def next_expiry_ms(self) -> int | None:
        ends = [self.cells[offset].lock_deadline_ms for offset in self.in_state(ACQUIRED)]
        ends += [self.cells[offset].due_ms for offset in self.in_state(DELAYED)]
        return min(ends, default=None)

    def acquire(
        self,
        member_id: str,
        log: LogBatches,
        limits: SharePartitionLimits,
        wanted: AcquireRequest,
        now_ms: int,
    ) -> list[tuple[int, int]]:
        """The offsets that are locked now, each with its delivery count."""
        if limits.paused:
            return []
        batch_of = {
            offset: (first, end)
            for first, end in zip(log.firsts, log.ends, strict=True)
            for offset in range(first, end)
        }
        for offset in self.in_state(AVAILABLE):
            if log.position <= offset < log.end and offset not in batch_of:
                self.cells[offset] = Cell(ARCHIVED, self.cells[offset].count)
        self.advance()  # Holes at the front make room for runs.
        if not batch_of:
            self.pass_over(log.end)
            return []
        waiting = [offset for offset in self.in_state(AVAILABLE) if offset in batch_of]
        taken, goes_on = self.from_waiting(waiting, log, limits, wanted)
        for offset in taken:
            self.lock(offset, member_id, now_ms + limits.lock_ms)
        has_room = len(self.in_state(DELAYED)) < limits.delayed_max
        if goes_on and has_room and self.run_count() < limits.runs_max:
            unseen = [offset for offset in sorted(batch_of) if offset >= self.end]
            for offset in unseen:
                held = len(self.in_state(ACQUIRED)) + len(self.in_state(AVAILABLE))
                begun = unseen[0] < offset and batch_of[offset] == batch_of.get(offset - 1)
                completes = begun and may_be_completed(batch_of[offset], log, limits, wanted)
                if held >= limits.in_flight_max and not completes:
                    break
                if is_enough(taken, offset, log, wanted):
                    break
                self.pass_over(offset)
                self.end = offset + 1
                self.cells[offset] = Cell(AVAILABLE, 0)
                self.lock(offset, member_id, now_ms + limits.lock_ms)
                taken.append(offset)
            if self.end >= log.ends[-1]:
                self.pass_over(log.end)
        self.advance()
        return [(offset, self.cells[offset].count) for offset in taken]

    def pass_over(self, end: int) -> None:
        """There is nothing for members up to ``end``."""
        for absent in range(self.end, end):
            self.cells[absent] = Cell(ARCHIVED, 0)
        self.end = max(self.end, end)
        self.advance()

    def from_waiting(
        self,
        waiting: list[int],
        log: LogBatches,
        limits: SharePartitionLimits,
        wanted: AcquireRequest,
    ) -> tuple[list[int], bool]:
        """What is taken of the records that wait, and whether new ones may join it."""
        taken: list[int] = []
        room = limits.in_flight_max - len(self.in_state(ACQUIRED))
        end = log.ends[-1]
        isolating = False
        for offset in waiting:
            if len(taken) >= room or offset >= end or is_enough(taken, offset, log, wanted):
                break
            count, count_max = self.cells[offset].count, limits.delivery_count_max
            suspicious_from = max(2, ceil(count_max / 2))
            if count >= suspicious_from and not self.cells[offset].told_apart:
                is_last = count + 1 >= count_max
                if taken and (is_last or not isolating):
                    return taken, False
                if not isolating:
                    first, end = unit(offset, log, wanted.batch_records)
                    portion = (end - first) // 2 ** (count - suspicious_from + 1)
                    room = min(room, 1 if is_last else max(1, portion))
                isolating = True
            taken.append(offset)
        return taken, not isolating

    def lock(self, offset: int, member_id: str, until: int) -> None:
        cell = self.cells[offset]
        self.cells[offset] = Cell(ACQUIRED, cell.count + 1, member_id, until, cell.told_apart)

    def refusal(  # noqa: C901  One reason after the other.
        self, member_id: str, acks: list[AckBatch], limits: SharePartitionLimits, now_ms: int
    ) -> type[KafkaError] | None:
        """Why a request is refused as a whole; None when it is not."""
        reached = None
        twice = False
        for ack in acks:
            if ack.end <= ack.first or len(ack.types) not in (1, ack.end - ack.first):
                return InvalidRequest
            if ack.first < 0:
                return InvalidRequest
            if any(kind not in (0, 1, 2, 3, 4) for kind in ack.types):
                return InvalidRequest
            if not -1 <= ack.delay_ms <= 86_400_000:
                return InvalidRequest
            if reached is not None and ack.first < reached - 1:
                return InvalidRequest
            twice |= reached is not None and ack.first == reached - 1 >= self.start
            reached = ack.end
        if any(ack.end > self.end for ack in acks):
            return InvalidRequest
        for ack in acks:
            for offset, kind in types_by_offset(ack):
                if offset < self.start:
                    continue
                cell = self.cells[offset]
                held = cell.state is ACQUIRED and cell.member_id == member_id
                if not held or cell.lock_deadline_ms <= now_ms:
                    return InvalidRecordState
                if kind == 4 and not limits.renewal:
                    return InvalidRecordState
        return InvalidRecordState if twice else None

    def acknowledge(self, acks: list[AckBatch], limits: SharePartitionLimits, now_ms: int) -> None:
        told_apart = any(kind in (1, 3) for ack in acks for kind in ack.types)
        for ack in acks:
            for offset, kind in types_by_offset(ack):
                if offset < self.start:
                    continue
                if kind == 4:
                    until = now_ms + limits.lock_ms
                    self.cells[offset] = replace(self.cells[offset], lock_deadline_ms=until)
                else:
                    known = told_apart or self.cells[offset].told_apart
                    if kind == 3:
                        self.fail(offset, Reason.REJECTED, limits)
                    else:
                        state = (ARCHIVED, ACKNOWLEDGED, AVAILABLE)[kind]
                        self.settle(offset, state, limits, known)
                        self.delay(offset, ack, limits, now_ms)
        self.advance()

    def delay(self, offset: int, ack: AckBatch, limits: SharePartitionLimits, now_ms: int) -> None:
        """A released record waits as long as its member or its group says."""
        cell = self.cells[offset]
        if cell.state is not AVAILABLE:
            return
        delay_ms = ack.delay_ms
        if delay_ms == -1 and limits.delay is not None:
            first_ms, max_ms = limits.delay.first_ms, limits.delay.max_ms
            delay_ms = min(first_ms * 2 ** (cell.count - 1), max(first_ms, max_ms))
        if delay_ms > 0:
            grain_ms = max(100, delay_ms // 16)
            due_ms = ceil((now_ms + delay_ms) / grain_ms) * grain_ms
            self.cells[offset] = replace(cell, state=DELAYED, due_ms=due_ms)

    def over(self, now_ms: int) -> list[int]:
        """What waits and should not any more."""
        waiting = self.in_state(DELAYED)
        return [offset for offset in waiting if self.cells[offset].due_ms <= now_ms]

    def end_delays(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.cells[offset] = replace(self.cells[offset], state=AVAILABLE, due_ms=0)

    def release_member(self, member_id: str, limits: SharePartitionLimits) -> None:
        for offset in self.in_state(ACQUIRED):
            if self.cells[offset].member_id == member_id:
                self.settle(offset, AVAILABLE, limits)
        self.advance()

    def release_unreadable(
        self, member_id: str, ranges: list[tuple[int, int]], limits: SharePartitionLimits
    ) -> None:
        for offset in self.in_state(ACQUIRED):
            is_named = any(first <= offset < end for first, end in ranges)
            if self.cells[offset].member_id == member_id and is_named:
                self.settle(offset, AVAILABLE, limits, failure=Reason.UNREADABLE)
        self.advance()

    def dead_letters(self, limits: SharePartitionLimits) -> dict[int, tuple[int, Reason]]:
        """Delivery count and reason of everything that waits for its copy."""
        return {
            offset: (cell.count, cell.reason or inferred(cell.count, limits))
            for offset, cell in sorted(self.cells.items())
            if cell.state is ARCHIVING
        }

    def archived(self, ranges: list[tuple[int, int]]) -> None:
        for offset in self.in_state(ARCHIVING):
            if any(first <= offset < end for first, end in ranges):
                self.cells[offset] = Cell(ARCHIVED, self.cells[offset].count)
        self.advance()

    def due(self, now_ms: int) -> list[int]:
        """What is locked and should not be any more."""
        locked = self.in_state(ACQUIRED)
        return [offset for offset in locked if self.cells[offset].lock_deadline_ms <= now_ms]

    def expire(self, limits: SharePartitionLimits, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.settle(offset, AVAILABLE, limits)
        self.advance()

    def move_log_start(self, log_start: int) -> None:
        if log_start > self.start:
            self.cells = {o: cell for o, cell in self.cells.items() if o >= log_start}
            self.start, self.end = log_start, max(self.end, log_start)
        self.advance()

    def settle(
        self,
        offset: int,
        state: RecordState,
        limits: SharePartitionLimits,
        told_apart: bool = False,
        failure: Reason = Reason.EXHAUSTED,
    ) -> None:
        count = self.cells[offset].count
        if state is AVAILABLE and count >= limits.delivery_count_max:
            self.fail(offset, failure, limits)
        else:
            self.accepted_count += state is ACKNOWLEDGED
            self.absent_count += state is ARCHIVED
            told_apart = told_apart and state is AVAILABLE
            self.cells[offset] = Cell(state, count, told_apart=told_apart)

    def fail(self, offset: int, reason: Reason, limits: SharePartitionLimits) -> None:
        count = self.cells[offset].count
        self.failed_count += reason is not Reason.UNREADABLE
        if limits.dead_letters:
            self.cells[offset] = Cell(ARCHIVING, count, reason=reason)
        else:
            self.cells[offset] = Cell(ARCHIVED, count)

    def advance(self) -> None:
        while self.start < self.end and self.cells[self.start].state in (ACKNOWLEDGED, ARCHIVED):
            del self.cells[self.start]
            self.start += 1

    def durable(self, now_ms: int) -> dict[int, Durable]:
        """What must have been written: locks are as if they had never been taken."""
        cells = self.cells.items()
        written = {
            offset: replace(cell, state=AVAILABLE, count=cell.count - 1)
            if cell.state is ACQUIRED
            else cell
            for offset, cell in cells
        }
        durable = {
            offset: (
                AVAILABLE if cell.state is DELAYED else cell.state,
                cell.count,
                cell.due_ms,
                cell.reason or 0,
            )
            for offset, cell in written.items()
        }
        return told(durable, now_ms)


def told(state: dict[int, Durable], now_ms: int) -> dict[int, Durable]:
    """A state without what is as if it was not said: new records, and times that have passed."""
    known = {
        offset: (state, count, due_ms if due_ms > now_ms else 0, reason)
        for offset, (state, count, due_ms, reason) in state.items()
    }
    return {offset: cell for offset, cell in known.items() if cell != NEW}


def inferred(count: int, limits: SharePartitionLimits) -> Reason:
    """What is made of a record that a restart found waiting for its copy."""
    return Reason.EXHAUSTED if count >= limits.delivery_count_max else Reason.REJECTED


def may_be_completed(
    batch: tuple[int, int], log: LogBatches, limits: SharePartitionLimits, wanted: AcquireRequest
) -> bool:
    """Whether a log batch that this acquire began may exceed the locks."""
    first, end = batch
    return (
        wanted.mode is AcquireMode.BATCH_OPTIMIZED
        and end - first <= limits.completion_records_max
        and log.size_of(first) <= limits.completion_bytes_max
    )


def is_enough(taken: list[int], offset: int, log: LogBatches, wanted: AcquireRequest) -> bool:
    """Whether ``offset`` is more than was asked for: exactly, or by the log batch."""
    if len(taken) < wanted.records_max:
        return False
    last = taken[wanted.records_max - 1]
    batch_end = min(end for end in log.ends if end > last)
    return wanted.mode is AcquireMode.RECORD_LIMIT or offset >= batch_end


def unit(offset: int, log: LogBatches, batch_records: int) -> tuple[int, int]:
    """First and end of the log batches from that of ``offset`` on, as many as make a unit."""
    spans = [span for span in zip(log.firsts, log.ends, strict=True) if span[1] > offset]
    first = spans[0][0]
    ends = [end for _, end in spans if end - first >= batch_records]
    return first, min(ends, default=spans[-1][1])


def types_by_offset(ack: AckBatch) -> Iterable[tuple[int, int]]:
    """Every offset of a well-formed batch with its own type."""
    types = ack.types * (ack.end - ack.first) if len(ack.types) == 1 else ack.types
    return zip(range(ack.first, ack.end), types, strict=True)


class StateLogModel:
    """The deltas in the order they were written; a crash may lose the last ones."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = [Delta(0, 0)]

    def write(self, delta: Delta | None) -> None:
        if delta is not None:
            self.deltas.append(delta)

    def lose(self, count: int) -> None:
        """The last deltas were not durable yet, so nobody was told of them."""
        self.deltas = self.deltas[: max(1, len(self.deltas) - count)]

    def replayed(self) -> tuple[int, dict[int, Durable]]:
        start, state = 0, dict[int, Durable]()
        for delta in self.deltas:
            start = delta.start_offset
            for batch in delta.batches:
                for offset in range(batch.first, batch.end):
                    state[offset] = batch[2:]
        return start, {offset: known for offset, known in state.items() if offset >= start}


def restored(start: int, state: dict[int, Durable], log_end: int) -> PartitionModel:
    """What a new process knows."""
    start = min(start, log_end)
    state = {offset: known for offset, known in state.items() if start <= offset < log_end}
    end = max(state, default=start - 1) + 1
    cells = {offset: restored_cell(*state.get(offset, NEW)) for offset in range(start, end)}
    model = PartitionModel(start, end, cells)
    model.advance()
    return model


def restored_cell(state: RecordState, count: int, due_ms: int, reason: int) -> Cell:
    if due_ms:
        return Cell(DELAYED, count, due_ms=due_ms)
    return Cell(state, count, reason=Reason(reason) if reason else None)


def state_batches(state: dict[int, Durable]) -> Iterable[StateBatch]:
    return [StateBatch(offset, offset + 1, *known) for offset, known in state.items()]
