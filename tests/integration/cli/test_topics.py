"""``sharegroup topics`` against a broker."""

from __future__ import annotations

import pytest

from sharegroup.cli.main import main
from tests.integration.cli.conftest import Run


def test_created_topic_is_listed_with_its_partitions(run: Run) -> None:
    assert run("topics create listed --partitions 3").out == "created topic listed\n"
    (row,) = [row for row in run("topics list --json").rows if row["topic"] == "listed"]
    assert row["partitions"] == 3
    assert len(row["topic_id"]) == 22
    assert ["listed", "3", row["topic_id"]] in run("topics list").lines


def test_topic_is_created_with_default_partitions_and_given_configs(run: Run) -> None:
    assert run("topics create defaults --config retention.ms=60000").code == 0
    assert len(run("topics describe defaults --json").rows) == 2
    assert run("configs describe --topic defaults").lines_from("topic") == [
        ["NAME", "VALUE", "SOURCE"],
        ["retention.ms", "60000", "topic"],
    ]


def test_topics_of_sharegroup_are_internal(run: Run) -> None:
    # A name that dead letters could have, too.
    assert run("topics create __sharegroup.listed.dead --partitions 1").code == 0
    for verb in ("topics list --json", "topics describe --json", "dlq list --json"):
        assert not any(row["topic"].startswith("__sharegroup.") for row in run(verb).rows), verb
    (row,) = (
        row
        for row in run("topics list --json --internal").rows
        if row["topic"] == "__sharegroup.listed.dead"
    )
    assert row["internal"]
    (row,) = run("topics describe __sharegroup.listed.dead --json").rows
    assert row["partition"] == 0


def test_internal_option_lists_internal_topics(run: Run) -> None:
    internal = {"__consumer_offsets", "__share_group_state"}
    assert not internal & {row["topic"] for row in run("topics list --json").rows}
    assert internal <= {row["topic"] for row in run("topics list --json --internal").rows}


def test_existing_topic_is_a_failure_without_if_not_exists(run: Run) -> None:
    run("topics create twice")
    refused = run("topics create twice")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: TopicAlreadyExists: ")
    assert refused.err.endswith("add --if-not-exists to accept an existing topic\n")
    again = run("topics create twice --if-not-exists --json")
    assert (again.code, again.rows) == (0, {"topic": "twice", "created": False})


def test_description_has_a_line_for_each_partition(run: Run) -> None:
    run("topics create described --partitions 2")
    assert run("topics describe described").lines == [
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET"],
        ["described", "0", "1", "1", "1", "0", "0"],
        ["described", "1", "1", "1", "1", "0", "0"],
    ]


def test_unknown_topic_fails_with_advice(run: Run) -> None:
    refused = run("topics describe unknown")
    assert refused.code == 1
    assert refused.err == (
        "Error: UnknownTopicOrPartition: topic 'unknown' does not exist; "
        "list the topics with: sharegroup topics list\n"
    )


def test_topics_beside_an_unknown_one_are_described_all_the_same(run: Run) -> None:
    run("topics create beside --partitions 1")
    described = run("topics describe beside unknown --json")
    assert described.code == 1
    assert [row["topic"] for row in described.rows] == ["beside"]
    assert described.err.startswith(
        "Error: UnknownTopicOrPartition: topic 'unknown' does not exist"
    )


def test_topic_grows_and_never_shrinks(run: Run) -> None:
    run("topics create growing --partitions 2")
    assert run("topics alter growing --partitions 4").code == 0
    assert len(run("topics describe growing --json").rows) == 4
    refused = run("topics alter growing --partitions 3")
    assert refused.code == 1
    assert refused.err.startswith("Error: InvalidPartitions: topic 'growing'")


def test_topic_is_deleted_although_another_one_is_unknown(run: Run) -> None:
    run("topics create doomed")
    deleted = run("topics delete doomed unknown")
    assert (deleted.code, deleted.out) == (1, "deleted topic doomed\n")
    assert deleted.err.startswith("Error: UnknownTopicOrPartition: ")
    assert "topic 'unknown'" in deleted.err
    assert "doomed" not in run("topics list").out
    assert run("topics delete doomed --if-exists").code == 0


def test_json_output_of_a_deletion_has_the_result_of_each_topic(run: Run) -> None:
    run("topics create half")
    deleted = run("topics delete half unknown --json")
    assert (deleted.code, deleted.rows["deleted"]) == (1, ["half"])
    assert "topic 'unknown'" in deleted.rows["failed"]["unknown"]


def test_all_topics_are_described_when_none_is_named(run: Run) -> None:
    run("topics create one-of-all --partitions 1")
    rows = run("topics describe --json").rows
    assert {"topic": "one-of-all", "partition": 0} in [
        {"topic": row["topic"], "partition": row["partition"]} for row in rows
    ]
    internal = {"__consumer_offsets", "__share_group_state", "__transaction_state"}
    assert not internal & {row["topic"] for row in rows}


def test_options_of_kafka_topics_are_accepted(run: Run) -> None:
    made = run("topics --create --topic kafkas --partitions 1 --replication-factor 1")
    assert made.out == "created topic kafkas\n"
    assert run("topics --describe --topic kafkas").lines[1][:2] == ["kafkas", "0"]
    assert run("topics --list --exclude-internal").code == 0
    assert run("topics --alter --topic kafkas --partitions 2").code == 0
    assert run("topics --delete --topic kafkas").out == "deleted topic kafkas\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("create", "name one topic"),
        ("create a --topic b", "name one topic, not 2"),
        ("delete", "give at least one topic"),
        ("--list --describe", "give only one of --list and --describe"),
    ],
)
def test_misuse_exits_with_2_and_an_explanation(words: str, says: str, run: Run) -> None:
    refused = run(f"topics {words}")
    assert refused.code == 2
    assert says in refused.err


def test_malformed_config_is_a_misuse(run: Run) -> None:
    refused = run("topics create misused --config retention.ms")
    assert refused.code == 2
    assert "'retention.ms': expected KEY=VALUE" in refused.err


def test_unreachable_broker_is_named_with_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["topics", "list", "--timeout", "200", "--bootstrap", "127.0.0.1:1"])
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: no response from 127.0.0.1:1: ")
    assert error.endswith(
        "check that a broker listens there (sharegroup serve), or give another address with "
        "--bootstrap-server, SHAREGROUP_BOOTSTRAP or --profile\n"
    )
