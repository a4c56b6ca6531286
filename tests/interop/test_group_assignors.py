"""Our assignors of consumer groups beside Kafka's own classes, run in Java on the same groups.

``range`` returns the same partitions. ``uniform`` may choose other members, because Kafka's choice
depends on the order of its hash tables; it is as balanced, and keeps at least as many partitions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import pytest

from sharegroup.core.groups.modern.assignors import ASSIGNORS, Assigned, AssignedMember
from sharegroup.ids import MemberId, TopicId, TopicIdPartition
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA)),
]
GROUPS = 3_000
SEED = 848
ONE_STEP = 2
"""The imbalance that one partition at a member with as many as the others makes."""


class Group(NamedTuple):
    """A group to assign; topics are numbered."""

    assignor: str
    counts: Mapping[int, int]
    members: Sequence[AssignedMember]

    @property
    def is_homogeneous(self) -> bool:
        return len({member.topic_ids for member in self.members}) == 1

    def line(self) -> str:
        """The group in the format of ``GroupAssignors.java``."""
        topics = " ".join(f"{number}:{count}" for number, count in self.counts.items())
        members = " ".join(
            ";".join(
                (
                    member.member_id,
                    member.instance_id or "",
                    ",".join(str(topic.int) for topic in member.topic_ids),
                    ",".join(f"{topic.int}.{number}" for topic, number in member.current),
                )
            )
            for member in self.members
        )
        return f"{self.assignor} {topics} | {members}"

    def assigned(self) -> Assigned:
        """What our assignor returns."""
        counts = {TopicId(UUID(int=topic)): count for topic, count in self.counts.items()}
        return ASSIGNORS[self.assignor](self.members, counts)

    def kept(self, assigned: Assigned) -> int:
        """The number of partitions that stay with their members."""
        return sum(len(member.current & assigned[member.member_id]) for member in self.members)


def generated(random_: random.Random) -> Group:
    counts = {topic: random_.randint(1, 12) for topic in range(1, random_.randint(2, 5))}
    names = random_.sample(range(100), random_.randint(1, 9))
    everything = frozenset(TopicId(UUID(int=topic)) for topic in counts)
    all_equal = random_.random() < 0.5
    owners = {
        TopicIdPartition(topic, number): random_.choice([None, *names])
        for topic in everything
        for number in range(counts[topic.int])
        if random_.random() < 0.8
    }
    members = []
    for name in names:
        some = random_.sample(sorted(everything), random_.randint(1, len(everything)))
        instance = f"i{random_.randint(0, 9)}{name}" if random_.random() < 0.3 else None
        current = frozenset(partition for partition, owner in owners.items() if owner == name)
        topics = everything if all_equal else frozenset(some)
        members.append(AssignedMember(MemberId(f"m{name}"), instance, topics, current))
    return Group(random_.choice(sorted(ASSIGNORS)), counts, members)


@pytest.fixture(scope="module")
def answers() -> list[tuple[Group, Assigned]]:
    """The groups, and what Kafka's classes assign in each."""
    random_ = random.Random(SEED)
    groups = [generated(random_) for _ in range(GROUPS)]
    printed = printed_by(kafka_peer.kafka_libs(), "GroupAssignors", map(Group.line, groups))
    return list(zip(groups, map(_decoded, printed), strict=True))


def _decoded(line: str) -> Assigned:
    assigned: Assigned = {}
    for part in line.split(" "):
        member_id, _, partitions = part.partition(";")
        pairs = (pair.split(".") for pair in partitions.split(",") if pair)
        assigned[MemberId(member_id)] = frozenset(
            TopicIdPartition(TopicId(UUID(int=int(topic))), int(number)) for topic, number in pairs
        )
    return assigned


def test_range_returns_the_same_partitions(answers: list[tuple[Group, Assigned]]) -> None:
    compared = [(group, kafkas) for group, kafkas in answers if group.assignor == "range"]
    assert len(compared) > GROUPS // 3
    for group, kafkas in compared:
        assert group.assigned() == kafkas, group.line()


def test_uniform_is_as_balanced_and_keeps_as_much_with_equal_subscriptions(
    answers: list[tuple[Group, Assigned]],
) -> None:
    compared = [
        (group, kafkas)
        for group, kafkas in answers
        if group.assignor == "uniform" and group.is_homogeneous
    ]
    assert len(compared) > GROUPS // 6
    for group, kafkas in compared:
        ours = group.assigned()
        assert sizes(ours) == sizes(kafkas), group.line()
        assert group.kept(ours) >= group.kept(kafkas), group.line()


def test_uniform_is_as_balanced_with_different_subscriptions(
    answers: list[tuple[Group, Assigned]],
) -> None:
    compared = [
        (group, kafkas)
        for group, kafkas in answers
        if group.assignor == "uniform" and not group.is_homogeneous
    ]
    assert len(compared) > GROUPS // 8
    # No single move balances either better, but two such assignments may differ by one step.
    differences = [imbalance(group.assigned()) - imbalance(kafkas) for group, kafkas in compared]
    assert max(differences) <= ONE_STEP
    assert sum(differences) <= 0


def sizes(assigned: Assigned) -> list[int]:
    return sorted(map(len, assigned.values()))


def imbalance(assigned: Assigned) -> int:
    """The sum of the squares of the numbers of partitions: the least is the most balanced."""
    return sum(len(partitions) ** 2 for partitions in assigned.values())
