"""The supervisor in virtual time: ends, reloads, memory, processes that hang, and stops."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.worker.supervision.child_process import ChildState
from sharegroup.worker.supervision.restarts import EARLY_DEATHS_MAX
from sharegroup.worker.supervision.supervisor import Reason
from tests.unit.worker.supervision.acted_children import ActedChild, Scene, play

LOADING = ChildState()


def test_processes_start_after_the_first_has_loaded_the_application() -> None:
    async def scene() -> None:
        def loading(child: ActedChild) -> None:
            child.answer = None

        acted = Scene(3, at_start=loading)
        await asyncio.sleep(10)
        assert acted.alive() == [1]
        acted.children[0].answer = LOADING
        await asyncio.sleep(6)
        assert acted.alive() == [1, 2, 3]
        assert acted.supervisor.ready_count == 0
        assert await acted.stopped() == 0
        # The first has its signals; the others may still import.
        assert [child.heard for child in acted.children[1:]] == [["SIGTERM"], ["SIGTERM"]]

    play(scene)


def test_stop_reaches_all_at_once_and_waits_for_them() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        assert (acted.supervisor.ready_count, acted.supervisor.phase) == (2, "running")
        acted.wishes.stop()
        await asyncio.sleep(1.9)
        assert (acted.alive(), acted.supervisor.phase) == ([1, 2], "stopping")
        assert acted.supervisor.ready_count == 0
        acted.wishes.stop()
        assert await acted.task == 0
        assert [child.heard for child in acted.children] == [["stop", "hurry"]] * 2
        assert all(child.is_closed for child in acted.children)

    play(scene)


def test_stop_of_a_process_that_fails_meanwhile_fails() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.wishes.stop()
        await asyncio.sleep(1)
        acted.children[1].end(1)
        assert await acted.task == 1

    play(scene)


@pytest.mark.parametrize("code", [-2, -15, 1, 130])
def test_stop_of_a_process_that_still_loads_does_not_fail(code: int) -> None:
    """Ctrl-C reaches it, too: it ends by a KeyboardInterrupt somewhere in an import."""

    async def scene() -> None:
        def loading(child: ActedChild) -> None:
            child.answer = None

        acted = Scene(2, at_start=loading)
        await asyncio.sleep(3)
        acted.wishes.stop()
        acted.children[0].end(code)
        assert await acted.task == 0

    play(scene)


def test_process_that_crashes_is_started_again_after_a_growing_delay() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        delays = []
        for _ in range(8):
            (crashing,) = (c for c in acted.children if c.number == 1 and c.exit_code is None)
            count, crashed_at = len(acted.children), asyncio.get_running_loop().time()
            crashing.end(-9)
            while len(acted.children) == count:
                await asyncio.sleep(0.01)
            delays.append(asyncio.get_running_loop().time() - crashed_at)
            await asyncio.sleep(1)
        for delay, expected in zip(delays, (0.5, 1, 2, 4, 8, 16, 30, 30), strict=True):
            assert expected * 0.79 <= delay <= min(expected * 1.21, 30.1)
        assert acted.alive() == [1, 2]
        assert acted.supervisor.restart_counts[Reason.ENDED] == 8
        # After a minute of being ready, the shortest delay.
        await asyncio.sleep(61)
        acted.children[-1].end(1)
        await asyncio.sleep(0.7)
        assert acted.alive() == [1, 2]
        assert await acted.stopped() == 0

    play(scene)


def test_application_that_never_starts_stops_the_supervisor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        acted = Scene(4, at_start=lambda child: child.end(1))
        assert await acted.task == 1
        # The others were never started, so the error was printed as often as it was tried.
        assert len(acted.children) == EARLY_DEATHS_MAX
        assert asyncio.get_running_loop().time() < 12

    play(scene)
    (line,) = (line for line in caplog.messages if "supervisor.given_up" in line)
    assert "each process ended 5 times within 120 s before it was ready" in line
    assert "code=1" in line


def test_one_process_that_cannot_start_is_tried_as_long_as_another_works() -> None:
    async def scene() -> None:
        def second_dies(child: ActedChild) -> None:
            if child.number == 2:
                child.end(1)

        acted = Scene(2, at_start=second_dies)
        await asyncio.sleep(300)
        assert acted.alive() == [1]
        assert 10 < len(acted.children) < 20
        acted.at_start = lambda child: None
        await asyncio.sleep(31)
        assert acted.alive() == [1, 2]
        assert await acted.stopped() == 0

    play(scene)


def test_process_that_somebody_stopped_does_not_count_as_one_that_works() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.children[0].end(0)
        acted.at_start = lambda child: child.end(1)
        acted.children[1].end(-9)
        assert await acted.task == 1
        assert len(acted.children) == 2 + EARLY_DEATHS_MAX

    play(scene)


def test_wrong_command_line_is_not_tried_again() -> None:
    async def scene() -> None:
        acted = Scene(4, at_start=lambda child: child.end(2))
        assert await acted.task == 2
        assert len(acted.children) == 1

    play(scene)


def test_machine_that_refuses_a_process_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        acted = Scene(1)
        acted.refusals = 3
        await asyncio.sleep(6)
        assert acted.alive() == [1]
        assert await acted.stopped() == 0

    play(scene)
    assert sum("process.not_started" in line for line in caplog.messages) == 3


def test_process_that_somebody_stopped_stays_stopped_and_the_last_ends_all() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.children[0].end(0)
        await asyncio.sleep(100)
        assert (acted.alive(), len(acted.children)) == ([2], 2)
        assert "process 1 was stopped" in acted.said[0]
        acted.supervisor.reload()
        await asyncio.sleep(10)
        assert acted.alive() == [1]
        acted.children[-1].end(0)
        assert await acted.task == 0

    play(scene)


# Reloads.


def test_reload_replaces_one_at_a_time_and_the_new_one_is_ready_first() -> None:
    async def scene() -> None:
        acted = Scene(3)
        await asyncio.sleep(1)
        acted.supervisor.reload()
        ready: set[int] = set()
        while "reloaded processes=3" not in acted.said:
            assert len(acted.alive()) <= 4
            ready.add(sum(c.exit_code is None and "stop" not in c.heard for c in acted.children))
            await asyncio.sleep(0.01)
        assert ready == {3, 4}
        assert acted.alive() == [1, 2, 4]
        assert [child.number for child in acted.children] == [1, 2, 3, 4, 1, 2]
        assert acted.supervisor.restart_counts[Reason.RELOAD] == 3
        assert await acted.stopped() == 0

    play(scene)


@pytest.mark.parametrize("code", [1, 0, 2])
def test_reload_of_code_that_cannot_start_changes_nothing(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.at_start = lambda child: child.end(code)
        acted.supervisor.reload()
        await asyncio.sleep(60)
        assert (acted.alive(), len(acted.children)) == ([1, 2], 3)
        assert acted.said == ["reloading processes=2"]
        acted.at_start = lambda child: None
        acted.supervisor.reload()
        await asyncio.sleep(10)
        assert acted.said[-1] == "reloaded processes=2"
        assert await acted.stopped() == 0

    play(scene)
    assert sum("reload.given_up" in line for line in caplog.messages) == 1


def test_reload_whose_process_is_never_ready_stops_it() -> None:
    async def scene() -> None:
        def never_joins(child: ActedChild) -> None:
            child.answer = ChildState("shop", "running", joined=False)

        acted = Scene(1)
        await asyncio.sleep(1)
        acted.at_start = never_joins
        acted.supervisor.reload()
        await asyncio.sleep(299)
        assert acted.alive() == [1, 2]
        await asyncio.sleep(10)
        assert acted.alive() == [1]
        assert await acted.stopped() == 0

    play(scene)


def test_stop_during_a_reload_ends_the_new_process_too(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        def never_joins(child: ActedChild) -> None:
            child.answer = ChildState("shop", "starting")

        acted = Scene(2)
        await asyncio.sleep(1)
        acted.at_start = never_joins
        acted.supervisor.reload()
        await asyncio.sleep(1)
        assert acted.alive() == [1, 2, 3]
        assert await acted.stopped() == 0
        assert acted.alive() == []

    play(scene)
    assert "event=reload.given_up" not in caplog.text


def test_crash_of_the_old_process_during_a_reload_starts_no_third_one() -> None:
    async def scene() -> None:
        acted = Scene(1)
        await asyncio.sleep(1)
        acted.at_start = lambda child: setattr(child, "answer", LOADING)
        acted.supervisor.reload()
        await asyncio.sleep(0.2)
        acted.children[0].end(-9)  # Its restart waits half a second.
        await asyncio.sleep(0.1)
        acted.children[1].answer = ChildState("shop", "running", joined=True, ready=True)
        await asyncio.sleep(60)
        assert (len(acted.children), acted.alive()) == (2, [2])
        assert await acted.stopped() == 0

    play(scene)


# Memory, and processes that hang.


def test_processes_with_too_much_memory_are_replaced_one_at_a_time() -> None:
    async def scene() -> None:
        acted = Scene(3, memory_bytes_max=5_000)
        await asyncio.sleep(70)
        for child in acted.children:
            child.bytes = 5_001
        fewest = 3
        while acted.supervisor.restart_counts[Reason.MEMORY] < 3:
            fewest = min(fewest, acted.supervisor.ready_count)
            await asyncio.sleep(0.05)
        assert fewest == 2
        assert acted.alive() == [1, 2, 3]  # The old one stops first, so no number is free.
        assert await acted.stopped() == 0

    play(scene)


def test_limit_below_what_the_application_needs_replaces_a_process_once_a_minute() -> None:
    async def scene() -> None:
        acted = Scene(1, memory_bytes_max=999)
        await asyncio.sleep(600)
        assert 8 <= len(acted.children) <= 10
        assert await acted.stopped() == 0

    play(scene)


def test_process_that_hangs_for_a_minute_is_killed_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        hanging = acted.children[0]
        hanging.answer = None
        await asyncio.sleep(55)
        assert hanging.exit_code is None
        await asyncio.sleep(25)
        assert hanging.heard == ["SIGKILL"]
        assert acted.alive() == [1, 2]
        assert acted.supervisor.restart_counts[Reason.HANGS] == 1
        assert await acted.stopped() == 0

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert any("process.hangs" in line for line in caplog.messages)


def test_process_that_hangs_does_not_keep_a_stop_waiting() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.children[1].answer = None
        began = asyncio.get_running_loop().time()
        assert await acted.stopped() == 1
        assert asyncio.get_running_loop().time() - began < 30
        assert acted.children[1].heard == ["stop", "SIGKILL"]

    play(scene)


def test_process_that_stops_for_long_and_answers_is_left_alone() -> None:
    async def scene() -> None:
        acted = Scene(1)
        await asyncio.sleep(1)
        child = acted.children[0]
        child.answer = ChildState("shop", "stopping")
        acted.wishes.stop()
        await asyncio.sleep(1)
        assert child.heard == ["stop"]
        assert await acted.task == 0

    play(scene)


# Quiet.


def test_quiet_reaches_all_and_those_that_start_later() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        assert acted.supervisor.is_ready
        acted.wishes.quiet()
        await asyncio.sleep(0.01)
        # The processes have not been asked since.
        assert (acted.supervisor.ready_count, acted.supervisor.is_ready) == (2, False)
        await asyncio.sleep(2)
        assert (acted.supervisor.ready_count, acted.supervisor.phase) == (0, "quiet")
        acted.children[0].end(-11)
        await asyncio.sleep(2)
        assert acted.children[-1].heard == ["quiet"]
        acted.supervisor.reload()
        await asyncio.sleep(10)
        assert acted.said[-1] == "reloaded processes=2"
        acted.wishes.resume()
        await asyncio.sleep(2)
        assert acted.supervisor.ready_count == 2
        assert await acted.stopped() == 0

    play(scene)


def test_process_that_was_made_quiet_alone_is_replaced_by_a_quiet_one() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        acted.children[1].answer = ChildState("shop", "quiet", joined=True)
        await asyncio.sleep(2)
        acted.children[1].end(-11)
        await asyncio.sleep(2)
        assert [child.heard for child in acted.children] == [[], [], ["quiet"]]
        assert await acted.stopped() == 0

    play(scene)
