"""Deadlines of many keys in one heap, which learns of later ones late."""

from __future__ import annotations

from sharegroup.core.deadlines import Deadlines

A, B = (("g", name) for name in "ab")


def test_nothing_is_due_where_nothing_was_set() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    assert (deadlines.next_ms(), deadlines.pop(10**9), deadlines.passed(10**9)) == (None, None, ())


def test_first_due_is_popped_first_and_once() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    deadlines.set(A, due_ms=20)
    deadlines.set(B, due_ms=10)
    assert deadlines.next_ms() == 10
    assert deadlines.pop(9) is None
    assert [deadlines.pop(25), deadlines.pop(25), deadlines.pop(25)] == [B, A, None]
    assert deadlines.next_ms() is None


def test_deadline_may_be_moved_later_or_earlier() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    deadlines.set(A, due_ms=10)
    deadlines.set(A, due_ms=30)
    deadlines.set(B, due_ms=40)
    deadlines.set(B, due_ms=20)
    assert (deadlines.next_ms(), deadlines.passed(19), deadlines.passed(20)) == (20, (), (B,))
    assert [deadlines.pop(20), deadlines.pop(20)] == [B, None]
    assert [deadlines.pop(29), deadlines.pop(30), deadlines.pop(50)] == [None, A, None]


def test_passed_deadline_stays_until_it_is_cancelled() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    deadlines.set(B, due_ms=90)
    deadlines.set(A, due_ms=100)
    assert deadlines.passed(100) == deadlines.passed(100) == (A, B)
    deadlines.cancel(A)
    deadlines.cancel(B)
    assert (deadlines.next_ms(), len(deadlines)) == (None, 0)


def test_cancelled_deadline_does_not_pass_after_it_is_set_again() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    deadlines.set(A, due_ms=10)
    deadlines.cancel(A)
    deadlines.cancel(B)
    assert deadlines.next_ms() is None
    deadlines.set(A, due_ms=50)
    assert (deadlines.pop(49), deadlines.passed(49), deadlines.next_ms()) == (None, (), 50)


def test_heap_does_not_grow_when_a_deadline_is_moved_earlier() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    for due_ms in range(10_000, 0, -1):
        deadlines.set(A, due_ms=due_ms)
    assert len(deadlines) == 1
    assert len(deadlines._heap) <= 66
    assert deadlines.pop(1) == A
    assert deadlines.pop(10_000) is None


def test_heap_does_not_grow_with_keys_set_and_cancelled() -> None:
    deadlines = Deadlines[tuple[str, str]]()
    for turn in range(10_000):
        deadlines.set(("g", str(turn)), due_ms=10**6 + turn)
        deadlines.cancel(("g", str(turn)))
    deadlines.set(A, due_ms=10**7)
    assert len(deadlines._heap) < 100
    assert deadlines.next_ms() == 10**7
