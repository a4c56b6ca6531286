"""Sessions of users who have logged in: in memory only, bounded in number and in time.

A session's id is a random text that only the browser has; the console keeps its digest.  What a
session owns is closed by the caller, to whom each method returns the sessions that ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Generic, TypeVar

from sharegroup.console.access.roles import User

IDLE_SECONDS = 30 * 60.0
TOTAL_SECONDS = 12 * 60 * 60.0
SESSIONS_MAX = 100
PER_USER_MAX = 5
"""Sessions of one user; a further one ends the one that was used longest ago."""
SECRET_BYTES = 32

Owned = TypeVar("Owned")


class TooManySessions(Exception):
    """There are as many sessions as there may be; the text says what to do."""


@dataclass(slots=True, eq=False)
class Session(Generic[Owned]):
    """A user who has logged in."""

    user: User
    owned: Owned
    """What was opened for the user."""
    form_token: str
    """A text that each form of the user has, and that no other web page knows."""
    began_at: float
    used_at: float


class Sessions(Generic[Owned]):
    """All sessions of a console."""

    __slots__ = ("_random", "_sessions")

    def __init__(self, random: Callable[[int], str] = token_urlsafe) -> None:
        self._random = random
        self._sessions: dict[bytes, Session[Owned]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, user: User, owned: Owned, now: float
    ) -> tuple[str, Session[Owned], list[Session[Owned]]]:
        """Begin a session; return its id, and the sessions that end for it.

        Raises `TooManySessions` if there is no room.
        """
        ended = self.expired(now)
        own = [key for key, session in self._sessions.items() if session.user.name == user.name]
        if len(own) >= PER_USER_MAX:
            oldest = min(own, key=lambda key: self._sessions[key].used_at)
            ended.append(self._sessions.pop(oldest))
        if len(self._sessions) >= SESSIONS_MAX:
            raise TooManySessions(
                f"{SESSIONS_MAX} users are logged in, as many as may be; try again when one of "
                f"them has logged out, or was idle for {IDLE_SECONDS / 60:.0f} minutes"
            )
        session = Session(user, owned, self._random(SECRET_BYTES), now, now)
        session_id = self._random(SECRET_BYTES)
        self._sessions[_digest(session_id)] = session
        return session_id, session, ended

    def of(self, session_id: str, now: float, *, is_use: bool = True) -> Session[Owned] | None:
        """Return a session, and note its use; None if there is none or its time is over."""
        session = self._sessions.get(_digest(session_id))
        if session is None or _is_over(session, now):
            return None  # `expired` takes it away and has its clients closed.
        if is_use:
            session.used_at = now
        return session

    def end(self, session_id: str) -> list[Session[Owned]]:
        """End a session; return it unless it has ended before."""
        session = self._sessions.pop(_digest(session_id), None)
        return [] if session is None else [session]

    def expired(self, now: float) -> list[Session[Owned]]:
        """Take away and return the sessions whose time is over."""
        return self.end_where(lambda session: _is_over(session, now))

    def all(self) -> list[Session[Owned]]:
        """Return all sessions, also those whose time is over and that were not taken away."""
        return list(self._sessions.values())

    def end_where(self, is_over: Callable[[Session[Owned]], bool]) -> list[Session[Owned]]:
        """End and return the sessions for which this holds."""
        over = [key for key, session in self._sessions.items() if is_over(session)]
        return [self._sessions.pop(key) for key in over]

    def end_all(self) -> list[Session[Owned]]:
        """End and return all sessions."""
        return self.end_where(lambda _: True)


def _is_over(session: Session[Owned], now: float) -> bool:
    return now - session.used_at >= IDLE_SECONDS or now - session.began_at >= TOTAL_SECONDS


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
