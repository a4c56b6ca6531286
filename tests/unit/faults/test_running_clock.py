"""The clock that runs and can be advanced, on a loop of virtual time for its alarms."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.faults.running_clock import RunningClock
from sharegroup.testing import ManualClock
from tests.support.limits import HANGING_SECONDS


def run(scenario: object) -> None:
    async def main() -> None:
        await scenario(RunningClock())  # type: ignore[operator]

    asyncio.run(main())


def test_timers_fire_in_the_order_of_their_due_times_and_see_them() -> None:
    async def scenario(clock: RunningClock) -> None:
        begin = clock.now_ms()
        fired: list[tuple[str, int]] = []
        for name, seconds in (("late", 20), ("early", 10), ("after", 40)):
            clock.call_at_ms(
                begin + seconds * 1_000,
                lambda name=name: fired.append((name, clock.now_ms() - begin)),  # type: ignore[misc]
            )
        clock.advance(30)
        assert [name for name, _ in fired] == ["early", "late"]
        assert [round(ms / 1_000) for _, ms in fired] == [10, 20]
        assert 30_000 <= clock.now_ms() - begin < 31_000

    run(scenario)


def test_wall_clock_advances_too() -> None:
    async def scenario(clock: RunningClock) -> None:
        before = clock.wall_ms()
        clock.advance(3_600)
        assert 3_600_000 <= clock.wall_ms() - before < 3_601_000

    run(scenario)


def test_cancelled_timer_does_not_fire_and_a_timer_may_set_another_one() -> None:
    async def scenario(clock: RunningClock) -> None:
        fired: list[str] = []
        begin = clock.now_ms()

        def again() -> None:
            fired.append("first")
            clock.call_at_ms(begin + 15_000, lambda: fired.append("second"))

        clock.call_at_ms(begin + 5_000, lambda: fired.append("cancelled")).cancel()
        clock.call_at_ms(begin + 10_000, again)
        clock.advance(20)
        assert fired == ["first", "second"]

    run(scenario)


def test_clock_runs_by_itself() -> None:
    async def scenario(clock: RunningClock) -> None:
        clock.advance(1_000)
        rung = asyncio.Event()
        clock.call_at_ms(clock.now_ms() + 20_000, asyncio.Event().set)
        clock.call_at_ms(clock.now_ms() + 1, rung.set)
        async with asyncio.timeout(HANGING_SECONDS):
            await rung.wait()

    run(scenario)


IMPOSSIBLE = [-1, -0.001, float("-inf"), float("nan"), float("inf"), 1e12]


@pytest.mark.parametrize("seconds", IMPOSSIBLE)
def test_clock_does_not_go_back(seconds: float) -> None:
    async def scenario(clock: RunningClock) -> None:
        with pytest.raises(ValueError, match="cannot go back"):
            clock.advance(seconds)

    run(scenario)


@pytest.mark.parametrize("seconds", IMPOSSIBLE)
def test_manual_clock_does_not_go_back(seconds: float) -> None:
    clock = ManualClock()
    began = clock.now_ms()
    fired: list[str] = []
    clock.call_at_ms(began, lambda: fired.append("due"))
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(seconds)
    assert (clock.now_ms(), fired) == (began, [])


def test_manual_clock_that_a_timer_advances_does_not_go_back_to_its_own_end() -> None:
    clock = ManualClock()
    began = clock.now_ms()
    clock.call_at_ms(began + 10_000, lambda: clock.advance(50))
    clock.advance(20)
    assert clock.now_ms() == began + 60_000


def test_timer_that_fails_keeps_no_other_timer_from_its_time() -> None:
    """The broker's own clock has an alarm for each timer, so there one cannot stop the others."""

    def fail() -> None:
        raise ValueError("a bug")

    async def scenario(clock: RunningClock) -> None:
        loop = asyncio.get_running_loop()
        reported: list[str] = []
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        rang = asyncio.Event()
        clock.call_at_ms(clock.now_ms() + 1, fail)
        clock.call_at_ms(clock.now_ms() + 1, fail)
        clock.call_at_ms(clock.now_ms() + 2, rang.set)
        async with asyncio.timeout(HANGING_SECONDS / 30):
            await rang.wait()
        assert reported == ["a bug", "a bug"]
        clock.call_at_ms(clock.now_ms() + 60_000, fail)
        rang.clear()
        clock.call_at_ms(clock.now_ms() + 60_000, rang.set)
        before = clock.now_ms()
        clock.advance(120)
        assert rang.is_set()
        assert clock.now_ms() - before >= 120_000

    run(scenario)
