"""A data directory whose content nobody has checked: links, pipes, sparse files, huge numbers.

Neither the broker nor the command line follows a link out of it, waits for a pipe, or believes a
number that would take all memory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.cli.broker.repairing.diagnosis import findings
from sharegroup.cli.broker.repairing.state import read_state
from sharegroup.errors import CorruptMessage, KafkaStorageError
from sharegroup.ids import TopicId, TopicName, topic_id_text
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.files import Files, RealFiles
from sharegroup.storage.disk.folders import remove_folder
from sharegroup.storage.disk.metadata_files import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    encode_partition_metadata,
)
from sharegroup.storage.disk.set_aside import SetAside
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.segment.timestamps import Allowance
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.record_walk import finish
from sharegroup.wire.batches.records import encode_batch
from tests.faults.in_process import Broker
from tests.integration.cli.piping import sharegroup
from tests.integration.cli.test_data import ends, make
from tests.support.limits import HANGING_SECONDS
from tests.unit.storage.logs import NOW_MS, TOPIC, run

SEGMENT = "00000000000000000000.log"
NEXT_SEGMENT = "00000000000000000100.log"
SPARSE_BYTES = 1 << 40

READ_BYTES_MAX = 65 << 20
"""A search for whole batches behind damage takes 64 MiB; a fetch of a broker takes less."""

CLAIMED_BYTES = 100 << 20
"""The size that a damaged batch header claims; it is within the size of a segment."""

Damage = Callable[[Path, Path], None]
"""Called with a data directory and a partition folder in it."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder outside of the data directory."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    (folder / SEGMENT).write_text("precious log")
    return folder


def is_whole(victim: Path) -> bool:
    names = sorted(path.name for path in victim.iterdir())
    return names == [SEGMENT, "precious"] and (victim / SEGMENT).read_text() == "precious log"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("original") / "data"
    make(data, "orders", 1)
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def folder_of(data: Path) -> Path:
    """The partition folder of the topic ``orders``."""
    (metadata,) = (
        path
        for path in data.glob(f"*/{PARTITION_METADATA_FILE}")
        if "topic_name: orders\n" in path.read_text()
    )
    return metadata.parent


def add_folder(data: Path, partition: int, partition_count: int) -> None:
    topic_id = TopicId(uuid4())
    folder = data / f"{topic_id_text(topic_id)}-{partition}"
    shutil.copytree(folder_of(data), folder)
    metadata = PartitionMetadata(topic_id, TopicName("other"), partition_count)
    (folder / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(metadata))


def replace_by_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def make_sparse(path: Path) -> None:
    os.truncate(path, SPARSE_BYTES)


class WithoutRights(RealFiles):
    """Files one of which this process may not open; root may open all."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def open(self, path: str, *, create: bool = False) -> int:
        if path.endswith(f"/{self._name}"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().open(path, create=create)


class WithinMemory(RealFiles):
    """Files of which no single read may ask for more than a start and a fetch need."""

    def read(self, fd: int, size: int, position: int) -> bytes:
        assert size <= READ_BYTES_MAX, f"a read of {size} bytes at {position}"
        return super().read(fd, size, position)


def offsets_of(log: PartitionLog) -> list[int]:
    return [log.start_offset, log.end_offset]


def started(
    data: Path,
    *,
    is_written: bool = False,
    files: Files | None = None,
    look: Callable[[PartitionLog], list[int]] = offsets_of,
) -> list[int]:
    """Start a broker, write a record if ``is_written``, and return what ``look`` sees before."""

    async def main() -> list[int]:
        broker = await Broker.start(files, str(data))
        try:
            _, log = broker.running.parts.topics.named(TopicName("orders"), 0)
            seen = look(log)
            if is_written:
                batch = encode_batch([(None, b"one more", NOW_MS, ())])
                assert await broker.produce("orders", 0, batch) == (0, seen[1])
            return seen
        finally:
            await broker.stop()

    return asyncio.run(asyncio.wait_for(main(), HANGING_SECONDS))


def checked(data: Path) -> str:
    """What ``data check`` prints; it must end, and without a traceback."""
    result = sharegroup("data", "check", "--data", str(data))
    assert result.code in (0, 1), result.err
    assert "Traceback" not in result.err
    return result.out.decode() + result.err


def test_removal_of_a_link_leaves_its_target(victim: Path, tmp_path: Path) -> None:
    for name in ("folder", "folder-delete"):
        (tmp_path / name).symlink_to(victim)
        remove_folder(RealFiles(), str(tmp_path / name))
        assert not (tmp_path / name).is_symlink()
    assert is_whole(victim)


def test_deletion_of_a_topic_leaves_the_target_of_a_link(victim: Path, tmp_path: Path) -> None:
    async def main() -> None:
        root = tmp_path / "linked"
        root.mkdir()
        directory = LogDirectory.open(str(root), wall_ms=lambda: NOW_MS)
        (root / f"{topic_id_text(TOPIC)}-0").symlink_to(victim)
        removed: list[bool] = []
        directory.delete(TOPIC, partition_count=1, removed=lambda: removed.append(True))
        await directory.close()
        await LogDirectory.open(str(root), wall_ms=lambda: NOW_MS).close()

    run(main())
    assert is_whole(victim)


def test_a_log_is_not_opened_through_a_link(victim: Path, tmp_path: Path) -> None:
    async def main() -> None:
        root = tmp_path / "linked"
        root.mkdir()
        directory = LogDirectory.open(str(root), wall_ms=lambda: NOW_MS)
        (root / f"{topic_id_text(TOPIC)}-0").symlink_to(victim)
        with pytest.raises(Exception, match=r"[Nn]ot a directory|not a link"):
            directory.create(TOPIC, 0)
        await directory.close()

    run(main())
    assert is_whole(victim)


def test_room_in_set_aside_is_not_made_behind_a_link(victim: Path, tmp_path: Path) -> None:
    aside = tmp_path / "set-aside"
    aside.mkdir()
    (aside / "20200101T000000Z-damaged-log").symlink_to(victim)
    (aside / "20200102T000000Z-damaged-log").mkdir()
    (aside / "20200102T000000Z-damaged-log" / "loop").symlink_to(aside)
    (tmp_path / "file").write_bytes(bytes(10))
    kept = SetAside(RealFiles(), str(tmp_path), wall_ms=lambda: NOW_MS, bytes_max=1)
    assert kept.size() == 0
    kept.move(str(tmp_path / "file"), size=10, why="damaged-log", name="file")
    assert is_whole(victim)


def test_repair_sets_nothing_aside_behind_a_link(victim: Path, data: Path) -> None:
    (data / "set-aside").symlink_to(victim)
    (data / "catalog.journal").write_bytes(b"\xff" * 400)
    result = sharegroup("data", "repair", "--data", str(data), "--execute")
    assert result.code == 1, result.out
    assert is_whole(victim)


def test_a_link_or_file_with_the_name_of_a_partition_stops_nothing(
    victim: Path, data: Path
) -> None:
    link, file = (data / f"{topic_id_text(TopicId(uuid4()))}-0" for _ in range(2))
    link.symlink_to(victim)
    file.write_text("no folder")
    assert checked(data).count("it is no folder") == 2
    assert sharegroup("data", "repair", "--data", str(data), "--execute").code == 0
    assert ends(data) == {"orders": [3]}
    assert is_whole(victim)


@pytest.mark.parametrize(("partition", "count"), [(99_999_999_999, 1), (0, 1 << 60), (150_000, 1)])
def test_repair_believes_no_huge_numbers(data: Path, partition: int, count: int) -> None:
    add_folder(data, partition, count)
    assert sharegroup("data", "repair", "--data", str(data), "--execute").code == 0
    found = ends(data)
    assert found.pop("orders") == [3]
    assert all(len(partitions) == 1 for partitions in found.values()), found.keys()


def test_repair_refuses_folders_that_name_too_many_partitions_together(data: Path) -> None:
    for _ in range(2):
        add_folder(data, 60_000, 1)
    result = sharegroup("data", "repair", "--data", str(data), "--execute")
    assert result.code == 1
    assert "120003 partitions, expected up to 100000" in result.err


def to_victim(path: Path) -> None:
    path.symlink_to(path.parent.parent.parent / "victim" / SEGMENT)


@pytest.mark.parametrize("damage", [replace_by_pipe, Path.mkdir, to_victim])
def test_segments_that_are_no_files_are_reported(
    victim: Path, data: Path, damage: Callable[[Path], None]
) -> None:
    damage(folder_of(data) / NEXT_SEGMENT)
    assert "it is no regular file" in checked(data)
    assert b"precious" not in sharegroup("logs", str(data), "--records").out


@pytest.mark.parametrize("damage", [replace_by_pipe, make_sparse])
@pytest.mark.parametrize(
    "name", [PARTITION_METADATA_FILE, "00000000000000000000.index", "../catalog.journal"]
)
def test_checks_neither_wait_for_a_pipe_nor_read_a_hole(
    data: Path, name: str, damage: Callable[[Path], None]
) -> None:
    folder = folder_of(data)
    with (folder / SEGMENT).open("r+b") as segment:
        segment.write(b"\xff" * 40)  # Only behind damage the index is read.
    damage(folder / name)
    expected = "cannot be read" if "catalog" in name else "bytes 0 to"
    assert expected in checked(data)
    sharegroup("logs", str(data), "--records")
    result = sharegroup("data", "repair", "--data", str(data), "--dry-run")
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "meta.properties"])
def test_checks_do_not_wait_for_other_pipes(data: Path, name: str) -> None:
    replace_by_pipe(data / name)
    assert "expected a regular file" in checked(data)
    assert sharegroup("logs", str(data)).code == 0


@pytest.mark.parametrize("damage", [replace_by_pipe, make_sparse, replace_by_folder, make_loop])
@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
        "meta.properties",
        PARTITION_METADATA_FILE,
    ],
)
def test_check_tells_which_unreadable_file_stops_the_start(
    data: Path, name: str, damage: Callable[[Path], None]
) -> None:
    path = (folder_of(data) if name == PARTITION_METADATA_FILE else data) / name
    path.touch()
    damage(path)
    (finding,) = findings(read_state(RealFiles(), str(data)))
    assert finding.file.endswith(name)
    assert "cannot be read" in finding.problem
    assert finding.stops_broker
    with pytest.raises((OSError, KafkaStorageError), match=re.escape(name)):
        started(data)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".log"])
def test_a_start_believes_no_size_of_a_sparse_file(
    data: Path, suffix: str, *, is_clean: bool
) -> None:
    path = folder_of(data) / SEGMENT.replace(".log", suffix)
    path.touch()
    make_sparse(path)
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    for end_offset in (3, 4):  # What the first start left is no surprise for the second.
        assert started(data, is_written=end_offset == 3) == [0, end_offset]


def test_a_sparse_segment_removes_nothing_that_was_set_aside(data: Path) -> None:
    kept = data / "set-aside" / "20200101T000000Z-damaged-log" / "0.log"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    segment = folder_of(data) / "00000000000000000999.log"
    segment.touch()
    make_sparse(segment)
    assert started(data) == [0, 3]
    assert kept.read_text() == "kept"
    assert segment.with_suffix(".log.set-aside").stat().st_size == SPARSE_BYTES


def test_a_sparse_segment_below_the_recovery_point_counts_no_holes(data: Path) -> None:
    """Retention by size would delete every older segment, and this one."""
    segment = folder_of(data) / SEGMENT
    make_sparse(segment)
    (data / ".kafka_cleanshutdown").unlink()
    with segment.open("r+b") as file:
        file.write(b"\xff" * 40)  # So the batch at the recovery point is looked for.
    (log_size,) = started(data, look=lambda log: [log.size])
    assert log_size < 1 << 31


@pytest.mark.parametrize("name", [SEGMENT, "00000000000000000000.index", "catalog.journal"])
def test_a_start_names_the_file_without_rights(data: Path, name: str) -> None:
    with pytest.raises((OSError, KafkaStorageError), match=f"Permission denied.*{name}"):
        started(data, files=WithoutRights(name))


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_an_empty_checkpoint_is_named_with_what_was_expected(
    data: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (data / name).write_bytes(b"")
    with caplog.at_level("WARNING"):
        assert started(data) == [0, 3]
    assert f"{name} is damaged: expected a version and a number of entries" in caplog.text


def test_a_checkpoint_with_huge_numbers_is_skipped(data: Path) -> None:
    key = folder_of(data).name.replace("-0", " 0")
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{key} {'9' * 5_000}\n")
    assert "recovery-point-offset-checkpoint" in checked(data)
    assert sharegroup("logs", str(data)).code == 0


def test_a_sparse_segment_is_not_copied(data: Path) -> None:
    path = folder_of(data) / SEGMENT
    make_sparse(path)
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    assert ends(data) == {"orders": [3]}
    assert path.stat().st_size == SPARSE_BYTES
    assert not any((data / "set-aside").glob("*/*/*"))


def test_files_with_strange_names_do_not_stop_a_log(data: Path) -> None:
    folder = folder_of(data)
    for name in ("bad\nname.log", "\u0660" * 20 + ".log", "x" * 20 + ".log", "-1.log"):
        (folder / name).touch()
    assert ends(data) == {"orders": [3]}
    assert checked(data).startswith("No problems")


def claim(path: Path, header: bytes, position: int) -> None:
    """Write a batch header there whose length claims a large part of a hole, to the file's end."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(header[:8] + (CLAIMED_BYTES - 12).to_bytes(4, "big") + header[12:61])
    os.truncate(path, position + CLAIMED_BYTES)


def test_a_start_believes_no_length_in_a_batch_header(data: Path) -> None:
    path = folder_of(data) / SEGMENT
    header = (3).to_bytes(8, "big") + encode_batch([(None, b"x", NOW_MS, ())])[8:]
    claim(path, header, path.stat().st_size)
    assert started(data, is_written=True, files=WithinMemory()) == [0, 3]
    assert started(data, files=WithinMemory()) == [0, 4]


def read_each_way(log: PartitionLog) -> list[int]:
    """Read the damaged last batch of the log in every way; return the offsets before it."""
    for read in (
        lambda: log.read(2, bytes_max=1),
        lambda: log.read_range(2, 3),
        lambda: [*log.read_whole(piece_bytes=1 << 20)],
    ):
        with pytest.raises(CorruptMessage, match="does not match its checksum"):
            read()
    finish(log.times.latest(Allowance(1 << 20)))
    return offsets_of(log)


def test_a_fetch_believes_no_length_in_a_batch_header(data: Path) -> None:
    """Below the recovery point nothing was checked at the start."""
    path = folder_of(data) / SEGMENT
    content = path.read_bytes()
    *_, (position, _) = scan(content)
    claim(path, content[position:], position)
    assert started(data, files=WithinMemory(), look=read_each_way) == [0, 3]


def test_a_sparse_new_segment_of_compaction_is_renamed(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder_of(data) / f"{SEGMENT}.swap"
    path.touch()
    make_sparse(path)
    assert started(data, files=WithinMemory()) == [0, 3]
    assert path.with_suffix(".swap.set-aside").stat().st_size == SPARSE_BYTES
    (line,) = (line for line in caplog.messages if line.startswith("event=swap_undone"))
    assert f"does not begin with a record batch; it has {SPARSE_BYTES} bytes" in line


@pytest.mark.parametrize("offset", ["-1", "9223372036854775808", "1" * 4_000])
def test_impossible_offsets_of_a_checkpoint_are_not_used(data: Path, offset: str) -> None:
    """Files of older versions have no checksum."""
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        key = folder_of(data).name.replace("-0", " 0")
        (data / name).write_text(f"0\n1\n{key} {offset}\n")
    assert started(data, is_written=True) == [0, 3]
    assert len(list((data / "set-aside").glob("*/*-checkpoint"))) == 2


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"journals": {"catalog.journal": [1e999, 1]}}', "[]", "\xff"]
)
def test_damaged_mark_of_a_clean_shutdown_stops_no_start(data: Path, content: str) -> None:
    (data / ".kafka_cleanshutdown").write_text(content, "latin-1")
    assert started(data) == [0, 3]
