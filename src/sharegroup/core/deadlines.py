"""What is due when, for as many keys as there are: one heap that learns of changes late.

Members of groups push their deadlines up with every heartbeat, long before they are due.  So a
later time is only noted; the heap keeps an older, earlier entry until that comes up and is then
told the truth.  A heartbeat costs a dictionary entry, and the heap has about one entry for each
key.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])

UNTRUE_ENTRIES_MIN = 64
"""The heap is not worth making anew below this number of entries that lead nowhere."""


class Deadlines(Generic[Key]):
    """See the module's text."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, *, due_ms: int) -> None:
        """Let it be due then, whatever was noted before."""
        known_ms = self._due.get(key)
        self._due[key] = due_ms
        if known_ms is None or due_ms < known_ms:
            heappush(self._heap, (due_ms, key))
            if len(self._heap) > 2 * len(self._due) + UNTRUE_ENTRIES_MIN:
                self._heap = [(due_ms, known) for known, due_ms in self._due.items()]
                heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """It is not waited for any more, if it was."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """When the first one is due; None while there is none."""
        while self._heap:
            entry_ms, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == entry_ms:
                return entry_ms
            if due_ms is None or due_ms < entry_ms:  # Gone, or another entry has it.
                heappop(self._heap)
            else:
                heapreplace(self._heap, (due_ms, key))
        return None

    def pop(self, now_ms: int) -> Key | None:
        """The first that is due by now; it is not set any more."""
        first_ms = self.next_ms()
        if first_ms is None or first_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._due[key]
        return key

    def passed(self, now_ms: int) -> tuple[Key, ...]:
        """All that are due by now, in the order of their keys; they stay until cancelled."""
        first_ms = self.next_ms()
        if first_ms is None or first_ms > now_ms:
            return ()
        return tuple(sorted(key for key, due_ms in self._due.items() if due_ms <= now_ms))
