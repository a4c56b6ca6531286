"""``sharegroup logs`` on data directories: of a running broker, of a stopped one, damaged ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer, ShareConsumer
from sharegroup.client.admin.types import AlterConfig, ConfigResource
from sharegroup.protocol_enums import ResourceType
from sharegroup.testing import run_broker
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.compression import ZSTD
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.integration.cli.piping import Piped, sharegroup
from tests.integration.cli.test_json_keys import keys_of, promised
from tests.support.limits import HANGING_SECONDS
from tests.support.unreadable import produce_batches

SEGMENT_BYTES = 2_000
BATCHES = 6
"""Of ten records each, three to a segment."""


class Written(NamedTuple):
    """A data directory and the id of the topic ``orders`` in it."""

    data: Path
    topic_id: str


async def fill(bootstrap: str) -> None:
    """A topic of two segments, a group that has accepted a part of it, and its member's records."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        configs = {"segment.bytes": str(SEGMENT_BYTES)}
        await admin.create_topics([NewTopic("orders", num_partitions=2, configs=configs)])
        group = ConfigResource(ResourceType.GROUP, "billing")
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({group: [earliest]})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(BATCHES):
            for index in range(10):
                value = b"%d.%d" % (number, index) + b"x" * 40
                await producer.send("orders", value, partition=1, timestamp_ms=1_000 * number)
            await producer.flush()
    async with ShareConsumer("orders", bootstrap_servers=bootstrap, group_id="billing") as consumer:
        assert len(await consumer.poll(timeout=HANGING_SECONDS)) > 0
        await consumer.commit()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A directory whose broker has stopped; tests that change it make a copy."""
    data = tmp_path_factory.mktemp("logs") / "data"
    with run_broker(data=str(data)) as broker:
        asyncio.run(fill(broker.bootstrap_servers))
    topics = sharegroup("logs", str(data), "--topic", "orders", "--json")
    assert len(json.loads(topics.out)) == 2
    assert keys_of(json.loads(topics.out)) == promised("logs")
    # An internal topic may have a partition 1, too, but not two segments.
    (folder,) = (
        path
        for path in data.iterdir()
        if path.name.endswith("-1") and len(list(path.glob("*.log"))) == 2
    )
    return Written(data, folder.name.removesuffix("-1"))


@pytest.fixture
def copy(written: Written, tmp_path: Path) -> Written:
    shutil.copytree(written.data, tmp_path / "copy")
    return Written(tmp_path / "copy", written.topic_id)


def logs(data: Path, *more: str) -> Piped:
    return sharegroup("logs", str(data), *more)


def segment(written: Written, base_offset: int) -> Path:
    return written.data / f"{written.topic_id}-1" / f"{base_offset:020d}.log"


def positions(path: Path) -> list[int]:
    return [position for position, _ in scan(path.read_bytes())]


def fingerprint(data: Path) -> dict[str, str]:
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in data.rglob("*")
        if path.is_file()
    }


def test_segments_are_listed_with_their_contents(written: Written) -> None:
    found = logs(written.data, "--topic", "orders")
    assert (found.code, found.err) == (0, "")
    lines = [line.split() for line in found.out.decode().splitlines()]
    size = segment(written, 0).stat().st_size
    heads = "TOPIC PARTITION SEGMENT BYTES BATCHES RECORDS CODEC FIRST-OFFSET END-OFFSET"
    assert lines[0] == [*heads.split(), "FIRST-TIME", "LAST-TIME", "STATE"]
    first = ["orders", "1", "0", str(size), "3", "30", "none", "0", "30"]
    assert lines[1] == [*first, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:02.000Z", "ok"]
    assert lines[2][:3] == ["orders", "1", "30"]
    assert len(lines) == 3


def test_batches_are_listed_with_their_place_and_producer(written: Written) -> None:
    found = logs(written.data, "--batches", "--topic", "orders", "--json")
    batches = json.loads(found.out)
    assert keys_of(batches) == promised("logs --batches")
    assert [batch["base_offset"] for batch in batches] == [0, 10, 20, 30, 40, 50]
    assert [batch["position"] for batch in batches[:3]] == positions(segment(written, 0))
    assert [batch["base_sequence"] for batch in batches] == [0, 10, 20, 30, 40, 50]
    assert batches[1]["timestamp"] == 1_000
    assert batches[1]["timestamp_type"] == "CreateTime"
    assert {batch["producer_epoch"] for batch in batches} == {0}


def test_records_of_an_offset_range_are_printed_as_json(
    written: Written,
) -> None:
    found = logs(written.data, "--records", "--topic", "orders", "--offsets", "29:31")
    assert found.documents == [
        {
            "topic": "orders",
            "partition": 1,
            "offset": offset,
            "timestamp": timestamp,
            "key": None,
            "value": value + "x" * 40,
            "headers": [],
        }
        for offset, timestamp, value in ((29, 2_000, "2.9"), (30, 3_000, "3.0"))
    ]
    assert [
        document["offset"]
        for document in logs(written.data, "--records", "--offsets", "59").documents
    ] == [59]
    assert (
        len(logs(written.data, "--records", "--topic", "orders", "--offsets", "50:").documents)
        == 10
    )
    assert (
        len(logs(written.data, "--records", "--topic", "orders", "--offsets", ":5").documents) == 5
    )


def test_topic_is_found_by_its_id_and_partition_by_its_number(written: Written) -> None:
    by_id = json.loads(logs(written.data, "--topic", written.topic_id, "--json").out)
    assert [entry["segment"] for entry in by_id] == [0, 30]
    nothing = logs(written.data, "--topic", "orders", "--partition", "0")
    assert nothing.out == f"There are no such logs in {written.data}.\n".encode()


def test_share_state_is_printed_in_the_shape_of_kafkas_formatter(written: Written) -> None:
    key = {"groupId": "billing", "topicId": written.topic_id, "partition": 1}
    states = [
        document
        for document in logs(written.data, "--records", "--topic", "__share_group_state").documents
        if document["key"]["data"] == key
    ]
    assert states[0]["key"] == {"type": 0, "data": key}
    snapshot = states[0]["value"]
    assert snapshot["version"] == 0
    assert list(snapshot["data"]) == [
        "snapshotEpoch",
        "stateEpoch",
        "leaderEpoch",
        "startOffset",
        "deliveryCompleteCount",
        "createTimestamp",
        "writeTimestamp",
        "stateBatches",
    ]
    assert snapshot["data"]["startOffset"] == 0
    assert snapshot["data"]["stateBatches"] == []
    assert states[-1]["key"]["type"] == 1
    assert list(states[-1]["value"]["data"]) == [
        "snapshotEpoch",
        "leaderEpoch",
        "startOffset",
        "deliveryCompleteCount",
        "stateBatches",
    ]
    assert states[-1]["value"]["data"]["startOffset"] > 0


def test_group_records_are_printed_in_the_shape_of_kafkas_formatter(written: Written) -> None:
    documents = logs(written.data, "--records", "--topic", "__consumer_offsets").documents
    by_type = {
        document["key"]["type"]: document for document in documents if document["value"] is not None
    }
    assert sorted(by_type) == [10, 11, 12, 13, 14, 15]
    assert by_type[10]["value"]["data"]["subscribedTopicNames"] == ["orders"]
    (topic,) = by_type[15]["value"]["data"]["initializedTopics"]
    assert topic == {"topicId": written.topic_id, "topicName": "orders", "partitions": [0, 1]}
    assert any(document["value"] is None for document in documents), "the member left: a tombstone"


def test_directory_of_a_running_broker_is_read_without_changes(tmp_path: Path) -> None:
    with run_broker(data=str(tmp_path / "data")) as broker:
        asyncio.run(fill(broker.bootstrap_servers))
        before = fingerprint(tmp_path / "data")
        found = logs(tmp_path / "data", "--records", "--topic", "orders")
        assert (found.code, len(found.documents)) == (0, 60)
        assert fingerprint(tmp_path / "data") == before


def test_folder_of_one_partition_is_enough(written: Written) -> None:
    found = logs(written.data / f"{written.topic_id}-1", "--json")
    assert [(load["topic"], load["segment"]) for load in json.loads(found.out)] == [
        ("orders", 0),
        ("orders", 30),
    ]


def test_damaged_batch_is_reported_and_its_neighbours_are_printed(copy: Written) -> None:
    path = segment(copy, 0)
    data = bytearray(path.read_bytes())
    second = positions(path)[1]
    data[second + 100] ^= 1
    path.write_bytes(data)
    found = logs(copy.data, "--records", "--topic", "orders", "--offsets", ":30")
    assert found.code == 1
    offsets = [document["offset"] for document in found.documents]
    assert offsets == [*range(10), *range(20, 30)]
    assert found.err == (
        f"sharegroup: topic 'orders' partition 1, {path.name} from byte {second}, offset 10: "
        f"the checksum does not match; readable again from byte {positions(path)[2]}\n"
    )
    listed = json.loads(logs(copy.data, "--topic", "orders", "--json").out)
    assert [listing["state"] for listing in listed] == ["damaged", "ok"]
    assert [listing["batches"] for listing in listed] == [2, 3]


def test_damage_at_the_end_of_an_older_segment_is_no_torn_end(
    copy: Written,
) -> None:
    path = segment(copy, 0)
    third = positions(path)[2]
    path.write_bytes(path.read_bytes()[: third + 20])
    found = logs(copy.data, "--topic", "orders", "--json")
    assert found.code == 1
    assert (
        f"from byte {third}, offset 20: 20 bytes are left, which is less than a batch header; "
        "nothing" in found.err
    )
    assert json.loads(found.out)[0]["state"] == "damaged"


def test_torn_end_above_the_recovery_point_is_no_damage(copy: Written) -> None:
    """A crash leaves such an end; below the recovery point the same bytes would be damage."""
    path = segment(copy, 30)
    last = positions(path)[2]
    path.write_bytes(path.read_bytes()[: last + 100])
    damaged = logs(copy.data, "--topic", "orders")
    assert damaged.code == 1, "the broker stopped cleanly: all of it was on disk"
    (copy.data / "recovery-point-offset-checkpoint").unlink()
    torn = logs(copy.data, "--topic", "orders", "--json")
    assert torn.code == 0
    assert json.loads(torn.out)[1]["state"] == "torn"
    assert f"from byte {last}, offset 50: expected a batch of " in torn.err
    assert "the last 100 bytes are being written, or are incomplete because of a crash" in torn.err


def test_damaged_header_is_passed_over_by_the_index(tmp_path: Path) -> None:
    """The length is damaged, so only the index knows where a batch begins again."""
    with run_broker(data=str(tmp_path / "data")) as broker:
        asyncio.run(fill_large(broker.bootstrap_servers))
    (path,) = (tmp_path / "data").glob("*/00000000000000000000.log")
    data, places = bytearray(path.read_bytes()), positions(path)
    data[places[1] + 8 : places[1] + 12] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    found = logs(tmp_path / "data", "--batches", "--json")
    assert found.code == 1
    read = [load["position"] for load in json.loads(found.out)]
    assert read == [place for place in places if place != places[1]]


async def fill_large(bootstrap: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("large", num_partitions=1)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(10):
            await producer.send_and_wait("large", b"x" * 5_000)


def test_torn_catalog_loses_only_topic_names(copy: Written) -> None:
    journal = copy.data / "catalog.journal"
    journal.write_bytes(journal.read_bytes()[:-3])
    found = logs(copy.data, "--json")
    assert found.code == 0
    assert "catalog.journal is damaged or incomplete at byte" in found.err
    assert len(json.loads(found.out)) >= 4


def test_batch_of_nonsense_with_a_right_checksum_is_reported(copy: Written) -> None:
    from sharegroup.wire.batches.batches import checksum, parse_header

    path = segment(copy, 0)
    data = bytearray(path.read_bytes())
    data[61:80] = b"\xff" * 19
    data[17:21] = checksum(data, 0, parse_header(data)).to_bytes(4, "big")
    path.write_bytes(data)
    found = logs(copy.data, "--records", "--topic", "orders", "--offsets", ":20")
    assert found.code == 1
    assert "topic 'orders' partition 1 offsets 0 to 9 cannot be read and are omitted" in found.err
    assert "at byte 0: the checksum is correct, but: " in found.err
    assert [document["offset"] for document in found.documents] == list(range(10, 20))


def test_batch_that_is_too_large_for_memory_is_read_in_pieces(tmp_path: Path) -> None:
    records = [SimpleRecord(None, b"%02d" % number + bytes(900_000), 1) for number in range(90)]
    with run_broker(data=str(tmp_path / "data")) as broker:
        broker.create_topic("large")
        batch = bytes(encode_batch(records, codec=ZSTD))
        produce_batches(broker.bootstrap_servers, "large", batch)
    found = logs(tmp_path / "data", "--records", "--topic", "large", "--offsets", "88:")
    assert (found.code, found.err) == (0, "")
    assert [document["value"][:2] for document in found.documents] == ["88", "89"]


@pytest.mark.parametrize("text", ["x", "1:2:3", "-1:", ""])
def test_invalid_offsets_are_a_misuse(written: Written, text: str) -> None:
    refused = logs(written.data, "--offsets", text)
    assert refused.code == 2
    assert "expected FIRST:END" in refused.err


def test_missing_directory_is_a_misuse() -> None:
    assert logs(Path("/nowhere")).code == 2
