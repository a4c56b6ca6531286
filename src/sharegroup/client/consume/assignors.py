"""The assignors of the classic protocol: which member of a group reads which partitions.

All members send their subscriptions, and the leader computes the assignment.  The results of
``range`` and ``roundrobin`` are those of Kafka's assignors of these names.  ``sticky`` keeps as
much as possible of the current assignment, and `withhold_moving` makes it cooperative: a partition
that moves is first taken from its owner, and given to the new one in the next rebalance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from sharegroup.client.records import TopicPartition


class MemberSubscription(NamedTuple):
    """What a member has sent with its JoinGroup request."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions that the member owns."""
    generation: int = -1
    """The generation in which it got them; of two owners, that of the newer generation counts."""
    instance_id: str | None = None


Subscriptions = Mapping[str, MemberSubscription]
PartitionCounts = Mapping[str, int]
"""The number of partitions of the topics that exist."""
GroupAssignment = dict[str, set[TopicPartition]]


def assign(name: str, counts: PartitionCounts, members: Subscriptions) -> GroupAssignment:
    """Return the assignment by the assignor of this name."""
    if name == "range":
        return range_assignment(counts, members)
    if name == "roundrobin":
        return round_robin_assignment(counts, members)
    sticky = sticky_assignment(counts, members)
    return withhold_moving(sticky, members) if name == "cooperative-sticky" else sticky


def range_assignment(counts: PartitionCounts, members: Subscriptions) -> GroupAssignment:
    """Give every member a run of partitions of each topic; the first members get one more."""
    assignment: GroupAssignment = {member: set() for member in members}
    for topic, count in counts.items():
        readers = [member for member in _ordered(members) if topic in members[member].topics]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for index, member in enumerate(readers):
            end = first + share + (index < extra)
            assignment[member] |= {TopicPartition(topic, number) for number in range(first, end)}
            first = end
    return assignment


def round_robin_assignment(counts: PartitionCounts, members: Subscriptions) -> GroupAssignment:
    """Deal all partitions of all topics to the members in turn."""
    assignment: GroupAssignment = {member: set() for member in members}
    order = _ordered(members)
    # The turn goes on from topic to topic, as in Kafka's `RoundRobinAssignor`. With a new turn for
    # each topic, the first members would read all topics of one partition.
    turn = 0
    for topic in sorted(counts):
        if not any(topic in members[member].topics for member in order):
            continue
        for number in range(counts[topic]):
            while topic not in members[order[turn % len(order)]].topics:
                # A member that does not read the topic loses its turn, as in Kafka.
                turn += 1
            assignment[order[turn % len(order)]].add(TopicPartition(topic, number))
            turn += 1
    return assignment


def sticky_assignment(counts: PartitionCounts, members: Subscriptions) -> GroupAssignment:
    """Balance the number of partitions, and move as few as possible from their owners."""
    assignment = {member: set(owned) for member, owned in _kept(counts, members).items()}
    readers = {
        topic: [member for member in _ordered(members) if topic in members[member].topics]
        for topic in counts
    }
    taken = {where for owned in assignment.values() for where in owned}
    for topic in sorted(counts):
        for number in range(counts[topic]):
            where = TopicPartition(topic, number)
            if where not in taken and readers[topic]:
                target = min(readers[topic], key=lambda member: len(assignment[member]))
                assignment[target].add(where)
    _balance(assignment, readers)
    return assignment


def withhold_moving(assignment: GroupAssignment, members: Subscriptions) -> GroupAssignment:
    """Leave out the partitions that another member still owns."""
    owners: dict[TopicPartition, set[str]] = defaultdict(set)
    for member, subscription in members.items():
        for where in subscription.owned:
            owners[where].add(member)
    return {
        member: {where for where in partitions if not owners[where] - {member}}
        for member, partitions in assignment.items()
    }


def _kept(counts: PartitionCounts, members: Subscriptions) -> dict[str, set[TopicPartition]]:
    """Return the partitions that members own validly: they exist, and there is one owner."""
    owner: dict[TopicPartition, str] = {}
    for member in _ordered(members):
        subscription = members[member]
        for where in subscription.owned:
            if where.topic not in subscription.topics or where.partition >= counts.get(
                where.topic, 0
            ):
                continue
            other = owner.get(where)
            # With two owners of one generation, Java's `AbstractStickyAssignor` takes it from
            # both.  Here the first one keeps it, and `withhold_moving` leaves it out while the
            # other owns it.
            if other is None or members[other].generation < subscription.generation:
                owner[where] = member
    kept: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for where, member in owner.items():
        kept[member].add(where)
    return kept


def _balance(assignment: GroupAssignment, readers: Mapping[str, list[str]]) -> None:
    """Move one partition at a time, from the fullest member that can give one, to the emptiest.

    Every move lowers the sum of the squares of the counts, so the loop ends.
    """
    while True:
        by_size = sorted(assignment, key=lambda member: -len(assignment[member]))
        if not any(_give_one(member, assignment, readers) for member in by_size):
            return


def _give_one(member: str, assignment: GroupAssignment, readers: Mapping[str, list[str]]) -> bool:
    """Move a partition to a member that has two less or fewer; return whether there is one."""
    partitions = assignment[member]
    for topic in sorted({where.topic for where in partitions}):
        target = min(readers[topic], key=lambda other: len(assignment[other]))
        # With a difference of one the two would change places, and `_balance` would not end.
        if len(partitions) - len(assignment[target]) >= 2:
            moved = max(where for where in partitions if where.topic == topic)
            partitions.discard(moved)
            assignment[target].add(moved)
            return True
    return False


def _ordered(members: Subscriptions) -> list[str]:
    """Return the member ids in Kafka's order: static members first, by their instance ids."""
    return sorted(
        members,
        key=lambda member: (
            members[member].instance_id is None,
            members[member].instance_id or member,
        ),
    )
