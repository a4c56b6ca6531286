"""Deadlines by key, in one heap whose entries are corrected only when they come up.

Members of groups postpone their deadlines with every heartbeat, long before they are due. So a
later deadline is only stored in a dictionary. The heap keeps the older, earlier entry until it
comes up, and corrects it then. A heartbeat costs one dictionary entry, and the heap has about one
entry for each key.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])

UNTRUE_ENTRIES_MIN = 64
"""Number of stale entries below which the heap is not rebuilt."""


class Now(NamedTuple):
    """The time of a command: monotonic milliseconds, and milliseconds since 1970."""

    ms: int
    wall_ms: int


class Deadlines(Generic[Key]):
    """The deadlines of any number of keys, the earliest first."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, *, due_ms: int) -> None:
        """Set the key's deadline, in place of an earlier or later one."""
        known_ms = self._due.get(key)
        self._due[key] = due_ms
        if known_ms is None or due_ms < known_ms:
            # Only an earlier deadline needs an entry: `next_ms` corrects those that are too early.
            heappush(self._heap, (due_ms, key))
            if len(self._heap) > 2 * len(self._due) + UNTRUE_ENTRIES_MIN:
                self._heap = [(due_ms, other_key) for other_key, due_ms in self._due.items()]
                heapify(self._heap)

    def has(self, key: Key) -> bool:
        """Whether the key has a deadline."""
        return key in self._due

    def cancel(self, key: Key) -> None:
        """Remove the key's deadline, if it has one."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """Return the earliest deadline; None if there is none."""
        while self._heap:
            entry_ms, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == entry_ms:
                return entry_ms
            if due_ms is None or due_ms < entry_ms:  # Cancelled, or another entry has the key.
                heappop(self._heap)
            else:
                heapreplace(self._heap, (due_ms, key))
        return None

    def pop(self, now_ms: int) -> Key | None:
        """Remove and return the first key whose deadline has passed; None if there is none."""
        first_ms = self.next_ms()
        if first_ms is None or first_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._due[key]
        return key

    def passed(self, now_ms: int) -> tuple[Key, ...]:
        """Return all keys whose deadline has passed, sorted; they stay until cancelled."""
        first_ms = self.next_ms()
        if first_ms is None or first_ms > now_ms:
            return ()
        return tuple(sorted(key for key, due_ms in self._due.items() if due_ms <= now_ms))
