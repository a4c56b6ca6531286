"""``sharegroup topics`` and ``configs`` beside Kafka's own tools; see `conftest` for the broker."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sharegroup.cli.main import main
from tests.integration.cli.conftest import Printed
from tests.support.confluent_calls import produce
from tests.support.kafka_tools import run_tool, why_missing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]

Run = Callable[..., Printed]


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_words(words: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main([*words.split(), "--bootstrap-server", bootstrap])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


def test_topic_is_described_equally_by_kafkas_tool(bootstrap: str, topic: str, run: Run) -> None:
    made = run(
        f"topics --create --topic {topic} --partitions 2 --replication-factor 1 "
        "--config retention.ms=60000"
    )
    assert (made.code, made.out) == (0, f"created topic {topic}\n")
    assert run(f"topics alter {topic} --partitions 3").code == 0
    arguments = ("--bootstrap-server", bootstrap, "--describe", "--topic", topic)
    printed = run_tool("org.apache.kafka.tools.TopicCommand", *arguments)
    (row,) = [row for row in run("topics list --json").rows if row["topic"] == topic]
    assert re.search(r"TopicId: (\S+)", printed)[1] == row["topic_id"]  # type: ignore[index]
    theirs = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)", printed)
    assert theirs == [
        (cells[1], cells[2], cells[3], cells[4])
        for cells in run(f"topics describe {topic}").lines[1:]
    ]
    assert "retention.ms=60000" in printed


def test_records_are_deleted_below_an_offset(bootstrap: str, topic: str, run: Run) -> None:
    run(f"topics create {topic} --partitions 1")
    produce(bootstrap, topic, [b"x"] * 5)
    assert run(f"topics delete-records --topic {topic} --before 2 --json").rows == [
        {"topic": topic, "partition": 0, "low_watermark": 2}
    ]
    (row,) = run(f"topics describe {topic} --json").rows
    assert (row["start_offset"], row["end_offset"]) == (2, 5)
    refused = run(f"topics delete-records --topic {topic} --before 6")
    assert refused.code == 1
    assert refused.err.startswith("Error: OffsetOutOfRange: ")
    assert run(f"topics delete {topic}").out == f"deleted topic {topic}\n"


def test_group_config_is_described_equally_by_kafkas_tool(
    bootstrap: str, group: str, run: Run
) -> None:
    entity = f"--entity-type groups --entity-name {group}"
    changes = "share.auto.offset.reset=earliest,share.record.lock.duration.ms=20000"
    assert run(f"configs --alter {entity} --add-config {changes}").code == 0
    arguments = ("--bootstrap-server", bootstrap, "--describe", *entity.split())
    printed = run_tool("kafka.admin.ConfigCommand", *arguments)
    theirs = dict(re.findall(r"^\s+(\S+?)=(\S*) sensitive", printed, re.MULTILINE))
    rows = run(f"configs describe --group {group} --json").rows_from("group")
    assert {row["name"]: row["value"] for row in rows} == theirs
    assert theirs == {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "20000",
    }


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("topics describe {topic}", "UnknownTopicOrPartition: topic '{topic}'"),
        ("topics delete {topic}", "UnknownTopicOrPartition: "),
        ("groups describe {topic}", "GroupIdNotFound: there is no group '{topic}'"),
        ("groups delete {topic}", "GroupIdNotFound: there is no group '{topic}'"),
        ("configs describe --topic {topic}", "UnknownTopicOrPartition: "),
        ("configs alter --group {topic} --set share.nope=1", "InvalidConfig: group '{topic}'"),
    ],
)
def test_error_names_the_missing_resource_and_the_next_step(
    words: str, error: str, topic: str, run: Run
) -> None:
    refused = run(words.format(topic=topic))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"Error: {error.format(topic=topic)}")
    assert "; list the " in refused.err
