"""Budgets for the bytes that connections hold: requests being received, and answers not yet sent.

Both budgets are totals over all connections, and each connection has an account in each.  An eighth
of a total is a reserve: while the rest is used up, connections that hold little are still served.
The connections of one user together may hold only a part of the rest (`UserShare`).

When a connection has to wait for room, the budget checks four times a second whether the others
make progress.  It closes those that do not, the largest first, until half of the total is free.
Progress is a rate: a peer that would need longer than `sharegroup.frame.progress.timeout.ms` for
the bytes that it holds counts as stalled.  While no connection waits for room, a slow peer may use
that whole time.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from sharegroup.broker.clock import Clock, TimerHandle
from sharegroup.core.security.principal import Principal

CHECK_MS = 250
STALLED_CHECKS = 2
"""A peer without progress in so many checks in a row is closed when others need room."""

RESERVE_PART = 8

NO_LIMIT = 2**62


class Holder(Protocol):
    """A connection, as the budgets see it."""

    def go_on(self) -> None:
        """Continue, because there may be room again."""

    def close(self, reason: str) -> None:
        """Drop the connection and everything that it holds."""


class ClosedConnection:
    """What a closed account refers to instead of its connection.

    A connection and its accounts refer to each other.  Without this, a closed connection would wait
    for the garbage collector, which examines those that lived for some seconds rarely (ADR 0025).
    """

    __slots__ = ()

    def go_on(self) -> None:
        """Do nothing."""

    def close(self, reason: str) -> None:
        """Do nothing."""

    def receiving(self) -> tuple[int | None, int, int]:
        """Return that no request is being received."""
        return None, 0, 0

    def unsent_bytes(self) -> int:
        """Return that nothing is unsent."""
        return 0


CLOSED_CONNECTION = ClosedConnection()


class UserShare:
    """The bytes that the connections of one user hold together in one budget."""

    __slots__ = ("account_count", "held_bytes", "user")

    def __init__(self, user: Principal) -> None:
        self.user = user
        self.account_count = 0
        self.held_bytes = 0


class ByteAccount(Protocol):
    """The bytes of one connection in one budget."""

    held_bytes: int
    share: UserShare | None
    """The share of the connection's user; None before a login and without authentication."""
    stalled_checks: int
    wanted_bytes: int
    """Bytes that the connection waits for; room is offered to the smallest first."""

    @property
    def holder(self) -> Holder:
        """The connection."""

    def mark(self) -> None:
        """Begin to measure progress."""

    def has_progressed(self, checks_max: int) -> bool:
        """Return whether the held bytes would be gone within ``checks_max`` checks at this rate.

        Then begin a new measurement.
        """

    @property
    def evictable_bytes(self) -> int:
        """The bytes that closing the connection frees, without those that wait for this broker."""


A = TypeVar("A", bound=ByteAccount)


class ByteBudget(Generic[A]):
    """A total of bytes over all connections, and the connections that wait for room in it."""

    __slots__ = (
        "_accounts",
        "_blocked",
        "_checks_max",
        "_clock",
        "_key",
        "_offer_due",
        "_overflow_bytes",
        "_shares",
        "_timer",
        "bytes_max",
        "common_bytes_max",
        "evicted_count",
        "used_bytes",
        "user_bytes_max",
        "waited_count",
    )

    def __init__(
        self,
        clock: Clock,
        key: str,
        *,
        bytes_max: int,
        progress_ms: int,
        user_percent: int = 100,
    ) -> None:
        self._clock = clock
        self._key = key
        self._checks_max = max(1, progress_ms // CHECK_MS)
        self._accounts: set[A] = set()
        self._blocked: dict[A, None] = {}
        self._timer: TimerHandle | None = None
        self._offer_due = False
        self._overflow_bytes = 2 * NO_LIMIT
        """If more bytes than this are held, connections are closed at once, even with grants."""
        self.bytes_max = bytes_max
        self.common_bytes_max = bytes_max - bytes_max // RESERVE_PART
        """The bytes that connections that hold much may use together; the rest is the reserve."""
        self._shares: dict[Principal, UserShare] = {}
        self.user_bytes_max = self.common_bytes_max * user_percent // 100
        """The bytes that all connections of one user may hold together."""
        self.used_bytes = 0
        self.evicted_count = 0
        """Connections that were closed because others needed room."""
        self.waited_count = 0
        """The number of times that a connection or a fetch had to wait for room."""

    def block(self, account: A) -> None:
        """Let the connection try again as soon as there may be room."""
        if account not in self._blocked:
            self._blocked[account] = None
            self.waited_count += 1
        self._watch()

    def add(self, account: A) -> None:
        """Include an account in the checks for progress, until `remove`."""
        self._accounts.add(account)

    def remove(self, account: A) -> None:
        """Remove the account of a closed connection and free its bytes."""
        self._accounts.discard(account)
        self._blocked.pop(account, None)
        self.change(account, 0)
        # After `change`, which takes the bytes from the share of the user as well.
        share, account.share = account.share, None
        if share is not None:
            share.account_count -= 1
            if not share.account_count:
                del self._shares[share.user]

    def assign(self, account: A, user: Principal) -> None:
        """Count the bytes of an account for its user, who is known from now on."""
        assert account.share is None, "a connection never changes its user"
        share = self._shares.get(user)
        if share is None:
            share = self._shares[user] = UserShare(user)
        share.account_count += 1
        share.held_bytes += account.held_bytes
        account.share = share

    def change(self, account: A, held_bytes: int) -> None:
        """Set the number of bytes that an account holds."""
        change = held_bytes - account.held_bytes
        account.held_bytes = held_bytes
        self.used_bytes += change
        if account.share is not None:
            account.share.held_bytes += change
        if change > 0:
            if self.used_bytes > self._overflow_bytes:
                self._evict_overflow()
        elif change < 0 and self._is_wanted and not self._offer_due:
            self._offer_due = True
            # One offer for all changes in this turn of the event loop.
            asyncio.get_running_loop().call_soon(self._offer_now)

    def _evict_overflow(self) -> None:
        """Close connections until the held bytes are within the limit again."""

    @property
    def _is_wanted(self) -> bool:
        return bool(self._blocked)

    @property
    def _is_short(self) -> bool:
        """Whether a connection waits because of the bytes that others hold."""
        return self._is_wanted

    def _watch(self) -> None:
        """Start the regular checks; progress counts from now on."""
        if self._timer is None:
            for account in self._accounts:
                account.mark()
                account.stalled_checks = 0
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = self._clock.call_at_ms(self._clock.now_ms() + CHECK_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        for account in self._accounts:
            moved = account.has_progressed(self._checks_max)
            account.stalled_checks = 0 if moved else account.stalled_checks + 1
        if self._is_short:
            self._evict(
                [account for account in self._accounts if account.stalled_checks >= STALLED_CHECKS],
                until_bytes=self.bytes_max // 2,
            )
        if self._is_wanted:
            self._set_timer()  # Connections that find no room now are counted in the next check.
        self.offer()

    def _evict(self, candidates: list[A], *, until_bytes: int) -> None:
        """Close the connections that free most, until no more than ``until_bytes`` are used."""
        candidates.sort(key=lambda account: account.evictable_bytes, reverse=True)
        for account in candidates:
            if self.used_bytes <= until_bytes or account.evictable_bytes <= 0:
                return
            self.evicted_count += 1
            account.holder.close(
                f"another connection needs room: this one holds {account.held_bytes} bytes without "
                f"progress, all connections together hold {self.used_bytes}, "
                f"{self._key}={self.bytes_max}"
            )

    def _offer_now(self) -> None:
        self._offer_due = False
        self.offer()

    def offer(self) -> None:
        """Let the connections that wait for room try again."""
        blocked = sorted(self._blocked, key=lambda account: account.wanted_bytes)
        # Before the offers: a connection that finds no room blocks itself again.
        self._blocked.clear()
        for account in blocked:
            account.holder.go_on()
