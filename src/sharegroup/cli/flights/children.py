"""The demo's processes: started on a leash, watched, killed, stopped, weighed.

Each has two files beside its ledgers: ``NAME.out`` and ``NAME.log`` (standard output and
error), over all its starts.  They are in a process group of their own, so that Ctrl-C reaches
the demo alone and it decides in which order they go.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

STOP_SECONDS_MAX = 15.0
LOG_TAIL_BYTES = 2_000
_READY = re.compile(r"^ready bootstrap=(\S+) cluster=\S+ data=.*$", re.MULTILINE)


class ChildFailed(Exception):
    """A process of the demo did what it should not."""


class Children:
    """The running processes by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ready_seen = 0
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
                raise ChildFailed(f"{name} ended with {code}: {self.log_tail(name)}")

    def finished(self, name: str) -> bool:
        """Whether a process that is meant to end has ended well."""
        code = self._running[name].poll()
        if code is None:
            return False
        if code:
            raise ChildFailed(f"{name} ended with {code}: {self.log_tail(name)}")
        del self._running[name]
        return True

    def pause(self, name: str) -> None:
        """Stop it where it is."""
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def kill9(self, name: str) -> None:
        """End it without a chance to tidy up."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

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
                    f"{name} did not stop in {STOP_SECONDS_MAX} s: {self.log_tail(name)}"
                ) from None
            self.finished(name)

    def kill_all(self) -> None:
        """Leave nothing behind."""
        for name in list(self._running):
            self.kill9(name)

    def weigh(self) -> None:
        """Note the memory of all processes together; a page shared by n of them counts once."""
        pids = [os.getpid(), *(process.pid for process in self._running.values())]
        self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, pids)))

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"

    def log_tail(self, name: str) -> str:
        """The last of what a process wrote to standard error."""
        return self._path(name, "log").read_text(errors="replace")[-LOG_TAIL_BYTES:].strip()


def _pss_bytes(pid: int) -> int:
    """Resident memory of a process, shared pages in part; what is ending weighs nothing."""
    try:
        memory = psutil.Process(pid).memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
    # Only Linux knows shared pages in part; elsewhere the unshared ones have to do.
    return int(getattr(memory, "pss", memory.uss))
