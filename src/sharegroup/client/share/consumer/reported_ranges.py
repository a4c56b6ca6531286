"""The unreadable offsets of one partition that the application was told of, until they are sent.

    reported --settle--> settled --take--> sent          (the type may change until then)
        '--release_undecided--> released                 (by the next poll)
        '--keep--> stays until it is settled, or its lock ends

They are kept as ranges, because a damaged batch may claim two billion offsets.  The lock of a range
counts its undecided offsets as open, so it is renewed with its records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import AckRun

UNDECIDED = -1


class _Part(NamedTuple):
    """Offsets under one lock with the same acknowledgement type."""

    lock: AcquisitionLock
    ack_type: int
    """The acknowledgement type, or UNDECIDED."""
    is_kept: bool
    first: int
    end: int


class ReportedRanges:
    """The unreadable offsets of one partition that were reported, and what was decided."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def undecided_count(self) -> int:
        """The number of offsets that are not settled."""
        return sum(part.end - part.first for part in self._parts if part.ack_type == UNDECIDED)

    @property
    def has_settled(self) -> bool:
        """Whether `take` would return acknowledgements."""
        return any(part.ack_type != UNDECIDED for part in self._parts)

    def add(self, lock: AcquisitionLock, first: int, end: int) -> None:
        """Add offsets that are reported now."""
        lock.open += end - first
        self._parts.append(_Part(lock, UNDECIDED, False, first, end))

    def lock_of(self, offset: int) -> AcquisitionLock | None:
        """Return the lock of a reported offset whose acknowledgement is not taken, or None."""
        return next((part.lock for part in self._parts if part.first <= offset < part.end), None)

    def settle(self, lock: AcquisitionLock, first: int, end: int, ack_type: int) -> bool:
        """Set the type of offsets under this lock; return False if they are not all here."""
        return self._change(lock, first, end, ack_type, is_kept=False)

    def keep(self, lock: AcquisitionLock, first: int, end: int) -> None:
        """Leave undecided offsets out of `release_undecided`."""
        self._change(lock, first, end, UNDECIDED, is_kept=True)

    def drop(self, first: int, end: int) -> None:
        """Forget undecided offsets, because their lock ended and they were delivered again."""
        undecided = [part for part in self._parts if part.ack_type == UNDECIDED]
        for part in undecided:
            if part.first < end and first < part.end:
                self._forget(part)

    def forget(self) -> None:
        """Forget all undecided offsets."""
        for part in tuple(self._parts):
            if part.ack_type == UNDECIDED:
                self._forget(part)

    def release_undecided(self) -> list[tuple[AcquisitionLock, int, int]]:
        """Forget the undecided offsets that are not kept; return them."""
        released = [part for part in self._parts if part.ack_type == UNDECIDED and not part.is_kept]
        for part in released:
            self._forget(part)
        return [(part.lock, part.first, part.end) for part in released]

    def take(self) -> Iterator[AckRun]:
        """Take the acknowledgements out."""
        parts, self._parts = self._parts, []
        for part in parts:
            if part.ack_type == UNDECIDED:
                self._parts.append(part)
            else:
                yield AckRun(part.first, part.end, part.ack_type)

    def open_runs(self, locks: Collection[AcquisitionLock], ack_type: int) -> list[AckRun]:
        """Return the undecided offsets under these locks as runs of this type."""
        return [
            AckRun(part.first, part.end, ack_type)
            for part in self._parts
            if part.ack_type == UNDECIDED and part.lock in locks
        ]

    def _forget(self, part: _Part) -> None:
        part.lock.open -= part.end - part.first
        self._parts.remove(part)

    def _change(
        self, lock: AcquisitionLock, first: int, end: int, ack_type: int, *, is_kept: bool
    ) -> bool:
        parts: list[_Part] = []
        count = opened = 0
        for part in self._parts:
            low, high = max(part.first, first), min(part.end, end)
            if part.lock is not lock or low >= high:
                _append(parts, part)
                continue
            count += high - low
            # Only undecided offsets count as open, so a change from one type to another counts
            # nothing.
            opened += (high - low) * ((ack_type == UNDECIDED) - (part.ack_type == UNDECIDED))
            _append(parts, part._replace(end=low))
            _append(parts, _Part(lock, ack_type, is_kept, low, high))
            _append(parts, part._replace(first=high))
        if count != end - first:
            return False
        self._parts = parts
        lock.open += opened
        return True


def _append(parts: list[_Part], part: _Part) -> None:
    """Append a part unless it is empty; join it to the last one if it continues that."""
    if part.first >= part.end:
        return
    if parts and parts[-1][:3] == part[:3] and parts[-1].end == part.first:
        parts[-1] = parts[-1]._replace(end=part.end)
    else:
        parts.append(part)
