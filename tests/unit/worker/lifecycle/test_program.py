"""A worker as a program, around an application that starts, fails and stops as it is told."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sharegroup.errors import RequestTimedOut
from sharegroup.worker.lifecycle.pid_files import worker_of
from sharegroup.worker.lifecycle.program import Program, Surroundings
from sharegroup.worker.telemetry.state import Phase, WorkerGroupState, WorkerState
from tests.support.limits import HANGING_SECONDS

SECONDS_MAX = HANGING_SECONDS


class Stood:
    """A worker that writes down what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.state = WorkerState(Phase.RUNNING, (WorkerGroupState("billing", "m", joined=True),))
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def quiet(self) -> None:
        self.asked.append("quiet")

    def resume(self) -> None:
        self.asked.append("resume")

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self.failed)


class Acted:
    """An application whose start and stop wait until they are let go."""

    name = "orders"
    route_list = ()

    def __init__(self, *, starts: bool = True, stops: bool = True, joins: bool = True) -> None:
        self.worker: Stood | None = None
        self.error: Exception | None = None
        self.stop_error: Exception | None = None
        self.stops_asked: list[float | None] = []
        self._joins = joins
        self._may_start = asyncio.Event()
        self._may_stop = asyncio.Event()
        if starts:
            self._may_start.set()
        if stops:
            self._may_stop.set()

    def let_start(self) -> None:
        self._may_start.set()

    async def start(self) -> None:
        await self._may_start.wait()
        if self.error is not None:
            raise self.error
        self.worker = Stood()
        if not self._joins:
            self.worker.state = WorkerState(
                Phase.RUNNING, (WorkerGroupState("b", "m", joined=False),)
            )

    async def stop(self, grace: float | None = None) -> str:
        self.stops_asked.append(grace)
        if grace is not None:
            self._may_stop.set()
        await self._may_stop.wait()
        if self.stop_error is not None:
            raise self.stop_error
        return "finished=1 interrupted=0 released=0"


class Played:
    """The program, run beside a test that signals its own process."""

    def __init__(
        self, app: Acted, folder: Path, *, say: Callable[[str], None] | None = None,
        **surroundings: Any,
    ) -> None:  # fmt: skip
        self.said: list[str] = []
        self.pid_file = folder / "worker.pid"
        around = Surroundings(pid_file=self.pid_file, **surroundings)
        self.program = Program(app, around, say or self.said.append)  # type: ignore[arg-type]  # Acted.
        self.task = asyncio.ensure_future(self.program.main())

    def phase(self) -> str | None:
        """As a reader of the file sees it (its lock is this process's own)."""
        text = self.pid_file.read_text() if self.pid_file.exists() else ""
        return text.partition('"phase": "')[2].partition('"')[0] or None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                await asyncio.sleep(0.001)

    async def until_phase(self, phase: str) -> None:
        await self.until(lambda: self.phase() == phase)

    async def ended(self) -> int:
        async with asyncio.timeout(SECONDS_MAX):
            return await self.task


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_program_prints_ready_and_the_outcome_of_its_stop(tmp_path: Path) -> None:
    async def work() -> None:
        played = Played(Acted(), tmp_path)
        await played.until_phase("running")
        signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == 0
        assert played.said[0].startswith("ready app=orders pid=")
        assert played.said[1:] == ["stopped app=orders finished=1 interrupted=0 released=0"]
        assert not played.pid_file.exists()
        assert list((tmp_path / "sharegroup").iterdir()) == []

    asyncio.run(work())


def test_program_prints_ready_after_its_members_joined(tmp_path: Path) -> None:
    async def work() -> None:
        app = Acted(joins=False)
        played = Played(app, tmp_path)
        await played.until_phase("running")
        assert played.said == []
        assert app.worker is not None
        app.worker.state = Stood().state
        await played.until(lambda: played.said != [])
        signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == 0
        assert [line.split()[0] for line in played.said] == ["ready", "stopped"]

    asyncio.run(work())


@pytest.mark.parametrize("fails", [True, False])
def test_program_does_not_print_ready_if_it_ends_before_its_members_joined(
    tmp_path: Path, *, fails: bool
) -> None:
    async def work() -> None:
        app = Acted(joins=False)
        played = Played(app, tmp_path)
        await played.until_phase("running")
        assert app.worker is not None
        if fails:
            app.worker.failed.set_result(RequestTimedOut("no coordinator"))
        else:
            signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == int(fails)
        assert [line.split()[0] for line in played.said] == ["failed" if fails else "stopped"]

    asyncio.run(work())


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_during_the_start_ends_the_start(tmp_path: Path, number: signal.Signals) -> None:
    async def work() -> None:
        app = Acted(starts=False)
        played = Played(app, tmp_path)
        await played.until_phase("starting")
        signal.raise_signal(number)
        assert await played.ended() == 0
        assert (played.said, app.stops_asked) == ([], [])

    asyncio.run(work())


def test_quiet_signal_during_the_start_takes_effect_after_it(tmp_path: Path) -> None:
    async def work() -> None:
        app = Acted(starts=False)
        played = Played(app, tmp_path)
        await played.until_phase("starting")
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.sleep(0)
        app.let_start()
        await played.until_phase("quiet")
        assert app.worker is not None
        assert app.worker.asked == ["quiet"]
        signal.raise_signal(signal.SIGUSR2)
        await played.until_phase("running")
        assert app.worker.asked == ["quiet", "resume"]
        signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == 0

    asyncio.run(work())


def test_a_second_stop_hurries_the_first(tmp_path: Path) -> None:
    async def work() -> None:
        app = Acted(stops=False)
        played = Played(app, tmp_path)
        await played.until_phase("running")
        signal.raise_signal(signal.SIGTERM)
        await played.until_phase("stopping")
        assert app.stops_asked == [None]
        signal.raise_signal(signal.SIGINT)
        assert await played.ended() == 0
        assert app.stops_asked == [None, 0]

    asyncio.run(work())


def test_failed_worker_is_stopped_with_exit_code_1(tmp_path: Path) -> None:
    async def work() -> None:
        app = Acted()
        played = Played(app, tmp_path)
        await played.until_phase("running")
        assert app.worker is not None
        app.worker.failed.set_result(RequestTimedOut("no broker"))
        assert await played.ended() == 1
        assert played.said[-1] == "failed app=orders error=RequestTimedOut('no broker')"
        assert app.stops_asked == [None]

    asyncio.run(work())


def test_a_hook_that_fails_is_shown_with_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        app = Acted()
        app.error = ConnectionError("the database is away")
        played = Played(app, tmp_path)
        assert await played.ended() == 1
        assert played.said == []

    asyncio.run(work())
    assert "event=start_failed app=orders" in caplog.text
    assert "raise self.error" in caplog.text


def test_failed_shutdown_hook_is_logged_with_exit_code_1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        app = Acted()
        app.stop_error = ConnectionError("the database is away")
        played = Played(app, tmp_path)
        await played.until_phase("running")
        signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == 1

    asyncio.run(work())
    assert "event=stop_failed app=orders" in caplog.text
    assert "raise self.stop_error" in caplog.text


def test_kafka_error_during_the_start_is_raised_to_the_caller(tmp_path: Path) -> None:
    async def work() -> None:
        app = Acted()
        app.error = RequestTimedOut("no broker")
        with pytest.raises(RequestTimedOut):
            await Played(app, tmp_path).ended()

    asyncio.run(work())


def test_watched_program_stops_when_its_watcher_is_gone(
    tmp_path: Path,
) -> None:
    """Its watcher is process 0 here, which is no parent of any process."""

    async def work() -> None:
        app = Acted(starts=False)
        played = Played(app, tmp_path, watcher=0)
        assert await played.ended() == 0
        assert worker_of(played.pid_file) is None

    asyncio.run(work())


@pytest.mark.parametrize("ending", ["stop", "failure"])
def test_program_whose_output_is_closed_stops_its_application(tmp_path: Path, ending: str) -> None:
    """A reader of its output that has ended must not cost the records of running handlers."""

    def closed(text: str) -> None:
        raise BrokenPipeError(text)

    async def work() -> None:
        app = Acted()
        played = Played(app, tmp_path, say=closed)
        await played.until_phase("running")
        assert app.worker is not None
        if ending == "stop":
            signal.raise_signal(signal.SIGTERM)
        else:
            app.worker.failed.set_result(RequestTimedOut("no broker"))
        assert await played.ended() == (0 if ending == "stop" else 1)
        assert app.stops_asked == [None]

    asyncio.run(work())


def test_program_that_cannot_write_its_pid_file_goes_on(tmp_path: Path) -> None:
    """On a full disk the phase in the file is an old one; the worker does what it was asked."""

    async def work() -> None:
        app = Acted()
        played = Played(app, tmp_path)
        await played.until_phase("running")
        worker = app.worker
        assert worker is not None
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            signal.raise_signal(signal.SIGUSR1)
            await played.until(lambda: worker.asked == ["quiet"] or played.task.done())
            await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert played.phase() == "running"
        signal.raise_signal(signal.SIGUSR2)
        await played.until(lambda: worker.asked == ["quiet", "resume"] or played.task.done())
        signal.raise_signal(signal.SIGTERM)
        assert await played.ended() == 0
        assert app.stops_asked == [None]

    asyncio.run(work())
