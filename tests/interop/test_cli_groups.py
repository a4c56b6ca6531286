"""``sharegroup groups`` beside Kafka's own ``kafka-share-groups.sh``, on our broker and on Kafka.

Both tools describe the same group at the same moment, and cell by cell they must say the same:
people and scripts that know one know the other.  A tool of Kafka's takes seconds to start, so
those whose answers don't depend on each other run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from sharegroup.cli.main import main
from tests.integration.cli.conftest import Printed
from tests.support import confluent_calls, kafka_peer, kafka_tools
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    create_topic,
    produce,
    set_group,
    share_consumer,
    take_shared,
)
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_tools import run_tool

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        kafka_tools.why_missing() is not None, reason=str(kafka_tools.why_missing())
    ),
]

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
DONE, TO_DO = 5, 3
"""Records of each partition."""

Rows = list[list[str]]
Run = Callable[..., Printed]


class Scene(NamedTuple):
    """A share group with one member and something to do in two topics."""

    group: str
    orders: str
    refunds: str


@pytest.fixture(scope="module", params=["sharegroup", pytest.param("kafka", marks=LONG_WITH_A_JVM)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a broker: ours, and then a real Apache Kafka."""
    if request.param == "sharegroup":
        yield request.getfixturevalue("bootstrap")
        return
    if kafka_peer.why_missing() is not None:
        pytest.skip(str(kafka_peer.why_missing()))
    with KafkaPeer(tmp_path_factory.mktemp("cli"), heap="512m") as kafka:
        yield kafka.bootstrap_servers
        confluent_calls.admin.cache_clear()


@pytest.fixture(scope="module")
def scene(cluster: str) -> Iterator[Scene]:
    group, orders, refunds = "cli.billing", "cli.orders", "cli.refunds"
    create_topic(cluster, orders, partitions=2)
    create_topic(cluster, refunds)
    set_group(cluster, group, auto_offset_reset="earliest")
    partitions = ((orders, 0), (orders, 1), (refunds, 0))
    for topic, partition in partitions:
        produce(cluster, topic, [b"x"] * DONE, partition=partition)
    member = share_consumer(cluster, group, orders, client_id="resident")
    member.subscribe([orders, refunds])
    take_shared(member, 3 * DONE)
    member.commit_sync()
    for topic, partition in partitions:
        produce(cluster, topic, [b"x"] * TO_DO, partition=partition)
    yield Scene(group, orders, refunds)
    member.close()


@pytest.fixture
def run(cluster: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_words(words: str) -> Printed:
        with pytest.raises(SystemExit) as end:
            main([*words.split(), "--bootstrap-server", cluster])
        printed = capsys.readouterr()
        return Printed(int(end.value.code or 0), printed.out, printed.err)

    return run_words


def kafkas(cluster: str, *lines: str) -> list[Rows]:
    """What Kafka's tool prints for each of these lines of options, cell by cell."""

    def rows(line: str) -> Rows:
        printed = run_tool(SHARE_GROUPS, "--bootstrap-server", cluster, *line.split())
        return [text.split() for text in printed.splitlines() if text.strip()]

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(rows, lines))


def in_any_order(rows: Sequence[list[str]]) -> list[list[str]]:
    return [rows[0], *sorted(rows[1:])]


def test_descriptions_are_kafkas_cell_by_cell(cluster: str, scene: Scene, run: Run) -> None:
    described = f"--describe --group {scene.group}"
    lines = [
        described,
        f"{described} --offsets --verbose",
        f"{described} --members --verbose",
        f"{described} --state --verbose",
    ]
    for line, expected in zip(lines, kafkas(cluster, *lines), strict=True):
        assert run(f"groups {line}").lines == expected, line
    # Only the lag: the start offset that Kafka lists trails until the next write.
    rows = run(f"groups describe {scene.group} --json").rows
    assert [(row["topic"], row["partition"], row["lag"]) for row in rows] == [
        (scene.orders, 0, 3),
        (scene.orders, 1, 3),
        (scene.refunds, 0, 3),
    ]
    assert run(f"groups describe {scene.group} --members").lines[1][4:] == [
        "3",
        f"{scene.orders}:0,1;{scene.refunds}:0",
    ]


def test_list_of_share_groups_is_kafkas(cluster: str, scene: Scene, run: Run) -> None:
    (expected,) = kafkas(cluster, "--list --state Stable")
    ours = [
        [row["group"], row["state"]]
        for row in run("groups --list --state stable --type share --json").rows
    ]
    assert [scene.group, "Stable"] in ours
    assert ours == sorted(expected[1:])


def test_group_with_a_member_is_refused_by_name(scene: Scene, run: Run) -> None:
    group, topic = scene.group, scene.orders
    for words in (
        f"--delete --group {group}",
        f"--delete-offsets --group {group} --topic {topic}",
        f"--reset-offsets --group {group} --topic {topic} --to-earliest --execute",
    ):
        refused = run(f"groups {words}")
        assert refused.code == 1, words
        assert refused.err.startswith(f"Error: NonEmptyGroup: group '{group}' has the members ")
        assert "resident@" in refused.err
        assert refused.err.endswith("; stop the members and try again\n")


def test_empty_group_is_reset_and_forgotten_as_by_kafkas_tool(cluster: str, run: Run) -> None:
    """A reset makes the group; then each tool sees what the other has done."""
    group, orders, refunds = "cli.left", "cli.left.orders", "cli.left.refunds"
    for topic in (orders, refunds):
        create_topic(cluster, topic)
        produce(cluster, topic, [b"x"] * DONE)
    reset = f"--reset-offsets --group {group}"
    topics = f"--topic {orders} --topic {refunds}"
    assert run(f"groups {reset} {topics} --to-offset 2 --execute").lines == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, orders, "0", "2"],
        [group, refunds, "0", "2"],
    ]
    lines = [
        f"--describe --group {group}",
        f"{reset} --all-topics --to-latest --dry-run",
        f"{reset} --all-topics --to-datetime 2001-01-01T00:00:00.000 --dry-run",
    ]
    for line, expected in zip(lines, kafkas(cluster, *lines), strict=True):
        assert in_any_order(run(f"groups {line}").lines) == in_any_order(expected), line
    rows = run(f"groups {reset} --all-topics --to-current --dry-run --json").rows
    assert [row["new_offset"] for row in rows] == [2, 2]

    forget = f"--delete-offsets --group {group} --topic"
    (theirs,) = kafkas(cluster, f"{forget} {refunds}")
    assert theirs == [["TOPIC", "STATUS"], [refunds, "Successful"]]
    assert run(f"groups {forget} {orders}").lines == [["TOPIC", "STATUS"], [orders, "Successful"]]
    assert run(f"groups describe {group} --json").rows == []
    assert run(f"groups delete {group}").out == f"deleted group {group}\n"
    assert group not in run("groups list").out


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_group_is_changed_by_its_name_and_not_with_all_share_groups(
    protocol: str, cluster: str, run: Run
) -> None:
    group, topic = f"cli.{protocol}", f"cli.topic.{protocol}"
    create_topic(cluster, topic)
    consume_once(cluster, group, topic, protocol)
    row = {"group": group, "type": protocol, "protocol": "consumer", "state": "Empty"}
    assert row in run("groups list --json").rows
    assert row in run(f"groups list --type {protocol} --json").rows
    assert row not in run("groups list --type share --json").rows
    (offset,) = run(f"groups describe {group} --json").rows
    assert (offset["current_offset"], offset["log_end_offset"], offset["lag"]) == (1, 1, 0)
    assert run(f"groups describe {group} --members").out == "There are no members to show.\n"
    reset = f"groups reset-offsets {group} --topic {topic} --to-earliest"
    refused = run(f"{reset} --execute --type share")
    assert (refused.code, refused.out) == (1, "")
    assert f"group '{group}' is a {protocol} group, not a share group" in refused.err
    run("groups delete --all-groups")
    assert row in run("groups list --json").rows, "that is for share groups"
    assert run(f"{reset} --dry-run --json").rows[0]["new_offset"] == 0
    assert run(f"groups describe {group} --json").rows == [offset]
    assert run(f"{reset} --execute --json").rows[0]["old_offset"] == 1
    assert run(f"groups describe {group} --json").rows[0]["current_offset"] == 0
    assert run(f"groups delete-offsets {group} --topic {topic} --json").rows == [
        {"group": group, "topic": topic, "partition": 0, "status": "Successful"}
    ]
    assert run(f"groups delete {group}").out == f"deleted group {group}\n"


def consume_once(cluster: str, group: str, topic: str, protocol: str) -> None:
    """Join a group that is none of ours, commit an offset and leave."""
    produce(cluster, topic, [b"x"])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, WAIT_SECONDS_MAX)
    assert message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.close()
