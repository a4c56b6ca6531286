"""The limits on sessions, and the part of them that one user may hold (`shared_totals`).

Fetch sessions and share sessions have the same limits.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import NamedTuple, Protocol

from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import part_left, part_refusal

PARTITIONS_MAX = 30_000
"""Number of partitions of one session.

A series of requests must not name more than a single request could.
"""

ALL_PARTITIONS_MAX = 64_000
"""Number of partitions of all sessions of one kind, by default, of `PARTITION_BYTES` each."""

PARTITION_BYTES = 520
"""Memory of one partition in a session, measured with a topic of its own for each partition."""


class _LimitedSession(Protocol):
    @property
    def user(self) -> Principal | None: ...
    @property
    def partitions(self) -> Sized: ...


class UserPart(NamedTuple):
    """The limits on all sessions and on their partitions, and the percentage for one user."""

    sessions_max: int
    partitions_max: int
    percent: int

    @property
    def partitions(self) -> int:
        """The largest number of partitions that the sessions of one user may have."""
        return part_left(held=0, limit=self.partitions_max, percent=self.percent)

    def refusal(
        self,
        user: Principal,
        sessions: Collection[_LimitedSession],
        *,
        more_sessions: int,
        more_partitions: int,
        partition_count: int,
    ) -> str | None:
        """Return the text of an error if a user may not have so many more, otherwise None.

        ``sessions`` are those of all users, and ``partition_count`` is the sum of their partitions.
        """
        return part_refusal(
            user,
            more_sessions,
            held=lambda: sum(session.user == user for session in sessions),
            used=len(sessions),
            limit=self.sessions_max,
            percent=self.percent,
        ) or part_refusal(
            user,
            more_partitions,
            held=lambda: sum(len(own.partitions) for own in sessions if own.user == user),
            used=partition_count,
            limit=self.partitions_max,
            percent=self.percent,
        )
