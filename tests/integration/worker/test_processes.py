"""Handlers in processes: none of them outlives its worker."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sharegroup.worker import HandlerCrashed, SomeFailed
from sharegroup.worker.declarations.handler import shape_of
from sharegroup.worker.executors.process_main import SharedLock, serve
from sharegroup.worker.executors.processes import SPAWN, HandlerProcesses
from tests.integration.worker.handlers import pid_of
from tests.support.limits import HANGING_SECONDS


def double(number: int) -> int:
    return 2 * number


def touch(path: str) -> None:
    Path(path).touch()


class Odd(Exception):
    """Can't be made again of its ``args``."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)


def load(rows: list[str]) -> list[BaseException | None]:
    if rows == ["raises"]:
        raise SomeFailed({2: Odd("the third", "")})
    return [None, Odd("the second", ""), ValueError("the third")]


def load_and_empty(rows: list[str]) -> list[BaseException | None]:
    rows.clear()
    return [None, Odd("the second", "")]


def test_batch_handler_may_change_the_list_that_it_was_given() -> None:
    """Its result has an entry for each record, whatever is left in the list."""

    async def test() -> None:
        processes = HandlerProcesses(shape_of(load_and_empty), 1)
        await processes.start()
        first, second = await processes.call(["a", "b"])
        assert first is None
        assert type(second).__name__ == "Odd"
        await processes.close()

    asyncio.run(test())


def test_a_process_that_began_while_the_worker_stopped_is_ended() -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(double), 1)
        starting = asyncio.ensure_future(processes.start())
        while not multiprocessing.active_children():
            await asyncio.sleep(0.001)  # Its thread is about to begin it.
        await processes.close()
        await starting

    asyncio.run(test())
    assert multiprocessing.active_children() == []


def test_processes_return_results_until_they_are_closed() -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(double), 2)
        await processes.start()
        answers = await asyncio.gather(*(processes.call(number) for number in range(4)))
        assert answers == [0, 2, 4, 6]
        await processes.close()

    asyncio.run(test())
    assert multiprocessing.active_children() == []


class Closing:
    """Takes a moment to close, as a connection to a database does."""

    def handle(self, path: str) -> None:
        self.path = Path(path)

    async def close(self) -> None:
        await asyncio.sleep(0.2)
        self.path.touch()


def test_closed_processes_have_closed_their_handlers(tmp_path: Path) -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(Closing), 2)
        await processes.start()
        paths = [str(tmp_path / str(number)) for number in range(2)]
        await asyncio.gather(*(processes.call(path) for path in paths))
        await processes.close()

    asyncio.run(test())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0", "1"]


def test_a_process_whose_worker_was_killed_ends_without_an_error() -> None:
    ours, theirs = SPAWN.Pipe()
    lock = SharedLock(SPAWN)
    process = SPAWN.Process(target=serve, args=(theirs, lock, double.__module__, double.__name__))
    ours.close()
    process.start()
    theirs.close()
    process.join(HANGING_SECONDS)
    assert process.exitcode == 0


def test_call_cancelled_before_its_process_has_it_is_not_made(tmp_path: Path) -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(touch), 1)
        await processes.start()
        call = asyncio.ensure_future(processes.call(str(tmp_path / "called")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await processes.call(str(tmp_path / "called after it"))
        await processes.close()

    asyncio.run(test())
    assert [path.name for path in tmp_path.iterdir()] == ["called after it"]


def test_failed_records_of_a_batch_are_reported_with_unpicklable_errors() -> None:
    """Such an error must not turn the batch into a successful one."""

    async def test() -> None:
        processes = HandlerProcesses(shape_of(load), 1)
        await processes.start()
        done, second, third = await processes.call(["returns", "", ""])
        assert (done, type(third)) == (None, ValueError)
        assert isinstance(second, Odd)
        assert str(second) == "the second"
        with pytest.raises(SomeFailed) as raised:
            await processes.call(["raises"])
        assert {index: isinstance(error, Odd) for index, error in raised.value.errors.items()} == {
            2: True
        }
        await processes.close()

    asyncio.run(test())


def linger(path: str) -> None:
    """Ends the pipe to the worker, and keeps the process alive by a thread."""
    threading.Thread(target=threading.Event().wait).start()
    os.closerange(3, 256)


def test_process_that_lives_on_without_its_pipe_is_killed() -> None:
    """Its record fails; before, it waited for the end of the process without a limit."""

    async def test() -> None:
        processes = HandlerProcesses(shape_of(linger), 1, end_seconds=0.5)
        await processes.start()
        async with asyncio.timeout(HANGING_SECONDS):
            with pytest.raises(HandlerCrashed) as crashed:
                await processes.call("")
        assert crashed.value.exit_code == -9
        await processes.close()

    asyncio.run(test())
    assert multiprocessing.active_children() == []


class Lingering:
    """Does not end when it is asked to."""

    def handle(self, path: str) -> None:
        Path(path).touch()

    def close(self) -> None:
        os.closerange(3, 256)
        threading.Event().wait()


def test_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        processes = HandlerProcesses(shape_of(Lingering), 1, end_seconds=0.5)
        await processes.start()
        await processes.call(str(tmp_path / "called"))
        async with asyncio.timeout(HANGING_SECONDS):
            await processes.close()

    asyncio.run(test())
    assert multiprocessing.active_children() == []


class NeverOpen:
    """A handler whose `open` does not return, as of a database that does not answer."""

    def open(self) -> None:
        time.sleep(HANGING_SECONDS)

    def handle(self, text: str) -> None: ...


def test_process_whose_handler_never_opens_is_killed() -> None:
    """Otherwise the worker would never end: Python waits for its children, which ignore SIGTERM."""

    async def test() -> None:
        processes = HandlerProcesses(shape_of(NeverOpen), 1, end_seconds=0.5)
        starting = asyncio.ensure_future(processes.start())
        while not multiprocessing.active_children():
            await asyncio.sleep(0.001)
        async with asyncio.timeout(30):
            await processes.close()
            await starting

    asyncio.run(test())
    assert multiprocessing.active_children() == []


class Unreplaced(HandlerProcesses):
    """Processes of a system that has no further process after the first one."""

    has_begun = False

    def _new_child(self) -> Any:
        if self.has_begun:
            raise BlockingIOError("no more processes")
        self.has_begun = True
        return super()._new_child()


def test_crash_is_reported_as_one_if_the_system_has_no_other_process() -> None:
    async def test() -> None:
        processes = Unreplaced(shape_of(pid_of), 1)
        await processes.start()
        with pytest.raises(HandlerCrashed):
            await processes.call("crash")
        with pytest.raises(BlockingIOError):
            await processes.call("again")
        processes.has_begun = False
        with pytest.raises(LookupError):
            await processes.call("later")
        await processes.close()

    asyncio.run(test())
