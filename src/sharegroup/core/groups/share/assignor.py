"""The assignors of share groups: they decide which members read from which partitions.

An assignment says where a member fetches records; it is not ownership. Two members on one partition
get different records. So if there are more members than partitions, they share them.

With the assignor ``simple``, for M members and P partitions, each partition is given to ``sharing``
= ceil(M / P) members, which makes ``sharing * P`` places. Every member has a quota of places;
quotas differ by at most one.

    M <= P   sharing is 1: every partition has one member, sizes differ by at most one
    M >  P   every partition is shared, every member has one or two partitions

The assignor is sticky: it starts from the current assignment, takes away what is above quota, and
hands out the free places. The greater quotas go to the members with the most partitions, so they
keep them.

At the end a shared partition may have free places, because the only members below quota have it
already. Such a place goes to the member with the fewest partitions that does not have this one.
There are more members than the partition has places, so one exists and every place is taken.

Members with unequal subscriptions are served topic by topic, each topic among its subscribers,
without balance across topics, as in Kafka.

The assignor ``wide`` has more places and gives the free ones by other rules (`wide`); the rest is
the same. Among members with unequal subscriptions, a topic has its part of a member's limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sharegroup.core.groups.share.wide import Width, best, hand_out, to_thin
from sharegroup.ids import MemberId, TopicId, TopicIdPartition
from sharegroup.steps import Steps, paced, run_to_end

Assignment = frozenset[TopicIdPartition]

NOTHING: Assignment = frozenset()


class Division(NamedTuple):
    """What an assignment is made from: the arguments of `assign`."""

    subscriptions: Mapping[MemberId, frozenset[TopicId]]
    current: Mapping[MemberId, Assignment]
    partitions: Mapping[TopicId, frozenset[int]]
    width: Width | None = None


def assign(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    current: Mapping[MemberId, Assignment],
    partitions: Mapping[TopicId, frozenset[int]],
    width: Width | None = None,
) -> dict[MemberId, Assignment]:
    """Return the new assignment of every member in ``subscriptions``: ``wide`` with a width.

    ``partitions`` are the ones that may be assigned. Ties are broken by the order of
    ``subscriptions``, so equal input gives equal output.
    """
    return run_to_end(assigning(Division(subscriptions, current, partitions, width)))


def assigning(division: Division) -> Steps[dict[MemberId, Assignment]]:
    """Return the same assignment as `assign`, in steps."""
    subscriptions, current, partitions, width = division
    assigned: dict[MemberId, set[TopicIdPartition]] = {
        member_id: set() for member_id in subscriptions
    }
    counts = {
        topic_ids: sum(len(partitions.get(topic_id, ())) for topic_id in topic_ids)
        for topic_ids in set(() if width is None else subscriptions.values())
    }
    for members, topic_ids in _shares(subscriptions):
        targets = _targets(topic_ids, partitions)
        if targets:
            held = {member_id: set(current.get(member_id, NOTHING)) for member_id in members}
            part = width
            if width is not None:
                largest = max(counts[subscriptions[member_id]] for member_id in members)
                part = width.part(len(targets), largest)
            divided = yield from _divide(targets, held, part)
            for member_id, share in divided.items():
                assigned[member_id] |= share
    if width is not None:
        # In no topic did these have one of the places that a limit leaves.
        for member_id in [member_id for member_id, share in assigned.items() if not share]:
            if targets := _targets(subscriptions[member_id], partitions):
                assigned[member_id].add(best(member_id, targets))
    return {member_id: frozenset(share) for member_id, share in assigned.items()}


def _targets(
    topic_ids: Iterable[TopicId], partitions: Mapping[TopicId, frozenset[int]]
) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in sorted(partitions.get(topic_id, ()))
    ]


def _shares(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
) -> list[tuple[list[MemberId], frozenset[TopicId]]]:
    """Return which members divide which topics: all together, or topic by topic."""
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
    targets: Sequence[TopicIdPartition],
    held: dict[MemberId, set[TopicIdPartition]],
    width: Width | None,
) -> Steps[dict[MemberId, set[TopicIdPartition]]]:
    """Divide ``targets`` among the members of ``held``, which is the current assignment."""
    places = len(held) if width is None else width.places(len(held), len(targets))
    # Members per partition, rounded up, so that every member gets a partition.
    sharing = -(-places // len(targets))
    if sharing == 1 and divide_unshared(targets, held):
        return held
    holders: dict[TopicIdPartition, list[MemberId]] = {target: [] for target in targets}
    for (member_id, share), pause in paced(held.items()):
        held[member_id] = {target for target in share if target in holders}
        for target in held[member_id]:
            holders[target].append(member_id)
        if pause:
            yield
    quotas = _quotas(held, sharing * len(targets) if width is None else places)
    yield from _take_from_members(held, holders, quotas)
    yield from _take_from_partitions(held, holders, sharing)
    if width is None:
        _hand_out(held, holders, quotas, sharing)
        return held
    sharing_min = places // len(targets)
    thinner = to_thin(held, holders, quotas, sharing_min=sharing_min)
    thinned = {target: holders[target] for target in thinner}
    yield from _take_from_partitions(held, thinned, sharing_min)
    yield from hand_out(held, holders, quotas, sharing_max=sharing)
    return held


def of_topics(partitions: Assignment, topic_ids: frozenset[TopicId]) -> Assignment:
    """Return those of the partitions that belong to these topics."""
    lost = topic_ids_of(partitions) - topic_ids
    if not lost:
        return partitions
    return frozenset(partition for partition in partitions if partition.topic_id not in lost)


def topic_ids_of(partitions: Iterable[TopicIdPartition]) -> frozenset[TopicId]:
    """Return the topics of these partitions.

    Equal topic ids are nearly always the same object, and hashing them is slow.
    """
    return frozenset({id(topic_id): topic_id for topic_id, _ in partitions}.values())


def divide_unshared(
    targets: Sequence[TopicIdPartition],
    held: dict[MemberId, set[TopicIdPartition]],
    *,
    keep_first: bool = False,
) -> bool:
    """Divide like `_divide` if no target has two members so far; return whether it did.

    A member with too many loses its first targets, or its last ones with ``keep_first``.

    This is nearly always the case, and it divides a topic of 20,000 partitions in a third of the
    time.
    """
    everything = frozenset(targets)
    taken = everything.intersection(set[TopicIdPartition]().union(*held.values()))
    kept = {member_id: share & everything for member_id, share in held.items()}
    if sum(map(len, kept.values())) > len(taken):
        return False
    held.update(kept)
    quotas = _quotas(held, len(targets))
    for member_id, share in held.items():
        excess = len(share) - quotas[member_id]
        if excess > 0:
            ordered = sorted(share)
            lost = ordered[-excess:] if keep_first else ordered[:excess]
            share.difference_update(lost)
            taken = taken.difference(lost)
    below_quota = deque(
        (share, quotas[member_id])
        for member_id, share in held.items()
        if len(share) < quotas[member_id]
    )
    # One operation on sets, in place of one for each partition, as when one member joins.
    if len(below_quota) == 1:
        below_quota[0][0].update(everything.difference(taken))
        return True
    for target in targets if not taken else [target for target in targets if target not in taken]:
        share, quota = below_quota.popleft()
        share.add(target)
        if len(share) < quota:
            below_quota.append((share, quota))
    return True


def _quotas(held: Mapping[MemberId, set[TopicIdPartition]], places: int) -> dict[MemberId, int]:
    """Return the number of places for each member; the greater quotas go to the largest."""
    quota, greater_count = divmod(places, len(held))
    most_first = sorted(held, key=lambda member_id: -len(held[member_id]))
    return {member_id: quota + (rank < greater_count) for rank, member_id in enumerate(most_first)}


def _take_from_members(
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
) -> Steps[None]:
    """Take from members above quota the partitions with the most members."""
    for member_id, share in held.items():
        excess = len(share) - quotas[member_id]
        if excess > 0:
            shared_most = sorted(share, key=lambda target: (-len(holders[target]), target))
            for target in shared_most[:excess]:
                share.remove(target)
                holders[target].remove(member_id)
            yield


def _take_from_partitions(
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    sharing: int,
) -> Steps[None]:
    """Remove members from partitions that have too many, first those with the most partitions."""
    for target, member_ids in holders.items():
        # After members have left, or partitions were added, fewer members share each partition.
        excess = len(member_ids) - sharing
        if excess > 0:
            member_ids.sort(key=lambda member_id: -len(held[member_id]))
            for member_id in member_ids[:excess]:
                held[member_id].remove(target)
            del member_ids[:excess]
            yield


def _hand_out(
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
    sharing: int,
) -> None:
    """Give the free places in turn to members below quota."""
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
        # Back to the front in their order: they keep their turn for the next partition.
        below_quota.extendleft(reversed(passed_over))
    for target, member_ids in holders.items():
        while len(member_ids) < sharing:
            candidates = (member_id for member_id in held if target not in held[member_id])
            member_id = min(candidates, key=lambda other: len(held[other]))
            held[member_id].add(target)
            member_ids.append(member_id)
