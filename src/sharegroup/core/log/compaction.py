"""The rules of compaction: which records and batches of a log are kept. It does not touch files.

Of all records with one key only the newest is valid; the older ones may be removed. A pass first
reads the part that is new since the last pass and notes the newest offset of each key
(`NewestOffsets`). Then it looks at every batch below that end, from the start of the log, and keeps
the records that `CompactionRules` keeps:

    value      kept while it is the newest of its key
    tombstone  (a null value: the key is deleted) kept while it is the newest, but not for ever. The
               first pass that meets one gives its batch a *delete horizon*, and a pass after that
               time drops it. Until then a consumer that was away can still read the deletion.
    marker     kept while a batch of its transaction is in the log, then treated like a tombstone
    aborted    records of aborted transactions are removed, and never count as newest of their key

Some batches stay even without a record: the last batch of a known producer, because it has the
producer's last sequence number, and the last batch of a segment, because it has the segment's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

ENTRY_BYTES = 200
"""Memory of one key in `NewestOffsets`, measured: digest, offset and dictionary entry."""

_DIGEST_BYTES = 16  # Kafka's cleaner also compares 128-bit hashes of keys.


class NewestOffsets:
    """The offset of the newest record of each key, for as many keys as the given memory holds.

    Keys are stored as digests, so the memory of a key does not depend on its length.
    """

    __slots__ = ("_keys_max", "_newest", "end_offset")

    def __init__(self, memory_bytes: int, *, end_offset: int) -> None:
        self._keys_max = max(1, memory_bytes // ENTRY_BYTES)
        self._newest: dict[bytes, int] = {}
        self.end_offset = end_offset
        """The end of the part whose keys are known; records at or above it are kept."""

    def __len__(self) -> int:
        return len(self._newest)

    def has_room(self, record_count: int) -> bool:
        """Return whether the map has room for the keys of another batch.

        The first batch always fits.
        """
        return not self._newest or len(self._newest) + record_count <= self._keys_max

    def learn(self, key: bytes, offset: int) -> None:
        """Note the offset of a record with this key; call it in ascending order of offsets."""
        self._newest[_digest(key)] = offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Return whether no later record with this key is known."""
        return offset >= self._newest.get(_digest(key), -1)


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class LogTransactions:
    """Follows the transactions of a log, batch by batch, in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_to_come")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        # The first to begin comes last, because `pop` takes from the end.
        self._to_come = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._aborted: dict[int, bool] = {}
        """Open aborted transactions by producer: whether the log still has one of their batches."""
        self._committed: set[int] = set()

    def records(self, producer_id: int, *, end_offset: int, is_transactional: bool) -> bool:
        """Note a record batch; return whether it belongs to an aborted transaction."""
        # With the end of the batch, because its own first record may begin the aborted transaction.
        self._begin_before(end_offset)
        if not is_transactional:
            return False
        if producer_id not in self._aborted:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = True
        return True

    def marker(self, producer_id: int, *, end_offset: int, is_commit: bool) -> bool:
        """Note a marker; return whether no batch of its transaction is in the log any more."""
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
    """The last batch of a producer in a log; ``end_offset`` is None if it is a marker."""

    epoch: int
    end_offset: int | None


class Fate(Enum):
    """The treatment of a batch in a pass."""

    DROPPED = "dropped"
    """The batch is removed with all its records."""
    FILTERED = "filtered"
    """Each record is kept or removed; a batch without records is removed."""
    FILTERED_STAYS = "filtered, stays when empty"
    EMPTIED = "emptied"


class CompactionRules:
    """Decides for each batch and record of a pass whether it is kept."""

    __slots__ = ("_last", "_newest", "_now_ms")

    def __init__(
        self, newest: NewestOffsets, *, last: Mapping[int, LastOfProducer], now_ms: int
    ) -> None:
        self._newest = newest
        self._last = last
        self._now_ms = now_ms

    def fate(self, *, must_stay: bool, is_void: bool, is_marker: bool, horizon: int | None) -> Fate:
        """Return what happens to a batch.

        ``is_void`` means that it belongs to an aborted transaction, or that it is the marker of a
        transaction without batches.
        """
        if is_void and (not is_marker or self._is_past(horizon)):
            return Fate.EMPTIED if must_stay else Fate.DROPPED
        return Fate.FILTERED_STAYS if must_stay else Fate.FILTERED

    def is_last_of_producer(
        self, producer_id: int, *, epoch: int, end_offset: int, is_marker: bool
    ) -> bool:
        """Return whether the batch is the last one of its producer, so it must stay.

        It has the last sequence number, or it is the marker with the newest epoch.
        """
        last = self._last.get(producer_id)
        if last is None:
            return False
        if last.end_offset is None:
            return is_marker and last.epoch == epoch
        return last.end_offset == end_offset

    def keeps(
        self, key: bytes | None, *, offset: int, is_tombstone: bool, horizon: int | None
    ) -> bool:
        """Return whether a record is kept; a record without a key is not kept."""
        if offset >= self._newest.end_offset:
            return True  # Its key was not noted: a later pass decides.
        if key is None or not self._newest.is_newest(key, offset):
            return False
        return not (is_tombstone and self._is_past(horizon))

    def _is_past(self, horizon: int | None) -> bool:
        return horizon is not None and horizon <= self._now_ms


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
