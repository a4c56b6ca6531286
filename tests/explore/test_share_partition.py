"""Every state that a share partition of few records can reach, and every transition between them.

A search over the real class: whatever can be asked is asked in every state that was found, until
no new one comes up.  «Never» is asserted at each step; «sometimes» at the end, as the exact set
of transitions that were seen, because a rule that forbids everything never does anything wrong.

The bounds are small enough for every run, and still reach every transition; ``EXPLORE=all``, which
is `make explore`, searches a larger world.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from sharegroup.core.delivery.delivery import SharePartitionLimits
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from tests.explore.share_partition_world import (
    State,
    Step,
    World,
    check_never,
    durable,
    excess,
    state_of,
    steps,
    written_over,
)

A, B = MemberId("a"), MemberId("b")
Transition = tuple[str, str, str, int]
"""From, event, to, and by how much the delivery count changes."""

RECORD_BY_RECORD = ((0, 1), (1, 2), (2, 3))
LARGE = os.environ.get("EXPLORE") == "all"
RECORDS_MEMBERS_STATES = [(3, (A, B), 1_000)] if LARGE else [(3, (A,), 400), (2, (A, B), 100)]
"""How many records and which members there are, and how many states are reached at least."""
RECORDS_OF_A_BATCH = 3 if LARGE else 2

ALWAYS: set[Transition] = {
    ("unseen", "acquire", "ACQUIRED", 1),
    ("AVAILABLE", "acquire", "ACQUIRED", 1),
    ("ACQUIRED", "accept", "ACKNOWLEDGED", 0),
    ("ACQUIRED", "gap", "ARCHIVED", 0),
    ("ACQUIRED", "release", "AVAILABLE", 0),
    ("ACQUIRED", "expire", "AVAILABLE", 0),
    ("ACQUIRED", "session over", "AVAILABLE", 0),
    ("ACQUIRED", "unreadable", "AVAILABLE", 0),
    # Never written: as if that delivery had not been.
    ("ACQUIRED", "restart", "AVAILABLE", -1),
    ("ACQUIRED", "restart", "unseen", -1),
}
"""The states of a record, with and without a dead-letter queue (KIP-932, KIP-1191)."""

FAILURES = ("reject", "release", "expire", "session over", "unreadable")
"""What ends a record for good: a rejection always, the others after its last delivery."""

RENEWED: Transition = ("ACQUIRED", "renew", "ACQUIRED", 0)
"""Seen where a lock can have less than its whole time left and not be over."""

VANISHED: set[Transition] = {
    ("AVAILABLE", "acquire", "ARCHIVED", 0),
    ("unseen", "acquire", "ARCHIVED", 0),
}


DELAYED: set[Transition] = {
    ("ACQUIRED", "release", "DELAYED", 0),
    ("DELAYED", "due", "AVAILABLE", 0),
    # The delay was over.
    ("DELAYED", "restart", "AVAILABLE", 0),
}


def failed_into(state: str) -> set[Transition]:
    return {("ACQUIRED", event, state, 0) for event in FAILURES}


class Found(NamedTuple):
    """What a search found."""

    states: set[State]
    transitions: set[Transition]
    events: set[str]


def transitions(before: State, step: Step, after: State) -> set[Transition]:
    """What a step did to each record that is still, or was not yet, in the map."""
    found: set[Transition] = set()
    for offset in range(after.start, max(before.end, after.end)):
        old, new = before.at(offset), after.at(offset)
        if old == new:
            continue
        old_name, old_count = ("unseen", 0) if old is None else (old.state.name, old[1])
        new_name, new_count = ("unseen", 0) if new is None else (new.state.name, new[1])
        if (old_name, old_count) != (new_name, new_count) or step.event == "renew":
            found.add((old_name, step.event, new_name, new_count - old_count))
    return found


def explored(world: World) -> Found:
    """Everything that can be reached from the beginning."""
    first = SharePartition(0)
    found = Found({state_of(world, first, 0)}, set(), set())
    waiting = [(first, 0)]
    while waiting:
        partition, now_ms = waiting.pop()
        before, known = state_of(world, partition, now_ms), durable(partition, now_ms)
        for step in steps(world, partition, now_ms):
            after = state_of(world, step.partition, step.now_ms)
            check_never(world, before, step, after)
            written = written_over(known, step.delta, step.now_ms)
            assert written == durable(step.partition, step.now_ms), "it was not written"
            found.transitions.update(transitions(before, step, after))
            if after != before or step.event == "refuse":
                found.events.add(step.event)
            if after not in found.states:
                found.states.add(after)
                waiting.append((step.partition, step.now_ms))
    return found


@pytest.mark.parametrize(("records", "members", "states_min"), RECORDS_MEMBERS_STATES)
def test_every_transition_without_a_dead_letter_queue(
    records: int, members: tuple[MemberId, ...], states_min: int
) -> None:
    limits = SharePartitionLimits(lock_ms=1, delivery_count_max=2, in_flight_max=records)
    world = World(limits, RECORD_BY_RECORD[:records], members)
    found = explored(world)
    assert found.transitions == ALWAYS | failed_into("ARCHIVED")
    assert any(state.start == records for state in found.states), "nothing was settled as a whole"
    assert len(found.states) > states_min, "most states were not reached"


@pytest.mark.slow
def test_every_transition_with_a_dead_letter_queue_and_records_that_vanish() -> None:
    limits = SharePartitionLimits(
        lock_ms=2, delivery_count_max=2, in_flight_max=2, dead_letters=True
    )
    world = World(limits, ((0, 1), (1, 2)), (A, B), may_vanish=(0, 1))
    found = explored(world)
    assert found.transitions == (
        ALWAYS
        | VANISHED
        | failed_into("ARCHIVING")
        | {RENEWED, ("ARCHIVING", "copied", "ARCHIVED", 0)}
    )
    assert found.events >= {"log start", "tick", "refuse"}
    assert "paused" not in found.events
    assert any(state.start == 2 for state in found.states), "nothing was ever settled as a whole"


def test_every_transition_with_delays() -> None:
    limits = SharePartitionLimits(lock_ms=1, delivery_count_max=2, in_flight_max=2, delayed_max=1)
    found = explored(World(limits, RECORD_BY_RECORD[:2], (A,), delays=True))
    assert found.transitions == ALWAYS | failed_into("ARCHIVED") | DELAYED
    assert any(state.start == 2 for state in found.states), "nothing was settled as a whole"


@pytest.mark.parametrize("completed", [0, 2])
def test_every_state_of_a_batch_in_which_the_limit_lies(completed: int) -> None:
    """Two records for one lock: the second one only as the rest of a batch, if at all."""
    limits = SharePartitionLimits(
        lock_ms=1, delivery_count_max=2, in_flight_max=1, completion_records_max=completed
    )
    world = World(limits, ((0, 2),), (A,))
    states = explored(world).states
    assert max(excess(world, state) for state in states) == (1 if completed else 0)
    assert any(state.start == 2 for state in states), "nothing was settled as a whole"


def test_every_state_of_a_batch_with_isolated_records() -> None:
    """Three permitted deliveries: after two, a record is delivered in portions, then alone."""
    limits = SharePartitionLimits(lock_ms=1, delivery_count_max=3, in_flight_max=3)
    found = explored(World(limits, ((0, RECORDS_OF_A_BATCH),), (A,), may_vanish=(1,)))
    counts = {tuple(cell.delivery_count for cell in state.cells) for state in found.states}
    assert (3, *[2] * (RECORDS_OF_A_BATCH - 1)) in counts, "no record was ever delivered alone"
    assert found.transitions == ALWAYS | VANISHED | failed_into("ARCHIVED")
