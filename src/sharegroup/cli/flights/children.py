"""The demo's processes: started on a leash, watched, killed, stopped, weighed.

Each has two files beside its ledgers: ``NAME.out`` and ``NAME.log`` (standard output and
error), over all its starts.  They are in a process group of their own, so that Ctrl-C reaches
the demo alone and it decides in which order they go.

A child may have processes of its own: Spark is a tree of them.  They are weighed with it and
killed with it, and what it leaves behind when it ends is ended too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

STOP_SECONDS_MAX = 15.0
END_SECONDS_MAX = 5.0
"""For what a child leaves behind: it goes by itself, or else is killed."""
WEIGH_SECONDS = 1.0
END_LOOK_SECONDS = 0.02
LOG_TAIL_BYTES = 2_000
_JAVA_FRAME = re.compile(r"^\s+(at |\.\.\. \d+ more)")
"""A line of a stack trace of Java's: there are so many that they bury what went wrong."""
_READY = re.compile(r"^ready bootstrap=(\S+) cluster=\S+ data=.*$", re.MULTILINE)


class ChildFailed(Exception):
    """A process of the demo did what it should not."""


class Children:
    """The running processes by name."""

    def __init__(self, folder: Path, *, end_seconds_max: float = END_SECONDS_MAX) -> None:
        self._folder = folder
        self._end_seconds_max = end_seconds_max
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: list[psutil.Process] = []
        """All processes below this one, when they were weighed last."""
        self._ready_seen = 0
        self._weighed = 0.0
        self.peak_pss_bytes = 0

    def start(self, name: str, *arguments: str) -> None:
        """Start ``python ARGUMENTS...``."""
        assert name not in self._running, f"{name} is running already"
        leash = (sys.executable, "-m", "sharegroup.cli.flights.leash", str(os.getpid()))
        with open(self._path(name, "out"), "ab") as out, open(self._path(name, "log"), "ab") as log:
            self._running[name] = subprocess.Popen(
                (*leash, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                process_group=0,
            )

    def ready_bootstrap(self, name: str) -> str | None:
        """Where a broker accepts connections; None until it has said so since its last start."""
        self.check(name)
        lines = _READY.findall(self._path(name, "out").read_text())
        if len(lines) == self._ready_seen:
            return None
        self._ready_seen = len(lines)
        return str(lines[-1])

    def check(self, *names: str) -> None:
        """Raise if one of these is not running any more."""
        for name in names:
            code = self._running[name].poll()
            if code is not None:
                raise ChildFailed(f"{name} ended with {code}; {self.log_tail(name)}")

    def finished(self, name: str) -> bool:
        """Whether a process that is meant to end has ended well."""
        code = self._running[name].poll()
        if code is None:
            return False
        if code:
            raise ChildFailed(f"{name} ended with {code}; {self.log_tail(name)}")
        del self._running[name]
        self._end_orphans()
        return True

    def pause(self, name: str) -> None:
        """Stop it where it is."""
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def kill9(self, name: str) -> None:
        """End it and all below it without a chance to tidy up."""
        process = self._running.pop(name)
        below = _below(process.pid)
        process.kill()
        process.wait()
        _end(below, grace_seconds=0.0)

    def stop(self, *names: str) -> None:
        """SIGTERM to all of these; each must end with 0 within the limit."""
        for name in names:
            self._running[name].terminate()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for name in names:
            try:
                self._running[name].wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise ChildFailed(
                    f"{name} did not stop in {STOP_SECONDS_MAX} s; {self.log_tail(name)}"
                ) from None
            self.finished(name)

    def kill_all(self) -> None:
        """Leave nothing behind."""
        for name in list(self._running):
            self.kill9(name)

    def weigh_now_and_then(self) -> None:
        """Weigh, unless it was done just now."""
        if time.monotonic() - self._weighed > WEIGH_SECONDS:
            self.weigh()

    def weigh(self) -> None:
        """Note the memory of all processes together; a page shared by n of them counts once."""
        self._seen = _below(os.getpid())
        pids = [os.getpid(), *(process.pid for process in self._seen)]
        self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, pids)))
        self._weighed = time.monotonic()

    def forget_peak(self) -> None:
        """What was weighed so far does not count any more."""
        self.peak_pss_bytes = 0

    def _end_orphans(self) -> None:
        """See what a child left behind go; it is no longer below this process."""
        still_below = set(_below(os.getpid()))
        orphans = [process for process in self._seen if process not in still_below]
        _end(orphans, grace_seconds=self._end_seconds_max)

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"

    def log_tail(self, name: str) -> str:
        """Where a process wrote its standard error, and the last of it."""
        path = self._path(name, "log")
        lines = path.read_text(errors="replace").splitlines()
        told = "\n".join(line for line in lines if not _JAVA_FRAME.match(line))
        tail = told[-LOG_TAIL_BYTES:].strip()
        return f"its log is {path}, which ends with: {tail}"


def _pss_bytes(pid: int) -> int:
    """Resident memory of a process, shared pages in part; what is ending weighs nothing."""
    try:
        memory = psutil.Process(pid).memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
    # Only Linux knows shared pages in part; elsewhere the unshared ones have to do.
    return int(getattr(memory, "pss", memory.uss))


def _below(pid: int) -> list[psutil.Process]:
    """The processes that descend from this one; none when it is gone."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _end(processes: Sequence[psutil.Process], *, grace_seconds: float) -> None:
    """See these processes go: by themselves within the grace, or else killed."""
    for process in _left(processes, grace_seconds):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for process in _left(processes, END_SECONDS_MAX):
        raise ChildFailed(f"process {process.pid} was killed and is still there: {process}")


def _left(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that are still there after the time, or none as soon as all are gone."""
    deadline = time.monotonic() + seconds
    while (left := [one for one in processes if _is_alive(one)]) and time.monotonic() < deadline:
        time.sleep(END_LOOK_SECONDS)
    return left


def _is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; what ended and waits for its parent to notice does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
