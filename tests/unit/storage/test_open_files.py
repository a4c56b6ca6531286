"""Open files of a data directory: what is closed, and synced for that, when there are many."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sharegroup.storage.disk import files as files_module
from sharegroup.storage.disk.files import RealFiles
from sharegroup.storage.disk.stored_file import OpenFiles, StoredFile
from sharegroup.storage.sync.syncer import Syncer, SyncWork


class Folder:
    """Files in a folder of the disk; ``failing`` are the names whose sync fails."""

    def __init__(self, path: Path, *, limit: int, ceiling: int) -> None:
        self.files = FailingSyncs()
        self.opened = OpenFiles(self.files, limit=limit, ceiling=ceiling)
        self._path = path

    def file(self, name: str) -> StoredFile:
        file = StoredFile(self.opened, f"{self._path}/{name}")
        file.fd(create=True)
        return file

    def written(self, count: int) -> list[StoredFile]:
        """So many files with one un-synced write each."""
        files = []
        for number in range(count):
            file = self.file(f"{number:04d}")
            file.write(b"content", 0)
            files.append(file)
        return files


class FailingSyncs(RealFiles):
    """The disk, on which the files in ``broken`` cannot be synced."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.synced: set[str] = set()

    @property
    def can_sync_tree(self) -> bool:
        return False

    def sync(self, fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        if name in self.broken:
            raise OSError(errno.EIO, "broken", name)
        self.synced.add(name)
        super().sync(fd)


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """The process may open ``count`` descriptors more."""
    gc.collect()  # What other tests left must not free a descriptor meanwhile.
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, before[1]))
    held = []
    try:
        with suppress(OSError):
            while len(held) < 4_096:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_unsynced_files_beyond_the_ceiling_are_synced_and_closed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=30)
    files = folder.written(200)
    assert len(folder.opened) <= 31
    assert "0000" in folder.files.synced
    assert not files[0].must_stay_open
    assert [file.read(7, 0) for file in files] == [b"content"] * 200


def test_up_to_the_ceiling_nothing_is_synced_early(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=30)
    folder.written(30)
    assert not folder.files.synced
    assert len(folder.opened) == 30


def test_files_of_a_round_of_syncs_stay_open(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=30)
    syncing = folder.written(5)
    for file in syncing:
        file.begin_sync()
    folder.written(100)
    for file in syncing:
        os.fstat(file.syncing_fd)
        file.sync()
        file.end_sync()


def test_file_that_was_synced_early_needs_no_further_sync(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=30)
    first = folder.written(100)[0]
    assert first not in folder.opened
    assert first.begin_sync() == 0
    first.sync()
    first.end_sync()


class Written:
    """One file as a round of syncs sees it."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.failures: list[OSError] = []

    def begin_sync(self) -> SyncWork:
        return SyncWork((self._file,))

    def synced(self) -> None:
        pass

    def sync_failed(self, error: OSError) -> None:
        self.failures.append(error)


def test_failed_early_sync_fails_the_next_round(tmp_path: Path) -> None:
    """Linux reports a failed write-back once, so a later sync would succeed."""
    folder = Folder(tmp_path, limit=10, ceiling=30)
    folder.files.broken = {"0000"}
    first, second = folder.written(100)[:2]
    assert first.must_stay_open
    folder.files.broken = set()
    syncer = Syncer(folder.files, str(tmp_path))
    written = [Written(first), Written(second)]

    async def one_round() -> None:
        for writer in written:
            syncer.request(writer)
        await syncer.drain()

    asyncio.run(one_round())
    syncer.close()
    assert [[error.errno for error in writer.failures] for writer in written] == [[errno.EIO], []]


def test_failed_early_sync_fails_the_checkpoint(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=30)
    folder.files.broken = {"0000"}
    first = folder.written(100)[0]
    folder.files.broken = set()
    syncer = Syncer(folder.files, str(tmp_path))
    first.begin_sync()
    with pytest.raises(OSError, match="broken"):
        syncer.sync_files([first], [])
    syncer.close()


def test_file_is_opened_although_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=100, ceiling=100)
    folder.written(40)
    with descriptors_left(0):
        files = [folder.file(f"late-{number}") for number in range(100)]
        for file in files:
            file.write(b"late", 0)
        assert [file.read(4, 0) for file in files] == [b"late"] * 100
    assert folder.opened.shortage_count > 0


def test_folder_is_synced_although_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    files = RealFiles()
    with descriptors_left(0):
        for _ in range(3 * files_module.SPARE_DESCRIPTORS):
            files.sync_directory(str(tmp_path))
            assert files.names(str(tmp_path)) == []


def test_other_errors_of_opening_are_not_hidden(tmp_path: Path) -> None:
    folder = Folder(tmp_path, limit=10, ceiling=10)
    with pytest.raises(FileNotFoundError):
        StoredFile(folder.opened, f"{tmp_path}/missing").fd()
    assert folder.opened.shortage_count == 0


def test_files_with_keys_are_for_the_owner_alone(tmp_path: Path) -> None:
    files = RealFiles()
    old = tmp_path / "catalog.journal"
    old.touch(0o640)
    paths = [old, *(tmp_path / name for name in ("catalog.journal.tmp", "catalog.journal@17"))]
    for path in paths:
        files.close(files.open(str(path), create=True))
        assert path.stat().st_mode & 0o777 == 0o600
    files.close(files.open(str(tmp_path / "0.log"), create=True))
    assert (tmp_path / "0.log").stat().st_mode & 0o007 == 0
    files.release()
