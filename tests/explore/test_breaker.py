"""Every state that a circuit breaker with a short window can reach, and every transition.

A search over the real class, as for share partitions: whatever can happen is tried in every state
that was found. Times are counted from now, so the states are finitely many.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

from sharegroup.core.delivery.breaker import Breaker, BreakerLimits, BreakerState

LIMITS = BreakerLimits(percent=50, window=3, pause_ms=2)
CLOSED, OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING
SETTLED = {
    "accepted": (1, 0, 0),
    "failed": (0, 1, 0),
    "absent": (0, 0, 1),
    "both": (1, 1, 0),
    "many": (2, 3, 0),
}
"""Numbers of accepted, failed and absent records."""


class State(NamedTuple):
    """A breaker, with the time from now to its next probe; None if any number may be acquired."""

    state: BreakerState
    outcomes: tuple[tuple[int, int], ...]
    forgotten: int
    wait_ms: int | None


def state_of(breaker: Breaker, now_ms: int) -> State:
    stopped_ms = breaker._stopped_ms
    room = breaker.room(LIMITS, now_ms)
    wait_ms = None if stopped_ms is None else max(0, stopped_ms + LIMITS.pause_ms - now_ms)
    expected = None if breaker.state is CLOSED else int(not wait_ms)
    assert room == expected, "one probe at a time, and none before the pause is over"
    seen = sum(count for count, _ in breaker._outcomes) - breaker._forgotten
    assert seen == breaker._seen <= LIMITS.window, "it remembers the window and no more"
    return State(breaker.state, tuple(breaker._outcomes), breaker._forgotten, wait_ms)


def explored() -> tuple[set[State], set[tuple[BreakerState, str, BreakerState]]]:
    first = Breaker()
    states, transitions = {state_of(first, 0)}, set()
    waiting = [(first, 0)]
    while waiting:
        before, now_ms = waiting.pop()
        for event in ("acquired", "time", *SETTLED):
            after, after_ms = deepcopy(before), now_ms
            if event == "time":
                after_ms += 1
            elif event == "acquired":
                if before.room(LIMITS, now_ms) == 0:
                    continue
                after.acquired(now_ms)
            else:
                accepted, failed, absent = SETTLED[event]
                told = after.settled(accepted, failed, LIMITS, now_ms, absent=absent)
                is_news = before.state is PROBING or before.state is not after.state
                assert told == is_news, "fetches that wait are told when they may look"
                if event == "absent" and before.state is PROBING:
                    assert after.room(LIMITS, now_ms) == 1, "the probe is repeated at once"
            transitions.add((before.state, event, after.state))
            state = state_of(after, after_ms)
            if state not in states:
                states.add(state)
                waiting.append((after, after_ms))
    return states, transitions


def test_every_transition_of_a_circuit_breaker() -> None:
    states, transitions = explored()
    # What was held when it opened says nothing; and time alone closes nothing.
    still = {(state, event, state) for state in BreakerState for event in ("time", "absent")}
    held = {(OPEN, event, OPEN) for event in SETTLED}
    assert transitions == still | held | {
        (OPEN, "acquired", PROBING),
        (PROBING, "acquired", PROBING),
        (PROBING, "accepted", CLOSED),
        *((PROBING, event, OPEN) for event in ("failed", "both", "many")),
        (CLOSED, "acquired", CLOSED),
        (CLOSED, "accepted", CLOSED),
        *((CLOSED, event, state) for event in ("failed", "both") for state in (CLOSED, OPEN)),
        (CLOSED, "many", OPEN),
    }
    assert len(states) > 20, "most states were not reached"
    waits = {state.wait_ms for state in states if state.state is OPEN}
    assert waits == {0, 1, 2}
