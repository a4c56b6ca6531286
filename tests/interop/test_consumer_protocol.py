"""Consumer groups of KIP-848: unmodified consumers rebalance, commit, migrate, survive ``kill -9``.

With ``SHAREGROUP_INTEROP=kafka`` what is shown of one broker that runs is shown of Apache Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.interop.group_members import (
    ConfluentMember,
    ConsumerProtocolMember,
    GroupMember,
    KafkaPythonMember,
    poll_until,
    read,
)
from tests.interop.test_consumer_groups import (
    CONSOLE_CONSUMER,
    FOUR,
    HUNDRED,
    consumer_groups,
    read_by_java,
    spread,
)
from tests.support.chosen_broker import LONG_WITH_A_JVM, SHORT_TIMES
from tests.support.confluent_calls import admin, create_topic, produce
from tests.support.kafka_tools import run_tool, tool_in_background, why_missing
from tests.support.processes import ServeProcess

pytestmark = LEAVES_SOCKETS
Make = Callable[..., GroupMember]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes members, of the consumer protocol unless told otherwise; closes those that are left."""
    made: list[GroupMember] = []

    def new(*arguments: str, kind: type[GroupMember] = ConsumerProtocolMember) -> GroupMember:
        made.append(kind(*arguments))
        return made[-1]

    yield new
    for member in made:
        member.close()


def described(bootstrap: str, group: str) -> Any:
    [future] = admin(bootstrap).describe_consumer_groups([group]).values()
    return future.result()


def type_of(bootstrap: str, group: str) -> Any:
    listed = admin(bootstrap).list_consumer_groups().result().valid
    [found] = [listing.type for listing in listed if listing.group_id == group]
    return found


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
    assert type_of(bootstrap, group) is ConsumerGroupType.CONSUMER
    first.close()
    poll_until(lambda: second.partitions() == FOUR, second)
    spread(bootstrap, topic, [b"new"])
    assert [record.value for record in read(1, second)] == [b"new"]


def test_static_member_returns_to_its_partitions(
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
    about = described(bootstrap, group)
    assert about.state is ConsumerGroupState.STABLE
    assert sorted(member.group_instance_id for member in about.members) == ["a", "b"]


def test_pattern_follows_new_topics(bootstrap: str, topic: str, group: str, make: Make) -> None:
    create_topic(bootstrap, f"{topic}.one")
    produce(bootstrap, f"{topic}.one", [b"1"])
    member = make(bootstrap, f"^{topic}\\.(one|two)$", group)
    assert [record.value for record in read(1, member)] == [b"1"]
    create_topic(bootstrap, f"{topic}.two")
    produce(bootstrap, f"{topic}.two", [b"2"])
    assert [record.value for record in read(1, member)] == [b"2"]


def test_group_is_upgraded_and_downgraded_while_it_reads(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    """Every record is read once while the group changes its protocol and changes it back."""
    create_topic(bootstrap, topic, partitions=4)
    spread(bootstrap, topic, HUNDRED)
    old = make(bootstrap, topic, group, kind=ConfluentMember)
    got = read(100, old)
    old.commit()
    assert type_of(bootstrap, group) is ConsumerGroupType.CLASSIC

    new = make(bootstrap, topic, group)
    poll_until(lambda: len(old.partitions()) == len(new.partitions()) == 2, old, new)
    assert type_of(bootstrap, group) is ConsumerGroupType.CONSUMER
    spread(bootstrap, topic, HUNDRED)
    got += read(100, old, new)
    old.commit()
    new.commit()

    new.close()
    poll_until(lambda: old.partitions() == FOUR, old)
    assert type_of(bootstrap, group) is ConsumerGroupType.CLASSIC
    spread(bootstrap, topic, HUNDRED)
    got += read(100, old)
    assert len(got) == len(set(got)) == 300, "nothing lost, nothing twice"


def test_rolling_restart_changes_the_protocol_of_all_members(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    create_topic(bootstrap, topic, partitions=4)
    olds = [make(bootstrap, topic, group, kind=KafkaPythonMember) for _ in range(2)]
    poll_until(lambda: all(len(old.partitions()) == 2 for old in olds), *olds)
    news = []
    for old in olds:
        old.close()
        news.append(make(bootstrap, topic, group))
        rest = [*olds[len(news) :], *news]
        poll_until(lambda: all(len(consumer.partitions()) == 2 for consumer in rest), *rest)  # noqa: B023  Called in this round.
    assert type_of(bootstrap, group) is ConsumerGroupType.CONSUMER
    assert news[0].partitions() | news[1].partitions() == FOUR


def test_consumer_continues_at_its_commit_after_kill_9(tmp_path: Path, make: Make) -> None:
    """The broker is killed between a commit and the next read; the consumer just continues."""
    with ServeProcess(tmp_path / "data", settings=SHORT_TIMES) as broker:
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


@pytest.mark.kafka
@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
class TestJava:
    def test_kafkas_tool_describes_moves_and_deletes_a_group(
        self, bootstrap: str, topic: str, group: str, make: Make
    ) -> None:
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, HUNDRED)
        member = make(bootstrap, topic, group)
        read(100, member)
        member.commit()
        state = consumer_groups(bootstrap, "--describe", "--group", group, "--state")[-1]
        assert [word for word in state if word in ("uniform", "Stable", "1")][:3] == [
            "uniform", "Stable", "1",
        ]  # fmt: skip
        members = consumer_groups(
            bootstrap, "--describe", "--group", group, "--members", "--verbose"
        )
        assert f"{topic}:0" in members[-1]
        member.close()
        moved = consumer_groups(
            bootstrap, "--reset-offsets", "--to-offset", "10", "--execute", "--topic", topic,
            "--group", group,
        )  # fmt: skip
        assert moved[-1] == [group, topic, "0", "10"]
        gone = consumer_groups(bootstrap, "--delete", "--group", group)
        assert gone[-1][-2:] == ["was", "successful."]

    @LONG_WITH_A_JVM
    def test_java_consumer_continues_at_its_commit_after_kill_9(self, tmp_path: Path) -> None:
        """It runs through the kill; a second consumer does not read its committed records again."""
        with ServeProcess(tmp_path / "data", settings=SHORT_TIMES) as broker:
            create_topic(broker.bootstrap_servers, "t")
            produce(broker.bootstrap_servers, "t", HUNDRED)
            more = [b"after %d" % number for number in range(100)]
            with tool_in_background(
                CONSOLE_CONSUMER,
                *("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "g"),
                *("--from-beginning", "--max-messages", "200"),
                *("--command-property", "auto.commit.interval.ms=100"),
                *("--command-property", "group.protocol=consumer"),
            ) as java:
                assert [java.line() for _ in range(100)] == HUNDRED
                assert type_of(broker.bootstrap_servers, "g") is ConsumerGroupType.CONSUMER
                broker.kill9()
                broker.start()
                produce(broker.bootstrap_servers, "t", more)
                assert [java.line() for _ in range(100)] == more
                java.wait()
            produce(broker.bootstrap_servers, "t", [b"last"])
            assert read_by_java(broker.bootstrap_servers, "t", "g", count=1) == [b"last"]
        admin.cache_clear()

    def test_kafkas_decoder_reads_the_records_of_a_group(self, tmp_path: Path, make: Make) -> None:
        """Of every type, also of a classic member, whose properties are in a tagged field."""
        with ServeProcess(tmp_path / "data", settings=SHORT_TIMES) as broker:
            create_topic(broker.bootstrap_servers, "t", partitions=2)
            old = make(broker.bootstrap_servers, "t", "g", kind=ConfluentMember)
            poll_until(lambda: len(old.partitions()) == 2, old)
            new = make(broker.bootstrap_servers, "^t", "g", "i")
            poll_until(lambda: len(old.partitions()) == len(new.partitions()) == 1, old, new)
            old.close()
            new.close()
            broker.stop()
            values = _decoded(tmp_path / "data")
        admin.cache_clear()
        kinds = {kind: rows for kind, rows in values.items() if rows}
        assert sorted(kinds) == ["16", "2", "3", "5", "6", "7", "8"]
        classic = [row.get("classicMemberMetadata") for row in kinds["5"]]
        [*_, protocol] = [row for row in classic if row]
        assert protocol["sessionTimeoutMs"] == 6_000
        assert {row["name"] for row in protocol["supportedProtocols"]} >= {"range"}
        assert kinds["16"][-1]["topics"] == ["t"]
        epochs = [
            topic["assignmentEpochs"] for row in kinds["8"] for topic in row["assignedPartitions"]
        ]
        assert all(epochs)


def _decoded(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The values of the group topic's records by type, as Kafka's tool decodes them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(data.glob("*/*.log")):
        printed = run_tool(
            "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(file)
        )
        for line in printed.splitlines():
            match = re.search(r"key: (\{.*?\}\}) payload: (\{.*\}|<EMPTY>|null)", line)
            if match is None:
                continue
            key, value = json.loads(match[1]), match[2]
            if value.startswith("{"):
                found.setdefault(str(key["type"]), []).append(json.loads(value)["data"])
    return found
