"""Offsets that belong to open transactions: they count when the transaction is committed.

Each partition of ``__consumer_offsets`` is on its own: a marker there ends the transaction for the
groups of that partition.  As in Kafka, the offset that was written last is valid, not the one whose
transaction ended last.  So an offset is dropped from its transaction when a later one is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.core.groups.classic.records import OffsetCommit
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.ids import GroupId, TopicName

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
        more = _bytes(added) - _bytes(pending.get((commit.group_id, key)))
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
            known = pending[group_id, key]
            if known is not None and (before is None or known.order < before):
                self._hold(group_id, -_bytes(known))
                # Not removed, so that `end` finds the transaction in `_by_group`.
                pending[group_id, key] = None

    def end(self, transaction: OpenTransaction) -> tuple[PendingOffset, ...]:
        """Forget a transaction; return its offsets that are valid if it is committed."""
        ended = self._commits.pop(transaction, {})
        for (group_id, key), pending in ended.items():
            self._hold(group_id, -_bytes(pending))
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


def _bytes(pending: PendingOffset | None) -> int:
    return 0 if pending is None else pending_bytes_of(pending.commit)
