from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from sharegroup.storage.disk.stored_file import OpenFiles, StoredFile
from sharegroup.storage.sync.syncer import (
    INLINE_BYTES_MAX,
    QUEUED_FILES_MAX,
    TREE_PAUSE_SECONDS,
    Syncer,
    SyncPolicy,
    SyncWork,
)
from sharegroup.testing.power_loss import PowerLossDisk
from tests.support.limits import HANGING_SECONDS
from tests.unit.storage.logs import ROOT, run


class Written:
    """A file with writes, and what it is told about their sync."""

    def __init__(self, opened: OpenFiles, name: str, size: int = 10) -> None:
        self.file = StoredFile(opened, f"{ROOT}/{name}")
        self.file.fd(create=True)
        self.file.write(bytes(size), 0)
        self.heard: list[str] = []

    def begin_sync(self) -> SyncWork:
        return SyncWork((self.file,), (ROOT,))

    def synced(self) -> None:
        self.heard.append("synced")

    def sync_failed(self, error: OSError) -> None:
        self.heard.append("failed")


class InFolder(Written):
    """A file whose name is durable."""

    def begin_sync(self) -> SyncWork:
        return SyncWork((self.file,))


class Queue:
    """A queue of syncs that ends when it is told to."""

    def __init__(self) -> None:
        self.takes = True
        self.fds: list[int] = []
        self.is_closed = False
        self._done: Callable[[dict[int, OSError]], None] = lambda _: None

    def begin(self, fds: Sequence[int], done: Callable[[dict[int, OSError]], None]) -> bool:
        self.fds, self._done = list(fds), done
        return self.takes

    def end(self, *failed: int) -> None:
        self._done({position: OSError("lost") for position in failed})

    def close(self) -> None:
        self.is_closed = True


class QueueDisk(PowerLossDisk):
    """A disk with a queue."""

    def __init__(self) -> None:
        super().__init__(1)
        self.queue = Queue()

    def sync_queue(self) -> Queue:
        return self.queue


def made(disk: PowerLossDisk) -> tuple[Syncer, OpenFiles]:
    disk.make_directory(ROOT)
    return Syncer(disk, ROOT, clock=lambda: 0.0), OpenFiles(disk)  # Every round is a quick one.


@pytest.mark.parametrize(("count", "syncs"), [(1, 2), (2, 3), (50, 1)])
def test_few_files_are_synced_each_and_many_at_once(count: int, syncs: int) -> None:
    """The folder costs one sync more, and only one however many were made in it."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        syncer, opened = made(disk)
        written = [Written(opened, str(number)) for number in range(count)]
        for file in written:
            syncer.request(file)
        await syncer.drain()
        assert disk.syncs == syncs
        assert all(file.heard == ["synced"] for file in written)

    run(main())


def test_after_a_failed_tree_sync_each_file_is_synced_separately() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        syncer, opened = made(disk)
        written = [Written(opened, str(number)) for number in range(50)]
        disk.fail_next_sync()  # The tree's: about every other write is lost with it.
        for file in written:
            syncer.request(file)
        await syncer.drain()
        failed = [file for file in written if file.heard == ["failed"]]
        assert 10 < len(failed) < 40
        disk.cut_power()
        for file in written:
            kept = disk.size(disk.open(file.file.path))
            assert (kept, file.heard) == (10, ["synced"]) or file in failed

    run(main())


def test_large_files_are_synced_by_the_queue_with_separate_results() -> None:
    async def main() -> None:
        disk = QueueDisk()
        syncer, opened = made(disk)
        written = [InFolder(opened, str(number), INLINE_BYTES_MAX) for number in range(3)]
        for file in written:
            syncer.request(file)
        await asyncio.sleep(0)  # The round has begun.
        late = InFolder(opened, "late")
        syncer.request(late)
        assert len(disk.queue.fds) == 3
        assert [file.heard for file in written] == [[], [], []]
        disk.queue.end(1)
        assert [file.heard for file in written] == [["synced"], ["failed"], ["synced"]]
        assert late.heard == []
        await syncer.drain()
        assert (late.heard, disk.syncs, syncer.rounds) == (["synced"], 1, 2)
        syncer.close()
        assert disk.queue.is_closed

    run(main())


@pytest.mark.parametrize(("count", "size"), [(1, 10), (QUEUED_FILES_MAX + 1, INLINE_BYTES_MAX)])
def test_small_files_and_many_files_are_not_synced_by_the_queue(count: int, size: int) -> None:
    """A direct sync is faster for a small file, and a tree sync for many files."""

    async def main() -> None:
        disk = QueueDisk()
        syncer, opened = made(disk)
        written = [InFolder(opened, str(number), size) for number in range(count)]
        for file in written:
            syncer.request(file)
        await syncer.drain()
        assert (disk.queue.fds, disk.syncs) == ([], 1)
        assert all(file.heard == ["synced"] for file in written)

    run(main())


def test_file_refused_by_the_queue_is_synced_directly() -> None:
    async def main() -> None:
        disk = QueueDisk()
        disk.queue.takes = False
        syncer, opened = made(disk)
        large = InFolder(opened, "large", INLINE_BYTES_MAX + 1)
        syncer.request(large)
        await syncer.drain()
        assert (large.heard, disk.syncs) == (["synced"], 1)

    run(main())


def test_request_during_a_round_waits_for_the_next_round() -> None:
    async def main() -> None:
        syncer, opened = made(PowerLossDisk(1))
        large = Written(opened, "large", INLINE_BYTES_MAX + 1)
        syncer.request(large)
        await asyncio.sleep(0)  # The round has begun, in the storage thread.
        small = Written(opened, "small")
        syncer.request(small)
        assert large.heard == []
        await syncer.drain()
        assert (large.heard, small.heard, syncer.rounds) == (["synced"], ["synced"], 2)

    run(main())


def test_exception_of_one_callback_does_not_block_the_others() -> None:
    class Defect(Written):
        def synced(self) -> None:
            raise LookupError("a defect")

    async def main() -> None:
        syncer, opened = made(PowerLossDisk(1))
        raised = exceptions_of_the_loop()
        other = Written(opened, "other")
        syncer.request(Defect(opened, "defect"))
        syncer.request(other)
        await syncer.drain()
        assert other.heard == ["synced"]
        assert [type(error) for error in raised] == [ExceptionGroup]

    run(main())


class DefectDisk(PowerLossDisk):
    """A disk whose next syncs end with errors that no disk has."""

    def __init__(self, defects: int) -> None:
        super().__init__(1)
        self.defects = defects

    def sync(self, fd: int) -> None:
        if self.defects:
            self.defects -= 1
            raise MemoryError("in a sync")
        super().sync(fd)


def exceptions_of_the_loop() -> list[object]:
    """What callbacks raise from now on."""
    raised: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    return raised


@pytest.mark.parametrize("size", [10, INLINE_BYTES_MAX + 1])
def test_unexpected_exception_of_a_sync_fails_all_writes_of_the_round(size: int) -> None:
    """Both in the event loop's thread and in the storage thread; the next round is as usual."""

    async def main() -> None:
        syncer, opened = made(DefectDisk(1))
        raised = exceptions_of_the_loop()
        written = [Written(opened, str(number), size) for number in range(2)]
        for file in written:
            syncer.request(file)
        await syncer.drain()
        assert [file.heard for file in written] == [["failed"], ["failed"]]
        assert not any(file.file.is_syncing for file in written)
        assert [type(error) for error in raised] == [ExceptionGroup]
        syncer.request(written[1])
        await syncer.drain()
        assert written[1].heard == ["failed", "synced"]

    run(main())


def test_component_whose_sync_cannot_begin_fails_the_round_and_not_the_next() -> None:
    class Defect(Written):
        def begin_sync(self) -> SyncWork:
            raise LookupError("a defect")

    async def main() -> None:
        syncer, opened = made(PowerLossDisk(1))
        raised = exceptions_of_the_loop()
        written = [Written(opened, "a"), Defect(opened, "b"), Written(opened, "c")]
        for file in written:
            syncer.request(file)
        await syncer.drain()
        assert [file.heard for file in written] == [["failed"]] * 3
        assert not any(file.file.is_syncing for file in written)
        assert [type(error) for error in raised] == [ExceptionGroup]
        syncer.request(written[2])
        await syncer.drain()
        assert written[2].heard == ["failed", "synced"]

    run(main())


def test_round_that_gets_no_thread_fails() -> None:
    """A ThreadPoolExecutor starts its thread late, and the system may have none left."""

    class NoThread(ThreadPoolExecutor):
        def submit(self, *_: object, **__: object) -> Future[Any]:
            raise RuntimeError("can't start new thread")

    async def main() -> None:
        disk = PowerLossDisk(1)
        disk.make_directory(ROOT)
        syncer, opened = Syncer(disk, ROOT, thread=NoThread()), OpenFiles(disk)
        raised = exceptions_of_the_loop()
        large = Written(opened, "large", INLINE_BYTES_MAX + 1)
        syncer.request(large)
        await syncer.drain()
        assert large.heard == ["failed"]
        assert [type(error) for error in raised] == [ExceptionGroup]

    run(main())


def test_the_event_loop_waits_for_quick_rounds_only() -> None:
    policy = SyncPolicy(can_sync_tree=True)
    assert policy.is_quick(1000)
    assert not policy.is_quick(INLINE_BYTES_MAX + 1)
    for _ in range(20):
        policy.observe(tree=False, file_count=1, unsynced_bytes=0, seconds=0.01, now=1.0)
    assert not policy.is_quick(1000)
    for _ in range(40):
        policy.observe(tree=False, file_count=1, unsynced_bytes=0, seconds=0.0001, now=1.0)
    assert policy.is_quick(1000)


def test_tree_sync_pauses_when_foreign_files_make_it_slow() -> None:
    policy = SyncPolicy(can_sync_tree=True)
    assert policy.use_tree(100, now=5.0)
    policy.observe(tree=True, file_count=100, unsynced_bytes=0, seconds=0.2, now=5.0)
    assert not policy.use_tree(100, now=5.0 + TREE_PAUSE_SECONDS - 0.1)
    assert policy.use_tree(100, now=5.0 + TREE_PAUSE_SECONDS)


def test_tree_sync_continues_when_our_files_make_it_slow() -> None:
    policy = SyncPolicy(can_sync_tree=True)
    policy.observe(tree=True, file_count=2000, unsynced_bytes=0, seconds=0.2, now=5.0)
    assert policy.use_tree(100, now=5.0)
    policy.observe(tree=True, file_count=10, unsynced_bytes=200_000_000, seconds=0.9, now=5.0)
    assert policy.use_tree(100, now=5.0)


def test_files_are_synced_separately_without_tree_sync() -> None:
    assert not SyncPolicy(can_sync_tree=False).use_tree(1000, now=0.0)


def test_open_files_are_limited_and_include_unsynced_ones() -> None:
    disk = PowerLossDisk(1)
    disk.make_directory(ROOT)
    opened = OpenFiles(disk, limit=3)
    unsynced = Written(opened, "unsynced").file
    for number in range(10):
        Written(opened, str(number)).file.sync_now()
    assert len(opened) == 3
    assert unsynced in opened
    assert unsynced.read(10, 0) == bytes(10)


def test_write_that_nobody_waits_for_shares_the_round_of_the_next_one() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        syncer, opened = made(disk)
        unhurried, urgent = Written(opened, "unhurried"), Written(opened, "urgent")
        syncer.request_later(unhurried)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (unhurried.heard, syncer.rounds) == ([], 0)
        syncer.request(urgent)
        await syncer.drain()
        assert (unhurried.heard, urgent.heard, syncer.rounds) == (["synced"], ["synced"], 1)

    run(main())


def test_write_that_nobody_waits_for_is_synced_after_a_while_or_when_drained() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        syncer, opened = made(disk)
        first, second = Written(opened, "first"), Written(opened, "second")
        syncer.request_later(first)
        async with asyncio.timeout(HANGING_SECONDS):
            while not first.heard:
                await asyncio.sleep(0)
        syncer.request_later(second)
        await syncer.drain()
        assert (first.heard, second.heard, syncer.rounds) == (["synced"], ["synced"], 2)

    run(main())
