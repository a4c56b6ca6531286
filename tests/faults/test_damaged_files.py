"""Each kind of file of a data directory: missing, empty, truncated, older, foreign, a bit flipped.

A broker writes two topics with several segments, deletes records, compacts, and stops.  Then one
file is damaged and a broker starts, serves, looks for what retention may delete, stops, and starts
again.  Each record that was confirmed and whose bytes the damage itself left on the disk must then
be served, or lie in ``set-aside`` in a file that a log line names; or the broker refuses to start,
and every file of the partitions is as it was.

Every run flips two of six bits in each file; with ``DAMAGE=all``, which is `make damage`, all.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharegroup.broker.cluster.cleaning import Cleaning
from sharegroup.errors import KafkaError
from sharegroup.storage.recovery.damage import whole_batches
from sharegroup.wire.batches.records import decode_records, encode_batch
from tests.faults.in_process import ACCEPT, Broker, ShareMember
from tests.support.limits import ALL_DAMAGE

TOPICS = ("orders", "prices")
"""``prices`` is compacted, and its first segment has a hole."""
INTERNAL = ("__consumer_offsets", "__share_group_state")
CORRUPT_MESSAGE = 2
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "log_segment_bytes": "1048576",
    "group_share_delivery_count_limit": "2",
}
SEGMENT_BYTES = 6_000
SEGMENT_BATCHES = 6
DAY_MS = 86_400_000
BATCHES = 24
DELETED_BEFORE = 14

Record = tuple[str, int, bytes]
"""Topic, offset and value."""
Damage = Callable[[Path, Path, Callable[[Path], Path]], None]
"""Harms a file, given a folder with other directories, and what finds the file in a directory."""


async def make_topics(broker: Broker) -> None:
    for topic in TOPICS:
        policy = "delete" if topic == "orders" else "compact"
        await broker.running.parts.topics.create(
            topic,  # type: ignore[arg-type]
            partitions=1,
            settings={
                "segment.bytes": str(SEGMENT_BYTES),
                "cleanup.policy": policy,
                "min.cleanable.dirty.ratio": "0.01",
            },
        )


async def produce(broker: Broker, name: str, first: int, end: int) -> None:
    """Two records a batch, by an idempotent producer."""
    error, producer_id = await broker.new_producer_id()
    assert error == 0
    now_ms = broker.clock.wall_ms()
    for topic in TOPICS:
        for number in range(first, end):
            # Only the first batch of a segment is new enough for retention to keep it.
            timestamp = now_ms - (0 if number % SEGMENT_BATCHES == 0 else 30 * DAY_MS)
            records = [
                (key_of(number, offset), value(name, topic, offset), timestamp, ())
                for offset in (2 * number, 2 * number + 1)
            ]
            batch = encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=2 * (number - first),
            )
            assert await broker.produce(topic, 0, batch) == (0, 2 * number)


def key_of(number: int, offset: int) -> bytes:
    """Two batches of the first segment have the keys of later ones: compaction takes them out."""
    return b"%d" % (offset + BATCHES if number in (2, 3) else offset)


def value(name: str, topic: str, offset: int) -> bytes:
    return f"{name} {topic} {offset} ".encode().ljust(400, b"x")


async def write(data: Path, name: str) -> None:
    """A broker's whole life; half-way a copy of its directory is made."""
    broker = await Broker.start(None, str(data), **SETTINGS)
    await make_topics(broker)
    await produce(broker, name, 0, BATCHES // 2)
    member = ShareMember("billing", "member-1", "orders", 1, connection_id=101)
    assert await member.heartbeat(broker) == 0
    taken, _ = await member.fetch(broker, records_max=4)
    assert await member.acknowledge(broker, {0: [(record.offset, ACCEPT) for record in taken]}) == {
        0: 0
    }
    parts = broker.running.parts
    _, log = parts.topics.named("orders", 0)  # type: ignore[arg-type]
    await log.delete_before(4)
    await broker.running.directory.checkpoint()
    cleaning = Cleaning(parts.config, parts.clock, parts.topics)
    await cleaning.compact()
    await broker.stop()
    shutil.copytree(data, data.with_name(f"{name}-older"))
    broker = await Broker.start(None, str(data), **SETTINGS)
    await produce(broker, name, BATCHES // 2, BATCHES)
    _, log = broker.running.parts.topics.named("orders", 0)  # type: ignore[arg-type]
    await log.delete_before(DELETED_BEFORE)
    await broker.running.directory.checkpoint()
    parts = broker.running.parts
    await Cleaning(parts.config, parts.clock, parts.topics).compact()
    await broker.stop()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories ``ours``, ``ours-older`` and ``theirs``."""
    path = tmp_path_factory.mktemp("damage")
    for name in ("ours", "theirs"):
        asyncio.run(write(path / name, name))
    return path


def folder_of(data: Path, topic: str) -> Path:
    [folder] = [
        path.parent
        for path in data.glob("*-0/partition.metadata")
        if f"topic_name: {topic}\n" in path.read_text()
    ]
    return folder


def in_folder(topic: str, pattern: str, number: int) -> Callable[[Path], Path]:
    """Finds a file of a topic by its pattern and number in the order of names."""
    return lambda data: sorted(folder_of(data, topic).glob(pattern))[number]


FILES: dict[str, Callable[[Path], Path]] = {
    name: lambda data, name=name: data / name  # type: ignore[misc]
    for name in (
        "catalog.journal",
        "meta.properties",
        ".lock",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    )
}
for _topic in (*TOPICS, *INTERNAL):
    FILES[f"{_topic} metadata"] = in_folder(_topic, "partition.metadata", 0)
    FILES[f"{_topic} active log"] = in_folder(_topic, "*.log", -1)
for _topic in TOPICS:
    FILES[f"{_topic} first log"] = in_folder(_topic, "*.log", 0)
    FILES[f"{_topic} second log"] = in_folder(_topic, "*.log", 1)
    for _suffix in ("index", "timeindex"):
        FILES[f"{_topic} first {_suffix}"] = in_folder(_topic, f"*.{_suffix}", 0)
        FILES[f"{_topic} last {_suffix}"] = in_folder(_topic, f"*.{_suffix}", -1)
    FILES[f"{_topic} snapshot"] = in_folder(_topic, "*.snapshot", -1)
for _topic in INTERNAL:
    FILES[f"{_topic} folder"] = lambda data, topic=_topic: folder_of(data, topic)  # type: ignore[misc]
FILES["compacted"] = in_folder("prices", "compacted", 0)


def missing(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def empty(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
    path.write_bytes(b"")


def truncated(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1])


def older(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
    copy_of(found, written / "ours-older", path)


def foreign(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
    copy_of(found, written / "theirs", path)


def copy_of(found: Callable[[Path], Path], source: Path, path: Path) -> None:
    try:
        content = found(source).read_bytes()
    except (IndexError, FileNotFoundError):
        pytest.skip("there is no such file in the other directory")
    path.write_bytes(content)


def flipped(part: int, bit: int) -> Damage:
    def flip(path: Path, written: Path, found: Callable[[Path], Path]) -> None:
        content = bytearray(path.read_bytes())
        if not content:
            pytest.skip("the file is empty")
        content[min(len(content) * part // 4, len(content) - 1)] ^= bit
        path.write_bytes(content)

    flip.__name__ = f"flipped-{part}-{bit}"
    return flip


DAMAGES = [missing, empty, truncated, older, foreign]
FLIPS = [flipped(part, bit) for part, bit in ((0, 1), (1, 64), (1, 1), (2, 64), (3, 1), (4, 64))]
FLIPS_OF_A_FILE = 2
"""Files that follow each other have different ones."""


def records_in(path: Path, topic: str) -> Iterator[Record]:
    """The records of all whole batches in a file, wherever they lie."""
    data = path.read_bytes()
    for batch in whole_batches(data):
        for record in decode_records(data[batch.position : batch.end_position]):
            yield topic, record.offset, bytes(record.value or b"")


async def served(data: Path) -> set[Record]:
    """All that one life of a broker serves, before and after retention and compaction."""
    broker = await Broker.start(None, str(data), **SETTINGS)
    try:
        parts = broker.running.parts
        cleaning = Cleaning(parts.config, parts.clock, parts.topics)
        await cleaning.retain()
        await cleaning.compact()
        await broker.running.directory.drain()
        return {
            record
            for topic in TOPICS
            for record in [record async for record in read(broker, topic)]
        }
    finally:
        await broker.stop()


async def read(broker: Broker, topic: str):  # type: ignore[no-untyped-def]
    if broker.running.parts.topics.catalog.find(topic) is None:  # type: ignore[arg-type]
        return
    log = broker.running.parts.topics.named(topic, 0)[1]  # type: ignore[arg-type]
    offset = log.start_offset
    while offset < log.high_watermark:
        error, values = await broker.fetch(topic, 0, offset)
        assert error in (0, CORRUPT_MESSAGE)
        for at, found in values.items():
            yield topic, at, found
        offset = max(values, default=offset) + 1


def files_of(data: Path) -> dict[str, bytes]:
    """All in the folders of partitions but the indexes, which are made from the logs."""
    return {
        str(path): path.read_bytes()
        for path in data.glob("*-0/*")
        if path.suffix not in (".index", ".timeindex")
    }


def flips_of(number: int) -> list[Damage]:
    """The flipped bits for the file of this number."""
    if ALL_DAMAGE:
        return FLIPS
    first = FLIPS_OF_A_FILE * number % len(FLIPS)
    return FLIPS[first : first + FLIPS_OF_A_FILE]


CASES = [
    pytest.param(file, damage, id=f"{file}-{damage.__name__}")
    for number, file in enumerate(FILES)
    for damage in (*DAMAGES, *flips_of(number))
    if not file.endswith("folder") or damage is missing
]


@pytest.mark.parametrize(("file", "damage"), CASES)
def test_damaged_file_loses_no_record(
    tmp_path: Path,
    written: Path,
    file: str,
    damage: Damage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = tmp_path / "data"
    shutil.copytree(written / "ours", data)
    folders = {topic: folder_of(data, topic) for topic in TOPICS}
    damage(FILES[file](data), written, FILES[file])
    confirmed = {
        record
        for topic in TOPICS
        for path in folder_of(written / "ours", topic).glob("*.log")
        for record in records_in(path, topic)
        if topic != "orders" or record[1] >= DELETED_BEFORE
    }
    assert len(confirmed) == 2 * 2 * BATCHES - DELETED_BEFORE - 4
    left = {
        record
        for topic, folder in folders.items()
        for path in folder.glob("*.log")
        for record in records_in(path, topic)
    }
    before = files_of(data)
    found: set[Record] = set()
    for _ in range(2):
        try:
            found = asyncio.run(served(data))
        except (KafkaError, OSError):
            assert {name: files_of(data).get(name) for name in before} == before
            return
    aside = {
        record
        for path in data.glob("set-aside/*/*/*.log")
        if str(path) in caplog.text
        for topic, folder in folders.items()
        if folder.name == path.parent.name
        for record in records_in(path, topic)
    }
    lost = (confirmed & left) - found - aside
    assert not lost, sorted((topic, offset) for topic, offset, _ in lost)
    unexpected = found - confirmed - left
    assert not unexpected, sorted(unexpected)
