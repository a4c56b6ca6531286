"""The budget of answers: bytes that are ready, or are being made, and not yet sent to a peer.

A fetch asks its connection's account how large its answer may be, and reserves the bytes that it
has read in the same turn of the event loop.  The reservation is settled when the answer is ready.
A fetch that finds no room reads nothing and locks nothing; it is tried again when there is room.

Bytes that a transport has not sent yet count, too.  A large answer counts whole until its last byte
is sent, because the transport holds the whole object until then (ADR 0020).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
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

KEY = "sharegroup.answers.max.bytes"

LARGE_WRITE_BYTES = 64 * 1024

UNCOUNTED_BYTES_MAX = 16 * 1024
"""Bytes of answers that are not counted singly if their connection holds nothing else."""


class AnswerSender(Holder, Protocol):
    """A connection that sends answers."""

    def unsent_bytes(self) -> int:
        """Bytes that the transport holds."""


class AnswerRoom(Protocol):
    """The part of an answer account that handlers use: how large an answer may be."""

    @property
    def request_number(self) -> int:
        """The number of the request that is being dispatched."""

    def room(self, request_number: int) -> int:
        """Return how many bytes the answer to this request may have; with 0 or less, make none."""

    def reserve(self, request_number: int, answer_bytes: int) -> None:
        """Reserve so many bytes for this request's answer, instead of those reserved before."""

    def want(self, key: Hashable) -> None:
        """Wake the requests that wait for ``key`` when there may be room."""


class AnswerAccount:
    """The bytes of answers that one connection holds."""

    __slots__ = (
        "_budget",
        "_is_closed",
        "_large_writes",
        "_marked_bytes",
        "_reserved_bytes",
        "_sender",
        "_uncounted_bytes",
        "_written_bytes",
        "held_bytes",
        "is_dispatching",
        "next_number",
        "ready_bytes",
        "request_number",
        "reserved",
        "share",
        "stalled_checks",
        "wanted_bytes",
    )

    def __init__(self, budget: AnswerBudget, sender: AnswerSender) -> None:
        self._budget = budget
        self._sender: AnswerSender = sender
        self._is_closed = False
        self._large_writes: deque[tuple[int, int]] = deque()
        """Start and end in the sent stream of each large write that is not completely sent."""
        self._marked_bytes = 0
        self.reserved: dict[int, int] = {}
        """Reserved bytes by request number."""
        self._reserved_bytes = 0
        self._uncounted_bytes = 0
        self._written_bytes = 0
        self.held_bytes = 0
        self.ready_bytes = 0
        """Bytes of answers that wait for earlier answers; the connection updates this count."""
        self.is_dispatching = False
        """Whether a request is being dispatched.  Bytes that are reserved meanwhile are counted
        after the dispatch, because most answers are ready by then."""
        self.request_number = 0
        """The number of the request that was dispatched last."""
        self.next_number = 1
        """The number of the request whose answer is written next."""
        self.share: UserShare | None = None
        self.stalled_checks = 0
        self.wanted_bytes = 0
        budget.add(self)

    @property
    def holder(self) -> AnswerSender:
        return self._sender

    def assign(self, user: Principal) -> None:
        """Count the bytes for the user of the connection from now on."""
        self._budget.assign(self, user)

    def room(self, request_number: int) -> int:
        """Return how many bytes the answer to this request may have; with 0 or less, make none.

        A quarter of a connection's limit is kept for the answer that is written next.  So answers
        that have to wait for it cannot hold it up.
        """
        if self._is_closed:
            return 0
        budget = self._budget
        is_next = request_number == self.next_number
        own_max = budget.connection_bytes_max if is_next else budget.followers_bytes_max
        # The usual case, without a count: this connection holds nothing, and all others little.
        if not (self.held_bytes or self._reserved_bytes) and (
            budget.used_bytes <= budget.reserve_bytes
        ):
            return min(own_max, budget.common_bytes_max)
        self.refresh()
        room = self._room(own_max)
        if room < budget.reserve_bytes:
            # The others were counted at their last change, with bytes that were sent since then.
            budget.refresh()
            room = self._room(own_max)
        return room

    def may_answer(self) -> bool:
        """Return whether a request of this connection may be dispatched now."""
        budget = self._budget
        if (
            self.held_bytes < budget.followers_bytes_max
            and budget.used_bytes < budget.common_bytes_max
        ):
            return True  # The count can only be too high: some of these bytes may be sent by now.
        if self.room(self.request_number + 1) > 0:
            return True
        budget.block(self)
        return False

    def reserve(self, request_number: int, answer_bytes: int) -> None:
        """Reserve so many bytes for this request's answer, instead of those reserved before."""
        if not self._is_closed:
            self._reserved_bytes += answer_bytes - self.reserved.get(request_number, 0)
            self.reserved[request_number] = answer_bytes
            if not self.is_dispatching and (answer_bytes >= UNCOUNTED_BYTES_MAX or self.held_bytes):
                self.refresh()

    def settle(self, request_number: int) -> int:
        """End the reservation of a request; return how many bytes were reserved.

        The answer is ready, or there will be none.
        """
        if not self.reserved:
            return 0
        reserved = self.reserved.pop(request_number, 0)
        self._reserved_bytes -= reserved
        return reserved

    def want(self, key: Hashable) -> None:
        """Wake the requests that wait for ``key`` when there may be room."""
        if not self._is_closed:
            self._budget.want(key)

    def written(self, count: int) -> None:
        """Count bytes that were handed to the transport."""
        if count >= LARGE_WRITE_BYTES:
            self._large_writes.append((self._written_bytes, self._written_bytes + count))
        self._written_bytes += count
        self._uncounted_bytes += count
        if self._uncounted_bytes >= UNCOUNTED_BYTES_MAX or self.held_bytes:
            self.refresh()

    def refresh(self) -> None:
        """Count the bytes that are held now."""
        if self._is_closed:
            return
        self._uncounted_bytes = 0
        held_bytes = self._sender.unsent_bytes()
        large_writes = self._large_writes
        if large_writes:
            sent_bytes = self._written_bytes - held_bytes
            while large_writes and large_writes[0][1] <= sent_bytes:
                large_writes.popleft()
            if large_writes:
                held_bytes = self._written_bytes - large_writes[0][0]
        held_bytes += self.ready_bytes + self._reserved_bytes
        if held_bytes != self.held_bytes:
            self._budget.change(self, held_bytes)

    def close(self) -> None:
        """Remove the account and its bytes from the budget; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._budget.remove(self)
            self._sender = CLOSED_CONNECTION

    def mark(self) -> None:
        self._marked_bytes = self._written_bytes - self._sender.unsent_bytes()

    def has_progressed(self, checks_max: int) -> bool:
        """Return whether all held bytes would be sent within ``checks_max`` checks at this rate.

        The rate is that of the bytes sent since the last `mark`.  A new measurement begins.
        """
        marked_bytes = self._marked_bytes
        self.refresh()
        self.mark()
        return (self._marked_bytes - marked_bytes) * checks_max >= self.held_bytes

    @property
    def evictable_bytes(self) -> int:
        """All held bytes: the peer decides how fast it receives its answers."""
        return self.held_bytes

    def _room(self, own_bytes_max: int) -> int:
        budget = self._budget
        # The reserve is for connections that hold nothing (ADR 0020).
        total = budget.common_bytes_max if self.held_bytes else budget.bytes_max
        room = min(own_bytes_max - self.held_bytes, total - budget.used_bytes)
        if self.share is not None:
            room = min(room, budget.user_bytes_max - self.share.held_bytes)
        return room


class AnswerBudget(ByteBudget[AnswerAccount]):
    """The budget for the answers of all connections."""

    __slots__ = (
        "_refreshed_ms",
        "_wake",
        "_wanting",
        "connection_bytes_max",
        "followers_bytes_max",
        "reserve_bytes",
    )

    def __init__(
        self,
        clock: Clock,
        wake: Callable[[Hashable], None],
        *,
        bytes_max: int,
        connection_bytes_max: int,
        progress_ms: int,
        user_percent: int = 100,
    ) -> None:
        super().__init__(
            clock, KEY, bytes_max=bytes_max, progress_ms=progress_ms, user_percent=user_percent
        )
        self._wake = wake
        self._wanting: dict[Hashable, None] = {}
        self._refreshed_ms = 0
        self.reserve_bytes = bytes_max - self.common_bytes_max
        self.connection_bytes_max = connection_bytes_max
        self.followers_bytes_max = connection_bytes_max - connection_bytes_max // 4
        """The limit in bytes for answers that wait for earlier answers of their connection."""

    def want(self, key: Hashable) -> None:
        """Wake the requests that wait for ``key`` when there may be room."""
        if key not in self._wanting:
            self._wanting[key] = None
            self.waited_count += 1
        self._watch()

    def refresh(self) -> None:
        """Count the held bytes of all connections anew, at most once per millisecond."""
        now_ms = self._clock.now_ms()
        if now_ms != self._refreshed_ms:
            self._refreshed_ms = now_ms
            for account in self._accounts:
                account.refresh()

    @property
    def _is_wanted(self) -> bool:
        return bool(self._blocked or self._wanting)

    @property
    def _is_short(self) -> bool:
        """Whether connections wait because of the bytes that others hold."""
        # A fetch may also wait for the answers of its own connection, for which nobody is closed.
        return self._is_wanted and self.used_bytes >= self.common_bytes_max

    def offer(self) -> None:
        """Let blocked connections try again, then wake the requests whose keys were wanted.

        The wanted keys are taken first.  A request that finds no room again wants its key anew.
        """
        wanting, self._wanting = self._wanting, {}
        super().offer()
        for key in wanting:
            self._wake(key)


class UnlimitedAnswers:
    """An answer account without limits, for requests that come without a connection."""

    __slots__ = ()
    request_number = 0

    def room(self, request_number: int) -> int:  # noqa: ARG002  The signature of `AnswerRoom`.
        """Return `NO_LIMIT`: these bytes are not counted."""
        return NO_LIMIT

    def reserve(self, request_number: int, answer_bytes: int) -> None:
        """Do nothing: these bytes are not counted."""

    def want(self, key: Hashable) -> None:
        """Do nothing: there is always room."""


UNLIMITED = UnlimitedAnswers()
