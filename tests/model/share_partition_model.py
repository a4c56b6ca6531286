"""A share partition as one would explain it: one cell per offset, every question a full scan.

Slow and obvious on purpose; `test_share_partition` holds the real one equal to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

from sharegroup.core.delivery import AckBatch, Delta, Limits, LogBatches, RecordState, StateBatch
from sharegroup.errors import InvalidRecordState, InvalidRequest, KafkaError

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
Durable = tuple[RecordState, int]


@dataclass(frozen=True)
class Cell:
    state: RecordState
    count: int
    member_id: str = ""
    lock_until_ms: int = 0


@dataclass
class PartitionModel:
    """Cells for the offsets from ``start`` to ``end - 1``."""

    start: int = 0
    end: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)

    def in_state(self, state: RecordState) -> list[int]:
        return [offset for offset, cell in sorted(self.cells.items()) if cell.state is state]

    def run_count(self) -> int:
        return len(list(groupby(cell for _, cell in sorted(self.cells.items()))))

    def next_fetch_offset(self) -> int:
        return min(self.in_state(AVAILABLE), default=self.end)

    def next_expiry_ms(self) -> int | None:
        locked = self.in_state(ACQUIRED)
        return min((self.cells[offset].lock_until_ms for offset in locked), default=None)

    def acquire(
        self, member_id: str, log: LogBatches, limits: Limits, records_max: int, now_ms: int
    ) -> list[tuple[int, int]]:
        """The offsets that are locked now, each with its delivery count."""
        batch_of = {
            offset: (first, end)
            for first, end in zip(log.firsts, log.ends, strict=True)
            for offset in range(first, end)
        }
        if not batch_of:
            return []
        for offset in self.in_state(AVAILABLE):
            if log.position <= offset < log.ends[-1] and offset not in batch_of:
                self.cells[offset] = Cell(ARCHIVED, self.cells[offset].count)
        self.advance()  # Holes at the front make room for runs.
        taken: list[int] = []
        stop = log.ends[-1]
        until = now_ms + limits.lock_ms
        full: bool | None = None
        for offset in sorted(batch_of):
            if offset >= stop:
                break
            locked, waiting = len(self.in_state(ACQUIRED)), len(self.in_state(AVAILABLE))
            cell = self.cells.get(offset)
            if offset < self.end:
                if cell is None or cell.state is not AVAILABLE or locked >= limits.in_flight_max:
                    continue
            else:
                if full is None:
                    full = self.run_count() >= limits.runs_max
                if full or locked + waiting >= limits.in_flight_max:
                    continue
                for absent in range(self.end, offset):
                    self.cells[absent] = Cell(ARCHIVED, 0)
                self.end = offset + 1
                cell = Cell(AVAILABLE, 0)
            self.cells[offset] = Cell(ACQUIRED, cell.count + 1, member_id, until)
            taken.append(offset)
            if len(taken) == records_max:
                stop = batch_of[offset][1]
        self.advance()
        return [(offset, self.cells[offset].count) for offset in taken]

    def refusal(
        self, member_id: str, acks: list[AckBatch], limits: Limits, now_ms: int
    ) -> type[KafkaError] | None:
        """Why a request is refused as a whole; None when it is not."""
        reached = None
        twice = False
        for ack in acks:
            if ack.end <= ack.first or len(ack.types) not in (1, ack.end - ack.first):
                return InvalidRequest
            if any(kind not in (0, 1, 2, 3, 4) for kind in ack.types):
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
                if not held or cell.lock_until_ms <= now_ms:
                    return InvalidRecordState
                if kind == 4 and not limits.renewal:
                    return InvalidRecordState
        return InvalidRecordState if twice else None

    def acknowledge(self, acks: list[AckBatch], limits: Limits, now_ms: int) -> None:
        for ack in acks:
            for offset, kind in types_by_offset(ack):
                if offset < self.start:
                    continue
                if kind == 4:
                    until = now_ms + limits.lock_ms
                    self.cells[offset] = replace(self.cells[offset], lock_until_ms=until)
                else:
                    self.settle(offset, (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED)[kind], limits)
        self.advance()

    def release_member(self, member_id: str, limits: Limits) -> None:
        for offset in self.in_state(ACQUIRED):
            if self.cells[offset].member_id == member_id:
                self.settle(offset, AVAILABLE, limits)
        self.advance()

    def expire(self, limits: Limits, now_ms: int) -> None:
        for offset in self.in_state(ACQUIRED):
            if self.cells[offset].lock_until_ms <= now_ms:
                self.settle(offset, AVAILABLE, limits)
        self.advance()

    def move_log_start(self, log_start: int) -> None:
        if log_start > self.start:
            self.cells = {o: cell for o, cell in self.cells.items() if o >= log_start}
            self.start, self.end = log_start, max(self.end, log_start)
        self.advance()

    def settle(self, offset: int, state: RecordState, limits: Limits) -> None:
        count = self.cells[offset].count
        if state is AVAILABLE and count >= limits.delivery_count_max:
            state = ARCHIVED
        self.cells[offset] = Cell(state, count)

    def advance(self) -> None:
        while self.start < self.end and self.cells[self.start].state in (ACKNOWLEDGED, ARCHIVED):
            del self.cells[self.start]
            self.start += 1

    def durable(self) -> dict[int, Durable]:
        """What must have been written: locks are as if they had never been taken."""
        cells = self.cells.items()
        written = {
            offset: replace(cell, state=AVAILABLE, count=cell.count - 1)
            if cell.state is ACQUIRED
            else cell
            for offset, cell in cells
        }
        return {
            offset: (cell.state, cell.count)
            for offset, cell in written.items()
            if (cell.state, cell.count) != (AVAILABLE, 0)
        }


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
                    state[offset] = (batch.state, batch.delivery_count)
        return start, {offset: known for offset, known in state.items() if offset >= start}


def restored(start: int, state: dict[int, Durable], log_end: int) -> PartitionModel:
    """What a new process knows."""
    start = min(start, log_end)
    state = {offset: known for offset, known in state.items() if start <= offset < log_end}
    end = max(state, default=start - 1) + 1
    cells = {offset: Cell(*state.get(offset, (AVAILABLE, 0))) for offset in range(start, end)}
    model = PartitionModel(start, end, cells)
    model.advance()
    return model


def state_batches(state: dict[int, Durable]) -> Iterable[StateBatch]:
    return [StateBatch(offset, offset + 1, *known) for offset, known in state.items()]
