"""Members of KIP-848 groups in three clients: confluent (librdkafka), Java and franz-go.

The tests are the same for all of them and pass on Apache Kafka too (``make interop``).
kafka-python and aiokafka don't speak this protocol; the last tests notice the release that does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import ResourceType
from kafka import KafkaConsumer
from kafka.errors import KafkaConfigurationError

from tests.interop.group_members import (
    WAIT_SECONDS_MAX,
    AnnotatingMember,
    ClientFailed,
    ConfluentMember,
    ConsumerProtocolMember,
    LineMember,
    poll_until,
    read,
)
from tests.interop.line_programs import line_program, why_no_go, why_no_java
from tests.interop.test_consumer_groups import FOUR, HUNDRED, spread
from tests.interop.test_consumer_protocol import described, type_of
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.confluent_calls import create_topic, set_config

Make = Callable[..., AnnotatingMember]
"""Takes a topic, a group and, for a static member, its instance id."""


def skipped(why: str | None) -> pytest.MarkDecorator:
    return pytest.mark.skipif(why is not None, reason=str(why))


JAVA = [pytest.mark.kafka, skipped(why_no_java()), LONG_WITH_A_JVM]
GO = [skipped(why_no_go()), LONG_WITH_A_JVM]
CLIENTS = [
    "confluent",
    pytest.param("java", marks=JAVA),
    pytest.param("franz-go", marks=GO),
]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def protocol() -> str:
    """The protocol of the groups; tests that show both have a parameter of this name."""
    return "consumer"


@pytest.fixture
def make(client: str, protocol: str, bootstrap: str) -> Iterator[Make]:
    """Makes members of the client; closes those that are left."""
    made: list[AnnotatingMember] = []

    def opened(member: AnnotatingMember) -> AnnotatingMember:
        made.append(member)
        return member

    if client == "confluent":
        kind = ConsumerProtocolMember if protocol == "consumer" else ConfluentMember
        yield lambda *arguments: opened(kind(bootstrap, *arguments))
        _close(made)
        return
    names = count(1)
    with line_program(client, "Member", bootstrap) as program:

        def new(topic: str, group: str, instance: str | None = None) -> AnnotatingMember:
            name = f"member{next(names)}"
            return opened(
                LineMember(program, name, topic, group, protocol=protocol, instance=instance)
            )

        yield new
        _close(made)


def _close(members: list[AnnotatingMember]) -> None:
    for member in members:
        member.close()


def test_members_share_the_partitions_and_take_over(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    """One member reads and commits; a second joins and the partitions are shared. When the first
    leaves, the second takes over, and committed records are not read again.
    """
    create_topic(bootstrap, topic, partitions=4)
    spread(bootstrap, topic, HUNDRED)
    first = make(topic, group)
    got = read(100, first)
    assert sorted(record.value for record in got) == sorted(HUNDRED)
    first.commit()
    second = make(topic, group)
    poll_until(lambda: len(first.partitions()) == len(second.partitions()) == 2, first, second)
    assert first.partitions() | second.partitions() == FOUR
    assert type_of(bootstrap, group) is ConsumerGroupType.CONSUMER
    first.close()
    poll_until(lambda: second.partitions() == FOUR, second)
    spread(bootstrap, topic, [b"new"])
    assert [record.value for record in read(1, second)] == [b"new"]


def test_static_member_returns_to_its_partitions(
    bootstrap: str, topic: str, group: str, client: str, make: Make
) -> None:
    """At once, except with franz-go 1.22.3: it leaves without its instance id, which the brokers
    refuse. So its successor is refused until the session has ended.
    """
    session = {"consumer.session.timeout.ms": "5000"}
    set_config(bootstrap, ResourceType.GROUP, group, session)
    create_topic(bootstrap, topic, partitions=4)
    first, other = make(topic, group, "a"), make(topic, group, "b")
    poll_until(lambda: len(first.partitions()) == len(other.partitions()) == 2, first, other)
    before = first.partitions()
    first.close()
    again = make(topic, group, "a")
    if client == "franz-go":
        with pytest.raises(ClientFailed, match="UNRELEASED_INSTANCE_ID"):
            poll_until(lambda: bool(again.partitions()), again, other)
        wait_until_left(bootstrap, group, "a")
        again.close()
        again = make(topic, group, "a")
    poll_until(lambda: bool(again.partitions()), again, other)
    assert again.partitions() == before
    about = described(bootstrap, group)
    assert about.state is ConsumerGroupState.STABLE
    assert sorted(member.group_instance_id for member in about.members) == ["a", "b"]


def wait_until_left(bootstrap: str, group: str, instance: str) -> None:
    limit = time.monotonic() + WAIT_SECONDS_MAX
    while instance in [member.group_instance_id for member in described(bootstrap, group).members]:
        assert time.monotonic() < limit, f"{instance} is still in the group {group}"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_metadata_of_a_commit_are_fetched_again(
    bootstrap: str, topic: str, group: str, protocol: str, make: Make
) -> None:
    """By the member that committed, and by the one that takes its partitions over."""
    create_topic(bootstrap, topic, partitions=4)
    spread(bootstrap, topic, HUNDRED)
    first = make(topic, group)
    read(100, first)
    first.commit("until the end")
    expected = dict.fromkeys(FOUR, (25, "until the end"))
    assert first.committed() == expected
    first.close()
    second = make(topic, group)
    poll_until(lambda: second.partitions() == FOUR, second)
    assert second.committed() == expected
    kind = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
    assert type_of(bootstrap, group) is kind


def test_kafka_python_does_not_speak_the_protocol() -> None:
    """Release 3.0.12, the newest one in November 2026, knows its API keys and errors only."""
    with pytest.raises(KafkaConfigurationError, match="group_protocol"):
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", group_protocol="consumer")


def test_aiokafka_does_not_speak_the_protocol() -> None:
    """Release 0.14.0 has no option for it."""
    with pytest.raises(TypeError, match="group_protocol"):
        AIOKafkaConsumer("t", bootstrap_servers="127.0.0.1:1", group_protocol="consumer")
