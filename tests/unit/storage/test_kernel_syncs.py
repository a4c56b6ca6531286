from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.storage.disk import kernel_syncs
from sharegroup.storage.disk.kernel_syncs import Errors, KernelSyncs, failures
from tests.unit.storage.logs import run


@pytest.fixture
def queue() -> Iterator[KernelSyncs]:
    taken = KernelSyncs.take()
    if taken is None:
        pytest.skip("this system has no queue for syncs")
    yield taken
    taken.close()


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    """Three files with something to sync."""
    opened = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "abc"]
    for fd in opened:
        os.write(fd, b"written")
    yield opened
    for fd in opened:
        os.close(fd)


async def synced(queue: KernelSyncs, fds: list[int]) -> Errors:
    told: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
    assert queue.begin(fds, told.set_result)
    assert not told.done(), "the event loop tells it, in a turn of its own"
    return await told


def test_files_are_synced_round_after_round(queue: KernelSyncs, fds: list[int]) -> None:
    async def main() -> None:
        for count in (1, 3, 2):
            assert await synced(queue, fds[:count]) == {}

    run(main())


def test_files_that_the_kernel_queue_skips_are_synced_directly(
    queue: KernelSyncs, fds: list[int]
) -> None:
    """A pipe cannot be synced, so the kernel stops there; the file after it is still synced."""

    async def main() -> None:
        reader, writer = os.pipe()
        try:
            errors = await synced(queue, [fds[0], writer, fds[1]])
        finally:
            os.close(reader)
            os.close(writer)
        assert {place: error.errno for place, error in errors.items()} == {1: errno.EINVAL}
        assert await synced(queue, fds) == {}

    run(main())


def test_where_the_kernel_takes_nothing_nothing_is_begun(
    queue: KernelSyncs, fds: list[int]
) -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        told: list[Errors] = []
        try:
            assert not queue.begin([writer, fds[0]], told.append)
        finally:
            os.close(reader)
            os.close(writer)
        assert await synced(queue, fds) == {}
        assert told == []

    run(main())


def test_an_error_of_the_disk_names_its_file() -> None:
    events = struct.pack("=QQqq", 2, 0, -errno.EIO, 0) + struct.pack("=QQqq", 0, 0, 0, 0)
    found = failures(events)
    assert {place: error.errno for place, error in found.items()} == {2: errno.EIO}


def test_close_waits_for_pending_syncs_without_reporting_them(fds: list[int]) -> None:
    """The next user gets the same kernel queue, without results of the former user."""

    async def main() -> None:
        told: list[Errors] = []
        first = KernelSyncs.take()
        if first is None:
            pytest.skip("this system has no queue for syncs")
        assert first.begin(fds, told.append)
        first.close()
        second = KernelSyncs.take()
        assert second is not None
        try:
            assert await synced(second, fds) == {}
        finally:
            second.close()
        assert told == []

    run(main())


@pytest.mark.parametrize("code", [errno.EINTR, errno.EFAULT])
def test_queue_is_closed_although_the_wait_for_its_syncs_fails(
    fds: list[int], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A signal (EINTR) only interrupts the wait; any other error is raised after the release."""
    queue = KernelSyncs.take()
    if queue is None:
        pytest.skip("this system has no queue for syncs")
    syscall, calls = kernel_syncs._syscall, 0

    def failing_once(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            ctypes.set_errno(code)
            return -1
        return syscall(*arguments)

    async def main() -> None:
        opened = len(os.listdir("/proc/self/fd"))
        assert queue.begin(fds, lambda _: None)
        monkeypatch.setattr(kernel_syncs, "_syscall", failing_once)
        if code == errno.EINTR:
            queue.close()
        else:
            with pytest.raises(OSError, match="Bad address"):
                queue.close()
        assert len(os.listdir("/proc/self/fd")) == opened - 1

    run(main())
    assert (calls > 1) is (code == errno.EINTR)
