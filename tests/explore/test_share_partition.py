"""Every state that a share partition of three records can reach with two members.

A search over the real class: whatever can be asked is asked in every state that
was found, until no new one comes up.  Two states are one if their runs and the time left on
each lock are equal.  «Never» is asserted at each step; «sometimes» at the end, because a rule
that forbids everything never does anything wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pickle import dumps, loads
from typing import NamedTuple

from sharegroup.core.delivery import Ack, AckBatch, Delta, Limits, LogBatches, RecordState, Wanted
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId

RECORDS = 3
LIMITS = Limits(lock_ms=2, delivery_count_max=2, in_flight_max=RECORDS)
MEMBERS = (MemberId("a"), MemberId("b"))
TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
RANGES = [(first, end) for first in range(RECORDS) for end in range(first + 1, RECORDS + 1)]

Cells = tuple[tuple[RecordState, int, str, int], ...]


class State(NamedTuple):
    """What tells two states apart; locks by the time they have left."""

    start: int
    cells: Cells


class Step(NamedTuple):
    """One thing that happened: its name, and the partition and time after it."""

    name: str
    partition: SharePartition
    now_ms: int
    delta: Delta | None


def state_of(partition: SharePartition, now_ms: int) -> State:
    cells = tuple(
        (state, count, member_id, max(0, until - now_ms) if member_id else 0)
        for first, end, (state, count, member_id, until, _, _) in partition.runs()
        for _ in range(first, end)
    )
    return State(partition.start_offset, cells)


def steps(partition: SharePartition, now_ms: int) -> Iterator[Step]:
    """All that can happen next, each to a copy (pickle copies three times as fast as deepcopy)."""
    frozen = dumps(partition)
    for member_id in MEMBERS:
        for records_max in (1, RECORDS):
            yield acquired(loads(frozen), member_id, records_max, now_ms)
        for first, end in RANGES:
            for kind in range(5):
                ack = AckBatch(first, end, (kind,))
                yield acknowledged(loads(frozen), member_id, ack, now_ms)
        after = loads(frozen)
        yield Step("release", after, now_ms, after.release_member(member_id, limits=LIMITS))
    after = loads(frozen)
    yield Step("expire", after, now_ms, after.expire(limits=LIMITS, now_ms=now_ms))
    after = loads(frozen)
    yield Step("truncate", after, now_ms, after.move_log_start(1))
    if any(lock_left > 0 for *_, lock_left in state_of(partition, now_ms).cells):
        yield Step("tick", loads(frozen), now_ms + 1, None)


def acquired(partition: SharePartition, member_id: MemberId, records_max: int, now_ms: int) -> Step:
    position = partition.next_fetch_offset()
    firsts = list(range(position, RECORDS))
    acquisition = partition.acquire(
        member_id,
        LogBatches(position, firsts, [first + 1 for first in firsts]),
        wanted=Wanted(records_max, batch_records=1),
        limits=LIMITS,
        now_ms=now_ms,
    )
    name = (
        "redeliver" if any(entry.delivery_count > 1 for entry in acquisition.ranges) else "acquire"
    )
    return Step(name, partition, now_ms, acquisition.delta)


def acknowledged(
    partition: SharePartition, member_id: MemberId, ack: AckBatch, now_ms: int
) -> Step:
    before = state_of(partition, now_ms)
    try:
        delta = partition.acknowledge(member_id, [ack], limits=LIMITS, now_ms=now_ms)
    except (InvalidRecordState, InvalidRequest):
        assert state_of(partition, now_ms) == before, "a refused acknowledgement changed something"
        return Step("refuse", partition, now_ms, None)
    for offset in range(max(ack.first, before.start), ack.end):
        _, _, owner, lock_left = before.cells[offset - before.start]
        assert owner == member_id, f"{member_id} settled what {owner!r} held"
        assert lock_left > 0, "a lock that has ended was honoured"
    if ack.types == (Ack.RENEW,):
        assert delta is None, "a renewal was written"
        check_renewed(before, ack, state_of(partition, now_ms))
        return Step("renew", partition, now_ms, None)
    return Step("acknowledge", partition, now_ms, delta)


def check_renewed(before: State, ack: AckBatch, after: State) -> None:
    """The locks named have their whole time again; nothing else is different."""
    expected = tuple(
        (state, count, member_id, LIMITS.lock_ms)
        if ack.first <= offset < ack.end
        else (state, count, member_id, lock_left)
        for offset, (state, count, member_id, lock_left) in enumerate(before.cells, before.start)
    )
    assert after == State(before.start, expected)


def check_never(before: State, step: Step, after: State) -> None:
    """What must not happen in any single step."""
    step.partition.check()
    assert after.start >= before.start, "the start offset went back"
    for offset, old in enumerate(before.cells, before.start):
        new = after.cells[offset - after.start] if offset >= after.start else None
        if old[0] in TERMINAL:
            assert new is None or new == old, "a settled record came back"
        if new is None:
            continue
        assert new[1] - old[1] in (0, 1), "a delivery count jumped"
        if old[2] and new[2]:
            assert old[2] == new[2], "a lock went from one member to another"
        if old[0] in TERMINAL or new[0] is RecordState.ACQUIRED or new == old:
            continue
        written = (
            [batch for batch in step.delta.batches if batch.first <= offset < batch.end]
            if (step.delta)
            else []
        )
        assert [batch[2:] for batch in written] == [new[:2]], "a change was not written"
    for state, count, _, lock_left in after.cells:
        assert count <= LIMITS.delivery_count_max
        assert lock_left <= LIMITS.lock_ms
        assert not (state is RecordState.AVAILABLE and count == LIMITS.delivery_count_max)


def test_every_reachable_state_is_a_good_one_and_good_things_happen() -> None:
    first = SharePartition(0)
    found = {state_of(first, 0)}
    waiting = [(first, 0)]
    seen: set[str] = set()
    settled_all = archived_by_limit = False
    while waiting:
        partition, now_ms = waiting.pop()
        before = state_of(partition, now_ms)
        for step in steps(partition, now_ms):
            after = state_of(step.partition, step.now_ms)
            check_never(before, step, after)
            if after != before or step.name == "refuse":
                seen.add(step.name)
            settled_all |= after.start == RECORDS
            archived_by_limit |= step.name == "expire" and any(
                new[0] is RecordState.ARCHIVED for new in after.cells
            )
            if after not in found:
                found.add(after)
                waiting.append((step.partition, step.now_ms))
    assert seen == {
        "acquire",
        "redeliver",
        "acknowledge",
        "renew",
        "refuse",
        "release",
        "expire",
        "truncate",
        "tick",
    }
    assert settled_all
    assert archived_by_limit
    assert len(found) > 3_000, "most states were not reached"
