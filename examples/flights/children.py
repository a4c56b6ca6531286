"""Starts, watches, kills and stops the demo's processes, and measures their memory.

Each process has two files beside its ledgers: ``NAME.out`` and ``NAME.log`` (standard output and
error), which all its starts append to. Each has its own process group, so that Ctrl-C reaches
only the demo, which decides in which order the processes stop.

A child may have child processes: Spark is a tree of processes. They are measured and killed with
the child. Processes that a child leaves behind when it ends are ended too.
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

CHECKOUT = Path(__file__).resolve().parents[2]
"""The folder that contains ``examples``."""
STOP_SECONDS_MAX = 15.0
END_SECONDS_MAX = 5.0
"""The time that processes left behind by a child have to end before they are killed."""
WEIGH_SECONDS = 1.0
END_LOOK_SECONDS = 0.02
LOG_TAIL_BYTES = 2_000
_JAVA_FRAME = re.compile(r"^\s+(at |\.\.\. \d+ more)")
"""A line of a Java stack trace; log tails omit these, because they hide the error."""
_READY = re.compile(r"^ready bootstrap=(\S+) cluster=\S+ data=.*$", re.MULTILINE)

_CONSOLE = re.compile(r"^ready console=(\S+)$", re.MULTILINE)


class ChildFailed(Exception):
    """A process of the demo ended unexpectedly, or did not end when it should."""


class Children:
    """The running processes of the demo, by name."""

    def __init__(self, folder: Path, *, end_seconds_max: float = END_SECONDS_MAX) -> None:
        self._folder = folder
        self._end_seconds_max = end_seconds_max
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: list[psutil.Process] = []
        """All descendants of this process at the last measurement of memory."""
        self._ready_seen = 0
        self._weighed = 0.0
        self.peak_pss_bytes = 0

    def start(self, name: str, *arguments: str) -> None:
        """Start ``python ARGUMENTS...`` as the process ``name``."""
        assert name not in self._running, f"{name} is running already"
        leash = (sys.executable, "-m", "examples.flights.leash", str(os.getpid()))
        with open(self._path(name, "out"), "ab") as out, open(self._path(name, "log"), "ab") as log:
            self._running[name] = subprocess.Popen(
                (*leash, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=os.environ | {"PYTHONPATH": _search_path()},
                process_group=0,
            )

    def ready_bootstrap(self, name: str) -> str | None:
        """Return the address of a broker; None until its last start has printed that it is ready.

        Raises ChildFailed if the broker has ended.
        """
        self.check(name)
        lines = _READY.findall(self._path(name, "out").read_text())
        if len(lines) == self._ready_seen:
            return None
        self._ready_seen = len(lines)
        return str(lines[-1])

    def console_url(self, name: str) -> str | None:
        """Return the address of a console; None until it has printed it, or if it has ended."""
        found = _CONSOLE.search(self._path(name, "out").read_text())
        return str(found[1]) if found and self._running[name].poll() is None else None

    def check(self, *names: str) -> None:
        """Raise ChildFailed if one of the processes is no longer running."""
        for name in names:
            code = self._running[name].poll()
            if code is not None:
                raise ChildFailed(f"{name} ended with {code}; {self.log_tail(name)}")

    def finished(self, name: str) -> bool:
        """Return whether a process has ended with code 0; raise ChildFailed for another code."""
        code = self._running[name].poll()
        if code is None:
            return False
        if code:
            raise ChildFailed(f"{name} ended with {code}; {self.log_tail(name)}")
        del self._running[name]
        self._end_orphans()
        return True

    def pause(self, name: str) -> None:
        """Suspend a process with SIGSTOP until `resume`."""
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a suspended process with SIGCONT."""
        self._running[name].send_signal(signal.SIGCONT)

    def kill9(self, name: str) -> None:
        """Kill a process and its descendants with SIGKILL."""
        process = self._running.pop(name)
        descendants = _below(process.pid)
        process.kill()
        process.wait()
        _end(descendants, grace_seconds=0.0)

    def stop(self, *names: str) -> None:
        """Send SIGTERM to the processes; ChildFailed unless each ends with 0 within the limit."""
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
        """Kill all running processes and their descendants."""
        for name in list(self._running):
            self.kill9(name)

    def weigh_now_and_then(self) -> None:
        """Measure the memory if the last measurement is more than `WEIGH_SECONDS` old."""
        if time.monotonic() - self._weighed > WEIGH_SECONDS:
            self.weigh()

    def weigh(self) -> None:
        """Measure the memory of all processes; a page shared by n processes counts once."""
        self._seen = _below(os.getpid())
        pids = [os.getpid(), *(process.pid for process in self._seen)]
        self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, pids)))
        self._weighed = time.monotonic()

    def forget_peak(self) -> None:
        """Reset the peak of the measured memory."""
        self.peak_pss_bytes = 0

    def _end_orphans(self) -> None:
        """End processes that an ended child left behind: no longer descendants of this one."""
        still_below = set(_below(os.getpid()))
        orphans = [process for process in self._seen if process not in still_below]
        _end(orphans, grace_seconds=self._end_seconds_max)

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"

    def log_tail(self, name: str) -> str:
        """Return a text with the path and the end of a process's log (its standard error)."""
        path = self._path(name, "log")
        lines = path.read_text(errors="replace").splitlines()
        text = "\n".join(line for line in lines if not _JAVA_FRAME.match(line))
        tail = text[-LOG_TAIL_BYTES:].strip()
        return f"its log is {path}, which ends with: {tail}"


def _search_path() -> str:
    """Return the value of PYTHONPATH with which children find this package in any folder."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(CHECKOUT), *([inherited] if inherited else [])])


def _pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process; 0 if the process is ending."""
    try:
        memory = psutil.Process(pid).memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
    # Only Linux reports the proportional set size; other systems report unshared pages.
    return int(getattr(memory, "pss", memory.uss))


def _below(pid: int) -> list[psutil.Process]:
    """Return the descendants of a process; an empty list if it has ended."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _end(processes: Sequence[psutil.Process], *, grace_seconds: float) -> None:
    """Wait ``grace_seconds`` for the processes to end, then kill the others."""
    for process in _left(processes, grace_seconds):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for process in _left(processes, END_SECONDS_MAX):
        raise ChildFailed(f"process {process.pid} was killed and is still there: {process}")


def _left(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until all processes have ended or the time is over; return the running ones."""
    deadline = time.monotonic() + seconds
    while (
        running := [process for process in processes if _is_alive(process)]
    ) and time.monotonic() < deadline:
        time.sleep(END_LOOK_SECONDS)
    return running


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
