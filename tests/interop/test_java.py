"""Apache Kafka's own Java clients and tools, against our broker and on our files.

Each test is one run of a tool, for a virtual machine takes seconds to start.  The data comes
from confluent's client, which other tests have shown to work.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import ResourceType

from sharegroup.ids import (
    GroupId,
    SharePartitionKey,
    TopicId,
    group_partition,
    share_state_partition,
)
from tests.interop.transcripts import Terminal
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, chosen, sample
from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    admin,
    configs,
    create_topic,
    end_offset,
    produce,
    set_group,
    share_consumer,
    take_shared,
)
from tests.support.java_shell import SOURCES
from tests.support.kafka_tools import (
    SCRIPTS,
    formatted,
    newest_client,
    run_tool,
    run_tool_alone,
    why_missing,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
IS_KAFKA = chosen() == KAFKA
TRANSCRIPTS = sorted(SOURCES.glob("*.txt"))
of_our_files = pytest.mark.skipif(IS_KAFKA, reason="Kafka has files of its own")
STATE_FORMATTER = "group.share.ShareGroupStateMessageFormatter"
HUNDRED = [b"record %d" % number for number in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_output_of_the_tools_agrees_with_the_transcript(
    path: Path, bootstrap: str, tmp_path: Path
) -> None:
    Terminal(bootstrap, tmp_path, is_kafka=IS_KAFKA).play(path.read_text())


VERIFIABLE = "org.apache.kafka.tools.Verifiable"
NEWEST_CLIENT = [
    ("kafka-topics", "--create --topic {topic}", "Created topic {topic}."),
    ("kafka-topics", "--describe --topic {topic}", "Elr: \tLastKnownElr:"),
    ("kafka-get-offsets", "--topic {topic}", "{topic}:0:0"),
    ("kafka-configs", "--describe --entity-type topics --entity-name {topic}", "{topic} are:"),
    ("kafka-metadata-quorum", "describe --status", "LeaderId:               1"),
    ("kafka-features", "describe", "share.version"),
    ("kafka-share-groups", "--list", ""),
    ("kafka-client-metrics", "--list", ""),
    ("kafka-reassign-partitions", "--list", "No partition reassignments found."),
    (
        "kafka-leader-election",
        "--election-type preferred --topic {topic} --partition 0",
        "Valid replica already elected for partitions {topic}-0",
    ),
    ("kafka-topics", "--delete --topic {topic}", ""),
]
"""Tools of 4.3.1 that run with the client of 4.4.0, and a part of what they print."""


@LONG_WITH_A_JVM
def test_tools_run_with_the_newest_client(bootstrap: str, topic: str) -> None:
    """It speaks newer versions than the tools' own: ApiVersions 5 and DeleteGroups 3."""
    for script, arguments, expected in NEWEST_CLIENT:
        words = ["--bootstrap-server", bootstrap, *arguments.format(topic=topic).split()]
        printed = run_tool_alone(SCRIPTS[script], *words, first_jar=newest_client())
        assert expected.format(topic=topic) in printed, (script, arguments)


@LONG_WITH_A_JVM
def test_verifiable_producer_and_consumer_agree(bootstrap: str, topic: str, group: str) -> None:
    """The programs of Kafka's system tests: each event is a line of JSON."""
    create_topic(bootstrap, topic)
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    sent = events(VERIFIABLE + "Producer", *server, "--max-messages", "5", "--acks", "-1")
    acked = [event["offset"] for event in sent if event["name"] == "producer_send_success"]
    assert acked == [0, 1, 2, 3, 4]
    taken = events(
        VERIFIABLE + "Consumer",
        *(*server, "--group-id", group, "--max-messages", "5"),
        *("--reset-policy", "earliest"),
    )
    consumed = [event["count"] for event in taken if event["name"] == "records_consumed"]
    assert sum(consumed) == 5
    committed = [event for event in taken if event["name"] == "offsets_committed"]
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 5}]
    assert all(event["success"] for event in committed)


@pytest.mark.slow
@pytest.mark.parametrize("mode", sample(["sync", "auto", "async"]))
def test_verifiable_share_consumer_acknowledges_each_record(
    bootstrap: str, topic: str, group: str, mode: str
) -> None:
    """The program of Kafka's system tests for share groups, in its three modes."""
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, HUNDRED)
    taken = events(
        VERIFIABLE + "ShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group),
        *("--max-messages", str(len(HUNDRED)), "--acknowledgement-mode", mode),
        *("--offset-reset-strategy", "earliest", "--verbose"),
    )
    assert [event["name"] for event in taken if event["name"].endswith("_complete")] == [
        "startup_complete",
        "shutdown_complete",
    ]
    consumed = [event for event in taken if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in consumed) == len(HUNDRED)
    acknowledged = [event for event in taken if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    offsets = [
        offset
        for event in acknowledged
        for partition in event["partitions"]
        for offset in partition["offsets"]
    ]
    assert sorted(offsets) == list(range(len(HUNDRED)))
    values = [event["value"] for event in taken if event["name"] == "record_data"]
    assert sorted(values) == sorted(value.decode() for value in HUNDRED)


def events(main_class: str, *arguments: str) -> list[dict[str, Any]]:
    """What a verifiable program printed."""
    lines = run_tool_alone(main_class, *arguments).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_kafka_configs_sets_a_group_config(bootstrap: str, group: str) -> None:
    arguments = ["--alter", "--entity-type", "groups", "--entity-name", group]
    config = "share.auto.offset.reset=earliest,share.record.lock.duration.ms=20000"
    tool("kafka.admin.ConfigCommand", bootstrap, *arguments, "--add-config", config)
    described = configs(bootstrap, ResourceType.GROUP, group)
    assert described["share.auto.offset.reset"] == "earliest"
    assert described["share.record.lock.duration.ms"] == "20000"


def test_the_java_producer_writes_every_record(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    printed = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}"),
    )
    assert "5000 records sent" in printed
    assert end_offset(bootstrap, topic) == 5_000


def test_the_java_share_consumer_gets_every_record(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    printed = tool(
        "org.apache.kafka.tools.ShareConsumerPerformance",
        bootstrap,
        *("--topic", topic, "--group", group, "--num-records", "100"),
    )
    names, values = (line.split(", ") for line in printed.splitlines()[:2])
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == "100"


def test_kafka_share_groups_describes_start_and_lag(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        for message in take_shared(consumer, 100):
            if message.offset() < 60:
                consumer.acknowledge(message)
        consumer.commit_sync()
    printed = tool(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *(bootstrap, "--describe", "--group", group),
    )
    rows = [line.split() for line in printed.splitlines() if line.strip()]
    assert rows == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        [group, topic, "0", "60", "40"],
    ]


@of_our_files
def test_kafka_dump_log_reads_our_segments_and_indexes(
    bootstrap: str, data_directory: Path, topic: str
) -> None:
    create_topic(bootstrap, topic, config={"segment.bytes": "20000"})
    for _ in range(20):
        values = [b"x" * 100] * 10 + [topic.encode()]
        produce(bootstrap, topic, values, linger_ms=5_000, batch_num_messages=11)
    folder = folder_with(data_directory, topic.encode())
    segments = sorted(folder.glob("*.log"))
    assert len(segments) == 2, "the second segment begins at 20,000 bytes"
    files = [*segments, *sorted(folder.glob("*.index")), *sorted(folder.glob("*.timeindex"))]
    names = ",".join(str(path) for path in files)
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names)
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) .*isvalid: (\w+)", printed)
    # The producer asks for batches of eleven records, and on a slow machine makes smaller ones.
    firsts, lasts = [int(found[0]) for found in batches], [int(found[1]) for found in batches]
    assert firsts == [0, *(last + 1 for last in lasts[:-1])]
    assert lasts[-1] == 219
    assert {found[2] for found in batches} == {"true"}
    assert "Index Sanity check failed" not in printed
    assert "Found timestamp mismatch" not in printed


@of_our_files
def test_kafka_dump_log_reads_our_share_state_and_group_records(
    bootstrap: str, data_directory: Path, topic: str, group: str
) -> None:
    """Kafka's decoders name every field, so our records have Kafka's formats."""
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic) as consumer:
        take_shared(consumer, 100)
        consumer.commit_sync()
    logs = sorted(p for p in data_directory.rglob("*.log") if group.encode() in p.read_bytes())
    assert len(logs) == 2, "one of the share coordinator, one of the group coordinator"
    states, groups = "", ""
    for log in map(str, logs):
        dump = "org.apache.kafka.tools.DumpLogSegments"
        states += run_tool(dump, "--share-group-state-decoder", "--files", log)
        groups += run_tool(dump, "--offsets-decoder", "--files", log)
    assert re.findall(rf'"type":"(\d+)","data":{{"groupId":"{group}","topicId"', states)[0] == "0"
    assert '"startOffset":100' in states
    types = set(re.findall(rf'"type":"(\d+)","data":{{"groupId":"{group}"', groups))
    assert types == {"10", "11", "12", "13", "14", "15"}
    assert f'"subscribedTopicNames":["{topic}"]' in groups


def test_kafkas_formatters_read_the_records_of_a_share_group(
    bootstrap: str, topic: str, group: str
) -> None:
    """Half of the records are accepted; the group's own records and its share state, as JSON."""
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        for message in take_shared(consumer, 100):
            if message.offset() < 50:
                consumer.acknowledge(message)
        consumer.commit_sync()
        kept = of_group(
            *(group, bootstrap, "__consumer_offsets", "ShareGroupMessageFormatter"),
            partition=group_partition(GroupId(group), 50),
        )
        states = of_group(
            *(group, bootstrap, "__share_group_state", STATE_FORMATTER),
            partition=state_partition(bootstrap, group, topic),
        )
    assert {entry["key"]["type"] for entry in kept} == {10, 11, 12, 13, 14, 15}
    (member,) = [entry["value"]["data"] for entry in kept if entry["key"]["type"] == 10]
    assert member["subscribedTopicNames"] == [topic]
    assert member["clientHost"] == "/127.0.0.1"
    assert states[0]["key"]["type"] == 0, "a snapshot is the first of all"
    assert set(states[0]["value"]["data"]) >= {
        *("snapshotEpoch", "stateEpoch", "leaderEpoch", "startOffset"),
        *("createTimestamp", "writeTimestamp", "stateBatches"),
    }
    accepted = {"firstOffset": 0, "lastOffset": 49, "deliveryState": 2, "deliveryCount": 1}
    # Kafka writes the start offset of before the change; docs/differences.md.
    expected = (0, [accepted]) if IS_KAFKA else (50, [])
    data = [state["value"]["data"] for state in states]
    assert expected in [(entry["startOffset"], entry["stateBatches"]) for entry in data]


def of_group(group: str, *arguments: str, partition: int) -> list[dict[str, Any]]:
    records = formatted(*arguments, partition=partition)
    return [record for record in records if record["key"]["data"]["groupId"] == group]


def state_partition(bootstrap: str, group: str, topic: str) -> int:
    """Where the state of partition 0 is kept."""
    described = admin(bootstrap).describe_topics(TopicCollection([topic]))[topic]
    topic_id = str(described.result(WAIT_SECONDS_MAX).topic_id)
    uuid = UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
    return share_state_partition(SharePartitionKey(GroupId(group), TopicId(uuid), 0), 50)


def ready(bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, topic)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    produce(bootstrap, topic, HUNDRED, linger_ms=50)


def tool(main_class: str, bootstrap: str, *arguments: str) -> str:
    return run_tool(main_class, "--bootstrap-server", bootstrap, *arguments)


def folder_with(data_directory: Path, content: bytes) -> Path:
    """The one partition whose newest segment holds these bytes."""
    found = {path.parent for path in data_directory.rglob("*.log") if content in path.read_bytes()}
    assert len(found) == 1, f"{content!r} is in {found}"
    return found.pop()
