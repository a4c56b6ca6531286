"""Until when each member is believed to live.

Deadlines are not in any record: writing one per heartbeat would cost more than it is worth.
After a restart every member gets its whole session timeout again.

A heartbeat only notes the new deadline; the heap keeps an older, earlier one for the member
until that comes up, and is then told the truth.  So a heartbeat costs a dictionary entry,
and the heap has about one entry for each member.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from sharegroup.ids import GroupId, MemberId

MemberKey = tuple[GroupId, MemberId]

UNTRUE_ENTRIES_MIN = 64
"""The heap is not worth making anew below this number of entries that lead nowhere."""


class MemberSessions:
    """See the module's text."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[MemberKey, int] = {}
        self._heap: list[tuple[int, MemberKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def renew(self, member: MemberKey, *, deadline_ms: int) -> None:
        """The member lives until ``deadline_ms`` unless it is heard of again."""
        known_ms = self._deadlines.get(member)
        self._deadlines[member] = deadline_ms
        if known_ms is None or deadline_ms < known_ms:
            heappush(self._heap, (deadline_ms, member))
            if len(self._heap) > 2 * len(self._deadlines) + UNTRUE_ENTRIES_MIN:
                self._heap = [(due_ms, known) for known, due_ms in self._deadlines.items()]
                heapify(self._heap)

    def end(self, member: MemberKey) -> None:
        """The member is gone."""
        self._deadlines.pop(member, None)

    def next_expiry_ms(self) -> int | None:
        """When the first session ends; None while there is none."""
        while self._heap:
            due_ms, member = self._heap[0]
            deadline_ms = self._deadlines.get(member)
            if deadline_ms == due_ms:
                return due_ms
            if deadline_ms is None or deadline_ms < due_ms:  # Gone, or another entry has it.
                heappop(self._heap)
            else:
                heapreplace(self._heap, (deadline_ms, member))
        return None

    def expired(self, now_ms: int) -> tuple[MemberKey, ...]:
        """The members whose session is over, in order; they stay until `end` is called."""
        first_ms = self.next_expiry_ms()
        if first_ms is None or first_ms > now_ms:
            return ()
        return tuple(
            sorted(member for member, due_ms in self._deadlines.items() if due_ms <= now_ms)
        )
