"""A guard for `tests/unit`: its tests use no broker, socket or process, and do not wait.

The interpreter's audit events tell of sockets and processes wherever they are made; every broker
listens on a socket.  Waiting is counted in `time.sleep`, and in the event loop's selector when the
loop had nothing to do but wait for a timer: a busy machine does not add to it.  A thread that
waits for another one is not counted.  Threads that other tests left behind in this process, and
those of their libraries, are not watched: `make test` runs all tests in a few processes.
"""

from __future__ import annotations

import selectors
import sys
import threading
import time
from collections.abc import Generator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
WAIT_SECONDS_MAX = 0.2
"""For a whole test.  A loop that polls every 10 ms for a moment is allowed."""

WHERE = (
    "tests/unit is for tests without brokers, sockets, processes and real waiting (make unit). "
    "Move this test to tests/integration/<package>, or give it a fake or virtual time."
)
FORBIDDEN = {
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.bind": "starts a server: a broker, say",
    "socket.connect": "opens a connection",
    "subprocess.Popen": "starts a process",
}

sleep = time.sleep


class NotUnit(BaseException):
    """Raised where a unit test does what it must not do; no ``except Exception`` hides it."""


class Watch:
    """What the test that runs did so far.  Does nothing while no unit test runs."""

    def __init__(self) -> None:
        self.is_on = False
        self.broken: list[str] = []
        self.waited_seconds = 0.0
        self.other_threads: frozenset[threading.Thread] = frozenset()

    def start(self) -> None:
        self.other_threads = frozenset(threading.enumerate()) - {threading.current_thread()}
        self.is_on = True
        self.broken = []
        self.waited_seconds = 0.0

    def concerns(self, thread: threading.Thread) -> bool:
        """Whether ``thread`` runs the test of now, or was started by it."""
        return self.is_on and thread not in self.other_threads

    def refuse(self, what: str) -> None:
        if self.concerns(threading.current_thread()):
            self.broken.append(what)
            raise NotUnit(f"this test {what}. {WHERE}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event in FORBIDDEN:
            self.refuse(FORBIDDEN[event])

    def waited(self, seconds: float) -> None:
        if self.concerns(threading.current_thread()):
            self.waited_seconds += seconds

    def sleep(self, seconds: float) -> None:
        """Stands for `time.sleep`, which has an audit event only since Python 3.13."""
        self.waited(seconds)
        sleep(seconds)

    def problem(self) -> str | None:
        """What the test did wrong, also if it caught the error."""
        if self.broken:
            return f"this test {self.broken[0]}. {WHERE}"
        if self.waited_seconds > WAIT_SECONDS_MAX:
            return f"this test waited for {self.waited_seconds:.2f} s. {WHERE}"
        return None


watch = Watch()
sys.addaudithook(watch.audit)


class WatchedSelector(selectors.DefaultSelector):
    """Counts the time in which an event loop waited for a timer and nothing else came."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        before = time.monotonic()
        ready = super().select(timeout)
        if not ready:
            watch.waited(min(timeout, time.monotonic() - before))
        return ready


def refuse_to_start(process: BaseProcess) -> None:
    watch.refuse(FORBIDDEN["os.fork"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test with its fixtures.  pytest calls this hook for tests of other folders, too."""
    if FOLDER not in item.path.parents:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selectors, "DefaultSelector", WatchedSelector)
        # The start of a process by multiprocessing's spawn has no audit event.
        patch.setattr(BaseProcess, "start", refuse_to_start)
        patch.setattr(time, "sleep", watch.sleep)
        watch.start()
        try:
            return (yield)
        finally:
            watch.is_on = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that broke a rule although all of its assertions hold."""
    result = yield
    if problem := watch.problem():
        pytest.fail(problem, pytrace=False)
    return result
