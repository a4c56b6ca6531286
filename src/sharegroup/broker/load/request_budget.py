"""The budget of received bytes: requests that are incomplete, not dispatched, or not answered.

A frame above `SMALL_BYTES` needs room for its whole length before more of it is read.  So each
frame with a grant can be completed, and two incomplete frames never block each other.  Small frames
need no grant, so a small request always gets through.  If no other large frame holds room, one
frame is granted regardless of its size.

A request that waits for its answer counts with its frame and a fixed size for the objects made from
it.  The peer is not to blame for a Produce request that waits for the disk (ADR 0020).
"""

from __future__ import annotations

from typing import Protocol

from sharegroup.broker.clock import Clock
from sharegroup.broker.load.byte_budgets import (
    CLOSED_CONNECTION,
    NO_LIMIT,
    ByteBudget,
    Holder,
    UserShare,
)
from sharegroup.core.security.principal import Principal

KEY = "queued.max.request.bytes"

SMALL_BYTES = 16 * 1024
"""A connection that holds no more than this needs no room in the common part."""

WAITING_BYTES = 4 * 1024
"""The approximate size of the objects of a waiting request, without its frame."""


class Receiver(Holder, Protocol):
    """A connection that receives requests."""

    def receiving(self) -> tuple[int | None, int, int]:
        """Return the time at which the incomplete frame began, and its received and needed bytes.

        The first is None if no frame is incomplete.
        """


class RequestAccount:
    """The bytes of requests that one connection holds."""

    __slots__ = (
        "_budget",
        "_frame_began_ms",
        "_is_closed",
        "_marked_bytes",
        "_parked",
        "_parked_bytes",
        "_receiver",
        "_unanswered",
        "held_bytes",
        "pending_bytes",
        "share",
        "stalled_checks",
        "wanted_bytes",
    )

    def __init__(self, budget: RequestBudget, receiver: Receiver) -> None:
        self._budget = budget
        self._receiver: Receiver = receiver
        self._frame_began_ms: int | None = None
        self._marked_bytes = 0
        self._unanswered: dict[int, int] = {}
        """Bytes of the requests that wait for the disk, by request number."""
        self._parked: dict[int, int] = {}
        """The same for requests that wait for as long as their peers want."""
        self._parked_bytes = 0
        self._is_closed = False
        self.held_bytes = 0
        self.pending_bytes = 0
        """Bytes of the requests that were dispatched and are not answered."""
        self.share: UserShare | None = None
        self.stalled_checks = 0
        self.wanted_bytes = 0
        budget.add(self)

    @property
    def holder(self) -> Receiver:
        return self._receiver

    def assign(self, user: Principal) -> None:
        """Count the bytes for the user of the connection from now on."""
        self._budget.assign(self, user)

    def may_wait(self) -> bool:
        """Return whether another request may be dispatched that may have to wait for its answer."""
        return self.pending_bytes <= SMALL_BYTES or self._budget.has_common_room(self.share)

    def dispatched(self, request_number: int, frame_bytes: int, *, is_parked: bool) -> None:
        """Count a request that waits for its answer; ``is_parked`` if its peer decides how long."""
        size = frame_bytes + WAITING_BYTES
        self.pending_bytes += size
        if is_parked:
            self._parked[request_number] = size
            self._parked_bytes += size
        else:
            self._unanswered[request_number] = size

    def answered(self, request_number: int) -> bool:
        """Count a request as answered; return whether it was unanswered before."""
        size = self._unanswered.pop(request_number, 0)
        if not size:
            size = self._parked.pop(request_number, 0)
            self._parked_bytes -= size
        self.pending_bytes -= size
        return size > 0

    def note(self, buffered_bytes: int, needed_bytes: int) -> bool:
        """Count the bytes held now; return whether the rest of the frame may be received."""
        if self._is_closed:
            return False
        wanted = self.pending_bytes + needed_bytes
        # What is counted already was granted: the frame can be completed.
        if wanted <= max(SMALL_BYTES, self.held_bytes) or self._budget.has_room(self, wanted):
            if wanted != self.held_bytes:
                self._budget.change(self, wanted)
            self._unblock()
            return True
        held_bytes = self.pending_bytes + buffered_bytes
        if held_bytes != self.held_bytes:
            self._budget.change(self, held_bytes)
        self.wanted_bytes = wanted
        self._budget.block(self)
        return False

    def note_paused(self, buffered_bytes: int) -> None:
        """Count only the bytes that are here, because the rest of the frame is not read for now."""
        held_bytes = self.pending_bytes + buffered_bytes
        if held_bytes != self.held_bytes and not self._is_closed:
            self._budget.change(self, held_bytes)
            self._unblock()

    def note_no_frame(self) -> None:
        """Count only the requests that wait for their answers, because no frame is incomplete."""
        if self.held_bytes != self.pending_bytes and not self._is_closed:
            self._budget.change(self, self.pending_bytes)
            self._unblock()

    def _unblock(self) -> None:
        if self.wanted_bytes:
            self.wanted_bytes = 0
            self._budget.unblock(self)

    def close(self) -> None:
        """Remove the account and its bytes from the budget; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._budget.remove(self)
            self._receiver = CLOSED_CONNECTION

    def mark(self) -> None:
        self._frame_began_ms, self._marked_bytes, _ = self._receiver.receiving()

    def has_progressed(self, checks_max: int) -> bool:
        """Return whether the incomplete frame would be complete within ``checks_max`` checks.

        Without an incomplete frame, an account has progressed unless it holds many bytes of
        requests that wait for as long as their peer wants.  A new measurement begins.
        """
        began_ms, marked_bytes = self._frame_began_ms, self._marked_bytes
        self.mark()
        if self._budget.is_blocked(self):
            return True  # Nothing is read from the peer, so it is not to blame.
        if self._frame_began_ms is None:
            return self._parked_bytes <= SMALL_BYTES
        if began_ms != self._frame_began_ms:
            return True
        _, received, needed = self._receiver.receiving()
        return (received - marked_bytes) * checks_max >= needed

    @property
    def evictable_bytes(self) -> int:
        """Held bytes above `SMALL_BYTES`, without the requests that wait for the disk."""
        unanswered = self.pending_bytes - self._parked_bytes
        return max(0, self.held_bytes - unanswered - SMALL_BYTES)


class RequestBudget(ByteBudget[RequestAccount]):
    """The budget for the received bytes of all connections; ``bytes_max`` is -1 for no limit."""

    __slots__ = ()

    def __init__(
        self,
        clock: Clock,
        *,
        bytes_max: int,
        frame_bytes_max: int,
        progress_ms: int,
        user_percent: int = 100,
    ) -> None:
        limit = NO_LIMIT if bytes_max < 0 else bytes_max
        super().__init__(
            clock, KEY, bytes_max=limit, progress_ms=progress_ms, user_percent=user_percent
        )
        # One frame is granted whatever its size, so its bytes alone are no overflow.
        self._overflow_bytes = max(limit, frame_bytes_max + self._reserve_bytes)

    def unblock(self, account: RequestAccount) -> None:
        """Remove an account that no longer needs room from those that wait."""
        self._blocked.pop(account, None)

    def is_blocked(self, account: RequestAccount) -> bool:
        """Return whether the connection waits for room, so the broker reads nothing from it."""
        return account in self._blocked

    def has_common_room(self, share: UserShare | None) -> bool:
        """Return whether connections of a user that hold much may hold more."""
        if share is not None and share.held_bytes >= self.user_bytes_max:
            return False
        return self.used_bytes < self.common_bytes_max

    def has_room(self, account: RequestAccount, wanted_bytes: int) -> bool:
        """Return whether this account may hold ``wanted_bytes``."""
        others, share = self.used_bytes - account.held_bytes, account.share
        if share is not None:
            of_user = share.held_bytes - account.held_bytes
            # As for all connections together, one large frame of a user is granted if the others
            # hold little.
            if of_user + wanted_bytes > self.user_bytes_max and of_user > self._reserve_bytes:
                return False
        # A frame larger than the common part is granted if the others hold little: otherwise it
        # could never be received.
        return others + wanted_bytes <= self.common_bytes_max or others <= self._reserve_bytes

    @property
    def _reserve_bytes(self) -> int:
        return self.bytes_max - self.common_bytes_max

    def _evict_overflow(self) -> None:
        """Close connections, first those that wait for a grant: too many bytes came without one."""
        blocked = list(self._blocked)
        self._evict(blocked, until_bytes=self.common_bytes_max)
        if self.used_bytes > self._overflow_bytes:
            self._evict(list(self._accounts), until_bytes=self.common_bytes_max)
