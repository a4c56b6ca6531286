"""Which workers run on this machine: one file each, in a folder of this user's.

    $XDG_RUNTIME_DIR/sharegroup/orders-service.4711      or <tmp>/sharegroup-<uid>/...
        4711
        {"app": "orders-service", "phase": "running", ...}

A file that a crash left behind names a process id that may be somebody else's by now, and a
signal must never reach that one.  So each worker holds a lock (`lockf`) on its file for as long
as it lives: the kernel takes the lock away with the process, and no child inherits it.  Whoever
wants to signal takes hold of the process first (a pidfd, on Linux), then looks whether the file
is still locked: it is, so the process held is the one that wrote the file.  Without a lock the
file is a left-over, and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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

FILE_BYTES_MAX = 64 * 1024
LOCK_ATTEMPTS = 20
LOCK_ATTEMPT_SECONDS = 0.01
_UNSAFE = re.compile(r"[^a-zA-Z0-9._-]")


def folder() -> Path:
    """Where the files are: made when missing, and refused when it is another user's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    uid = os.getuid()
    above = Path(runtime) if runtime else Path(tempfile.gettempdir())
    path = above / ("sharegroup" if runtime else f"sharegroup-{uid}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        why = f"{error.strerror}: no folder for pid files; set XDG_RUNTIME_DIR to one of your own"
        raise OSError(error.errno, why, str(path)) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
        raise PermissionError(
            errno.EACCES, "expected a folder that only this user can write to", str(path)
        )
    return path


class PidFile:
    """This process's own file: written, locked, and rewritten as the worker's life goes on."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        for _ in range(LOCK_ATTEMPTS):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _refuse_foreign(fd, path)
                if _lock(fd) and _is_at(fd, path):
                    self._fd = fd
                    return
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            # Somebody looks whether it is a left-over, and may have removed it as one.
            time.sleep(LOCK_ATTEMPT_SECONDS)
        raise FileExistsError(errno.EEXIST, "another worker runs with this pid file", str(path))

    @classmethod
    def of(cls, app_name: str) -> Self:
        """The file of this process in the folder of all workers."""
        return cls(folder() / f"{_UNSAFE.sub('_', app_name)}.{os.getpid()}")

    def write(self, facts: Mapping[str, Any]) -> None:
        """Say what this process is and how it stands."""
        text = f"{os.getpid()}\n{json.dumps(dict(facts))}\n".encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def close(self) -> None:
        """Remove the file and let go of the lock."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that runs on this machine, or did when it was looked for."""

    pid: int
    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process; False: it is gone."""
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                if _is_locked(self.path):
                    os.kill(self.pid, number)
                    return True
                return False
            handle = os.pidfd_open(self.pid)
            try:
                # Locked after the process was taken hold of: it is the one that wrote the file.
                if _is_locked(self.path):
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        return False


def workers(app_name: str) -> list[WorkerProcess]:
    """The running workers of an application; left-over files are removed.

    Not for a worker itself: to look at its own file would end its own lock.
    """
    pattern = re.compile(re.escape(_UNSAFE.sub("_", app_name)) + r"\.\d+")
    found = []
    for path in sorted(folder().iterdir()):
        if pattern.fullmatch(path.name):
            one = worker_of(path)
            # Two names of applications may look alike in the name of a file.
            if one is not None and one.facts.get("app", app_name) == app_name:
                found.append(one)
            elif one is None:
                _remove_left_over(path)
    return found


def worker_of(path: Path) -> WorkerProcess | None:
    """The running worker that wrote this file; None: there is none, or none any more."""
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
        return WorkerProcess(int(first), path, facts)
    except ValueError:
        return None  # It is being written; whoever needs it asks again.


def _is_locked(path: Path) -> bool:
    """Whether a living process holds the file's lock."""
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
    """Whether this open file is the one that the path names now."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _refuse_foreign(fd: int, path: Path) -> None:
    """A path that was mistyped must not cost a file."""
    start = os.pread(fd, 32, 0)
    if start and not start.partition(b"\n")[0].isdigit():
        raise FileExistsError(errno.EEXIST, "this is no pid file; name another one", str(path))
