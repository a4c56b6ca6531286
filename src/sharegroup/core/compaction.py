"""What compaction keeps of a log: the rules, without the files.

Of all records with one key the newest says what holds; the older ones may go.  A pass first
learns from the part that is new since the last pass where the newest record of each key is
(`NewestOffsets`), then looks at every batch up to there, from the start of the log, and keeps
of each record what `Keeper` says:

    value      kept while it is the newest of its key
    tombstone  (no value: the key is deleted) kept likewise, but not for ever: when a pass first
               meets one it gives the batch a *delete horizon*, and a pass after that time drops
               it.  Until then a reader that was away can still learn of the deletion.
    marker     kept while a batch of its transaction is there, then treated like a tombstone
    aborted    records of aborted transactions go, and never stand for their key

Some batches stay even without a record: the last one of a producer that is known, because it
says where its sequence goes on, and the last one of a segment, because it says where that ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

ENTRY_BYTES = 200
"""What a key costs in `NewestOffsets`, measured: its digest, its offset, and their places."""

_DIGEST_BYTES = 16


class NewestOffsets:
    """Where the newest record of each key is, for as many keys as fit into the memory given.

    Keys are kept as digests: what a key costs does not depend on its length.
    """

    __slots__ = ("_keys_max", "_newest", "end_offset")

    def __init__(self, memory_bytes: int, *, end_offset: int) -> None:
        self._keys_max = max(1, memory_bytes // ENTRY_BYTES)
        self._newest: dict[bytes, int] = {}
        self.end_offset = end_offset
        """All below is known; what is at or above it is kept."""

    def __len__(self) -> int:
        return len(self._newest)

    def has_room(self, record_count: int) -> bool:
        """Whether a batch more can be learnt; one can always."""
        return not self._newest or len(self._newest) + record_count <= self._keys_max

    def learn(self, key: bytes, offset: int) -> None:
        self._newest[_digest(key)] = offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether no later record with this key is known."""
        return offset >= self._newest.get(_digest(key), -1)


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset and its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions:
    """Follows the transactions of a log, batch by batch, in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_to_come")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, bool] = {}
        """By producer, the aborted transactions that the pass is within: whether one of their
        batches is in the log still."""
        self._committed: set[int] = set()

    def records(self, producer_id: int, *, end_offset: int, is_transactional: bool) -> bool:
        """A batch of records: whether it belongs to an aborted transaction."""
        self._begin_before(end_offset)
        if not is_transactional:
            return False
        if producer_id not in self._aborted:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = True
        return True

    def marker(self, producer_id: int, *, end_offset: int, is_commit: bool) -> bool:
        """A marker: whether nothing of what it ends is in the log any more."""
        self._begin_before(end_offset)
        if is_commit:
            is_needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not is_needed
        return not self._aborted.pop(producer_id, False)

    def _begin_before(self, end_offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset < end_offset:
            self._aborted.setdefault(self._to_come.pop().producer_id, False)


class LastOfProducer(NamedTuple):
    """The last that a log has of a producer; ``end_offset`` is None where that is a marker."""

    epoch: int
    end_offset: int | None


class Fate(Enum):
    """What becomes of a batch."""

    DROPPED = "dropped"
    """With all of its records."""
    FILTERED = "filtered"
    """Record by record; dropped when none is left."""
    FILTERED_STAYS = "filtered, stays when empty"
    EMPTIED = "emptied"


class Keeper:
    """Says of each batch and record of a pass whether it stays."""

    __slots__ = ("_last", "_newest", "_now_ms")

    def __init__(
        self, newest: NewestOffsets, *, last: Mapping[int, LastOfProducer], now_ms: int
    ) -> None:
        self._newest = newest
        self._last = last
        self._now_ms = now_ms

    def fate(self, *, must_stay: bool, is_void: bool, is_marker: bool, horizon: int | None) -> Fate:
        """Of a batch.  ``is_void``: it belongs to what was aborted, or ends what is gone."""
        if is_void and (not is_marker or self._is_past(horizon)):
            return Fate.EMPTIED if must_stay else Fate.DROPPED
        return Fate.FILTERED_STAYS if must_stay else Fate.FILTERED

    def is_last_of_producer(
        self, producer_id: int, *, epoch: int, end_offset: int, is_marker: bool
    ) -> bool:
        last = self._last.get(producer_id)
        if last is None:
            return False
        if last.end_offset is None:
            return is_marker and last.epoch == epoch
        return last.end_offset == end_offset

    def keeps(
        self, key: bytes | None, *, offset: int, is_tombstone: bool, horizon: int | None
    ) -> bool:
        """Whether a record stays.  One without a key stands for nothing."""
        if offset >= self._newest.end_offset:
            return True
        if key is None or not self._newest.is_newest(key, offset):
            return False
        return not (is_tombstone and self._is_past(horizon))

    def _is_past(self, horizon: int | None) -> bool:
        return horizon is not None and horizon <= self._now_ms


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
