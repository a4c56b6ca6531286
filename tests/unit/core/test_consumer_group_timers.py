"""One heap for all that consumer groups wait for."""

from __future__ import annotations

from sharegroup.core.consumer_group_timers import Timer, Timers
from sharegroup.ids import GroupId, MemberId

A, B = (Timer(GroupId("g"), MemberId(name)) for name in "ab")


def test_first_due_comes_first_and_once() -> None:
    timers = Timers()
    timers.set(A, due_ms=20)
    timers.set(B, due_ms=10)
    assert timers.next_ms() == 10
    assert timers.pop(9) is None
    assert [timers.pop(25), timers.pop(25), timers.pop(25)] == [B, A, None]
    assert timers.next_ms() is None


def test_later_time_holds_and_so_does_an_earlier_one() -> None:
    timers = Timers()
    timers.set(A, due_ms=10)
    timers.set(A, due_ms=30)
    timers.set(B, due_ms=40)
    timers.set(B, due_ms=20)
    assert [timers.pop(20), timers.pop(20)] == [B, None]
    assert [timers.pop(29), timers.pop(30), timers.pop(50)] == [None, A, None]


def test_cancelled_timer_never_comes_not_even_set_again_later() -> None:
    timers = Timers()
    timers.set(A, due_ms=10)
    timers.cancel(A)
    timers.cancel(B)
    assert timers.next_ms() is None
    timers.set(A, due_ms=50)
    assert timers.pop(49) is None
    assert timers.due_ms(A) == 50


def test_heap_does_not_grow_with_what_is_set_earlier_and_earlier() -> None:
    timers = Timers()
    for due_ms in range(10_000, 0, -1):
        timers.set(A, due_ms=due_ms)
    assert len(timers) == 1
    assert timers.entries <= 66
    assert timers.pop(1) == A
    assert timers.pop(10_000) is None
