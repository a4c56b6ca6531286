"""Pid files of the workers on this machine: one file each, in a folder of this user.

    $XDG_RUNTIME_DIR/sharegroup/orders-service.4711      or <tmp>/sharegroup-<uid>/...
        4711
        {"app": "orders-service", "phase": "running", ...}

A crash leaves a file behind whose process id may belong to another process later.  That process
must never get a signal.  So each worker holds a lock (`lockf`) on its file while it lives: the
kernel releases the lock with the process, and child processes do not inherit it.

To send a signal, open the process first (a pidfd, on Linux), then check that the file is still
locked.  If it is, the opened process is the one that wrote the file.  A file without a lock is a
left-over and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "a worker's program needs a POSIX system such as Linux or macOS, whose fcntl locks the "
        "files of running workers; App.test() and the clients run here, too"
    ) from error

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Limit of reading; a worker of tens of thousands of groups writes less."""
LOCK_ATTEMPTS = 20
LOCK_ATTEMPT_SECONDS = 0.01
_UNSAFE = re.compile(r"[^a-zA-Z0-9._-]")


def folder() -> Path:
    """The folder of the pid files; created if missing, refused if others can write to it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    uid = os.getuid()
    above = Path(runtime) if runtime else Path(tempfile.gettempdir())
    path = above / ("sharegroup" if runtime else f"sharegroup-{uid}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        why = (
            f"{error.strerror}: cannot use the folder for pid files; set XDG_RUNTIME_DIR to one of "
            "your own"
        )
        raise OSError(error.errno, why, str(path)) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or status.st_mode & 0o022:
        raise PermissionError(
            errno.EACCES, "expected a folder that only this user can write to", str(path)
        )
    return path


class PidFile:
    """The pid file of this process: locked, and rewritten when the worker's state changes."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        for _ in range(LOCK_ATTEMPTS):
            # Never through a link, because another user who may write to the directory could let it
            # name any file of this user.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _refuse_foreign(fd, path)
                # The file may have been removed as a left-over between the open and the lock.
                if _lock(fd) and _is_at(fd, path):
                    self._fd = fd
                    return
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            # Another process may be checking whether it is a left-over, or have removed it.
            time.sleep(LOCK_ATTEMPT_SECONDS)
        raise FileExistsError(errno.EEXIST, "another worker runs with this pid file", str(path))

    @classmethod
    def of(cls, app_name: str) -> Self:
        """Create the file of this process in the folder of all workers."""
        return cls(folder() / f"{_UNSAFE.sub('_', app_name)}.{os.getpid()}")

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write the process id and these facts, in place of the previous content."""
        # In place and not by renaming, because the lock is on this file.
        text = f"{os.getpid()}\n{json.dumps(dict(facts))}\n".encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def close(self) -> None:
        """Remove the file and release the lock."""
        # Before the lock is released: afterwards the path may be the file of another worker.
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker process on this machine that was running when it was searched."""

    pid: int
    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to exactly this process; returns False if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                if _is_locked(self.path):
                    os.kill(self.pid, number)
                    return True
                return False
            handle = os.pidfd_open(self.pid)
            try:
                # Still locked after the pidfd was opened, so that process wrote the file.
                if _is_locked(self.path):
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        return False


def workers(app_name: str | None = None) -> list[WorkerProcess]:
    """Find the running workers of an application, or of all; removes left-over files.

    A worker must not call it, because closing its own file would release its own lock.
    """
    name_pattern = ".*" if app_name is None else re.escape(_UNSAFE.sub("_", app_name))
    pattern = re.compile(rf"{name_pattern}\.\d+")
    processes = []
    for path in sorted(folder().iterdir()):
        if pattern.fullmatch(path.name):
            worker = worker_of(path)
            # Different application names may have the same file name.
            if worker is not None and app_name in (None, worker.facts.get("app", app_name)):
                processes.append(worker)
            elif worker is None:
                _remove_left_over(path)
    return processes


def worker_of(path: Path) -> WorkerProcess | None:
    """The running worker that wrote this file; None if it has ended or is still writing."""
    if not _is_locked(path):
        return None
    with contextlib.suppress(FileNotFoundError):
        return _parsed(path)
    return None


def _remove_left_over(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if _lock(fd) and _is_at(fd, path):
                path.unlink()
        finally:
            os.close(fd)


def _parsed(path: Path) -> WorkerProcess | None:
    with open(path, "rb") as file:
        first, _, rest = file.read(FILE_BYTES_MAX).partition(b"\n")
    try:
        facts = json.loads(rest) if rest.strip() else {}
        pid = int(first)
    except (RecursionError, ValueError):
        return None  # It is being written; the caller may try again.
    # Another program may have written it.  A pid of 0 or less would stand for many processes.
    return WorkerProcess(pid, path, facts) if pid > 0 and isinstance(facts, dict) else None


def _is_locked(path: Path) -> bool:
    """Whether a running process holds the lock of the file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _is_at(fd: int, path: Path) -> bool:
    """Whether this open file is the one at this path now."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _refuse_foreign(fd: int, path: Path) -> None:
    """Raise FileExistsError if the file is not a pid file, so a wrong path cannot destroy one."""
    start = os.pread(fd, 32, 0)
    if start and not start.partition(b"\n")[0].isdigit():
        raise FileExistsError(
            errno.EEXIST, "the file is not a pid file; choose another path", str(path)
        )
