"""Kafka's tools read our ``__share_group_state``, also after it was pruned and moved, and with what
our broker has beyond KIP-932; and our records of a group with a wide assignment.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Message, TopicPartition
from confluent_kafka.admin import ResourceType

from sharegroup.ids import GroupId, group_partition
from sharegroup.internal_topics.coordinator_json import coordinator_json
from sharegroup.wire.internal_topics.share_state_records import SHARE_STATE_RECORDS
from tests.support import confluent_calls
from tests.support.confluent_calls import (
    create_topic,
    produce,
    set_config,
    set_group,
    share_consumer,
    take_shared,
)
from tests.support.kafka_tools import SCRIPTS, formatted, run_tool, why_missing
from tests.support.processes import ServeProcess

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
RECORDS = 800
ONE_BATCH_MS = 60_000
"""How long confluent's producer waits for more records: a flush ends it.  The first poll is then
all of them, as `take_shared` needs it, also on a machine that is slow at producing."""
PRUNED_SECONDS_MAX = 15.0
FIRST_SEGMENT_STEM = "0" * 20
FIRST_SEGMENT = f"{FIRST_SEGMENT_STEM}.log"
WIDE_PARTITIONS = 20
TARGET_ASSIGNMENT = 13
"""The type of the record with the partitions that a member is to have."""
FORMATTER = "group.share.ShareGroupStateMessageFormatter"
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.prune.interval.ms": "200",
}


@pytest.fixture
def pruning(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServeProcess]:
    """A broker with further settings, if the test names some for this fixture."""
    settings = SETTINGS | getattr(request, "param", {})
    with ServeProcess(tmp_path / "data", settings=settings) as process:
        yield process
        confluent_calls.admin.cache_clear()


@pytest.mark.slow
def test_kafkas_tools_read_the_state_topic_after_a_prune(
    pruning: ServeProcess, topic: str, group: str, tmp_path: Path
) -> None:
    """Every second record is accepted by a write of its own, so the state is long and scattered."""
    create_topic(pruning.bootstrap_servers, topic)
    set_group(pruning.bootstrap_servers, group, auto_offset_reset="earliest")
    produce(pruning.bootstrap_servers, topic, [b"x"] * RECORDS, linger_ms=ONE_BATCH_MS)
    with share_consumer(pruning.bootstrap_servers, group, topic, explicit=True) as consumer:
        for message in take_shared(consumer, RECORDS):
            if message.offset() % 2:
                consumer.acknowledge(message)
                consumer.commit_sync()
        logs = moved(pruning.data, group, tmp_path / "moved")
        dumped = run_tool(
            "org.apache.kafka.tools.DumpLogSegments",
            *("--deep-iteration", "--share-group-state-decoder", "--files", ",".join(logs)),
        )
        assert "isvalid: false" not in dumped
        assert re.findall(rf'"type":"(\d)","data":{{"groupId":"{group}"', dumped)[0] == "0"
        records = formatted(
            pruning.bootstrap_servers, "__share_group_state", FORMATTER, partition=0
        )
    first = records[0]
    assert first["key"] == {
        "type": 0,
        "data": {"groupId": group, "topicId": first["key"]["data"]["topicId"], "partition": 0},
    }
    accepted = [
        offset
        for record in records
        for batch in record["value"]["data"]["stateBatches"]
        for offset in range(batch["firstOffset"], batch["lastOffset"] + 1)
        if batch["deliveryState"] == 2
    ]
    assert sorted(accepted) == list(range(1, RECORDS, 2)), "all of it, and nothing twice"


def moved(data: Path, group: str, into: Path) -> list[str]:
    """The files of the state topic once its first segment is gone; no other log begins later.

    They are linked from ``into``: the next prune takes the originals away, maybe while we look.
    """
    limit = time.monotonic() + PRUNED_SECONDS_MAX
    while True:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        with contextlib.suppress(FileNotFoundError):
            later = [path for path in data.rglob("*.log") if path.name > FIRST_SEGMENT]
            folders = {path.parent for path in later if group.encode() in path.read_bytes()}
            for folder in folders:
                files = [path for path in sorted(folder.iterdir()) if path.name[0] == "0"]
                if not any(path.stem == FIRST_SEGMENT_STEM for path in files):
                    for path in files:
                        (into / path.name).hardlink_to(path)
                    return [str(into / path.name) for path in files]
        assert time.monotonic() < limit, f"not pruned within {PRUNED_SECONDS_MAX} s"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pruning", "record_type"),
    [({}, 1), ({"share.coordinator.snapshot.update.records.per.snapshot": "0"}, 0)],
    indirect=["pruning"],
    ids=["updates", "snapshots"],
)
def test_kafkas_tools_read_a_state_with_due_times_and_reasons(
    pruning: ServeProcess, record_type: int, topic: str, group: str
) -> None:
    """Kafka's decoder skips our tagged fields; its formatter and ours print the same otherwise."""
    servers = pruning.bootstrap_servers
    create_topic(servers, topic)
    settings = {
        "share.auto.offset.reset": "earliest",
        "sharegroup.redelivery.delay.ms": "3600000",
        # There is no such topic, so the rejected record waits for its letter.
        "errors.deadletterqueue.topic.name": f"dlq.{topic}",
    }
    set_config(servers, ResourceType.GROUP, group, settings)
    produce(servers, topic, [b"x"] * 3, linger_ms=ONE_BATCH_MS)
    with share_consumer(servers, group, topic, explicit=True) as consumer:
        types = (AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT)
        for message, kind in zip(take_shared(consumer, 3), types, strict=True):
            consumer.acknowledge(message, kind)
        consumer.commit_sync()
        found = formatted(servers, "__share_group_state", FORMATTER, partition=0)
    assert found[-1]["key"]["type"] == record_type
    by_offset = {
        batch["firstOffset"]: batch
        for record in found
        for batch in record["value"]["data"]["stateBatches"]
    }
    ours = {
        batch["firstOffset"]: batch
        for message in read_all(servers, "__share_group_state")
        for batch in coordinator_json(SHARE_STATE_RECORDS, message.key(), message.value())["value"][
            "data"
        ]["stateBatches"]
    }
    assert [batch.get("archiveReason") for _, batch in sorted(ours.items())] == [None, 1, None]
    assert ours[0].pop("redeliveryTimeMs") > time.time() * 1000 + 3_500_000
    del ours[1]["archiveReason"]
    assert by_offset == ours


@pytest.mark.slow
def test_kafkas_tools_read_a_wide_assignment(pruning: ServeProcess, topic: str, group: str) -> None:
    """The group's records are Kafka's; only the members' partitions are more."""
    servers = pruning.bootstrap_servers
    create_topic(servers, topic, partitions=WIDE_PARTITIONS)
    set_group(servers, group, auto_offset_reset="earliest")
    run_tool(
        SCRIPTS["kafka-configs"],
        *("--bootstrap-server", servers, "--alter", "--entity-type", "groups"),
        *("--entity-name", group, "--add-config", "sharegroup.assignment=wide"),
    )
    produce(servers, topic, [b"x"] * 2, linger_ms=ONE_BATCH_MS)
    with (
        share_consumer(servers, group, topic) as first,
        share_consumer(servers, group, topic) as other,
    ):
        taken = 0
        while taken < 2:
            taken += len(first.poll(0.5)) + len(other.poll(0.5))
        described = run_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            *("--bootstrap-server", servers, "--describe", "--members", "--group", group),
        )
        found = formatted(
            *(servers, "__consumer_offsets", "ShareGroupMessageFormatter"),
            partition=group_partition(GroupId(group), 50),
        )
    members = [line for line in described.splitlines() if line.startswith(group)]
    whole = ",".join(map(str, range(WIDE_PARTITIONS)))
    assert [f"{topic}:{whole}" in line for line in members] == [True, True], described
    targets = {
        entry["key"]["data"]["memberId"]: entry["value"]["data"]["topicPartitions"]
        for entry in found
        if entry["key"]["type"] == TARGET_ASSIGNMENT and entry["value"]
    }
    sizes = [[len(part["partitions"]) for part in parts] for parts in targets.values()]
    assert sizes == [[WIDE_PARTITIONS]] * 2


def read_all(servers: str, topic: str) -> Iterator[Message]:
    """The records of partition 0 that are not pruned."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0, first)])
        for _ in range(first, end):
            message = consumer.poll(PRUNED_SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            yield message
    finally:
        consumer.close()
