"""The offsets that consumer groups have committed, by group, topic and partition.

Topics are stored by name, because most clients commit by name. The topic id that was committed with
an offset tells whether the topic of that name is still the same.

The memory of all offsets has a limit, and one group may use a part of it. A commit is refused only
if it needs more memory than before, so a group can always commit again for the same partition with
metadata of the same size. Sizes are estimated upwards. Offsets loaded from a log are never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sharegroup.core.groups.classic.records import (
    OffsetAndMetadata,
    OffsetCommit,
    OffsetTombstone,
    Records,
)
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import InvalidCommitOffsetSize
from sharegroup.ids import GroupId, TopicName

OffsetsOfGroup = Mapping[TopicName, Mapping[int, OffsetAndMetadata]]

GROUP_PART = 2
"""Divisor of the limit of all groups that gives the limit of one group: half of it."""

OFFSET_BYTES = 280
"""Memory of one more offset of a topic, without its metadata; measured after a start."""

TOPIC_BYTES = 160
"""Memory of one more topic of a group, without its name."""

GROUP_BYTES = 1_250
"""Memory of one more group with offsets, without its id, its topics and its members."""


class CommittedOffsets:
    """The committed offsets of all groups, and the memory that they take."""

    __slots__ = ("_by_group", "_memory", "_sizes")

    def __init__(self, memory: SharedTotal[GroupId]) -> None:
        """``memory`` is that of all offsets, also of those in open transactions."""
        self._memory = memory
        self._by_group: dict[GroupId, dict[TopicName, dict[int, OffsetAndMetadata]]] = {}
        self._sizes: dict[GroupId, int] = {}

    def __iter__(self) -> Iterator[OffsetCommit]:
        """Iterate over all offsets, as records."""
        for group_id in self._by_group:
            yield from self.commits(group_id)

    def of_group(self, group_id: GroupId) -> OffsetsOfGroup:
        """Return the group's offsets, which must not be changed; empty if it has committed none."""
        return self._by_group.get(group_id, {})

    def commits(self, group_id: GroupId) -> Iterator[OffsetCommit]:
        """Iterate over the group's offsets, as records."""
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield OffsetCommit(group_id, topic, partition, committed)

    def tombstones(
        self, group_id: GroupId, goes: Callable[[OffsetCommit], bool] = lambda _: True
    ) -> Records:
        """Return tombstones for the group's offsets for which ``goes`` is true."""
        return tuple(
            OffsetTombstone(group_id, commit.topic, commit.partition)
            for commit in self.commits(group_id)
            if goes(commit)
        )

    def bytes_of(self, group_id: GroupId) -> int:
        """Return the estimated memory of a group's offsets."""
        return self._sizes.get(group_id, 0)

    def check_room(
        self,
        group_id: GroupId,
        offsets: Iterable[OffsetCommit],
        *,
        bytes_max: int,
        pending_bytes: int = 0,
        user: Principal | None = None,
    ) -> None:
        """Raise InvalidCommitOffsetSize if the group's offsets would take too much memory.

        ``pending_bytes`` is the memory that they take until their transaction ends.
        """
        more = sum(map(self._growth, offsets)) + pending_bytes
        if more <= 0:
            return
        size, part = self._sizes.get(group_id, 0) + more, bytes_max // GROUP_PART
        if size > part:
            raise InvalidCommitOffsetSize(
                f"group {group_id!r}: its committed offsets would take {size} bytes, {part} are "
                "allowed for one group; commit shorter metadata, or delete offsets"
            )
        used_bytes = self._memory.used
        if used_bytes + more > bytes_max:
            raise InvalidCommitOffsetSize(
                f"group {group_id!r}: with {more} bytes more the committed offsets of all groups "
                f"would take {used_bytes + more}, {bytes_max} are allowed; delete some groups"
            )
        self._memory.check(group_id, user, more, limit=bytes_max)

    def _growth(self, record: OffsetCommit) -> int:
        """Return the bytes that the record adds, estimated upwards.

        Each record of a commit is counted alone.
        """
        topics = self._by_group.get(record.group_id)
        if topics is None:
            return _group_bytes(record.group_id) + _topic_bytes(record.topic) + _bytes(record)
        partitions = topics.get(record.topic)
        if partitions is None:
            return _topic_bytes(record.topic) + _bytes(record)
        former = partitions.get(record.partition)
        if former is None:
            return _bytes(record)
        return _note_bytes(record.committed.metadata) - _note_bytes(former.metadata)

    def put(self, record: OffsetCommit) -> None:
        """Store a committed offset."""
        added_bytes = self._growth(record)
        topics = self._by_group.setdefault(record.group_id, {})
        topics.setdefault(record.topic, {})[record.partition] = record.committed
        self._sizes[record.group_id] = self._sizes.get(record.group_id, 0) + added_bytes
        self._memory.change(record.group_id, added_bytes)

    def remove(self, record: OffsetTombstone) -> None:
        """Remove a committed offset."""
        topics = self._by_group.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        committed = partitions.pop(record.partition, None)
        if committed is None:
            return
        freed_bytes = OFFSET_BYTES + _note_bytes(committed.metadata)
        if not partitions:
            del topics[record.topic]
            freed_bytes += _topic_bytes(record.topic)
        self._sizes[record.group_id] -= freed_bytes
        if not topics:
            del self._by_group[record.group_id]
            # What is left is the memory of the group itself.
            freed_bytes += self._sizes.pop(record.group_id)
        self._memory.change(record.group_id, -freed_bytes)


def _bytes(record: OffsetCommit) -> int:
    return OFFSET_BYTES + _note_bytes(record.committed.metadata)


def _note_bytes(note: str) -> int:
    """Return the memory of a commit's metadata; an empty text is shared and takes none."""
    return note.__sizeof__() if note else 0


def _topic_bytes(topic: TopicName) -> int:
    return TOPIC_BYTES + len(topic)


def _group_bytes(group_id: GroupId) -> int:
    return GROUP_BYTES + group_id.__sizeof__()


# Offsets that belong to open transactions: they count when the transaction is committed.
#
# Each partition of ``__consumer_offsets`` is on its own: a marker there ends the transaction for
# the groups of that partition. As in Kafka, the offset that was written last is valid, not the one
# whose transaction ended last. So an offset is dropped from its transaction when a later one is
# committed.


PENDING_BYTES = 700
"""Estimated memory of a pending offset, without its metadata."""


class OpenTransaction(NamedTuple):
    """A producer's transaction in one partition of ``__consumer_offsets``."""

    partition: int
    producer_id: int


class _OffsetKey(NamedTuple):
    topic: TopicName
    partition: int


class PendingOffset(NamedTuple):
    """An offset of an open transaction; ``order`` counts all that were written."""

    order: int
    commit: OffsetCommit


class PendingOffsets:
    """The offsets of open transactions, by transaction and by group."""

    __slots__ = ("_by_group", "_commits", "_count", "_memory", "_sizes")

    def __init__(self, memory: SharedTotal[GroupId]) -> None:
        """``memory`` is that of all offsets, also of the committed ones."""
        self._memory = memory
        self._sizes: dict[GroupId, int] = {}
        self._commits: dict[
            OpenTransaction, dict[tuple[GroupId, _OffsetKey], PendingOffset | None]
        ] = {}
        """None in place of an offset for which a later one was committed."""
        self._by_group: dict[GroupId, dict[_OffsetKey, set[OpenTransaction]]] = {}
        self._count = 0

    def bytes_of(self, group_id: GroupId) -> int:
        """Return the estimated memory of a group's pending offsets."""
        return self._sizes.get(group_id, 0)

    def put(self, transaction: OpenTransaction, commit: OffsetCommit) -> None:
        """Store an offset until its transaction ends."""
        key = _OffsetKey(commit.topic, commit.partition)
        pending = self._commits.setdefault(transaction, {})
        self._count += 1
        added = PendingOffset(self._count, commit)
        more = _pending_bytes(added) - _pending_bytes(pending.get((commit.group_id, key)))
        self._hold(commit.group_id, more)
        pending[commit.group_id, key] = added
        self._by_group.setdefault(commit.group_id, {}).setdefault(key, set()).add(transaction)

    def supersede(
        self, group_id: GroupId, topic: TopicName, partition: int, *, before: int | None = None
    ) -> None:
        """Drop the pending values of an offset that was committed or deleted meanwhile.

        ``before`` is the order of the committed value, if a transaction committed it.
        """
        key = _OffsetKey(topic, partition)
        for transaction in self._by_group.get(group_id, {}).get(key, ()):
            pending = self._commits[transaction]
            value = pending[group_id, key]
            if value is not None and (before is None or value.order < before):
                self._hold(group_id, -_pending_bytes(value))
                # Not removed, so that `end` finds the transaction in `_by_group`.
                pending[group_id, key] = None

    def end(self, transaction: OpenTransaction) -> tuple[PendingOffset, ...]:
        """Forget a transaction; return its offsets that are valid if it is committed."""
        ended = self._commits.pop(transaction, {})
        for (group_id, key), pending in ended.items():
            self._hold(group_id, -_pending_bytes(pending))
            of_group = self._by_group[group_id]
            of_group[key].discard(transaction)
            if not of_group[key]:
                del of_group[key]
                if not of_group:
                    del self._by_group[group_id]
        return tuple(pending for pending in ended.values() if pending is not None)

    def is_open(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        """Return whether an open transaction may still change the offset."""
        of_group = self._by_group.get(group_id)
        return of_group is not None and _OffsetKey(topic, partition) in of_group

    def has_open(self, group_id: GroupId) -> bool:
        """Return whether an open transaction may still change an offset of the group."""
        return group_id in self._by_group

    def of_group(self, group_id: GroupId) -> Iterator[tuple[TopicName, int]]:
        """Iterate over topic and partition of the group's pending offsets."""
        for key in self._by_group.get(group_id, ()):
            yield key.topic, key.partition

    def _hold(self, group_id: GroupId, more: int) -> None:
        size_bytes = self._sizes.pop(group_id, 0) + more
        if size_bytes:
            self._sizes[group_id] = size_bytes
        self._memory.change(group_id, more)


def pending_bytes_of(commit: OffsetCommit) -> int:
    """Return the estimated memory of an offset while its transaction is open."""
    return PENDING_BYTES + commit.committed.metadata.__sizeof__()


def _pending_bytes(pending: PendingOffset | None) -> int:
    return 0 if pending is None else pending_bytes_of(pending.commit)
