"""``sharegroup groups reset-offsets`` against a broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sharegroup.cli.groups.reset_offsets import STEP_PARTITIONS
from sharegroup.testing import TestBroker, run_broker
from tests.integration.cli.conftest import RECORDS, Run, produce
from tests.integration.cli.piping import Piped, at, sharegroup
from tests.support.chosen_broker import KAFKA, chosen


def test_dry_run_shows_and_changes_nothing(consumed: str, run: Run) -> None:
    shown = run(f"groups reset-offsets {consumed} --all-topics --to-earliest --dry-run")
    assert shown.lines == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [consumed, consumed, "0", "0"],
    ]
    assert run(f"groups describe {consumed} --json").rows[0]["start_offset"] == 4


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("--to-earliest", 0),
        ("--to-latest", 4),
        ("--to-offset 2", 2),
        ("--to-offset 99", 4),
        ("--to-datetime 1970-01-01T00:00:02.500", 2),
        ("--to-datetime 1970-01-01T01:00:02.500+01:00", 2),
        ("--to-datetime 2100-01-01T00:00:00Z", 4),
        ("--to-offset 0", 0),
        ("--to-datetime 1969-12-31T23:59:59.999", 0),
        ("--by-duration PT1H", 4),
        ("--by-duration P1D", 4),
        ("--by-duration P99999DT0.5S", 0),
    ],
)
def test_reset_moves_the_start_offset(target: str, offset: int, run: Run, bootstrap: str) -> None:
    name = "reset-" + "".join(c for c in target if c.isalnum())
    run(f"topics create {name} --partitions 1")
    asyncio.run(produce(bootstrap, name))
    (row,) = run(f"groups reset-offsets {name} --topic {name}:0 {target} --execute --json").rows
    assert row["new_offset"] == offset
    (found,) = run(f"groups describe {name} --json").rows
    assert (found["start_offset"], found["lag"]) == (offset, RECORDS - offset)


def test_a_topic_named_twice_is_reset_in_all_the_partitions_named(run: Run) -> None:
    run("topics create thrice --partitions 3")
    words = "groups reset-offsets g --topic thrice:2 --topic thrice:0 --to-earliest --dry-run"
    assert [row["partition"] for row in run(f"{words} --json").rows] == [0, 2]


def test_error_for_an_unknown_partition_names_the_existing_ones(run: Run) -> None:
    run("topics create two --partitions 2")
    refused = run("groups reset-offsets g --topic two:0,2 --to-earliest --dry-run")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "Error: UnknownTopicOrPartition: topic 'two' has partitions 0 to 1; asked for 2; "
        "list the topics with: sharegroup topics list\n"
    )


def test_reset_to_current_keeps_the_start_offset_and_begins_unknown_partitions_at_the_end(
    consumed: str, run: Run, bootstrap: str
) -> None:
    run(f"groups reset-offsets {consumed} --topic {consumed} --to-offset 3 --execute")
    other = f"{consumed}-2"
    run(f"topics create {other} --partitions 1")
    asyncio.run(produce(bootstrap, other))
    words = f"groups reset-offsets {consumed} --topic {consumed} --topic {other}"
    rows = run(f"{words} --to-current --dry-run --json").rows
    assert [(row["topic"], row["new_offset"]) for row in rows] == [(consumed, 3), (other, 4)]


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("--to-earliest", 0),
        ("--to-latest", 4),
        ("--to-current", 3),
        ("--to-offset 2", 2),
        ("--to-datetime 1970-01-01T00:00:02.500", 2),
        ("--by-duration PT1H", 4),
        ("--shift-by -2", 1),
    ],
)
def test_reset_moves_the_committed_offset_of_a_consumer_group(
    target: str, offset: int, run: Run, bootstrap: str
) -> None:
    name = "resets-" + "".join(c for c in target if c.isalnum())
    run(f"topics create {name} --partitions 1")
    asyncio.run(produce(bootstrap, name))
    words = f"groups reset-offsets {name} --topic {name}"
    assert run(f"{words} --type consumer --to-offset 3 --execute").code == 0
    (row,) = run(f"{words} {target} --execute --json").rows
    assert (row["old_offset"], row["new_offset"]) == (3, offset)
    (found,) = run(f"groups describe {name} --json").rows
    assert (found["current_offset"], found["lag"]) == (offset, RECORDS - offset)


def test_reset_refuses_a_group_of_another_type_than_told(consumed: str, run: Run) -> None:
    words = f"groups reset-offsets {consumed} --all-topics --to-earliest --execute --type consumer"
    refused = run(words)
    assert refused.code == 1
    assert f"group '{consumed}' is a share group, not a consumer group" in refused.err
    assert run(f"groups describe {consumed} --json").rows[0]["start_offset"] == 4


def test_shift_is_relative_to_the_start_offset(consumed: str, run: Run) -> None:
    words = f"groups reset-offsets {consumed} --all-topics --json --execute"
    assert run(f"{words} --shift-by -3").rows == [
        {
            "group": consumed,
            "topic": consumed,
            "partition": 0,
            "old_offset": 4,
            "new_offset": 1,
        }
    ]
    (back,) = run(f"{words} --shift-by 2").rows
    assert (back["old_offset"], back["new_offset"]) == (1, 3)


def test_partly_failed_plan_changes_no_offset(consumed: str, run: Run) -> None:
    other = f"{consumed}-2"
    run(f"topics create {other} --partitions 1")
    words = f"groups reset-offsets {consumed} --topic {consumed} --topic {other}"
    refused = run(f"{words} --shift-by -1 --execute")
    assert refused.code == 1
    assert "the group has not started" in refused.err
    assert run(f"groups describe {consumed} --json").rows[0]["start_offset"] == 4


def test_exported_plan_can_be_executed(consumed: str, run: Run, tmp_path: Path) -> None:
    words = f"groups reset-offsets {consumed}"
    plan = run(f"{words} --all-topics --to-offset 1 --export --dry-run").out
    assert plan == f"{consumed},0,1\n"
    file = tmp_path / "plan.csv"
    file.write_text(plan)
    carried_out = run(f"{words} --execute --from-file", str(file))
    assert carried_out.lines[1:] == [[consumed, consumed, "0", "1"]]
    assert run(f"groups describe {consumed} --json").rows[0]["start_offset"] == 1


def test_offset_beyond_the_log_is_limited_to_its_end(
    consumed: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(f"{consumed},0,99\n")
    words = f"groups --reset-offsets --group {consumed} --execute --json --from-file"
    assert run(words, str(file)).rows[0]["new_offset"] == 4


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("orders,0", "line 2: expected topic,partition,offset, got 'orders,0'"),
        ("orders,0,-5", "line 2: expected topic,partition,offset, got 'orders,0,-5'"),
        ("first,0,7", "line 2: topic 'first' partition 0 is named twice"),
    ],
)
def test_unreadable_plan_is_refused_with_its_line(
    line: str, says: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(f"first,0,1\n{line}\n")
    refused = run("groups reset-offsets g --dry-run --from-file", str(file))
    assert refused.code == 2
    assert says in refused.err


def test_file_that_is_no_text_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(b"\xff\xfe\x00")
    refused = run("groups reset-offsets g --dry-run --from-file", str(file))
    assert refused.code == 2
    assert str(file) in "".join(refused.err.split())


def test_plan_for_an_unknown_topic_fails(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("no-such-topic,0,1\n")
    refused = run("groups reset-offsets g --dry-run --from-file", str(file))
    assert refused.code == 1
    assert refused.err.startswith("Error: UnknownTopicOrPartition: ")
    assert "'no-such-topic'" in refused.err


SCOPES = "give one of --topic, --all-topics and --from-file"
SCENARIOS = (
    "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
    "--by-duration, --shift-by and --from-file"
)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("g --to-earliest --execute", SCOPES),
        ("g --topic t --all-topics --to-earliest --execute", SCOPES),
        ("g --all-topics --to-earliest", "give one of --dry-run and --execute"),
        ("g --all-topics --to-earliest --dry-run --execute", "give one of --dry-run and --execute"),
        ("g --all-topics --execute", SCENARIOS),
        ("g --all-topics --execute --to-earliest --to-latest", SCENARIOS),
        ("g --all-topics --execute --to-offset 0 --to-current", SCENARIOS),
        ("g --all-topics --dry-run --to-datetime soon", "'soon': expected YYYY-MM-DDThh:mm:ss"),
        ("g --all-topics --dry-run --by-duration 2h", "'2h': expected PnDTnHnMnS"),
        ("g --all-topics --dry-run --by-duration P", "'P': expected PnDTnHnMnS"),
        ("g --all-topics --dry-run --by-duration P9999999999D", "'P9999999999D': "),
        ("g --topic t:first --dry-run --to-latest", "'t:first': expected TOPIC or TOPIC:0,1,..."),
        (
            "g --all-topics --dry-run --to-latest --export --json",
            "give only one of --export and --json",
        ),
        ("--all-topics --dry-run --to-latest", "name one group"),
        ("g h --all-topics --dry-run --to-latest", "name one group, not 2"),
    ],
)
def test_misuse_exits_with_2_and_an_explanation(words: str, says: str, run: Run) -> None:
    refused = run(f"groups reset-offsets {words}")
    assert refused.code == 2
    assert says in refused.err


PARTITIONS = STEP_PARTITIONS + 2
LAST = PARTITIONS - 1


def reset_many(broker: TestBroker, *words: str) -> Piped:
    """Reset all partitions of a topic, which takes two steps."""
    where = broker.bootstrap_servers
    sharegroup(*at(where, f"topics create wide --partitions {PARTITIONS}"))
    command = "groups reset-offsets g --topic wide --to-latest --execute"
    return sharegroup(*at(where, command), *words)


@pytest.mark.skipif(chosen() == KAFKA, reason="a broker of ours with faults")
@pytest.mark.parametrize("form", ["--json", "--export"])
def test_partitions_that_were_reset_are_printed_when_a_later_step_fails(form: str) -> None:
    """They stay reset; before, nothing was printed but the error."""
    with run_broker() as broker:
        broker.fail(
            "AlterShareGroupOffsets",
            error="GROUP_AUTHORIZATION_FAILED",
            topic="wide",
            partition=LAST,
        )
        done = reset_many(broker, form)
    expected = [("wide", number) for number in range(STEP_PARTITIONS)]
    if form == "--json":
        found = [(row["topic"], row["partition"]) for row in json.loads(done.out)]
    else:
        lines = [line.split(",") for line in done.out.decode().splitlines()]
        found = [(topic, int(number)) for topic, number, _ in lines]
    assert (done.code, found) == (1, expected)
    first, second = done.err.splitlines()
    assert first.startswith(f"sharegroup: only these {STEP_PARTITIONS} partitions are known to be")
    assert second.startswith("Error: GroupAuthorizationFailed: ")


@pytest.mark.skipif(chosen() == KAFKA, reason="a broker of ours with faults")
def test_partitions_that_were_reset_are_printed_beside_one_that_is_refused() -> None:
    with run_broker() as broker:
        broker.fail(
            "AlterShareGroupOffsets", error="OFFSET_OUT_OF_RANGE", topic="wide", partition=LAST
        )
        done = reset_many(broker, "--json")
    assert [row["partition"] for row in json.loads(done.out)] == list(range(LAST))
    assert (done.code, done.err.startswith("Error: OffsetOutOfRange: ")) == (1, True)
