"""``sharegroup groups`` against a broker, with a member that comes and goes."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import RECORDS, Run, consumer, member, set_up
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.confluent_calls import produce, share_consumer, take_shared

only_ours = pytest.mark.skipif(chosen() == KAFKA, reason="Apache Kafka cannot pause a share group")


def test_group_without_members_is_listed_as_empty(consumed: str, run: Run) -> None:
    row = {"group": consumed, "type": "share", "protocol": "share", "state": "Empty"}
    assert row in run("groups list --json").rows
    assert row in run("groups list --json --state empty,stable --type share").rows
    assert row not in run("groups list --json --state stable").rows
    assert row not in run("groups list --json --type consumer").rows
    assert [consumed, "share", "share", "Empty"] in run("groups --list --state").lines


def test_groups_are_listed_by_kafkas_filters(consumed: str, run: Run) -> None:
    words = f"--type consumer --topic {consumed} --to-earliest --execute"
    assert run(f"groups reset-offsets offsets-alone {words}").code == 0

    def listed(filters: str) -> set[str]:
        return {row["group"] for row in run(f"groups list --json {filters}").rows}

    both = {consumed, "offsets-alone"}
    assert listed("") & both == both
    assert listed("--share") & both == {consumed}
    assert listed("--protocol share") & both == {consumed}
    assert listed("--consumer --state Empty") & both == {"offsets-alone"}
    assert listed("--protocol consumer") & both == set(), "it has no protocol yet"
    assert listed("--protocol connect") == set()


def test_consumed_group_is_at_the_log_end_without_lag(consumed: str, run: Run) -> None:
    assert run(f"groups describe {consumed}").lines == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        [consumed, consumed, "0", "4", "0"],
    ]


def test_members_are_described_with_their_partitions(
    consumed: str, run: Run, bootstrap: str
) -> None:
    with member(bootstrap, consumed, consumed):
        (row,) = run(f"groups describe {consumed} --members --json").rows
        (state,) = run(f"groups describe {consumed} --state --json").rows
        lines = run(f"groups --describe --group {consumed} --members --verbose").lines
    assert (row["client_id"], row["host"]) == ("resident", "/127.0.0.1")
    assert (row["partitions"], row["assignment"]) == (1, {consumed: [0]})
    assert (state["state"], state["members"]) == ("Stable", 1)
    assert state["coordinator"] == f"{bootstrap} (1)"
    epoch = str(row["member_epoch"])
    assert lines == [
        "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS MEMBER-EPOCH ASSIGNMENT".split(),
        [consumed, row["consumer_id"], "/127.0.0.1", "resident", "1", epoch, f"{consumed}:0"],
    ]


def test_error_for_a_group_with_members_names_them(consumed: str, run: Run, bootstrap: str) -> None:
    says = (
        f"Error: NonEmptyGroup: group '{consumed}' has the members resident@/127.0.0.1; "
        "stop the members and try again\n"
    )
    with member(bootstrap, consumed, consumed):
        for words in (
            f"delete {consumed}",
            f"delete-offsets {consumed} --topic {consumed}",
            f"reset-offsets {consumed} --topic {consumed} --to-earliest --execute",
            f"reset-offsets {consumed} --topic {consumed} --to-earliest --dry-run",
        ):
            refused = run(f"groups {words}")
            assert (refused.code, refused.err) == (1, says), words


def test_forgotten_topic_is_no_longer_described(consumed: str, run: Run) -> None:
    assert run(f"groups delete-offsets {consumed} --topic {consumed}").lines == [
        ["TOPIC", "STATUS"],
        [consumed, "Successful"],
    ]
    assert run(f"groups describe {consumed} --json").rows == []


def test_deleted_group_is_not_listed(consumed: str, run: Run) -> None:
    assert run(f"groups delete {consumed}").out == f"deleted group {consumed}\n"
    assert consumed not in run("groups list").out
    refused = run(f"groups describe {consumed}")
    assert refused.code == 1
    assert refused.err.startswith("Error: GroupIdNotFound: there is no group")


def test_groups_beside_an_unknown_one_are_described_all_the_same(consumed: str, run: Run) -> None:
    described = run(f"groups describe nobody {consumed} --state")
    assert described.code == 1
    assert [line[0] for line in described.lines] == ["GROUP", consumed]
    assert described.err.startswith("Error: GroupIdNotFound: there is no group 'nobody'")


def test_line_break_in_a_group_id_is_escaped(run: Run) -> None:
    run("topics create broken-line --partitions 1")
    words = "groups reset-offsets --topic broken-line --to-latest --execute --group"
    assert run(words, "two\nlines").lines[1][0] == "two\\nlines"
    assert "two\\nlines" in [line[0] for line in run("groups list").lines]
    assert run("groups delete", "two\nlines").out == "deleted group two\\nlines\n"


def test_all_groups_are_described(consumed: str, run: Run) -> None:
    rows = run("groups --describe --all-groups --state --json").rows
    assert consumed in [row["group"] for row in rows]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_group_is_described_with_its_lag_and_members(
    bootstrap: str, run: Run, protocol: str
) -> None:
    topic, group = f"lagging-{protocol}", f"reads-{protocol}"
    set_up(bootstrap, topic)
    with consumer(bootstrap, group, topic, commit=3, protocol=protocol):
        (row,) = run(f"groups describe {group} --json").rows
        (one,) = run(f"groups describe {group} --members --json").rows
        (state,) = run(f"groups describe {group} --state --json").rows
        mixed = run(f"groups describe {group} {topic}")
    assert row.pop("consumer_id") == one["consumer_id"]
    assert row.pop("host").endswith("127.0.0.1")
    assert row == {
        "group": group, "topic": topic, "partition": 0, "leader_epoch": row["leader_epoch"],
        "current_offset": 3, "log_end_offset": RECORDS, "lag": 1, "client_id": "reader",
    }  # fmt: skip
    assert (one["client_id"], one["assignment"]) == ("reader", {topic: [0]})
    assert (state["state"], state["members"]) == ("Stable", 1)
    assert mixed.code == 2
    assert "describe them separately" in mixed.err
    heads, cells = run(f"groups --describe --group {group}").lines
    assert heads == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert cells == [group, topic, "0", "3", str(RECORDS), "1", "-", "-", "-"], (
        "the member has left"
    )
    rows = run(f"groups describe --all-groups --type {protocol} --json").rows
    assert group in [found["group"] for found in rows]
    assert topic not in [found["group"] for found in rows], "that is a share group"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_group_with_members_is_refused_and_one_without_is_changed(
    bootstrap: str, run: Run, protocol: str
) -> None:
    topic, group = f"settled-{protocol}", f"settles-{protocol}"
    set_up(bootstrap, topic)
    reset = f"reset-offsets {group} --all-topics"
    with consumer(bootstrap, group, topic, commit=3, protocol=protocol):
        for words in (
            f"delete {group}",
            f"delete-offsets {group} --topic {topic}",
            f"{reset} --to-earliest --dry-run",
        ):
            refused = run(f"groups {words}")
            assert refused.code == 1, words
            assert f"group '{group}' has the members reader@/127.0.0.1; stop the" in (
                refused.err.replace("@127", "@/127")
            ), words
    (moved,) = run(f"groups {reset} --shift-by -1 --execute --json").rows
    assert (moved["old_offset"], moved["new_offset"]) == (3, 2)
    assert run(f"groups describe {group} --json").rows[0]["current_offset"] == 2
    assert run(f"groups delete-offsets {group} --topic {topic}:0").lines == [
        ["TOPIC", "PARTITION", "STATUS"],
        [topic, "0", "Successful"],
    ]
    assert run(f"groups delete {group}").out == f"deleted group {group}\n"
    assert group not in run("groups list").out


def test_offsets_that_a_consumer_group_does_not_have_are_named(bootstrap: str, run: Run) -> None:
    set_up(bootstrap, "known-offsets")
    words = "--type consumer --topic known-offsets --to-offset 2 --execute"
    run(f"groups reset-offsets knows-offsets {words}")
    refused = run("groups delete-offsets knows-offsets --topic nope:3 --topic known-offsets")
    error = "topic 'nope' partition 3: group 'knows-offsets' has no offset there to delete"
    assert (refused.code, refused.lines[1:]) == (
        1,
        [["known-offsets", "0", "Successful"], ["nope", "3", "Error:", *error.split()]],
    )
    assert refused.err.startswith(f"Error: UnknownTopicOrPartition: {error}; ")


def test_partition_of_a_share_group_keeps_its_offset(consumed: str, run: Run) -> None:
    refused = run(f"groups delete-offsets {consumed} --topic {consumed}:0")
    assert refused.code == 1
    assert "deleted for whole topics: give --topic TOPIC without partitions" in refused.err
    assert run(f"groups describe {consumed} --json").rows[0]["start_offset"] == RECORDS


def test_every_group_of_one_type_is_deleted(consumed: str, bootstrap: str, run: Run) -> None:
    words = f"--type consumer --topic {consumed} --to-earliest --execute"
    for number in (1, 2):
        assert run(f"groups reset-offsets mass-{number} {words}").code == 0
    deleted = run("groups delete --all-groups --type classic --json").rows["deleted"]
    assert {"mass-1", "mass-2"} <= set(deleted)
    assert consumed not in deleted, "that is a share group"


def test_lag_of_a_deleted_topic_is_unknown(bootstrap: str, run: Run) -> None:
    set_up(bootstrap, "short-lived")
    set_up(bootstrap, "remains")
    with consumer(bootstrap, "reads-both", "short-lived", "remains", commit=1):
        pass
    run("topics delete short-lived")
    rows = run("groups describe reads-both --json").rows
    assert [(row["topic"], row["lag"]) for row in rows if row["topic"] == "remains"] == [
        ("remains", 3)
    ]
    assert all(row["lag"] is None for row in rows if row["topic"] == "short-lived")


def test_json_output_of_a_deletion_has_the_result_of_each_group(consumed: str, run: Run) -> None:
    deleted = run(f"groups delete {consumed} nobody --json")
    assert deleted.code == 1
    assert deleted.rows == {
        "deleted": [consumed],
        "failed": {"nobody": "there is no group 'nobody'"},
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("delete", "give group names or --all-groups"),
        ("delete g --type classic", "--type is for --all-groups"),
        ("delete-offsets --topic t", "name one group"),
        ("list --state stabel", "'stabel': expected Empty, Stable, Dead, "),
        ("list --share --type consumer", "--share excludes --type and --protocol"),
        ("list --consumer --protocol consumer", "--consumer excludes --type and --protocol"),
        ("list --type queue", "'queue': expected share, consumer, classic, streams"),
        ("describe", "give group names or --all-groups"),
        ("describe g --all-groups", "give group names or --all-groups"),
        ("describe g --type consumer", "--type is for --all-groups"),
    ],
)
def test_misuse_exits_with_2_and_an_explanation(words: str, says: str, run: Run) -> None:
    refused = run(f"groups {words}")
    assert refused.code == 2
    assert says in refused.err


@only_ours
def test_paused_group_receives_nothing_until_it_is_resumed(
    consumed: str, run: Run, bootstrap: str
) -> None:
    assert run(f"groups pause {consumed}").out == f"paused group {consumed}\n"
    settings = run(f"configs describe --group {consumed} --json").rows
    assert [row["value"] for row in settings if row["name"] == "sharegroup.paused"] == ["true"]
    told = f"sharegroup: group {consumed!r} is paused and delivers no records; "
    assert run(f"groups describe {consumed} --state --json").err.startswith(told)
    produce(bootstrap, consumed, [b"more"])
    with share_consumer(bootstrap, consumed, consumed) as reader:
        assert len(reader.poll(1.0)) == 0
        assert run(f"groups resume {consumed}").out == f"resumed group {consumed}\n"
        assert [message.value() for message in take_shared(reader, 1)] == [b"more"]


@only_ours
def test_group_that_is_unknown_can_be_paused_before_it_starts(run: Run) -> None:
    result = run("groups pause not-started-yet --json")
    assert result.rows == {"paused": ["not-started-yet"], "failed": {}}
    assert "group 'not-started-yet' does not exist yet" in result.err


@pytest.mark.skipif(chosen() != KAFKA, reason="our broker pauses share groups")
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_apache_kafka_pauses_no_group_and_the_verbs_say_so(
    verb: str, consumed: str, run: Run
) -> None:
    refused = run(f"groups {verb} {consumed}")
    assert (refused.code, refused.out) == (1, "")
    assert "this broker has no setting sharegroup.paused" in refused.err
    assert "Apache Kafka cannot pause a share group: stop its members instead" in refused.err
    failed = run(f"groups {verb} {consumed} --json").rows["failed"]
    assert list(failed) == [consumed]


def test_consumer_group_cannot_be_paused(consumed: str, run: Run) -> None:
    words = f"--type consumer --topic {consumed} --to-earliest --execute"
    assert run(f"groups reset-offsets readers {words}").code == 0
    result = run("groups pause readers")
    assert (result.code, result.out) == (1, "")
    assert "group 'readers' is a consumer group; only share groups can be paused" in result.err
