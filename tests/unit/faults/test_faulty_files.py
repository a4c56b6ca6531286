"""A disk that is full, slow or fails to sync, over real files."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.testing import PowerLossDisk


@pytest.fixture
def files() -> Iterator[FaultyFiles]:
    faulty = FaultyFiles()
    yield faulty
    faulty.release()


@pytest.fixture
def fd(files: FaultyFiles, tmp_path: Path) -> Iterator[int]:
    opened = files.open(str(tmp_path / "file"), create=True)
    yield opened
    files.close(opened)


def test_full_disk_takes_what_fits_and_overwrites(files: FaultyFiles, fd: int) -> None:
    files.fill_up(5)
    files.write(fd, b"abc", 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as raised:
        files.write(fd, b"defg", 3)
    assert raised.value.errno == errno.ENOSPC
    assert files.read(fd, 10, 0) == b"abcde"
    files.write(fd, b"XY", 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.write(fd, b"Z", 5)
    files.make_room()
    files.write(fd, b"Z", 5)
    assert files.read(fd, 10, 0) == b"XYcdeZ"


def test_so_many_syncs_fail(files: FaultyFiles, fd: int, tmp_path: Path) -> None:
    files.fail_next_sync(3)
    for sync in syncs_of(files, fd, tmp_path):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            sync()
    files.sync(fd)


def test_slow_disk_takes_its_time(files: FaultyFiles, fd: int, tmp_path: Path) -> None:
    files.slow_down(0.05)
    for sync in syncs_of(files, fd, tmp_path):
        began = time.monotonic()
        sync()
        assert time.monotonic() - began >= 0.05
    files.slow_down(0)
    assert not files.has_sync_faults


def syncs_of(files: FaultyFiles, fd: int, folder: Path) -> tuple[Callable[[], None], ...]:
    """All that is a sync."""
    return (
        lambda: files.sync(fd),
        lambda: files.sync_directory(str(folder)),
        lambda: files.sync_tree(str(folder)),
    )


@pytest.mark.parametrize("disk", [FaultyFiles(), PowerLossDisk(seed=1)])
def test_faults_that_no_disk_can_have_are_refused(disk: FaultyFiles | PowerLossDisk) -> None:
    """Otherwise a broker would meet them later, as an error that no disk has."""
    with pytest.raises(ValueError, match="room_bytes=-1"):
        disk.fill_up(-1)
    with pytest.raises(ValueError, match="count=-1"):
        disk.fail_next_sync(-1)
    if isinstance(disk, FaultyFiles):
        for seconds in (-0.1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="sync_seconds"):
                disk.slow_down(seconds)
    else:
        with pytest.raises(ValueError, match="operations=-1"):
            disk.cut_power_after(-1)
    disk.release()
