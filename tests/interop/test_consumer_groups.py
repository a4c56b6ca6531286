"""Ordinary consumer groups: unmodified consumers rebalance, commit, and survive ``kill -9``.

With ``SHAREGROUP_INTEROP=kafka`` what is shown of one broker that runs is shown of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState

from tests.confluent_calls import (
    admin,
    create_topic,
    produce,
)
from tests.interop.group_members import (
    AiokafkaMember,
    ConfluentMember,
    GroupMember,
    KafkaPythonMember,
    poll_until,
    read,
)
from tests.processes import ServeProcess

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


def test_members_share_the_partitions_and_take_over(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    """One member reads and commits; a second joins and the partitions are shared; the first leaves,
    the second takes over, and what was committed is read by nobody again.
    """
    create_topic(bootstrap, topic, partitions=4)
    spread(bootstrap, topic, HUNDRED)
    first = make(bootstrap, topic, group)
    got = read(100, first)
    assert sorted(one.value for one in got) == sorted(HUNDRED)
    first.commit()
    second = make(bootstrap, topic, group)
    poll_until(lambda: len(first.partitions()) == len(second.partitions()) == 2, first, second)
    assert first.partitions() | second.partitions() == FOUR
    first.close()
    poll_until(lambda: second.partitions() == FOUR, second)
    spread(bootstrap, topic, [b"new"])
    assert [one.value for one in read(1, second)] == [b"new"]


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, topic: str, group: str, make: Make
) -> None:
    create_topic(bootstrap, topic, partitions=4)
    one, other = make(bootstrap, topic, group, "a"), make(bootstrap, topic, group, "b")
    poll_until(lambda: len(one.partitions()) == len(other.partitions()) == 2, one, other)
    before = one.partitions()
    one.close()
    again = make(bootstrap, topic, group, "a")
    poll_until(lambda: bool(again.partitions()), again, other)
    assert again.partitions() == before
    (described,) = [
        future.result() for future in admin(bootstrap).describe_consumer_groups([group]).values()
    ]
    assert described.state is ConsumerGroupState.STABLE
    assert sorted(member.group_instance_id for member in described.members) == ["a", "b"]


# aiokafka leaves it to the garbage collector to close a connection that was refused.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_consumer_goes_on_where_it_was_after_kill_9(tmp_path: Path, make: Make) -> None:
    """The broker is killed between a commit and the next read; the consumer just goes on."""
    with ServeProcess(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "t", partitions=4)
        spread(broker.bootstrap, "t", HUNDRED)
        member = make(broker.bootstrap, "t", "g")
        got = read(100, member)
        member.commit()
        broker.kill9()
        broker.start()
        spread(broker.bootstrap, "t", [b"after %d" % number for number in range(100)])
        got += read(100, member)
        assert len(got) == len(set(got)) == 200, "nothing lost, nothing twice"
        member.commit()
        member.close()
        again = make(broker.bootstrap, "t", "g")
        spread(broker.bootstrap, "t", [b"last"])
        assert [one.value for one in read(1, again)] == [b"last"]
        again.close()
    admin.cache_clear()


def spread(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce over four partitions in turn."""
    for partition in FOUR:
        part = values[partition::4]
        if part:
            produce(bootstrap, topic, part, partition=partition)
