"""What it costs to make appends to many partition files durable: the figures of ADR 0001.

    python -m tests.bench.sync_cost [--directory DIR] [--rounds N]

Every round appends to each of N files and makes all of it durable in one way.  Printed are the
median and the worst of the rounds, in milliseconds.  Ways:

    each     fdatasync on every file
    syncfs   one syncfs
    pool     fdatasync on every file, from 8 threads
    kernel   the kernel's queue, 64 files at a time (`sharegroup.storage.disk.kernel_syncs`)
    journal  all appends into one preallocated file, one fdatasync; the files written, not synced
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.kernel_syncs import FILES_MAX, Errors, KernelSyncs

APPENDS = ((1, 300), (10, 300), (100, 300), (1000, 300), (1, 65_536), (10, 65_536), (100, 65_536))
LARGE_APPENDS = ((1, 1 << 20), (10, 1 << 20))
JOURNAL_BYTES = 512 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", default=None, help="where to write; a temporary folder")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="sync-cost-", dir=options.directory)
    try:
        print(f"{'files':>6} {'bytes':>8}   " + "".join(f"{way:>20}" for way in WAYS))
        for count, size in (*APPENDS, *LARGE_APPENDS):
            cells = [cell(measure(root, way, count, size, options.rounds)) for way in WAYS]
            print(f"{count:6} {size:8}   " + "".join(f"{text:>20}" for text in cells), flush=True)
    finally:
        shutil.rmtree(root)


def cell(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f} ({max(seconds) * 1000:.1f})"


def measure(root: str, way: str, count: int, size: int, rounds: int) -> list[float]:
    fds = [os.open(f"{root}/{n}", os.O_RDWR | os.O_CREAT | os.O_TRUNC) for n in range(count)]
    journal = os.open(f"{root}/journal", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(journal, 0, JOURNAL_BYTES)
    os.sync()
    data, seconds = os.urandom(size), []
    for number in range(rounds):
        began = time.perf_counter()
        for fd in fds:
            os.pwrite(fd, data, number * size)
        if way == "journal":
            os.pwrite(journal, data * count, number * size * count % (JOURNAL_BYTES // 2))
        WAYS[way](root, fds, journal)
        seconds.append(time.perf_counter() - began)
    for fd in (*fds, journal):
        os.close(fd)
    return seconds


def sync_each(root: str, fds: list[int], journal: int) -> None:
    for fd in fds:
        os.fdatasync(fd)


def sync_file_system(root: str, fds: list[int], journal: int) -> None:
    FILES.sync_tree(root)


def sync_pool(root: str, fds: list[int], journal: int) -> None:
    list(POOL.map(os.fdatasync, fds))


def sync_kernel(root: str, fds: list[int], journal: int) -> None:
    for first in range(0, len(fds), FILES_MAX):
        assert LOOP.run_until_complete(queued(fds[first : first + FILES_MAX])) == {}


async def queued(fds: list[int]) -> Errors:
    assert QUEUE is not None, "this system has no queue for syncs"
    told: asyncio.Future[Errors] = LOOP.create_future()
    assert QUEUE.begin(fds, told.set_result)
    return await told


def sync_journal(root: str, fds: list[int], journal: int) -> None:
    os.fdatasync(journal)


FILES = RealFiles()
POOL = ThreadPoolExecutor(max_workers=8)
LOOP = asyncio.new_event_loop()
QUEUE = KernelSyncs.take()
WAYS: dict[str, Callable[[str, list[int], int], None]] = {
    "each": sync_each,
    "syncfs": sync_file_system,
    "pool": sync_pool,
    "kernel": sync_kernel,
    "journal": sync_journal,
}

if __name__ == "__main__":
    main()
