"""``sharegroup serve`` as a process of its own, and what a process costs.

What must be true of a broker that real clients use can't be shown inside of the test's own
process: ``kill -9``, SIGSTOP, a clean stop with exit code 0, resident memory and CPU time.
Interop tests, fault tests and benchmarks all start their broker here.

    with ServeProcess(tmp_path / "data") as broker:
        connect(broker.bootstrap_servers)
        broker.kill9()
        broker.start()    # the same port, the same data
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.limits import HANGING_SECONDS

READY_SECONDS_MAX = HANGING_SECONDS
STOP_SECONDS_MAX = HANGING_SECONDS
LOG_TAIL_BYTES = 4_000
_READY = re.compile(r"ready bootstrap=(\S+):(\d+) cluster=(\S+) data=(.*)\n")
_SYNCS = re.compile(r"event=stopped\b.*\bsyncs=(\d+)")


class ServeProcessError(Exception):
    """The broker did not start, or did not stop as it should."""


class ServeProcess:
    """One ``sharegroup serve`` over ``data``; a context manager that starts and stops it."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        durability: str = "fsync",
        settings: Mapping[str, str] | None = None,
        log_level: str = "info",
        source: Path | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        """``source`` is a folder with another version of our packages; None is this checkout's.

        ``descriptors_max`` is the soft and hard RLIMIT_NOFILE of the process; None inherits it.
        """
        self.data = data
        self.source = source
        self.descriptors_max = descriptors_max
        self.durability = durability
        self.settings = dict(settings or {})
        self.log_level = log_level
        self.cluster_id = ""
        self.port = port  # 0: the first start picks one, and a restart takes the same.
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        assert self.port, "the broker has not been started"
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """What the broker logged, over all its starts."""
        return self.data.with_name(self.data.name + ".log")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:  # The first error is the one to show, not a second one from stopping.
            self.kill9()

    def start(self, *, wait: bool = True) -> None:
        """Start the broker and, unless told otherwise, wait for its ready line."""
        assert not self.running, "the broker is running already"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
            )
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill9()
                raise

    def wait_ready(self, seconds: float = READY_SECONDS_MAX) -> None:
        """Return when the broker has said that it accepts connections."""
        line = self._read_line(seconds)
        match = _READY.fullmatch(line)
        if match is None:
            raise ServeProcessError(f"expected a ready line, got {line!r}: {self.log_tail()}")
        self.port, self.cluster_id = int(match[2]), match[3]

    def stop(self) -> None:
        """Stop with SIGTERM; anything but exit code 0 within the limit is an error."""
        if self._process is None:
            return
        process = self._process
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise ServeProcessError(
                f"SIGTERM did not stop the broker in {STOP_SECONDS_MAX} s: {self.log_tail()}"
            ) from None
        self._forget()
        if code:
            raise ServeProcessError(f"the broker stopped with {code}: {self.log_tail()}")

    def kill9(self) -> None:
        """End the broker without a chance to tidy up; `start` brings it back on the same data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def pause(self) -> None:
        """SIGSTOP: the process is there, its port is open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """CPU time of the running broker since its start."""
        return cpu_seconds(self.pid)

    def pss_bytes(self) -> int:
        """Resident memory of the running broker, shared pages counted in part."""
        return pss_bytes(self.pid)

    def syncs(self) -> int:
        """How often the last broker that stopped cleanly had synced a file."""
        found = _SYNCS.findall(self.log_path.read_text(errors="replace"))
        if not found:
            raise ServeProcessError(f"no event=stopped with syncs=N in {self.log_path}")
        return int(found[-1])

    def log_tail(self) -> str:
        """The last of what the broker logged."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text[-LOG_TAIL_BYTES:]

    def _command(self) -> list[str]:
        pairs = [
            part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")
        ]
        limited = []
        if self.descriptors_max is not None:
            limited = ["sh", "-c", f'ulimit -n {self.descriptors_max}; exec "$0" "$@"']
        return [
            *limited,
            *(sys.executable, "-m", "sharegroup", "serve"),
            # The option would replace the listeners of the settings.
            *(() if "listeners" in self.settings else ("--port", str(self.port))),
            *("--data", str(self.data)),
            *("--durability", self.durability, "--log-level", self.log_level),
            *pairs,
        ]

    def _environment(self) -> dict[str, str]:
        if self.source is None:
            return dict(os.environ)
        return {**os.environ, "PYTHONPATH": str(self.source)}

    def _read_line(self, seconds: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        limit = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            if not readable([stream], max(0.0, limit - time.monotonic())):
                raise ServeProcessError(f"no ready line in {seconds} s: {self.log_tail()}")
            some = os.read(stream, 1)
            if not some:
                raise ServeProcessError(f"the broker ended while it started: {self.log_tail()}")
            line += some
        return line.decode()

    def _forget(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def cpu_seconds(pid: int) -> float:
    """User and system CPU time of a process since its start."""
    with open(f"/proc/{pid}/stat") as file:
        # The name in brackets may hold blanks; utime and stime are fields 14 and 15.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Resident memory of a process; a page shared by n processes counts 1/n."""
    return _smaps_bytes(pid, "Pss")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process, shared pages counted in full."""
    return _smaps_bytes(pid, "Rss")


def reset_peak_rss(pid: int) -> None:
    """Make the kernel measure `peak_rss_bytes` of this process from now on."""
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def peak_rss_bytes(pid: int) -> int:
    """The most resident memory that a process had since its start or `reset_peak_rss`."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) * 1024
    raise ServeProcessError(f"/proc/{pid}/status has no VmHWM")


def _smaps_bytes(pid: int, field: str) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    raise ServeProcessError(f"/proc/{pid}/smaps_rollup has no {field}")


def readable(files: Sequence[int | socket.socket], seconds: float) -> list[Any]:
    """Those of ``files`` that can be read within ``seconds``, whatever their descriptors are.

    `select.select` fails for descriptors from 1,024 on, which a run of all tests has.
    """
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]


def open_descriptors() -> list[tuple[int, str]]:
    """Those that are open now, with what they show; not the one that looks.

    Threads of earlier tests may open and close theirs meanwhile, so a test looks at its own only.
    """
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
