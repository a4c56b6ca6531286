"""The assignment ``wide``: members of a share group read more partitions than they need.

With as many partitions as members, ``simple`` gives each member one partition. If most records are
in one of them, one member works and the others wait. Members that also read the partitions of
others take records wherever there are some, because a share partition gives each record to one
member only.

For M members and P partitions, an assignment has as many places (pairs of a member and a partition)
as the two limits permit: min(32 M, 16 P, M P). Members have equally many places, and so have
partitions, as far as possible. Two rules win over the limits: every partition has a member, and
every member has a partition. So there are never fewer than P or M places:

    P > 32 M   every partition has one member, members have more than 32 partitions
    M > 16 P   every member has one partition, partitions have more than 16 members

Which partitions a member gets is decided by rendezvous hashing: of the partitions with the fewest
members, those with the highest hash of partition and member. So the partitions of two members
differ, and a hot partition has helpers whose other partitions are different ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from heapq import nlargest
from itertools import chain, islice, product
from typing import NamedTuple

from sharegroup.ids import MemberId, TopicIdPartition
from sharegroup.steps import Steps

CANDIDATES_MAX = 128
"""Number of partitions of which a member gets those with the highest hashes."""

_MASK = (1 << 64) - 1


class Width(NamedTuple):
    """The limits of a wide assignment: partitions of a member, and members of a partition."""

    member_partitions_max: int
    partition_members_max: int

    def part(self, part_count: int, partition_count: int) -> Width:
        """Return the limits for some of a member's partitions, in proportion to their number."""
        partitions_max = self.member_partitions_max * part_count // partition_count
        return self._replace(member_partitions_max=partitions_max)

    def places(self, member_count: int, partition_count: int) -> int:
        """Return the number of pairs of a member and a partition."""
        member_max, partition_max = self
        return max(
            partition_count,
            # With a limit of 0 members have places in other parts of the assignment.
            member_count if member_max else 0,
            min(
                member_count * min(member_max, partition_count),
                partition_count * min(partition_max, member_count),
            ),
        )


def to_thin(
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
    *,
    sharing_min: int,
) -> list[TopicIdPartition]:
    """Return the partitions that must lose a member, so others can have ``sharing_min`` members.

    No partition has more than one member above ``sharing_min``.
    """
    lacking = sum(max(0, sharing_min - len(member_ids)) for member_ids in holders.values())
    free = sum(quotas[member_id] - len(share) for member_id, share in held.items())
    if lacking <= free:
        return []
    thinner = [target for target, member_ids in holders.items() if len(member_ids) > sharing_min]
    return thinner[: lacking - free]


def hand_out(
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    quotas: Mapping[MemberId, int],
    *,
    sharing_max: int,
) -> Steps[None]:
    """Give free places to members below quota: in partitions with few members, then by hash.

    A place stays free if nobody below quota can have it, and nobody got a partition in exchange for
    which it could be taken.
    """
    levels: dict[int, list[TopicIdPartition]] = {}
    for target, member_ids in holders.items():
        if len(member_ids) < sharing_max:
            levels.setdefault(len(member_ids), []).append(target)
    hashes: dict[TopicIdPartition, int] = {}
    new: dict[MemberId, list[TopicIdPartition]] = {}
    for member_id, share in held.items():
        missing = quotas[member_id] - len(share)
        if missing > 0 and levels:
            new[member_id] = _choose(member_id, share, missing, levels, sharing_max, hashes)
            for target in new[member_id]:
                holders[target].append(member_id)
            yield  # Each choice takes some 50 us.
    below_quota = [name for name, share in held.items() if len(share) < quotas[name]]
    for member_id, target in product(below_quota, chain.from_iterable(levels.values())):
        missing = quotas[member_id] - len(held[member_id])
        places = min(missing, sharing_max - len(holders[target]))
        while places > 0 and _exchange(member_id, target, held, holders, new):
            places -= 1
        yield


def _choose(
    member_id: MemberId,
    share: set[TopicIdPartition],
    missing: int,
    levels: dict[int, list[TopicIdPartition]],
    sharing_max: int,
    hashes: dict[TopicIdPartition, int],
) -> list[TopicIdPartition]:
    """Add up to ``missing`` partitions to a member's share and return them; they rise a level.

    ``levels`` has the partitions with free places by their number of members.
    """
    member_hash, chosen = _member_hash(member_id), list[TopicIdPartition]()
    for count in sorted(levels):
        taken = _take(levels[count], share, missing - len(chosen), member_hash, hashes)
        if not levels[count]:
            del levels[count]
        if taken and count + 1 < sharing_max:
            levels.setdefault(count + 1, []).extend(taken)
        chosen += taken
        share.update(taken)  # Before the next level, which may have them now.
        if len(chosen) == missing:
            break
    return chosen


def _exchange(
    member_id: MemberId,
    target: TopicIdPartition,
    held: Mapping[MemberId, set[TopicIdPartition]],
    holders: Mapping[TopicIdPartition, list[MemberId]],
    new: Mapping[MemberId, list[TopicIdPartition]],
) -> bool:
    """Let another member take ``target``, which the member has, and give it a partition for that.

    Return whether one could. It gives what it got in this assignment (``new``), so nobody loses a
    partition that it reads.
    """
    share = held[member_id]
    for other_id, its_new in new.items():
        other = held[other_id]
        if target in other:
            continue
        given = next((found for found in its_new if found in other and found not in share), None)
        if given is not None:
            other.remove(given)
            other.add(target)
            share.add(given)
            holders[given].remove(other_id)
            holders[given].append(member_id)
            holders[target].append(other_id)
            return True
    return False


def _take(
    level: list[TopicIdPartition],
    share: set[TopicIdPartition],
    count: int,
    member_hash: int,
    hashes: dict[TopicIdPartition, int],
) -> list[TopicIdPartition]:
    """Remove and return up to ``count`` partitions of a level that the member does not have.

    They have the highest scores of `CANDIDATES_MAX`, which begin at a place that the hash of the
    member chooses.
    """
    length, candidates_max = len(level), max(count, CANDIDATES_MAX)
    start = member_hash % length if length > candidates_max else 0
    around = chain(range(start, length), range(start))
    missing = (position for position in around if level[position] not in share)
    positions = list(islice(missing, candidates_max))
    if len(positions) > count:
        positions = nlargest(
            count, positions, key=lambda position: _score(level[position], member_hash, hashes)
        )
    chosen = [level[position] for position in positions]
    # The last one takes the place of one that is taken, so nothing else moves.
    for position in sorted(positions, reverse=True):
        level[position] = level[-1]
        level.pop()
    return chosen


def _score(target: TopicIdPartition, member_hash: int, hashes: dict[TopicIdPartition, int]) -> int:
    """Return the hash of a partition and a member; ``hashes`` keeps those of partitions."""
    target_hash = hashes.get(target)
    if target_hash is None:
        content = target.topic_id.bytes + target.partition.to_bytes(4, "big")
        target_hash = hashes[target] = stable_hash(content)
    # The mixer of SplitMix64: a hash function for each pair would take four times as long.
    mixed = (member_hash ^ target_hash) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31


def best(member_id: MemberId, targets: list[TopicIdPartition]) -> TopicIdPartition:
    """Return the target with the highest score for a member."""
    member_hash, hashes = _member_hash(member_id), dict[TopicIdPartition, int]()
    return max(targets, key=lambda target: _score(target, member_hash, hashes))


def _member_hash(member_id: MemberId) -> int:
    return stable_hash(member_id.encode("utf-8", "surrogatepass"))


def stable_hash(content: bytes) -> int:
    """Return a signed hash of 64 bits, the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)
