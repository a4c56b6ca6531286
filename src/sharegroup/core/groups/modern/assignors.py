"""The assignors ``uniform`` and ``range``: they divide partitions among members of a group.

Each partition goes to one member that subscribes to its topic.

    uniform   the numbers of partitions of two members differ by at most one, if subscriptions
              allow that; as few partitions as possible change their member
    range     each topic's partitions go in ranges to its subscribers, in the order of their ids,
              so members get the same numbers of topics with equally many partitions

Kafka's assignors have the same names and properties (KIP-848 «Server side assignors»). ``range``
returns Kafka's assignments exactly. ``uniform`` may choose other members, because Kafka's choice
depends on the order of its hash tables. If all members subscribe to the same topics, it is as
balanced as Kafka's and moves no more partitions (``tests/interop/test_group_assignors.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from sharegroup.core.groups.share.assignor import (
    NOTHING,
    Assignment,
    divide_unshared,
    of_topics,
    topic_ids_of,
)
from sharegroup.ids import MemberId, TopicId, TopicIdPartition

ROUNDS_MAX = 16
"""Rounds over all topics in which partitions are moved to balance unequal subscriptions."""


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """The properties of a member that an assignor uses."""

    member_id: MemberId
    instance_id: str | None
    topic_ids: frozenset[TopicId]
    current: Assignment = NOTHING


Assigned = dict[MemberId, Assignment]

Assignor = Callable[[Sequence[AssignedMember], Mapping[TopicId, int]], Assigned]
"""Returns the partitions of each member.

The second argument has the number of partitions of every topic that a member subscribes to.
"""


def assign_range(
    members: Sequence[AssignedMember], partition_counts: Mapping[TopicId, int]
) -> Assigned:
    """Assign each topic's partitions in ranges to its subscribers; the first get one more.

    Static members come first, in the order of their instance ids, so a restart moves nothing.
    """
    ordered = sorted(members, key=_range_order)
    subscriber_counts: dict[TopicId, int] = {}
    for member in ordered:
        for topic_id in member.topic_ids:
            subscriber_counts[topic_id] = subscriber_counts.get(topic_id, 0) + 1
    served = dict.fromkeys(subscriber_counts, 0)
    assigned: Assigned = {}
    for member in ordered:
        partitions: list[TopicIdPartition] = []
        for topic_id in member.topic_ids:
            quota, greater_count = divmod(partition_counts[topic_id], subscriber_counts[topic_id])
            rank = served[topic_id]
            served[topic_id] += 1
            first = rank * quota + min(rank, greater_count)
            end = first + quota + (rank < greater_count)
            partitions += (TopicIdPartition(topic_id, number) for number in range(first, end))
        assigned[member.member_id] = frozenset(partitions)
    return assigned


def _range_order(member: AssignedMember) -> tuple[bool, bytes]:
    is_dynamic = member.instance_id is None
    name = member.member_id if member.instance_id is None else member.instance_id
    # Java compares strings by their UTF-16 units.
    return is_dynamic, name.encode("utf-16-be", "surrogatepass")


def assign_uniform(
    members: Sequence[AssignedMember], partition_counts: Mapping[TopicId, int]
) -> Assigned:
    """Assign equally many partitions to all members, and keep what members have."""
    held = _held(members, partition_counts)
    if len({member.topic_ids for member in members}) == 1:
        targets = [
            TopicIdPartition(topic_id, number)
            for topic_id in sorted(members[0].topic_ids)
            for number in range(partition_counts[topic_id])
        ]
        if targets:
            # As in Kafka, whose members keep the partitions with the lowest numbers.
            is_divided = divide_unshared(targets, held, keep_first=True)
            assert is_divided, "no partition has two members"
    else:
        _Balance(members, partition_counts, held).divide()
    return {member_id: frozenset(partitions) for member_id, partitions in held.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by name, as in ``group.consumer.assignors``."""


def _held(
    members: Sequence[AssignedMember], partition_counts: Mapping[TopicId, int]
) -> dict[MemberId, set[TopicIdPartition]]:
    """Return the members' current partitions, without those that they cannot keep."""
    taken: set[TopicIdPartition] = set()
    held: dict[MemberId, set[TopicIdPartition]] = {}
    for member in members:
        kept = _existing(of_topics(member.current, member.topic_ids), partition_counts)
        held[member.member_id] = set(kept - taken)
        taken |= kept
    return held


def _existing(partitions: Assignment, partition_counts: Mapping[TopicId, int]) -> Assignment:
    """Return the partitions below the partition counts of their topics."""
    # Nearly all partitions are below the smallest count, so they need no look-up of their own
    # topic.
    end = min((partition_counts[topic_id] for topic_id in topic_ids_of(partitions)), default=0)
    beyond = {
        partition
        for partition in partitions
        if partition.partition >= end
        and partition.partition >= partition_counts[partition.topic_id]
    }
    return partitions - beyond if beyond else partitions


class _Balance:
    """Divides partitions among members with unequal subscriptions.

    First the free partitions go to the subscribers with the fewest partitions, topics with the
    most partitions for each subscriber first. Then partitions move from the fullest member of a
    topic to its emptiest subscriber while that has at least two fewer.
    """

    __slots__ = ("_counts", "_held", "_owners", "_subscribers", "_topics")

    def __init__(
        self,
        members: Sequence[AssignedMember],
        partition_counts: Mapping[TopicId, int],
        held: dict[MemberId, set[TopicIdPartition]],
    ) -> None:
        self._counts = partition_counts
        self._held = held
        self._subscribers: dict[TopicId, list[MemberId]] = {}
        for member in members:
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member.member_id)
        self._owners = {
            partition: member_id
            for member_id, partitions in held.items()
            for partition in partitions
        }
        self._topics = sorted(self._subscribers, key=self._order)

    def divide(self) -> None:
        """Assign the free partitions, then balance all topics."""
        for topic_id in self._topics:
            self._assign_free(topic_id)
        # A moved partition changes the sizes of members that read other topics, too.
        for _ in range(ROUNDS_MAX):
            if not sum(map(self._balance_topic, self._topics)):
                break

    def _order(self, topic_id: TopicId) -> tuple[float, int, TopicId]:
        subscriber_count = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def _assign_free(self, topic_id: TopicId) -> None:
        sizes = [
            (len(self._held[member_id]), rank, member_id)
            for rank, member_id in enumerate(self._subscribers[topic_id])
        ]
        heapify(sizes)
        for number in range(self._counts[topic_id]):
            partition = TopicIdPartition(topic_id, number)
            if partition not in self._owners:
                size, rank, member_id = heappop(sizes)
                self._give(partition, member_id)
                heappush(sizes, (size + 1, rank, member_id))

    def _balance_topic(self, topic_id: TopicId) -> int:
        """Move partitions of one topic; return how many were moved."""
        subscribers = self._subscribers[topic_id]
        owned: dict[MemberId, list[TopicIdPartition]] = {}
        for number in range(self._counts[topic_id]):
            partition = TopicIdPartition(topic_id, number)
            owned.setdefault(self._owners[partition], []).append(partition)
        emptiest = [
            (len(self._held[member_id]), rank, member_id)
            for rank, member_id in enumerate(subscribers)
        ]
        fullest = [
            (-len(self._held[member_id]), rank, member_id)
            for rank, member_id in enumerate(subscribers)
            if member_id in owned
        ]
        heapify(emptiest)
        heapify(fullest)
        moved_count = 0
        while fullest:
            giver_size, rank, giver = heappop(fullest)
            size, taker_rank, taker = heappop(emptiest)
            # A giver stays above all takers, so no member appears as both with another size.
            if -giver_size - size < 2:
                break
            self._give(owned[giver].pop(), taker)
            moved_count += 1
            heappush(emptiest, (size + 1, taker_rank, taker))
            if owned[giver]:
                heappush(fullest, (giver_size + 1, rank, giver))
        return moved_count

    def _give(self, partition: TopicIdPartition, member_id: MemberId) -> None:
        owner = self._owners.get(partition)
        if owner is not None:
            self._held[owner].remove(partition)
        self._owners[partition] = member_id
        self._held[member_id].add(partition)
