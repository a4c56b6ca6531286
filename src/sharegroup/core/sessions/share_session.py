"""Share sessions: the partitions that each member fetches, so requests need not repeat them.

A session belongs to one member of one group. Its session epoch numbers its requests: each
ShareFetch and ShareAcknowledge must name the expected epoch (KIP-932 «Share sessions»).

    epoch 0    opens a session and replaces an existing one; the next request has epoch 1
    epoch n    must be the expected one; adds and forgets partitions; after 2**31 - 1 comes 1
    epoch -1   closes the session; the records that the member still holds are released

An accepted epoch is used up, even if the rest of the request fails. A client that did not
receive the response opens a new session; no response is stored. Replacing a session releases
nothing: records belong to the member, not to the session, and the new session can still acknowledge
them.

If the partitions of all sessions reach their limit, a session within an equal share of the limit
may take its room from the largest session, which is closed. That one is then larger than an equal
share. So a few large sessions never keep small ones out, and a session within an equal share is
never closed. All other requests are refused, and the existing sessions stay.

If the number of sessions reaches its limit, connections are treated in the same way. A connection
with less than an equal share of the sessions gets a place from the connection with the most
sessions, whose oldest session is closed. A connection with a single session never loses it so.

One user may hold a part of both limits only (`shared_totals`); a request beyond it is refused.

Pure: it decides which partitions to fetch and which to release; the caller does both. It does not
know the members of a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.core.security.principal import Principal
from sharegroup.core.sessions.session_partitions import SessionPartitions, Watches
from sharegroup.core.sessions.user_part import ALL_PARTITIONS_MAX, PARTITIONS_MAX, UserPart
from sharegroup.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId, TopicIdPartition

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1


class SessionKey(NamedTuple):
    """The group and the member that a session belongs to."""

    group_id: GroupId
    member_id: MemberId


class Closed(NamedTuple):
    """A session that was closed.

    The caller applies its acknowledgements and then releases the records it holds here.
    """

    key: SessionKey
    partitions: tuple[TopicIdPartition, ...]


class Fetching(NamedTuple):
    """An open session; the caller fetches those of its partitions that are ready.

    A response to an ``opened`` session names every partition; later ones name only partitions with
    records, an error, or the result of an acknowledgement. Sessions in ``evicted`` were closed to
    make room; the caller releases their records.
    """

    partitions: SessionPartitions
    opened: bool
    evicted: tuple[Closed, ...] = ()


class _ShareSession:
    """One share session: its connection, the next epoch, and its partitions."""

    __slots__ = ("connection_id", "expected_epoch", "partitions", "user")

    def __init__(
        self, connection_id: str, user: Principal | None, partitions: SessionPartitions
    ) -> None:
        self.connection_id = connection_id
        self.user = user
        self.expected_epoch = OPEN_EPOCH + 1
        self.partitions = partitions


class ShareSessions:
    """All share sessions of one broker."""

    __slots__ = (
        "_by_connection",
        "_group_sizes",
        "_partitions_max",
        "_sessions",
        "_sessions_max",
        "_user_part",
        "_user_partitions_max",
        "_watches",
        "refused_count",
        "user_refused_count",
    )

    def __init__(
        self,
        sessions_max: int,
        *,
        partitions_max: int = ALL_PARTITIONS_MAX,
        user_percent: int = 100,
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[SessionKey, _ShareSession] = {}
        self._by_connection: dict[str, dict[SessionKey, None]] = {}
        self._group_sizes: dict[GroupId, int] = {}
        self._watches = Watches()
        self.refused_count = 0
        """Number of requests that were refused because there was no room for their session."""
        self._user_part = UserPart(sessions_max, partitions_max, user_percent)
        self._user_partitions_max = self._user_part.partitions
        self.user_refused_count = 0
        """How many of the refused requests had no room because their user's part was used up."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._sessions

    def is_on_connection(self, key: SessionKey, connection_id: str) -> bool:
        """Return whether the session exists and was opened on this connection."""
        session = self._sessions.get(key)
        return session is not None and session.connection_id == connection_id

    def group_has_sessions(self, group_id: GroupId) -> bool:
        """Return whether any member of the group has a session here."""
        return group_id in self._group_sizes

    def group_size(self, group_id: GroupId) -> int:
        """Return the number of sessions that the group has here."""
        return self._group_sizes.get(group_id, 0)

    @property
    def watched_count(self) -> int:
        """The number of partitions that at least one session watches."""
        return len(self._watches)

    def partition_count(self) -> int:
        """Return the number of partitions of all sessions, each counted once per session."""
        return self._watches.partition_count

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        *,
        connection_id: str,
        partitions: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        has_acks: bool,
        user: Principal | None = None,
    ) -> Fetching | Closed:
        """Accept a ShareFetch, or raise and change nothing.

        ``user`` is the one whose part of all sessions limits it, if any.

        A partition that the request both names and forgets ends up forgotten: this is how a client
        acknowledges on a partition that it no longer fetches.

        The caller adds and removes the partitions right after the call (`SessionPartitions.fill`).

        Each request makes the partition that has been quiet for longest ready, so a partition
        recovers even if an event was not reported.
        """
        if epoch == CLOSE_EPOCH:
            return self._close(key)
        named = dict.fromkeys(partitions)
        if epoch == OPEN_EPOCH:
            return self._open(key, connection_id, user, len(named), has_acks)
        session = self._expected(key, epoch)
        # Before `_advance`, because a refused request must not use up its epoch.
        largest = self._room_to_grow(key, session, named, forgotten)
        fetched = self._advance(session, epoch).partitions
        evicted = () if largest is None else (self._close(largest),)
        fetched.wake_one()
        return Fetching(fetched, opened=False, evicted=evicted)

    def acknowledge(self, key: SessionKey, epoch: int) -> Closed | None:
        """Accept a ShareAcknowledge, or raise and change nothing; None if the session continues."""
        if epoch == OPEN_EPOCH:
            raise InvalidShareSessionEpoch(
                f"{_name(key)}: an acknowledgement cannot open a session: expected the epoch of an "
                "open session or -1, got epoch 0"
            )
        if epoch == CLOSE_EPOCH:
            return self._close(key)
        self._advance(self._expected(key, epoch), epoch)
        return None

    @property
    def watches(self) -> Watches:
        """The sessions to notify of events."""
        return self._watches

    def release_connection(self, connection_id: str) -> tuple[Closed, ...]:
        """Close the sessions that were opened on a connection, which has ended."""
        # A copy, because each close removes its session from the connection.
        keys = tuple(self._by_connection.get(connection_id, ()))
        return tuple(self._close(key) for key in keys)

    def close_all(self) -> tuple[SessionKey, ...]:
        """Close every session without a release; return the keys of the sessions."""
        keys = tuple(self._sessions)
        for key in keys:
            self._forget(key)
        return keys

    def _open(
        self,
        key: SessionKey,
        connection_id: str,
        user: Principal | None,
        size: int,
        has_acks: bool,
    ) -> Fetching:
        """Open an empty session after making room for ``size`` partitions."""
        if has_acks:
            raise InvalidRequest(
                f"{_name(key)}: a request that opens a session (epoch 0) cannot acknowledge"
            )
        # Before the old session of the member is dropped, because these calls may refuse.
        self._check_part(key, user, size)
        victims = self._room_to_open(key, size, connection_id)
        evicted = tuple(self._close(victim) for victim in victims)
        if key in self._sessions:
            # Without a release: the records belong to the member, and its new session may
            # acknowledge them (spec session-12).
            self._forget(key)
        session = _ShareSession(connection_id, user, SessionPartitions(key, self._watches))
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._group_sizes[key.group_id] = self._group_sizes.get(key.group_id, 0) + 1
        return Fetching(session.partitions, opened=True, evicted=evicted)

    def _close(self, key: SessionKey) -> Closed:
        self._find(key)
        return Closed(key, tuple(self._forget(key).partitions))

    def _expected(self, key: SessionKey, epoch: int) -> _ShareSession:
        """Return the session if ``epoch`` is its expected epoch, otherwise raise."""
        session = self._find(key)
        if epoch != session.expected_epoch:
            raise InvalidShareSessionEpoch(
                f"{_name(key)}: expected epoch {session.expected_epoch}, got {epoch}"
            )
        return session

    def _advance(self, session: _ShareSession, epoch: int) -> _ShareSession:
        # 0 would open a session and -1 close it, so the numbers begin again at 1.
        session.expected_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def _check_part(self, key: SessionKey, user: Principal | None, size: int) -> None:
        """Raise ShareSessionLimitReached if a user's part has no room for a session of ``size``.

        A session of the same member is replaced, so only its growth counts.
        """
        if user is None:
            return
        former = self._sessions.get(key)
        former_size = 0 if former is None else len(former.partitions)
        text = self._user_part.refusal(
            user,
            self._sessions.values(),
            more_sessions=0 if former is not None else 1,
            more_partitions=size - former_size,
            partition_count=self._watches.partition_count,
        )
        if text is not None:
            self.refused_count += 1
            self.user_refused_count += 1
            raise ShareSessionLimitReached(f"{_name(key)}: {text}")

    def _room_to_open(
        self, key: SessionKey, size: int, connection_id: str
    ) -> tuple[SessionKey, ...]:
        """Return the sessions to close for one with ``size`` partitions, if any; or refuse it."""
        ending: SessionKey | None = None
        victims: tuple[SessionKey, ...] = ()
        if key in self._sessions:
            # The former session of the member makes room for its new one.
            ending = key
        elif len(self._sessions) >= self._sessions_max:
            ending = self._crowded_out(key, connection_id)
            victims = (ending,)
        freed = 0 if ending is None else len(self._sessions[ending].partitions)
        if self._watches.partition_count - freed + size <= self._partitions_max:
            return victims
        count = len(self._sessions) + (ending is None)
        return (*victims, self._largest_for(ending or key, size, count))

    def _crowded_out(self, key: SessionKey, connection_id: str) -> SessionKey:
        """Return the session to evict for ``key``; refuse a connection more than an equal share.

        All places are taken, so the connection with the most sessions has more than an equal share.
        """
        own_count = len(self._by_connection.get(connection_id, ()))
        # The connection that asks gets a share, too, if this would be its first session.
        connection_count = len(self._by_connection) + (own_count == 0)
        if own_count >= self._sessions_max // connection_count:
            self.refused_count += 1
            raise ShareSessionLimitReached(
                f"{_name(key)}: there are {len(self._sessions)} share sessions,"
                f" at most {self._sessions_max} are allowed"
            )
        _, crowded = max(self._by_connection.items(), key=lambda item: len(item[1]))
        return next(iter(crowded))  # Its oldest session.

    def _room_to_grow(
        self,
        key: SessionKey,
        session: _ShareSession,
        named: dict[TopicIdPartition, None],
        forgotten: Iterable[TopicIdPartition],
    ) -> SessionKey | None:
        """Return the session to close if this one grows, if any; or refuse the request.

        A request is refused if it makes the session too large or if there is no room. The exact
        count is taken only if the sum might exceed a limit.
        """
        own_partitions, total = session.partitions, self._watches.partition_count
        surely_free = self._partitions_max if session.user is None else self._user_partitions_max
        if len(own_partitions) + len(named) <= PARTITIONS_MAX and total + len(named) <= surely_free:
            return None
        count = len({*own_partitions, *named}.difference(forgotten))
        if count > PARTITIONS_MAX:
            raise InvalidRequest(
                f"{_name(key)}: it would have {count} partitions, {PARTITIONS_MAX} are allowed"
            )
        added_count = count - len(own_partitions)
        if added_count > 0:
            self._check_part(key, session.user, count)
        if added_count <= 0 or total + added_count <= self._partitions_max:
            return None
        return self._largest_for(key, count, len(self._sessions))

    def _largest_for(self, key: SessionKey, size: int, count: int) -> SessionKey:
        """Return the largest session but ``key``, to be closed for one of ``size``; or refuse that.

        More than an equal share is refused. Closing one session is enough: as there is no room, the
        others have more than an equal share on average.
        """
        if size > self._partitions_max // count:
            self.refused_count += 1
            raise ShareSessionLimitReached(
                f"{_name(key)}: with its {size} partitions all share sessions would have more than "
                f"{self._partitions_max}"
            )
        others = (other for other in self._sessions if other != key)
        return max(others, key=lambda other: len(self._sessions[other].partitions))

    def _find(self, key: SessionKey) -> _ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{_name(key)}: there is no such share session")
        return session

    def _forget(self, key: SessionKey) -> _ShareSession:
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
