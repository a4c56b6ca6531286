"""Ordinary consumer groups: unmodified consumers rebalance, commit, and survive ``kill -9``.

With ``SHAREGROUP_INTEROP=kafka`` what is shown of one broker that runs is shown of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)

from sharegroup.ids import GroupId, group_partition
from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.interop.group_members import (
    AiokafkaMember,
    ConfluentMember,
    GroupMember,
    KafkaPythonMember,
    poll_until,
    read,
)
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.confluent_calls import (
    admin,
    create_topic,
    produce,
    set_group,
    share_consumer,
    take_shared,
)
from tests.support.kafka_tools import formatted, run_tool, tool_in_background, why_missing
from tests.support.processes import ServeProcess

pytestmark = LEAVES_SOCKETS

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Make = Callable[..., GroupMember]
HUNDRED = [b"%d" % number for number in range(100)]
FOUR = {0, 1, 2, 3}


@pytest.fixture(params=[ConfluentMember, KafkaPythonMember, AiokafkaMember])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes members of one library, and closes those that are left."""
    made: list[GroupMember] = []

    def new(*arguments: str) -> GroupMember:
        made.append(request.param(*arguments))
        return made[-1]

    yield new
    for member in made:
        member.close()


@pytest.mark.slow
def test_members_share_the_partitions_and_take_over(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    """One member reads and commits; a second joins and the partitions are shared. When the first
    leaves, the second takes over, and committed records are not read again.
    """
    create_topic(bootstrap, topic, partitions=4)
    spread(bootstrap, topic, HUNDRED)
    first = make(bootstrap, topic, group)
    got = read(100, first)
    assert sorted(record.value for record in got) == sorted(HUNDRED)
    first.commit()
    second = make(bootstrap, topic, group)
    poll_until(lambda: len(first.partitions()) == len(second.partitions()) == 2, first, second)
    assert first.partitions() | second.partitions() == FOUR
    first.close()
    poll_until(lambda: second.partitions() == FOUR, second)
    spread(bootstrap, topic, [b"new"])
    assert [record.value for record in read(1, second)] == [b"new"]


@pytest.mark.slow
def test_static_member_rejoins_with_its_partitions_without_a_rebalance(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    create_topic(bootstrap, topic, partitions=4)
    first, other = make(bootstrap, topic, group, "a"), make(bootstrap, topic, group, "b")
    poll_until(lambda: len(first.partitions()) == len(other.partitions()) == 2, first, other)
    before = first.partitions()
    first.close()
    again = make(bootstrap, topic, group, "a")
    poll_until(lambda: bool(again.partitions()), again, other)
    assert again.partitions() == before
    (described,) = [
        future.result() for future in admin(bootstrap).describe_consumer_groups([group]).values()
    ]
    assert described.state is ConsumerGroupState.STABLE
    assert sorted(member.group_instance_id for member in described.members) == ["a", "b"]


# aiokafka leaves it to the garbage collector to close a connection that was refused.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_consumer_continues_at_its_commit_after_kill_9(tmp_path: Path, make: Make) -> None:
    """The broker is killed between a commit and the next read; the consumer just continues."""
    with ServeProcess(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "t", partitions=4)
        spread(broker.bootstrap_servers, "t", HUNDRED)
        member = make(broker.bootstrap_servers, "t", "g")
        got = read(100, member)
        member.commit()
        broker.kill9()
        broker.start()
        spread(broker.bootstrap_servers, "t", [b"after %d" % number for number in range(100)])
        got += read(100, member)
        assert len(got) == len(set(got)) == 200, "nothing lost, nothing twice"
        member.commit()
        member.close()
        again = make(broker.bootstrap_servers, "t", "g")
        spread(broker.bootstrap_servers, "t", [b"last"])
        assert [record.value for record in read(1, again)] == [b"last"]
        again.close()
    admin.cache_clear()


def test_consumer_group_beside_a_share_group_on_one_topic(
    bootstrap: str, topic: str, group: str
) -> None:
    """Each gets every record; what one settles is nothing to the other."""
    create_topic(bootstrap, topic)
    set_group(bootstrap, f"{group}.share", auto_offset_reset="earliest")
    produce(bootstrap, topic, HUNDRED)
    reader = ConfluentMember(bootstrap, topic, group)
    with share_consumer(bootstrap, f"{group}.share", topic, explicit=True) as worker:
        for message in take_shared(worker, 100):
            worker.acknowledge(message)
        worker.commit_sync()
        assert sorted(record.value for record in read(100, reader)) == sorted(HUNDRED)
    reader.commit()
    listed = admin(bootstrap).list_consumer_groups().result().valid
    assert [listing.type for listing in listed if listing.group_id == group] == [
        ConsumerGroupType.CLASSIC
    ]
    where = TopicPartition(topic, 0)
    wanted = ConsumerGroupTopicPartitions(group, [where])
    offsets = admin(bootstrap).list_consumer_group_offsets([wanted])[group].result()
    assert [partition.offset for partition in offsets.topic_partitions] == [100]
    reader.close()


@pytest.mark.kafka
@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
class TestJava:
    def test_kafkas_tools_describe_move_and_delete_a_group(
        self, bootstrap: str, topic: str, group: str
    ) -> None:
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, HUNDRED)
        read_by_java(bootstrap, topic, group, count=60)
        assert described(bootstrap, group)[2:6] == ["0", "60", "100", "40"]
        moved = consumer_groups(
            bootstrap, "--reset-offsets", "--to-offset", "10", "--execute", "--topic", topic,
            "--group", group,
        )  # fmt: skip
        assert moved[-1] == [group, topic, "0", "10"]
        assert [b"%d" % number for number in range(10, 15)] == read_by_java(
            bootstrap, topic, group, count=5
        )
        assert described(bootstrap, group)[3] == "15"
        deleted = consumer_groups(bootstrap, "--delete-offsets", "--topic", topic, "--group", group)
        assert deleted[-1] == [topic, "0", "Successful"]
        gone = consumer_groups(bootstrap, "--delete", "--group", group)
        assert gone[-1][-2:] == ["was", "successful."]

    @pytest.mark.slow
    def test_kafkas_formatters_read_the_records_of_a_group(
        self, bootstrap: str, topic: str, group: str
    ) -> None:
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, HUNDRED)
        member = ConfluentMember(bootstrap, topic, group)
        read(100, member)
        member.commit()
        offsets = kept(bootstrap, "OffsetsMessageFormatter", group)
        (data,) = [
            offset["value"]["data"]
            for offset in offsets
            if offset["key"]["data"].get("topic") == topic
        ]
        assert (data["offset"], data["metadata"]) == (100, "")
        groups = kept(bootstrap, "GroupMetadataMessageFormatter", group)
        data = groups[-1]["value"]["data"]
        assert (data["protocolType"], data["generation"], data["protocol"]) == (
            "consumer", 1, "range",
        )  # fmt: skip
        assert [member_["sessionTimeout"] for member_ in data["members"]] == [6_000]
        member.close()

    @LONG_WITH_A_JVM
    def test_java_consumer_continues_at_its_commit_after_kill_9(self, tmp_path: Path) -> None:
        """It runs through the kill; a second consumer does not read its committed records again."""
        with ServeProcess(tmp_path / "data") as broker:
            create_topic(broker.bootstrap_servers, "t")
            produce(broker.bootstrap_servers, "t", HUNDRED)
            more = [b"after %d" % number for number in range(100)]
            with tool_in_background(
                CONSOLE_CONSUMER,
                *("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "g"),
                *("--from-beginning", "--max-messages", "200"),
                *("--command-property", "auto.commit.interval.ms=100"),
            ) as java:
                assert [java.line() for _ in range(100)] == HUNDRED
                broker.kill9()
                broker.start()
                produce(broker.bootstrap_servers, "t", more)
                assert [java.line() for _ in range(100)] == more
                java.wait()
            produce(broker.bootstrap_servers, "t", [b"last"])
            assert read_by_java(broker.bootstrap_servers, "t", "g", count=1) == [b"last"]
        admin.cache_clear()


def read_by_java(bootstrap: str, topic: str, group: str, *, count: int) -> list[bytes]:
    printed = run_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
        *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
    )
    return [line.encode() for line in printed.splitlines()]


def consumer_groups(bootstrap: str, *arguments: str) -> list[list[str]]:
    """What ``kafka-consumer-groups.sh`` printed: the words of each line that has some."""
    printed = run_tool(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, *arguments)
    return [line.split() for line in printed.splitlines() if line.strip()]


def described(bootstrap: str, group: str) -> list[str]:
    return consumer_groups(bootstrap, "--describe", "--group", group)[-1]


def kept(bootstrap: str, formatter: str, group: str) -> list[dict[str, Any]]:
    """The group's records in ``__consumer_offsets`` as Kafka prints them."""
    partition = group_partition(GroupId(group), 50)
    records = formatted(bootstrap, "__consumer_offsets", formatter, partition=partition)
    return [record for record in records if record["key"]["data"]["group"] == group]


def spread(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce over four partitions in turn."""
    for partition in FOUR:
        part = values[partition::4]
        if part:
            produce(bootstrap, topic, part, partition=partition)
