"""Share sessions: which partitions a member fetches, so that no request repeats them.

A session belongs to one member of one group and counts its requests by an epoch, which each
ShareFetch and ShareAcknowledge must name and so advances (KIP-932 «Share sessions»):

    epoch 0    opens a session, in place of one that is there; the next request has epoch 1
    epoch n    must be the expected one; adds and forgets partitions; after 2**31 - 1 comes 1
    epoch -1   closes the session; what the member still holds is given back

An epoch is used up when it has been accepted, whatever becomes of the rest of the request.  A
client that never saw the reply opens a new session; nothing is answered from memory.  Opening
in place of another session releases nothing: records belong to the member, not to the session,
and the new session can still acknowledge them.

Pure: it decides which partitions to fetch and which to release; the caller does both.  It does
not know who is a member of a group, and it never makes room by closing a live session.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from sharegroup.core.session_partitions import Owner, SessionPartitions, Watches
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, TopicPartition

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1

PARTITIONS_MAX = 30_000
"""Of one session; many requests together must not name more than a single one could."""


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: GroupId
    member_id: MemberId


class Fetching(NamedTuple):
    """The request goes on: fetch of the session's partitions those that are ready.

    A reply to an ``opened`` session names every partition; later ones only those with records,
    an error, or the result of an acknowledgement.
    """

    partitions: SessionPartitions
    opened: bool


class Closed(NamedTuple):
    """The session is over: when its acknowledgements are applied, release what it holds here."""

    key: SessionKey
    partitions: tuple[TopicPartition, ...]


class _Session:
    """One session."""

    __slots__ = ("connection_id", "expected_epoch", "partitions")

    def __init__(self, connection_id: str, partitions: SessionPartitions) -> None:
        self.connection_id = connection_id
        self.expected_epoch = OPEN_EPOCH + 1
        self.partitions = partitions


class ShareSessions:
    """All share sessions of one broker; see the module's text."""

    __slots__ = ("_by_connection", "_group_sizes", "_sessions", "_sessions_max", "_watches")

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, _Session] = {}
        self._by_connection: dict[str, dict[SessionKey, None]] = {}
        self._group_sizes: dict[GroupId, int] = {}
        self._watches = Watches()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._sessions

    def is_on_connection(self, key: SessionKey, connection_id: str) -> bool:
        """Whether the session is there and was opened on this connection."""
        session = self._sessions.get(key)
        return session is not None and session.connection_id == connection_id

    def group_has_sessions(self, group_id: GroupId) -> bool:
        """Whether any member of the group has a session here."""
        return group_id in self._group_sizes

    def group_size(self, group_id: GroupId) -> int:
        """How many sessions the group has here."""
        return self._group_sizes.get(group_id, 0)

    @property
    def watched_count(self) -> int:
        """How many partitions some session wants to be told of."""
        return len(self._watches)

    def partition_count(self) -> int:
        """How many partitions all sessions hold together, each counted once per session."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        *,
        connection_id: str,
        partitions: Iterable[TopicPartition],
        forgotten: Iterable[TopicPartition],
        has_acks: bool,
    ) -> Fetching | Closed:
        """Accept a ShareFetch, or raise and change nothing.

        A partition that the request both names and forgets ends up forgotten: this is how a
        client acknowledges on a partition that it no longer fetches.

        The partition that has been quiet for longest gets a turn with each request, so that none
        is quiet for ever because somebody forgot to tell what happened.
        """
        if epoch == OPEN_EPOCH:
            return self._open(key, connection_id, partitions, has_acks)
        if epoch == CLOSE_EPOCH:
            return self._close(key)
        named = dict.fromkeys(partitions)
        self._check_room(key, named, forgotten)
        fetched = self._advance(key, epoch).partitions
        fetched.add(named)
        for partition in forgotten:
            fetched.remove(partition)
        fetched.wake_one()
        return Fetching(fetched, opened=False)

    def acknowledge(self, key: SessionKey, epoch: int) -> Closed | None:
        """Accept a ShareAcknowledge, or raise and change nothing; None: the session goes on."""
        if epoch == OPEN_EPOCH:
            raise InvalidShareSessionEpoch(
                f"{_name(key)}: an acknowledgement cannot open a session, epoch 0 came"
            )
        if epoch == CLOSE_EPOCH:
            return self._close(key)
        self._advance(key, epoch)
        return None

    def happened(self, key: Hashable) -> list[Owner]:
        """Something happened to what ``key`` names: the sessions that may find something now."""
        return self._watches.happened(key)

    def release_connection(self, connection_id: str) -> tuple[Closed, ...]:
        """The connection is gone, and with it the sessions that were opened on it."""
        keys = tuple(self._by_connection.get(connection_id, ()))
        return tuple(self._close(key) for key in keys)

    def close_all(self) -> tuple[SessionKey, ...]:
        """Every session ends, and nothing is released; whose they were."""
        keys = tuple(self._sessions)
        for key in keys:
            self._forget(key)
        return keys

    def _open(
        self,
        key: SessionKey,
        connection_id: str,
        partitions: Iterable[TopicPartition],
        has_acks: bool,
    ) -> Fetching:
        if has_acks:
            raise InvalidRequest(
                f"{_name(key)}: a request that opens a session (epoch 0) cannot acknowledge"
            )
        if key not in self._sessions and len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(
                f"{_name(key)}: there are {len(self._sessions)} share sessions,"
                f" at most {self._sessions_max} are allowed"
            )
        if key in self._sessions:
            self._forget(key)
        session = _Session(connection_id, SessionPartitions(key, self._watches))
        session.partitions.add(partitions)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._group_sizes[key.group_id] = self._group_sizes.get(key.group_id, 0) + 1
        return Fetching(session.partitions, opened=True)

    def _close(self, key: SessionKey) -> Closed:
        self._find(key)
        return Closed(key, tuple(self._forget(key).partitions))

    def _advance(self, key: SessionKey, epoch: int) -> _Session:
        session = self._find(key)
        if epoch != session.expected_epoch:
            raise InvalidShareSessionEpoch(
                f"{_name(key)}: expected epoch {session.expected_epoch}, got {epoch}"
            )
        session.expected_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def _check_room(
        self,
        key: SessionKey,
        named: dict[TopicPartition, None],
        forgotten: Iterable[TopicPartition],
    ) -> None:
        """Refuse a request that would make the session too large; counts only when it might."""
        have = self._find(key).partitions
        if len(have) + len(named) <= PARTITIONS_MAX:
            return
        count = len({*have, *named}.difference(forgotten))
        if count > PARTITIONS_MAX:
            raise InvalidRequest(
                f"{_name(key)}: it would have {count} partitions, {PARTITIONS_MAX} are allowed"
            )

    def _find(self, key: SessionKey) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{_name(key)}: there is no such share session")
        return session

    def _forget(self, key: SessionKey) -> _Session:
        session = self._sessions.pop(key)
        session.partitions.end()
        opened_here = self._by_connection[session.connection_id]
        del opened_here[key]
        if not opened_here:
            del self._by_connection[session.connection_id]
        self._group_sizes[key.group_id] -= 1
        if self._group_sizes[key.group_id] == 0:
            del self._group_sizes[key.group_id]
        return session


def _name(key: SessionKey) -> str:
    return f"share session of group {key.group_id!r}, member {key.member_id!r}"
