"""Which records of a share partition are free, so that of one key one at a time is delivered.

The records of a key form a chain, in the order of their offsets. Only the first one that is not
settled is free; the others wait until it is. Records without a key are always free::

    offsets     0   1   2   3   4   5   6
    keys        a   b   a   -   a   b   c
    free        0   1       3           6      when 0 is settled, 2 becomes free

Only a hash of a key is kept, so two keys may share a chain: that delays records but never delivers
two of a key. ARCHIVING counts as settled. A record that is released, or whose lock ends, stays the
first of its chain, so it is delivered again before all others of its key. If it is released with a
delay, its key waits until the delay is over.

The caller adds the records of the log in order (`KeyOrder.learn`) and reports each change of the
share partition (`KeyOrder.follow`; `acquired` and `available` are the changes without a delta).
Nothing here is durable: a new object learns again from the start offset. Memory depends on the
records with a key that are not settled, not on the offsets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from sharegroup.core.delivery.acquisition import Range
from sharegroup.core.delivery.delivery import AVAILABLE, IN_MEMORY, Acquired, Delta
from sharegroup.core.delivery.share_partition import SharePartition

NO_OFFSET = 2**63 - 1
"""Above every offset."""

STRETCH_BITS = 6
"""Blocked records are counted in stretches of 64 offsets."""


class KeyOrder:
    """The keys of a share partition's records from the start offset to ``known_end``."""

    __slots__ = (
        "__weakref__",
        "_behind",
        "_blocked",
        "_first_of",
        "_free",
        "_hashes",
        "_held",
        "_last_of",
        "_start",
        "known_end",
    )

    def __init__(self, start_offset: int) -> None:
        self.known_end = self._start = start_offset
        self._hashes: dict[int, int] = {}  # By offset, ascending: records that are not settled.
        self._first_of: dict[int, int] = {}  # By hash: the first and the last offset of its chain.
        self._last_of: dict[int, int] = {}
        self._behind: dict[int, int] = {}
        """The next offset of a chain; it may be settled, if the log lost it before its turn."""
        self._blocked: Counter[int] = Counter()
        """By number of a stretch: records that are not the first of their chain."""
        self._held: set[int] = set()
        """Acquired or delayed records behind the first of their chain, from before the order."""
        self._free: list[Range] = []
        """The ranges of the free records, in order and without overlaps."""

    def __len__(self) -> int:
        """The number of records that take memory."""
        return len(self._first_of) + len(self._behind)

    def learn(
        self, partition: SharePartition, end: int, offsets: Sequence[int], hashes: Sequence[int]
    ) -> None:
        """Add the records from ``known_end`` to ``end``; ``offsets`` are those with a key.

        From now on they are available in the share partition, because a free record may lie behind
        one that is not.
        """
        first, self.known_end = self.known_end, end
        partition.see(end)
        keyed = iter(zip(offsets, hashes, strict=True))
        offset, digest = next(keyed, (NO_OFFSET, 0))
        for run in partition.runs(first):
            if run.first >= end:
                break
            is_taken = run.value.state in IN_MEMORY
            is_open = is_taken or run.value.state is AVAILABLE
            run_end = min(run.end, end)
            while offset < run_end:
                if is_open and offset >= run.first:
                    self._link(offset, digest)
                    if is_taken and self._first_of[digest] != offset:
                        self._held.add(offset)
                offset, digest = next(keyed, (NO_OFFSET, 0))
            if run.value.state is AVAILABLE:
                self._release(run.first, run_end)

    def follow(self, delta: Delta) -> None:
        """Note a change of the share partition."""
        if delta.start_offset > self._start:
            # Also those that the log deleted, in any state; the delta does not name them.
            self._settle(self._start, delta.start_offset)
            self._start = delta.start_offset
            self.known_end = max(self.known_end, delta.start_offset)
        for batch in delta.batches:
            if batch.state is not AVAILABLE:
                self._settle(batch.first, batch.end)
            elif not batch.due_ms:
                self._release(batch.first, min(batch.end, self.known_end))

    def acquired(self, ranges: Iterable[Acquired]) -> None:
        """Note that free records were acquired."""
        for first, end, _ in ranges:
            self._take(first, end)

    def available(self, ranges: Iterable[Range]) -> None:
        """Note that delayed records are available again."""
        for first, end in ranges:
            self._release(first, min(end, self.known_end))

    def free(self, count_max: int = NO_OFFSET, *, end: int = NO_OFFSET) -> list[Range]:
        """Return the lowest free ranges below ``end``, until they hold ``count_max`` records."""
        found: list[Range] = []
        count = 0
        for first, range_end in self._free:
            if count >= count_max or first >= end:
                break
            found.append((first, min(range_end, end)))
            count += range_end - first
        return found

    def blocked_count(self, first: int, end: int) -> int:
        """Return about how many records of a range wait for another one of their key."""
        stretches = range(first >> STRETCH_BITS, ((end - 1) >> STRETCH_BITS) + 1)
        if len(stretches) > len(self._blocked):  # A range may be a hole of a billion offsets.
            count = sum(count for number, count in self._blocked.items() if number in stretches)
        else:
            count = sum(map(self._blocked.__getitem__, stretches))
        return count * (end - first) // (len(stretches) << STRETCH_BITS)

    def _link(self, offset: int, digest: int) -> None:
        self._hashes[offset] = digest
        last = self._last_of.get(digest)
        if last is None:
            self._first_of[digest] = offset
        else:
            self._behind[last] = offset
            self._blocked[offset >> STRETCH_BITS] += 1
        self._last_of[digest] = offset

    def _release(self, first: int, end: int) -> None:
        """Note that the records of a range are available: those that are first of their key are
        free.
        """
        for offset in self._known(first, end):
            self._held.discard(offset)
            if self._first_of[self._hashes[offset]] != offset:
                if first < offset:
                    insort(self._free, (first, offset))
                first = offset + 1
        if first < end:
            insort(self._free, (first, end))

    def _settle(self, first: int, end: int) -> None:
        """Note that the records of a range are settled: the next ones of their keys are free."""
        for offset in self._known(first, end):
            self._held.discard(offset)
            digest = self._hashes.pop(offset)
            if self._first_of[digest] != offset:
                self._unblock(offset)
                continue  # The chain is followed past it when its turn comes.
            following = self._behind.pop(offset, None)
            while following is not None and following not in self._hashes:
                following = self._behind.pop(following, None)
            if following is None:
                del self._first_of[digest], self._last_of[digest]
            else:
                self._first_of[digest] = following
                self._unblock(following)
                if following not in self._held:
                    insort(self._free, (following, following + 1))
        # At last, because the next record of a key may be settled with the one before.
        self._take(first, end)

    def _unblock(self, offset: int) -> None:
        number = offset >> STRETCH_BITS
        self._blocked[number] -= 1
        if not self._blocked[number]:
            del self._blocked[number]

    def _take(self, first: int, end: int) -> None:
        """Remove a range from the free records, as far as it is among them."""
        free = self._free
        low = bisect_left(free, (first,))
        if low and free[low - 1][1] > first:
            low -= 1
        high = bisect_left(free, (end,), low)
        if low < high:
            before, behind = (free[low][0], first), (end, free[high - 1][1])
            free[low:high] = [part for part in (before, behind) if part[0] < part[1]]

    def _known(self, first: int, end: int) -> list[int]:
        """Return the offsets of a range that have a key and are not settled, in order."""
        hashes = self._hashes
        # A range may be a hole of a billion offsets.
        if end - first > len(hashes):
            return [offset for offset in hashes if first <= offset < end]
        return [offset for offset in range(first, end) if offset in hashes]
