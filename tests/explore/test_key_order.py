"""Every state that few records can reach whose group orders them by key.

A search over the real classes, as in `test_share_partition`: in every state that was found,
whatever can be asked is asked.  In each, one record of a key is held at most: the lowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pickle import dumps, loads

import pytest

from sharegroup.core.delivery.delivery import (
    ACQUIRED,
    AVAILABLE,
    DELAYED,
    AckBatch,
    AcquireRequest,
    Delta,
    SharePartitionLimits,
    still_due,
)
from sharegroup.core.delivery.key_order import KeyOrder
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType, AcquireMode
from tests.explore.share_partition_world import State, World, read, state_of

A, B = MemberId("a"), MemberId("b")
KINDS = [*((kind, 0) for kind in AcknowledgeType), (AcknowledgeType.RELEASE, 1)]
"""The types of an acknowledgement, with a delay in ms."""

Keys = tuple[int | None, ...]
Pair = tuple[SharePartition, KeyOrder]
Seen = tuple[State, int, tuple[int, ...]]


def learnt(partition: SharePartition, keys: Keys) -> Pair:
    """A new order that knows all keys."""
    order = KeyOrder(partition.start_offset)
    known = [(o, k) for o, k in enumerate(keys) if k is not None and o >= order.known_end]
    order.learn(partition, len(keys), [o for o, _ in known], [k for _, k in known])
    return partition, order


def free(pair: Pair) -> tuple[int, ...]:
    ranges = pair[1].free()
    return tuple(offset for first, end in ranges for offset in range(first, end))


def steps(world: World, keys: Keys, frozen: bytes, now_ms: int) -> Iterator[tuple[str, Pair, int]]:
    """What can happen next, each to a copy."""

    def after(event: str, pair: Pair, delta: Delta | None) -> tuple[str, Pair, int]:
        if delta is not None:
            pair[1].follow(delta)
        return event, pair, now_ms

    limits = world.limits
    for member_id in world.members:
        for records_max in (1, world.log_end):
            for vanished in (None, *world.may_vanish):
                pair: Pair = loads(frozen)
                if not free(pair):
                    continue
                request = AcquireRequest(
                    records_max, 1, AcquireMode.RECORD_LIMIT, free=pair[1].free()
                )
                log = read(world, free(pair)[0], vanished)
                acquisition = pair[0].acquire(
                    member_id, log, request=request, limits=limits, now_ms=now_ms
                )
                pair[1].acquired(acquisition.ranges)
                yield after("acquire", pair, acquisition.delta)
        for offset in range(world.log_end):
            for kind, delay_ms in KINDS:
                pair = loads(frozen)
                ack = AckBatch(offset, offset + 1, (kind,), delay_ms)
                try:
                    delta = pair[0].acknowledge(member_id, [ack], limits=limits, now_ms=now_ms)
                except (InvalidRecordState, InvalidRequest):
                    continue
                yield after(kind.name.lower(), pair, delta)
        pair = loads(frozen)
        yield after("session over", pair, pair[0].release_member(member_id, limits=limits))
    pair = loads(frozen)
    yield after("expire", pair, pair[0].expire(limits=limits, now_ms=now_ms))
    pair = loads(frozen)
    pair[1].available(pair[0].end_delays(now_ms=now_ms))
    yield "due", pair, now_ms
    pair = loads(frozen)
    yield after("log start", pair, pair[0].move_log_start(1))
    pair = loads(frozen)
    yield after("copied", pair, pair[0].archived([(0, world.log_end)]))
    pair = loads(frozen)
    yield "learn anew", learnt(pair[0], keys), now_ms
    start, _, batches = loads(frozen)[0].checkpoint()
    batches = tuple(still_due(batches, now_ms))
    restored = SharePartition.restore(start, batches, log_end=world.log_end)
    yield "restart", learnt(restored, keys), now_ms
    cells = state_of(world, loads(frozen)[0], now_ms).cells
    if any(cell.lock_deadline_ms > 0 for cell in cells):
        yield "tick", loads(frozen), now_ms + 1
    if any(cell.due_ms > 1 for cell in cells):
        yield "delay over", loads(frozen), now_ms + 100


def check(keys: Keys, state: State, free_offsets: tuple[int, ...]) -> None:
    """One record of a key at a time, and the lowest; every other lowest one is free."""
    lowest: dict[int, int] = {}
    for offset, cell in enumerate(state.cells, state.start):
        key = keys[offset]
        if cell.state not in (AVAILABLE, ACQUIRED, DELAYED):
            continue
        is_first = key is None or key not in lowest
        assert is_first or cell.state is AVAILABLE, f"{offset} was delivered before its turn"
        assert (offset in free_offsets) == (is_first and cell.state is AVAILABLE)
        if key is not None:
            lowest.setdefault(key, offset)


@pytest.mark.parametrize(
    "keys", [(1, 1, 1), (1, 2, 1), pytest.param((1, None, 1), marks=pytest.mark.slow), (1, 1, 2)]
)
def test_every_state_of_records_that_are_ordered_by_key(keys: Keys) -> None:
    limits = SharePartitionLimits(lock_ms=1, delivery_count_max=2, dead_letters=keys[1] is None)
    world = World(limits, ((0, 1), (1, 3)), (A,), may_vanish=(0, 1))
    first = learnt(SharePartition(0), keys)
    seen: set[Seen] = set()
    events: set[str] = set()
    waiting = [(first, 0)]
    while waiting:
        pair, now_ms = waiting.pop()
        frozen = dumps(pair)
        for event, after, after_ms in steps(world, keys, frozen, now_ms):
            events.add(event)
            state = state_of(world, after[0], after_ms)
            found = state, after[1].known_end, free(after)
            check(keys, state, found[2])
            if found not in seen:
                seen.add(found)
                waiting.append((after, after_ms))
    assert any(state.start == len(keys) for state, _, _ in seen), "nothing was settled as a whole"
    assert events >= {"acquire", "accept", "release", "expire", "restart", "learn anew", "copied"}
