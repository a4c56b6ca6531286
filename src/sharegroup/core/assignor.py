"""The assignor ``simple``: which member of a share group reads from which partitions.

An assignment says where a member looks for records, it is not ownership: two members on one
partition get different records.  So with more members than partitions, partitions are shared.

For M members and P partitions, each partition is given to ``sharing`` = ceil(M / P) members,
which makes ``sharing * P`` places; every member has a quota of them, equal but for one.

    M <= P   sharing is 1: every partition has one member, sizes differ by at most one
    M >  P   every partition is shared, every member has one or two partitions

It is sticky: it starts from what members have, takes away what is too much, and hands out what
is missing.  The greater quotas go to those who have most already, so that none of it moves.

Handing out can end with places free in a shared partition, because the only members below quota
hold it already.  Such a place goes to another member: of those with the fewest, who are more than
the partition has members, one does not hold it.  So every place is taken, whatever came before.

Members with unequal subscriptions are served topic by topic, each among those who subscribe
to it, without balance across topics: as Kafka does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from sharegroup.ids import MemberId, TopicId, TopicPartition

Assignment = frozenset[TopicPartition]

NOTHING: Assignment = frozenset()


def assign(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    current: Mapping[MemberId, Assignment],
    partitions: Mapping[TopicId, frozenset[int]],
) -> dict[MemberId, Assignment]:
    """The new assignment of every member in ``subscriptions``.

    ``partitions`` are the ones that may be assigned.  Ties are broken by the order of
    ``subscriptions``, so equal input gives equal output.
    """
    assigned: dict[MemberId, set[TopicPartition]] = {
        member_id: set() for member_id in subscriptions
    }
    for members, topic_ids in _shares(subscriptions):
        targets = [
            TopicPartition(topic_id, partition)
            for topic_id in sorted(topic_ids)
            for partition in sorted(partitions.get(topic_id, ()))
        ]
        if targets:
            held = {member_id: set(current.get(member_id, NOTHING)) for member_id in members}
            for member_id, share in _divide(targets, held).items():
                assigned[member_id] |= share
    return {member_id: frozenset(share) for member_id, share in assigned.items()}


def _shares(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
) -> list[tuple[list[MemberId], frozenset[TopicId]]]:
    """Who divides which topics among them: everybody everything, or topic by topic."""
    different = set(subscriptions.values())
    if len(different) == 1:
        return [(list(subscriptions), next(iter(different)))]
    return [
        (
            [member_id for member_id, names in subscriptions.items() if topic_id in names],
            frozenset({topic_id}),
        )
        for topic_id in sorted(frozenset().union(*different))
    ]


def _divide(
    targets: Sequence[TopicPartition], held: dict[MemberId, set[TopicPartition]]
) -> dict[MemberId, set[TopicPartition]]:
    """Divide ``targets`` among the members of ``held``, which says what they have so far."""
    sharing = -(-len(held) // len(targets))
    holders: dict[TopicPartition, list[MemberId]] = {target: [] for target in targets}
    for member_id, share in held.items():
        held[member_id] = {target for target in share if target in holders}
        for target in held[member_id]:
            holders[target].append(member_id)
    quotas = _quotas(held, sharing * len(targets))
    _take_from_members(held, holders, quotas)
    _take_from_partitions(held, holders, sharing)
    _hand_out(held, holders, quotas, sharing)
    return held


def _quotas(held: Mapping[MemberId, set[TopicPartition]], places: int) -> dict[MemberId, int]:
    """How many places each member is to have; who has most now gets the greater ones."""
    each, greater = divmod(places, len(held))
    most_first = sorted(held, key=lambda member_id: -len(held[member_id]))
    return {member_id: each + (rank < greater) for rank, member_id in enumerate(most_first)}


def _take_from_members(
    held: Mapping[MemberId, set[TopicPartition]],
    holders: Mapping[TopicPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
) -> None:
    """Members above quota lose what is shared most."""
    for member_id, share in held.items():
        excess = len(share) - quotas[member_id]
        if excess > 0:
            shared_most = sorted(share, key=lambda target: (-len(holders[target]), target))
            for target in shared_most[:excess]:
                share.remove(target)
                holders[target].remove(member_id)


def _take_from_partitions(
    held: Mapping[MemberId, set[TopicPartition]],
    holders: Mapping[TopicPartition, list[MemberId]],
    sharing: int,
) -> None:
    """Partitions that are shared too much lose members, those first who have most."""
    for target, member_ids in holders.items():
        excess = len(member_ids) - sharing
        if excess > 0:
            member_ids.sort(key=lambda member_id: -len(held[member_id]))
            for member_id in member_ids[:excess]:
                held[member_id].remove(target)
            del member_ids[:excess]


def _hand_out(
    held: Mapping[MemberId, set[TopicPartition]],
    holders: Mapping[TopicPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
    sharing: int,
) -> None:
    """Fill the free places in turn with members below quota."""
    below_quota = deque(
        member_id for member_id, share in held.items() if len(share) < quotas[member_id]
    )
    for target, member_ids in holders.items():
        passed_over: list[MemberId] = []
        while len(member_ids) < sharing and below_quota:
            member_id = below_quota.popleft()
            if target in held[member_id]:
                passed_over.append(member_id)
                continue
            held[member_id].add(target)
            member_ids.append(member_id)
            if len(held[member_id]) < quotas[member_id]:
                below_quota.append(member_id)
        below_quota.extendleft(reversed(passed_over))
    for target, member_ids in holders.items():
        while len(member_ids) < sharing:
            others = (member_id for member_id in held if target not in held[member_id])
            member_id = min(others, key=lambda other: len(held[other]))
            held[member_id].add(target)
            member_ids.append(member_id)
