"""Copies a data directory as it is at one moment, also while a broker uses it.

The copy is what a `kill -9` at that moment would have left, and a start recovers that: every file
of a data directory is appended to, or replaced by renaming.  So the moment needs no more than a
link to each file, and its size:

    pause the broker ──▶ link each file, note its size ──▶ let it go on ──▶ copy the links

The broker is paused by SIGSTOP for some milliseconds: nearly all links are made before.  Meanwhile
a child process waits for this one: if this one dies, or needs more than `PAUSE_SECONDS_MAX`, the
child lets the broker go on, so that nothing leaves it stopped.

A copy that was interrupted has the suffix ``.partial``; only a complete one has its final name.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sharegroup.errors import InvalidRequest, KafkaStorageError
from sharegroup.storage.directory.log_directory import LOCK_FILE
from sharegroup.storage.disk.folders import is_doomed
from sharegroup.storage.disk.set_aside import SET_ASIDE_FOLDER

PAUSE_SECONDS_MAX = 5.0
"""The longest pause of a broker; links that take longer are dropped, and the backup fails."""
STOP_SECONDS_MAX = 2.0
"""How long the broker may take to stop after SIGSTOP; it is a matter of milliseconds."""
LINKS = "backup-links"
"""The folder of the links in the data directory while they are copied.

A link cannot be in another file system, and the data directory may be one of its own."""
PARTIAL = ".partial"
COPY_BYTES = 8 * 1024 * 1024
LEFT_OUT = frozenset({LOCK_FILE, LINKS, SET_ASIDE_FOLDER})
"""What is no part of a backup: what recovery has removed stays where it is."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete copy."""

    path: Path
    files: int
    bytes: int
    paused_ms: float
    """How long the broker was paused; 0 if none was running."""


def backup(root: Path, target: Path, pause: Callable[[], Iterator[None]] | None) -> Backup:
    """Copy the data directory ``root`` to the new folder ``target``.

    ``pause`` stops the broker while its generator is suspended; without it nobody may use the
    directory.
    """
    if target.exists():
        raise InvalidRequest(f"{target} exists already; name a new folder for the backup")
    if target.resolve().is_relative_to(root.resolve()):
        raise InvalidRequest(f"{target} is inside of the data directory {root}; name another place")
    partial = target.with_name(target.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    links = root / LINKS
    shutil.rmtree(links, ignore_errors=True)  # Of a backup that was killed.
    try:
        links.mkdir()
        _link(root, links)
        with contextmanager(pause or _nobody)():
            began = time.monotonic()
            sizes = _link(root, links)
            seconds = time.monotonic() - began
        if pause is not None and seconds > PAUSE_SECONDS_MAX:
            raise KafkaStorageError(
                f"{len(sizes)} files could not be linked within the {PAUSE_SECONDS_MAX:g} s for "
                "which a backup may pause the broker; stop it for this backup"
            )
        copied = sum(_copy(links / name, partial / name, size) for name, size in sizes.items())
        for folder in {partial / name for name in (".", *(str(n.parent) for n in sizes))}:
            _sync(folder)
        partial.rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(links, ignore_errors=True)
    return Backup(target, len(sizes), copied, seconds * 1e3 if pause is not None else 0.0)


def _nobody() -> Iterator[None]:
    yield


def _link(root: Path, links: Path) -> dict[Path, int]:
    """Link the files of the directory that are not linked yet; return all names and sizes."""
    sizes: dict[Path, int] = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name in LEFT_OUT or is_doomed(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                (links / entry.name).mkdir(exist_ok=True)
                with os.scandir(entry.path) as files:
                    for file in files:
                        _link_one(file, links, Path(entry.name, file.name), sizes)
            else:
                _link_one(entry, links, Path(entry.name), sizes)
    return sizes


def _link_one(file: os.DirEntry[str], links: Path, name: Path, sizes: dict[Path, int]) -> None:
    """Link a file, unless it is linked; a name may have another file than before."""
    link, facts = links / name, file.stat(follow_symlinks=False)
    if not (link.exists() and os.path.samestat(link.stat(), facts)):
        link.unlink(missing_ok=True)
        try:
            os.link(file.path, link, follow_symlinks=False)
        except FileNotFoundError:
            return  # It was deleted before the pause.
    sizes[name] = facts.st_size


def _copy(source: Path, target: Path, size: int) -> int:
    """Copy the first ``size`` bytes of a file durably, and its times; return their number."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, target.open("xb") as writing:
        left = size
        while left:
            content = reading.read(min(COPY_BYTES, left))
            if not content:
                raise KafkaStorageError(
                    f"{source.name}: expected {size} bytes as at the beginning of the backup, and "
                    f"found {size - left}; check the disk, and start the backup again"
                )
            writing.write(content)
            left -= len(content)
        writing.flush()
        os.fsync(writing.fileno())
    shutil.copystat(source, target)
    return size


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def broker_of(root: Path) -> int:
    """Return the id of the process that uses a data directory, which it has locked.

    The number in the lock file is that of the process's own container, so another process may have
    it here: the process must have the lock file open.
    """
    lock = root / LOCK_FILE
    if sys.platform != "linux":
        raise InvalidRequest(
            f"a broker is using {root}, and only on Linux a backup can pause it; stop it first"
        )
    text = lock.read_text().strip()
    if text.isdigit() and _has_open(int(text), lock):
        return int(text)
    raise InvalidRequest(
        f"a broker is using {root}, and its process ({text or 'unknown'}) cannot be seen from "
        "here; run the backup as its user, and in its container if it has one"
    )


def _has_open(process: int, path: Path) -> bool:
    wanted = path.stat()
    try:
        return any(
            os.path.samestat(os.stat(f"/proc/{process}/fd/{name}"), wanted)
            for name in os.listdir(f"/proc/{process}/fd")
        )
    except OSError:
        return False


def paused(process: int) -> Iterator[None]:
    """Pause a process while the generator is suspended."""
    reading, writing = os.pipe()
    guard = os.fork()
    if guard == 0:
        try:
            os.close(writing)
            # The end of the file means that the parent has finished, or has died. Unlike `select`,
            # `poll` takes descriptors from 1,024 on.
            end = select.poll()
            end.register(reading, select.POLLIN)
            end.poll(PAUSE_SECONDS_MAX * 1000)
        finally:  # Whatever fails, this process runs none of its parent's code.
            os.kill(process, signal.SIGCONT)
            os._exit(0)
    os.close(reading)
    try:
        os.kill(process, signal.SIGSTOP)
        _wait_until_stopped(process)
        yield
    finally:
        os.kill(process, signal.SIGCONT)
        os.close(writing)
        os.waitpid(guard, 0)


def _wait_until_stopped(process: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    # Every thread is stopped by itself; the state of the process alone is that of its first one.
    while any(state not in "Tt" for state in _thread_states(process)):
        if time.monotonic() > deadline:
            raise KafkaStorageError(
                f"process {process} did not stop within {STOP_SECONDS_MAX:g} s after SIGSTOP; it "
                "waits for a device; check the disk"
            )
        time.sleep(0.001)


def _thread_states(process: int) -> Iterator[str]:
    for task in Path(f"/proc/{process}/task").iterdir():
        # The name in parentheses may contain anything, also parentheses and blanks.
        yield (task / "stat").read_text().rpartition(")")[2].split()[0]
