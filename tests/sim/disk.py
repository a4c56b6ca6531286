"""The disk of the simulated machine: slow on virtual time, failing on demand, lost with the power.

`sharegroup.testing.power_loss.PowerLossDisk` is what lies on the disk.  Here is how a process
sees it: calls take virtual time, and those of a process that has ended reach nothing.  There is
no storage thread: its work happens on the loop, at the moment when it would begin or at the
moment when it would end, as chance has it; what is written in between is in the same sync or
not, just as on a real disk.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from sharegroup.storage.disk.files import Buffer, Identity
from sharegroup.testing.power_loss import PowerLossDisk
from tests.sim.loop import Process, SimLoop


@dataclass(slots=True)
class DiskSpeed:
    """How long a sync takes, in microseconds; the chaos changes it."""

    sync_us: tuple[int, int] = (50, 400)


class ProcessDisk:
    """Implements `sharegroup.storage.disk.files.Files` for one life of one process."""

    __slots__ = ("_chance", "_disk", "_loop", "_process", "_speed", "is_in_thread")

    def __init__(
        self,
        disk: PowerLossDisk,
        process: Process,
        loop: SimLoop,
        chance: random.Random,
        speed: DiskSpeed,
    ) -> None:
        self._disk = disk
        self._process = process
        self._loop = loop
        self._chance = chance
        self._speed = speed
        self.is_in_thread = False

    @property
    def can_sync_tree(self) -> bool:
        return self._disk.can_sync_tree

    def open(self, path: str, *, create: bool = False) -> int:
        return self._live().open(path, create=create)

    def close(self, fd: int) -> None:
        self._disk.close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        return self._live().read(fd, size, position)

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        self._live().write(fd, buffer, position)

    def size(self, fd: int) -> int:
        return self._live().size(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._live().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._take_time()
        self._live().sync(fd)

    def sync_queue(self) -> None:
        """There is none: the storage thread of the simulation takes time as well."""

    def sync_directory(self, path: str) -> None:
        self._take_time()
        self._live().sync_directory(path)

    def sync_tree(self, path: str) -> None:
        self._take_time()
        self._live().sync_tree(path)

    def names(self, path: str) -> list[str]:
        return self._live().names(path)

    def exists(self, path: str) -> bool:
        return self._live().exists(path)

    def modified_ms(self, path: str) -> int | None:
        return self._live().modified_ms(path)

    def identity(self, file: int | str) -> Identity | None:
        return self._live().identity(file)

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        self._live().make_directory(path, parents=parents)

    def rename(self, source: str, target: str) -> None:
        self._live().rename(source, target)

    def remove(self, path: str) -> None:
        self._live().remove(path)

    def remove_directory(self, path: str) -> None:
        self._live().remove_directory(path)

    def lock(self, path: str) -> int:
        return self._live().lock(path)

    def release(self) -> None:
        self._disk.release()

    def sync_seconds(self) -> float:
        return self._chance.randint(*self._speed.sync_us) / 1e6

    def _live(self) -> PowerLossDisk:
        if self._process.is_cut_off:
            raise OSError(errno.EIO, "the process has ended")
        return self._disk

    def _take_time(self) -> None:
        """A sync in the event loop's thread holds up everybody; `StorageThread` waits itself."""
        if not self.is_in_thread:
            self._loop.block(self.sync_seconds())


class Outcome(NamedTuple):
    """What became of a piece of work."""

    value: Any
    error: BaseException | None


class StorageThread(Executor):
    """Does one piece of work after the other on virtual time; see the module's text."""

    def __init__(
        self, files: ProcessDisk, process: Process, loop: SimLoop, chance: random.Random
    ) -> None:
        self._files = files
        self._process = process
        self._loop = loop
        self._chance = chance
        self._free_at = 0.0
        self._work: dict[Future[Any], Callable[[], Any]] = {}
        self._outcomes: dict[Future[Any], Outcome] = {}

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        begin = max(self._loop.time(), self._free_at)
        self._free_at = end = begin + self._files.sync_seconds()
        future: Future[Any] = Future()
        self._work[future] = lambda: work(*args, **options)
        do_at_once = self._chance.random() < 0.5
        self._at(begin, lambda: self._begin(future, do_at_once=do_at_once))
        self._at(end, lambda: self._tell(future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What is still to be done is done now: nobody is left to wait for it."""
        for future in list(self._work):
            self._begin(future, do_at_once=True)
        for future in list(self._outcomes):
            self._tell(future)

    def _at(self, when: float, call: Callable[[], None]) -> None:
        self._loop.call_at(when, call, context=self._process.context)

    def _begin(self, future: Future[Any], *, do_at_once: bool) -> None:
        """From now on it cannot be cancelled."""
        if future.running() or future.set_running_or_notify_cancel():
            if do_at_once:
                self._do(future)
        else:
            del self._work[future]

    def _do(self, future: Future[Any]) -> None:
        """The blocking call itself; its outcome is told when its time is over."""
        work = self._work.pop(future, None)
        if work is None:
            return
        self._files.is_in_thread = True
        try:
            self._outcomes[future] = Outcome(work(), None)
        except Exception as error:  # noqa: BLE001  Whoever waits gets it, as from a thread.
            self._outcomes[future] = Outcome(None, error)
        finally:
            self._files.is_in_thread = False

    def _tell(self, future: Future[Any]) -> None:
        self._do(future)
        outcome = self._outcomes.pop(future, None)
        if outcome is None:
            return
        if outcome.error is None:
            future.set_result(outcome.value)
        else:
            future.set_exception(outcome.error)
