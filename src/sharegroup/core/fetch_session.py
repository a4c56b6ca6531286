"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed.

    id 0, epoch -1    no session: everything is named, everything is answered
    id 0, epoch 0     open one; the reply carries its id, or 0 when there is no room
    id n, epoch 0     open one in place of session n
    id n, epoch -1    close session n; this request stands alone
    id n, epoch e     the next request of session n; after 2**31 - 1 comes 1

A session lives as long as the connection it was opened on.  Pure; the caller fetches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sharegroup.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, InvalidRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

PARTITIONS_MAX = 30_000
"""Of one session; many requests together must not name more than a single one could."""

FetchKey = tuple[UUID | str, int]
"""A topic, by id or in older versions by name, and a partition of it."""


class Wanted(NamedTuple):
    """From where, and how much of one partition."""

    fetch_offset: int
    bytes_max: int
    leader_epoch: int


class Picture(NamedTuple):
    """What the consumer was last told of a partition besides records."""

    high_watermark: int
    start_offset: int


class _Session:
    __slots__ = ("connection_id", "expected_epoch", "told", "wanted")

    def __init__(self, connection_id: int, wanted: Mapping[FetchKey, Wanted]) -> None:
        self.connection_id = connection_id
        self.expected_epoch = 1
        self.wanted = dict(wanted)
        self.told: dict[FetchKey, Picture] = {}


class FetchPlan(NamedTuple):
    """What to fetch, in this order, and under which session id to answer."""

    session_id: int
    wanted: dict[FetchKey, Wanted]
    incremental: bool
    """Leave out partitions of which there is nothing new to tell."""


class FetchSessions:
    """All fetch sessions of one broker; see the module's text."""

    __slots__ = ("_next_id", "_sessions", "_sessions_max")

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[int, _Session] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        *,
        connection_id: int,
        named: Mapping[FetchKey, Wanted],
        forgotten: Sequence[FetchKey],
    ) -> FetchPlan:
        """Accept a request, or raise and change nothing."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchPlan(NO_SESSION, dict(named), incremental=False)
            return FetchPlan(self._open(connection_id, named), dict(named), incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.expected_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id}: expected epoch {session.expected_epoch}, got {epoch}"
            )
        if len(session.wanted) + len(named) > PARTITIONS_MAX:
            count = len((session.wanted.keys() | named.keys()).difference(forgotten))
            if count > PARTITIONS_MAX:
                raise InvalidRequest(
                    f"fetch session {session_id} would have {count} partitions, "
                    f"{PARTITIONS_MAX} are allowed"
                )
        session.expected_epoch = _after(epoch)
        for key in forgotten:
            session.wanted.pop(key, None)
            session.told.pop(key, None)
        session.wanted.update(named)
        return FetchPlan(session_id, dict(session.wanted), incremental=True)

    def news(self, session_id: int, key: FetchKey, picture: Picture) -> bool:
        """Whether ``picture`` differs from what the session was told; it counts as told now."""
        session = self._sessions.get(session_id)
        if session is None or session.told.get(key) == picture:
            return False
        session.told[key] = picture
        return True

    def records_returned(self, session_id: int, keys: Sequence[FetchKey]) -> None:
        """These partitions had records: the others come first from now on."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        for key in keys:
            wanted = session.wanted.pop(key, None)
            if wanted is not None:
                session.wanted[key] = wanted

    def release_connection(self, connection_id: int) -> None:
        """The connection is gone, and with it its sessions."""
        gone = [
            session_id
            for session_id, session in self._sessions.items()
            if session.connection_id == connection_id
        ]
        for session_id in gone:
            del self._sessions[session_id]

    def _open(self, connection_id: int, named: Mapping[FetchKey, Wanted]) -> int:
        if not named or len(self._sessions) >= self._sessions_max:
            return NO_SESSION
        session_id = self._next_id
        while session_id in self._sessions:  # It lives on since the numbers began anew.
            session_id = _after(session_id)
        self._next_id = _after(session_id)
        self._sessions[session_id] = _Session(connection_id, named)
        return session_id


def _after(number: int) -> int:
    """The next epoch or session id: 0 and what is below mean something else."""
    return 1 if number == EPOCH_MAX else number + 1
