"""What `Alarm` promises to the heaps that set it; a `ManualClock` begins at 1,000,000 ms."""

from __future__ import annotations

from sharegroup.broker.clock import Alarm
from sharegroup.testing import ManualClock


def test_alarm_rings_once_at_its_earliest_time() -> None:
    clock = ManualClock()
    rung: list[int] = []
    alarm = Alarm(clock, lambda: rung.append(clock.now_ms()))
    for due_ms in (1_003_000, 1_001_000, 1_002_000):
        alarm.set(due_ms)
    clock.advance(0.999)
    assert rung == []
    clock.advance(0.001)
    assert rung == [1_001_000]
    clock.advance(10)
    assert rung == [1_001_000]


def test_alarm_set_by_its_callback_rings_again() -> None:
    clock = ManualClock()
    rung: list[int] = []

    def ring() -> None:
        rung.append(clock.now_ms())
        if len(rung) == 1:
            alarm.set(1_005_000)

    alarm = Alarm(clock, ring)
    alarm.set(1_001_000)
    clock.advance(10)
    assert rung == [1_001_000, 1_005_000]


def test_cancelled_alarm_is_silent_until_it_is_set_again() -> None:
    clock = ManualClock()
    rung: list[int] = []
    alarm = Alarm(clock, lambda: rung.append(clock.now_ms()))
    alarm.set(1_001_000)
    alarm.cancel()
    clock.advance(2)
    assert rung == []
    alarm.set(1_003_000)
    clock.advance(1)
    assert rung == [1_003_000]
