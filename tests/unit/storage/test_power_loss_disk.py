"""The disk that loses what was not synced: what it keeps, and that it does lose."""

from __future__ import annotations

import errno

import pytest

from sharegroup.testing.power_loss import PowerLossDisk


def disk_with_file(seed: int = 1) -> tuple[PowerLossDisk, int]:
    disk = PowerLossDisk(seed)
    disk.make_directory("/top/data")
    fd = disk.open("/top/data/file", create=True)
    disk.sync_directory("/top")
    disk.sync_directory("/top/data")
    return disk, fd


def content_after_cut(seed: int) -> bytes:
    """Two synced bytes, then two writes that were not synced."""
    disk, fd = disk_with_file(seed)
    disk.write(fd, b"AA", 0)
    disk.sync(fd)
    disk.write(fd, b"BB", 2)
    disk.write(fd, b"CC", 4)
    disk.cut_power()
    fd = disk.open("/top/data/file")
    return disk.read(fd, 100, 0)


def test_unsynced_writes_may_be_kept_lost_torn_or_reordered() -> None:
    found = {content_after_cut(seed) for seed in range(200)}
    assert all(content.startswith(b"AA") for content in found)
    assert {b"AA", b"AABB", b"AABBCC", b"AAB", b"AA\0\0CC", b"AAB\0CC"} <= found


def test_the_same_seed_gives_the_same_loss() -> None:
    assert [content_after_cut(seed) for seed in range(20)] == [
        content_after_cut(seed) for seed in range(20)
    ]


def test_a_name_may_vanish_until_its_folder_is_synced() -> None:
    found = set()
    for seed in range(20):
        disk, _ = disk_with_file(seed)
        fd = disk.open("/top/data/new", create=True)
        disk.write(fd, b"x", 0)
        disk.sync(fd)
        disk.cut_power()
        found.add(disk.exists("/top/data/new"))
        assert disk.exists("/top/data/file")
    assert found == {True, False}


def test_an_unsynced_rename_has_happened_or_not() -> None:
    found = set()
    for seed in range(20):
        disk, _ = disk_with_file(seed)
        disk.rename("/top/data/file", "/top/data/other")
        disk.cut_power()
        found.add(tuple(disk.names("/top/data")))
    assert found == {("file",), ("other",)}


def test_a_sync_of_the_tree_keeps_content_and_names() -> None:
    for seed in range(20):
        disk = PowerLossDisk(seed)
        disk.make_directory("/top/data")
        disk.write(disk.open("/top/data/new", create=True), b"x", 0)
        disk.sync_tree("/top")
        disk.cut_power()
        assert disk.read(disk.open("/top/data/new"), 5, 0) == b"x"


def test_sync_after_a_failed_sync_does_not_restore_dropped_writes() -> None:
    """As on Linux, the pages count as clean although they never reached the disk."""
    found = set()
    for seed in range(20):
        disk, fd = disk_with_file(seed)
        disk.write(fd, b"x", 0)
        disk.fail_next_sync()
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(fd)
        assert disk.read(fd, 5, 0) == b"x"
        disk.sync(fd)
        disk.cut_power()
        found.add(disk.read(disk.open("/top/data/file"), 5, 0))
    assert found == {b"x", b""}


def test_sync_of_a_file_reports_the_failure_of_a_tree_sync() -> None:
    """As on Linux, each file keeps its error until it is synced."""
    told = set()
    for seed in range(20):
        disk, fd = disk_with_file(seed)
        disk.write(fd, b"x", 0)
        disk.fail_next_sync()
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_tree("/top")
        try:
            disk.sync(fd)
        except OSError:
            told.add("failed")
        else:
            told.add("synced")
            disk.cut_power()
            assert disk.read(disk.open("/top/data/file"), 5, 0) == b"x"
    assert told == {"failed", "synced"}


def test_sync_error_is_forgotten_after_power_loss() -> None:
    """The restarted kernel does not know the error, so a restarted broker can sync the file."""
    for seed in range(20):
        disk, fd = disk_with_file(seed)
        disk.write(fd, b"x", 0)
        disk.fail_next_sync()
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_tree("/top")
        disk.cut_power()
        disk.sync(disk.open("/top/data/file"))


def test_full_disk_writes_the_bytes_that_fit_and_raises() -> None:
    disk, fd = disk_with_file()
    disk.fill_up(room_bytes=3)
    with pytest.raises(OSError, match="No space left") as raised:
        disk.write(fd, b"abcdef", 0)
    assert raised.value.errno == errno.ENOSPC
    assert disk.read(fd, 10, 0) == b"abc"
    disk.write(fd, b"xyz", 0)  # Overwriting existing bytes needs no room.
    disk.make_room()
    disk.write(fd, b"def", 3)
    assert disk.read(fd, 10, 0) == b"xyzdef"


def test_power_is_cut_at_the_given_operation() -> None:
    disk, fd = disk_with_file()
    disk.cut_power_after(2)
    disk.write(fd, b"a", 0)
    disk.sync(fd)
    assert not disk.has_power
    with pytest.raises(OSError, match="Input/output error"):
        disk.write(fd, b"b", 1)
    disk.cut_power()
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.read(fd, 1, 0)
    assert disk.read(disk.open("/top/data/file"), 5, 0) == b"a"


def test_lock_is_exclusive_until_power_loss() -> None:
    disk, _ = disk_with_file()
    disk.lock("/top/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/top/data/.lock")
    disk.cut_power()
    disk.lock("/top/data/.lock")


@pytest.mark.parametrize("synced", ["/from", "/to"])
def test_synced_rename_to_another_folder_leaves_one_name(synced: str) -> None:
    """One sync commits both sides, also of a file whose name, or whose target's, is new."""
    for seed in range(20):
        disk = PowerLossDisk(seed=seed)
        for folder in ("/from", "/to"):
            disk.make_directory(folder)
        disk.sync_tree("/")
        for path, content in (("/to/new", b"replaced"), ("/from/old", b"moved")):
            fd = disk.open(path, create=True)
            disk.write(fd, content, 0)
            disk.sync(fd)
        disk.rename("/from/old", "/to/new")
        disk.sync_directory(synced)
        disk.cut_power()
        assert not disk.exists("/from/old")
        assert disk.read(disk.open("/to/new"), 9, 0) == b"moved"
