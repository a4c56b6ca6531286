"""A small world of a share partition: all that can be asked of it, and what must never happen.

Steps act on a copy of the real class.  What was written must at all times be all that a restart
needs: laying a step's delta over the checkpoint before it gives the checkpoint after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pickle import dumps, loads
from typing import NamedTuple

from sharegroup.core.delivery.delivery import (
    TERMINAL,
    AckBatch,
    AcquireRequest,
    Acquisition,
    Delta,
    InFlightState,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    StateBatch,
    still_due,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType, AcquireMode

ACQUIRED, AVAILABLE = RecordState.ACQUIRED, RecordState.AVAILABLE
DELAYED = RecordState.DELAYED
Durable = tuple[int, int, dict[int, tuple[RecordState, int, int, int]]]


class World(NamedTuple):
    """How large it is.  ``may_vanish``: offsets whose record a read may not find any more."""

    limits: SharePartitionLimits
    batches: tuple[tuple[int, int], ...]
    members: tuple[MemberId, ...]
    may_vanish: tuple[int, ...] = ()
    delays: bool = False
    """Whether members release records with a delay, too."""

    @property
    def log_end(self) -> int:
        return self.batches[-1][1]


class State(NamedTuple):
    """What tells two states apart: every record's delivery, its lock by the time it has left."""

    start: int
    cells: tuple[InFlightState, ...]

    def at(self, offset: int) -> InFlightState | None:
        """None for what is settled for good, and for what was never seen."""
        index = offset - self.start
        return self.cells[index] if 0 <= index < len(self.cells) else None

    @property
    def end(self) -> int:
        return self.start + len(self.cells)


class Step(NamedTuple):
    """One thing that happened, and the partition and time after it."""

    event: str
    partition: SharePartition
    now_ms: int
    delta: Delta | None = None
    taken: tuple[int, ...] = ()


def state_of(world: World, partition: SharePartition, now_ms: int) -> State:
    """Records told apart are different only where records are isolated."""
    isolates = world.limits.delivery_count_max > 2
    cells = tuple(
        value._replace(
            lock_deadline_ms=max(0, value.lock_deadline_ms - now_ms) if value.member_id else 0,
            told_apart=value.told_apart and isolates,
            # Two of them, over and not over, because a step waits for a whole delay.
            due_ms=1 + (value.due_ms > now_ms) if value.due_ms else 0,
        )
        for first, end, value in partition.runs()
        for _ in range(first, end)
    )
    return State(partition.start_offset, cells)


def steps(world: World, partition: SharePartition, now_ms: int) -> Iterator[Step]:
    """All that can happen next, each to a copy (pickle copies three times as fast as deepcopy)."""
    frozen, limits = dumps(partition), world.limits
    for member_id in world.members:
        yield from acquisitions(world, frozen, member_id, now_ms)
        for first, end in ranges(world):
            for kind in AcknowledgeType:
                ack = AckBatch(first, end, (kind,))
                yield acknowledged(world, loads(frozen), member_id, ack, now_ms)
            if world.delays:
                ack = AckBatch(first, end, (AcknowledgeType.RELEASE,), delay_ms=1)
                yield acknowledged(world, loads(frozen), member_id, ack, now_ms)
        after = loads(frozen)
        yield Step("session over", after, now_ms, after.release_member(member_id, limits=limits))
        after = loads(frozen)
        delta = after.release_unreadable(member_id, [(0, world.log_end)], limits=limits)
        yield Step("unreadable", after, now_ms, delta)
    after = loads(frozen)
    log, request = read(world, after.next_fetch_offset(), None), AcquireRequest(world.log_end, 1)
    paused = replace(limits, paused=True)
    found = after.acquire(world.members[0], log, request=request, limits=paused, now_ms=now_ms)
    assert found == Acquisition(), "nothing is acquired while the group is paused"
    yield Step("paused", after, now_ms)
    after = loads(frozen)
    yield Step("expire", after, now_ms, after.expire(limits=limits, now_ms=now_ms))
    after = loads(frozen)
    after.end_delays(now_ms=now_ms)
    yield Step("due", after, now_ms)
    after = loads(frozen)
    yield Step("log start", after, now_ms, after.move_log_start(1))
    for first in range(world.log_end):
        after = loads(frozen)
        yield Step("copied", after, now_ms, after.archived([(first, first + 1)]))
    start, _, batches = partition.checkpoint()
    batches = tuple(still_due(batches, now_ms))
    yield Step("restart", SharePartition.restore(start, batches, log_end=world.log_end), now_ms)
    cells = state_of(world, partition, now_ms).cells
    if any(cell.lock_deadline_ms > 0 for cell in cells):
        yield Step("tick", loads(frozen), now_ms + 1)
    if any(cell.due_ms > 1 for cell in cells):
        yield Step("delay over", loads(frozen), now_ms + 100)


def ranges(world: World) -> list[tuple[int, int]]:
    end = world.log_end
    return [(first, after) for first in range(end) for after in range(first + 1, end + 1)]


def acquisitions(world: World, frozen: bytes, member_id: MemberId, now_ms: int) -> Iterator[Step]:
    for mode in AcquireMode:
        for records_max in (1, world.log_end):
            for vanished in (None, *world.may_vanish):
                partition: SharePartition = loads(frozen)
                log = read(world, partition.next_fetch_offset(), vanished)
                acquisition = partition.acquire(
                    member_id,
                    log,
                    request=AcquireRequest(records_max, batch_records=1, mode=mode),
                    limits=world.limits,
                    now_ms=now_ms,
                )
                taken = tuple(
                    offset for first, end, _ in acquisition.ranges for offset in range(first, end)
                )
                assert mode is AcquireMode.BATCH_OPTIMIZED or len(taken) <= records_max
                yield Step("acquire", partition, now_ms, acquisition.delta, taken)


def read(world: World, position: int, vanished: int | None) -> LogBatches:
    """What the log holds from the position on, in the batches that are left."""
    found = [(first, end) for first, end in world.batches if end > position]
    if vanished is not None:
        found = [piece for first, end in found for piece in without(vanished, first, end)]
    firsts, ends = [first for first, _ in found], [end for _, end in found]
    return LogBatches(position, firsts, ends, looked_until=world.log_end)


def without(offset: int, first: int, end: int) -> list[tuple[int, int]]:
    """What is left of a batch that lost one offset; whole batches go, in a real log."""
    pieces = [(first, min(end, offset)), (max(first, offset + 1), end)]
    return [piece for piece in pieces if piece[0] < piece[1]]


def acknowledged(
    world: World, partition: SharePartition, member_id: MemberId, ack: AckBatch, now_ms: int
) -> Step:
    before = state_of(world, partition, now_ms)
    try:
        delta = partition.acknowledge(member_id, [ack], limits=world.limits, now_ms=now_ms)
    except (InvalidRecordState, InvalidRequest):
        after = state_of(world, partition, now_ms)
        assert after == before, "a refused acknowledgement changed something"
        return Step("refuse", partition, now_ms)
    for offset in range(max(ack.first, before.start), ack.end):
        cell = before.cells[offset - before.start]
        assert cell.member_id == member_id, f"{member_id} settled what {cell.member_id!r} held"
        assert cell.lock_deadline_ms > 0, "a lock that has ended was honoured"
    if ack.types == (AcknowledgeType.RENEW,):
        check_renewed(world, before, ack, state_of(world, partition, now_ms))
    return Step(AcknowledgeType(ack.types[0]).name.lower(), partition, now_ms, delta)


def check_renewed(world: World, before: State, ack: AckBatch, after: State) -> None:
    """The locks named have their whole time again; nothing else is different."""
    expected = tuple(
        cell._replace(lock_deadline_ms=world.limits.lock_ms)
        if ack.first <= offset < ack.end
        else cell
        for offset, cell in enumerate(before.cells, before.start)
    )
    assert after == State(before.start, expected)


def check_never(world: World, before: State, step: Step, after: State) -> None:
    """What must not happen in any single step."""
    step.partition.check()
    assert after.start >= before.start, "the start offset went back"
    for offset, old in enumerate(before.cells, before.start):
        new = after.at(offset)
        if new is None:
            assert step.event == "restart" or offset < after.start, f"{offset} is not seen any more"
            continue
        if old.state in TERMINAL:
            assert new == old, "a settled record came back"
        if old.member_id and new.member_id:
            assert old.member_id == new.member_id, "a lock went from one member to another"
    for offset in step.taken:
        old = before.at(offset)
        assert old is None or old.state is AVAILABLE, f"{offset} was delivered while {old.state}"
    for cell in after.cells:
        assert cell.delivery_count <= world.limits.delivery_count_max
        assert cell.lock_deadline_ms <= world.limits.lock_ms
        is_spent = cell.delivery_count == world.limits.delivery_count_max
        assert not (cell.state in (AVAILABLE, DELAYED) and is_spent)
    check_excess(world, before, step, after)
    for offset in step.taken if world.limits.delivery_count_max > 2 else ():
        locked = after.cells[offset - after.start]
        if locked.delivery_count == world.limits.delivery_count_max and not locked.told_apart:
            assert step.taken == (offset,), "the last delivery of a record is not of it alone"


def excess(world: World, state: State) -> int:
    """How many records are locked above the limit, or less than 0."""
    return sum(cell.state is ACQUIRED for cell in state.cells) - world.limits.in_flight_max


def check_excess(world: World, before: State, step: Step, after: State) -> None:
    """Only the rest of a log batch that was never seen may be locked above the limit."""
    above = excess(world, after)
    if above <= 0 or not step.taken:
        return
    rest = step.taken[-above:]
    assert len(step.taken) > above, "a log batch was begun above the limit"
    begun = step.taken[-above - 1]
    assert begun >= before.end, "what was seen before was locked above the limit"
    batch = next(batch for batch in world.batches if batch[0] <= begun < batch[1])
    assert rest[-1] < batch[1] <= batch[0] + world.limits.completion_records_max


def durable(partition: SharePartition, now_ms: int) -> Durable:
    """What a restart needs, an offset at a time."""
    start, complete, batches = partition.checkpoint()
    return start, complete, by_offset(tuple(still_due(batches, now_ms)), start)


def by_offset(
    batches: tuple[StateBatch, ...], start: int
) -> dict[int, tuple[RecordState, int, int, int]]:
    return {
        offset: batch[2:]
        for batch in batches
        for offset in range(max(batch.first, start), batch.end)
    }


def written_over(before: Durable, delta: Delta | None, now_ms: int) -> Durable:
    """What a restart would find after this write; none means that all is as it was."""
    start, complete, known = before
    known = {
        offset: (*value[:2], value[2] if value[2] > now_ms else 0, value[3])
        for offset, value in known.items()
    }
    if delta is None:
        return start, complete, known
    known = {offset: pair for offset, pair in known.items() if offset >= delta.start_offset}
    known |= by_offset(delta.batches, delta.start_offset)
    return delta.start_offset, delta.delivery_complete_count, known
