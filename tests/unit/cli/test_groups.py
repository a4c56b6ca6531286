"""``sharegroup groups`` against a broker, with a member that comes and goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.client import Producer, ShareConsumer
from tests.unit.cli.conftest import Run

RECORDS = 4


async def produce(bootstrap: str, topic: str) -> None:
    """Four records to partition 0, at times 1000, 2000, 3000 and 4000 ms."""
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(1, RECORDS + 1):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=number * 1_000)


async def consume(bootstrap: str, group: str, topic: str) -> int:
    """Accept everything that is there; how many records that was."""
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    async with ShareConsumer(topic, **options) as consumer:  # type: ignore[arg-type]
        count = 0
        while count < RECORDS:
            count += len(await consumer.poll(timeout=10))
        return count


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """A member of the group, on a thread of its own, while the context is open."""
    ready, stop = threading.Event(), threading.Event()

    async def stay() -> None:
        options = {"bootstrap_servers": bootstrap, "group_id": group, "client_id": "resident"}
        async with ShareConsumer(topic, **options) as consumer:  # type: ignore[arg-type]
            while not stop.is_set():
                await consumer.poll(timeout=0.05)
                if consumer.assignment:
                    ready.set()

    thread = threading.Thread(target=asyncio.run, args=(stay(),))
    thread.start()
    try:
        assert ready.wait(20), "the member got no assignment"
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def consumed(request: pytest.FixtureRequest, run: Run, bootstrap: str) -> str:
    """A topic and a group of one name, whose four records are all accepted."""
    name = request.node.name.removeprefix("test_")[:60]
    run(f"topics create {name} --partitions 1")
    run(f"configs alter --group {name} --set share.auto.offset.reset=earliest")
    asyncio.run(produce(bootstrap, name))
    assert asyncio.run(consume(bootstrap, name, name)) == RECORDS
    return name


def test_group_without_members_is_listed_as_empty(consumed: str, run: Run) -> None:
    row = {"group": consumed, "state": "Empty"}
    assert row in run("groups list --json").rows
    assert row in run("groups list --json --state empty").rows
    assert row not in run("groups list --json --state stable").rows


def test_consumed_group_stands_at_the_end_without_lag(consumed: str, run: Run) -> None:
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
    assert (row["client_id"], row["host"]) == ("resident", "127.0.0.1")
    assert (row["partitions"], row["assignment"]) == (1, f"{consumed}:0")
    assert (state["state"], state["members"]) == ("Stable", 1)


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


def test_group_with_members_is_refused_with_who_they_are(
    consumed: str, run: Run, bootstrap: str
) -> None:
    says = (
        f"Error: NonEmptyGroup: group '{consumed}' has the members resident@127.0.0.1; "
        "stop them and try again\n"
    )
    with member(bootstrap, consumed, consumed):
        for words in (
            f"delete {consumed}",
            f"delete-offsets {consumed} --topic {consumed}",
            f"reset-offsets {consumed} --topic {consumed} --to-earliest --execute",
        ):
            refused = run(f"groups {words}")
            assert (refused.code, refused.err) == (1, says), words


def test_forgotten_topic_is_no_longer_described(consumed: str, run: Run) -> None:
    assert run(f"groups delete-offsets {consumed} --topic {consumed}").code == 0
    assert run(f"groups describe {consumed} --json").rows == []


def test_deleted_group_is_gone(consumed: str, run: Run) -> None:
    assert run(f"groups delete {consumed}").out == f"deleted group {consumed}\n"
    assert consumed not in run("groups list").out
    refused = run(f"groups describe {consumed}")
    assert refused.code == 1
    assert refused.err.startswith("Error: GroupIdNotFound: group")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "reset-offsets g --to-earliest --execute",
            "name topics with --topic, or give --all-topics",
        ),
        ("reset-offsets g --all-topics --to-earliest", "say one of --dry-run and --execute"),
        (
            "reset-offsets g --all-topics --to-earliest --dry-run --execute",
            "say one of --dry-run and --execute",
        ),
        (
            "reset-offsets g --all-topics --execute",
            "say one of --to-earliest, --to-latest, --to-offset and --to-datetime",
        ),
        (
            "reset-offsets g --all-topics --execute --to-earliest --to-latest",
            "say one of --to-earliest, --to-latest, --to-offset and --to-datetime",
        ),
        ("reset-offsets g --all-topics --dry-run --to-datetime soon", "Invalid isoformat string"),
        ("describe", "name groups, or give --all-groups"),
        ("describe g --all-groups", "name groups, or give --all-groups"),
    ],
)
def test_misuse_is_told(words: str, says: str, run: Run) -> None:
    refused = run(f"groups {words}")
    assert refused.code == 2
    assert says in refused.err


def test_a_topic_named_twice_is_reset_in_all_the_partitions_named(run: Run) -> None:
    run("topics create thrice --partitions 3")
    words = "groups reset-offsets g --topic thrice:2 --topic thrice:0 --to-earliest --dry-run"
    assert [row["partition"] for row in run(f"{words} --json").rows] == [0, 2]


def test_reset_of_a_partition_that_is_not_there_names_those_that_are(run: Run) -> None:
    run("topics create two --partitions 2")
    refused = run("groups reset-offsets g --topic two:0,2 --to-earliest --dry-run")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "Error: topic 'two' has partitions 0 to 1; asked for [2]\n"
