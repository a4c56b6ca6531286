from __future__ import annotations

import asyncio
import struct

import pytest

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.directory import journal
from sharegroup.storage.directory.journal import journal_content, salvaged_payloads
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import ROOT, open_directory, run

PATH = f"{ROOT}/catalog"


def written(*payloads: bytes) -> PowerLossDisk:
    disk = PowerLossDisk(1)

    async def main() -> None:
        journal = open_directory(disk).journal("catalog")
        for payload in payloads:
            await journal.append(payload)

    run(main())
    disk.cut_power()
    return disk


def payloads(disk: PowerLossDisk) -> tuple[bytes, ...]:
    return tuple(open_directory(disk).journal("catalog").payloads())


def test_payloads_survive_power_loss() -> None:
    assert payloads(written(b"one", b"two")) == (b"one", b"two")


def test_a_torn_last_payload_is_cut_off() -> None:
    disk = written(b"one", b"two", b"three")
    fd = disk.open(PATH)
    disk.truncate(fd, disk.size(fd) - 2)
    assert payloads(disk) == (b"one", b"two")
    torn = disk.read(fd, 100, 38)
    assert len(torn) == 16 + 5 - 2, "a start that is refused later must find it"
    disk.cut_power()

    async def cut() -> None:
        open_directory(disk).journal("catalog").cut_tail()

    run(cut())
    disk.cut_power()
    assert disk.size(disk.open(PATH)) == 2 * (16 + 3)
    [entry] = disk.names(f"{ROOT}/set-aside")
    assert disk.read(disk.open(f"{ROOT}/set-aside/{entry}/catalog@38"), 100, 0) == torn


def test_journal_with_a_torn_end_takes_no_payload_on_a_full_disk() -> None:
    disk = written(b"one", b"two")
    fd = disk.open(PATH)
    disk.truncate(fd, disk.size(fd) - 2)

    async def main() -> None:
        journal = open_directory(disk).journal("catalog")
        disk.fill_up()
        journal.cut_tail()
        with pytest.raises(KafkaStorageError, match="a write failed"):
            journal.append(b"three")
        assert disk.size(disk.open(PATH)) == 19 + 17
        disk.make_room()
        await journal.append(b"three")
        assert tuple(journal.payloads()) == (b"one", b"three")

    run(main())
    disk.cut_power()
    assert payloads(disk) == (b"one", b"three")
    [entry] = disk.names(f"{ROOT}/set-aside")
    assert disk.size(disk.open(f"{ROOT}/set-aside/{entry}/catalog@19")) == 17


def test_rewrite_keeps_a_copy_of_a_torn_end_that_could_not_be_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = written(b"one", b"two")
    fd = disk.open(PATH)
    disk.truncate(fd, disk.size(fd) - 2)

    async def main() -> None:
        journal = open_directory(disk).journal("catalog")
        disk.fill_up()
        journal.cut_tail()
        with pytest.raises(KafkaStorageError, match="a rewrite failed"):
            await journal.rewrite(iter([b"new"]))
        assert disk.size(disk.open(PATH)) == 19 + 17
        disk.make_room()
        await journal.rewrite(iter([b"new"]))
        await journal.append(b"three")
        assert tuple(journal.payloads()) == (b"new", b"three")

    run(main())
    assert sum("event=tail_set_aside" in line for line in caplog.messages) == 1
    [entry] = disk.names(f"{ROOT}/set-aside")
    assert disk.size(disk.open(f"{ROOT}/set-aside/{entry}/catalog@19")) == 17
    disk.cut_power()
    assert payloads(disk) == (b"new", b"three")


@pytest.mark.parametrize("byte", [0, 5, 12, 17])
def test_damage_before_the_last_payload_is_refused(byte: int) -> None:
    disk = written(b"one", b"two", b"three")
    disk.flip_bit(PATH, 19 + byte)
    with pytest.raises(KafkaStorageError, match="catalog is damaged at byte 19"):
        payloads(disk)


@pytest.mark.parametrize(
    "tail", [struct.pack(">IIQ", 1 << 20, 0, 1 << 62), bytes(16), b"\0\1" * 8, b"orders\0\0"]
)
def test_long_damage_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, tail: bytes) -> None:
    """A checksum from every byte on of a damaged file took hours."""
    data = journal_content([b"one", b"two"]) + tail * ((2 << 20) // len(tail))
    checked = 0

    def counted(piece: memoryview) -> int:
        nonlocal checked
        checked += len(piece)
        return checksum(piece)

    checksum = journal.crc32c.crc32c
    disk = PowerLossDisk(1)
    disk.make_directory(ROOT)
    disk.write(disk.open(PATH, create=True), data, 0)
    monkeypatch.setattr(journal.crc32c, "crc32c", counted)
    assert payloads(disk) == (b"one", b"two")
    assert salvaged_payloads(data + journal_content([b"three"])) == [b"one", b"two", b"three"]
    assert checked < 8 * len(data)


@pytest.mark.parametrize("seed", range(8))
def test_unsynced_payloads_are_made_durable_before_they_are_read(seed: int) -> None:
    """Otherwise a later power loss could remove a topic that was already written to."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        journal = directory.journal("catalog")
        await journal.append(b"one")
        journal.append(b"two")  # Written, not synced: the process dies here.
        directory.abandon()
        directory = open_directory(disk)
        assert tuple(directory.journal("catalog").payloads()) == (b"one", b"two")
        directory.abandon()
        disk.cut_power()
        assert payloads(disk) == (b"one", b"two")

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_after_a_kill_is_not_taken_for_damage(seed: int) -> None:
    """A payload appended later implies that all earlier ones are durable, so they must be."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        directory.journal("catalog").append(b"one")
        directory.abandon()
        directory = open_directory(disk)
        directory.journal("catalog").append(b"two")
        directory.abandon()
        disk.cut_power()
        assert payloads(disk) in ((b"one",), (b"one", b"two"))

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_an_empty_journal_that_a_killed_process_left_keeps_its_name(seed: int) -> None:
    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory = open_directory(disk)
        directory.journal("catalog")
        directory.abandon()
        directory = open_directory(disk)
        await directory.journal("catalog").append(b"one")
        directory.abandon()
        disk.cut_power()
        assert payloads(disk) == (b"one",)

    run(main())


def test_rewrite_replaces_all_payloads_and_later_appends_follow() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        journal = open_directory(disk).journal("catalog")
        for number in range(10):
            await journal.append(b"%d" % number)
        await journal.rewrite([b"all"])
        assert journal.payload_count == 1
        await journal.append(b"more")
        disk.cut_power()
        assert payloads(disk) == (b"all", b"more")
        disk.cut_power()
        disk.flip_bit(PATH, 17)
        with pytest.raises(KafkaStorageError, match="damaged at byte 0"):
            payloads(disk)

    run(main())


def test_rewrite_is_atomic_under_power_loss() -> None:
    async def main(operations: int) -> tuple[bytes, ...]:
        disk = PowerLossDisk(operations)
        journal = open_directory(disk).journal("catalog")
        await journal.append(b"old")
        disk.cut_power_after(operations)
        try:
            await journal.rewrite([b"new", b"newer"])
        except KafkaStorageError:
            assert not disk.has_power
        disk.cut_power()
        return payloads(disk)

    found = [asyncio.run(main(operations)) for operations in range(8)]
    assert set(found) == {(b"old",), (b"new", b"newer")}
