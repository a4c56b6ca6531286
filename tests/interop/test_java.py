"""Apache Kafka's own Java clients and tools, against our broker and on our files.

Each test is one run of a tool, for a virtual machine takes seconds to start.  The data comes
from confluent's client, which other tests have shown to work.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from tests.confluent_calls import (
    configs,
    create_topic,
    end_offset,
    produce,
    set_group,
    share_consumer,
    take_shared,
)
from tests.interop.transcripts import Terminal
from tests.java_shell import SOURCES
from tests.kafka_tools import run_tool, why_missing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
IS_KAFKA = os.environ.get("SHAREGROUP_INTEROP") == "kafka"
TRANSCRIPTS = sorted(SOURCES.glob("*.txt"))
HUNDRED = [b"record %d" % number for number in range(100)]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_tools_print_what_the_transcript_says(path: Path, bootstrap: str, tmp_path: Path) -> None:
    Terminal(bootstrap, tmp_path, is_kafka=IS_KAFKA).play(path.read_text())


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


def test_kafka_dump_log_reads_our_segments_and_indexes(
    bootstrap: str, data_directory: Path, topic: str
) -> None:
    create_topic(bootstrap, topic, config={"segment.bytes": "20000"})
    for _ in range(20):
        produce(bootstrap, topic, [b"x" * 100] * 10 + [topic.encode()], linger_ms=50)
    folder = folder_with(data_directory, topic.encode())
    segments = sorted(folder.glob("*.log"))
    assert len(segments) == 2, "the second segment begins at 20,000 bytes"
    files = [*segments, *sorted(folder.glob("*.index")), *sorted(folder.glob("*.timeindex"))]
    names = ",".join(str(path) for path in files)
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names)
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) .*isvalid: (\w+)", printed)
    assert batches == [(str(11 * n), str(11 * n + 10), "true") for n in range(20)]
    assert "Index Sanity check failed" not in printed
    assert "Found timestamp mismatch" not in printed


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
