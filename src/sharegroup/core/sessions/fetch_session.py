"""Fetch sessions (KIP-227): a consumer names its partitions once, and later only changes.

    id 0, epoch -1    no session: the request and the response have all partitions
    id 0, epoch 0     open a session; the response has its id, or 0 if there is no room
    id n, epoch 0     open a session in place of session n
    id n, epoch -1    close session n; this request has no session
    id n, epoch e     the next request of session n; after 2**31 - 1 comes 1

A session belongs to the connection it was opened on: for others it does not exist, because its
topics are names that their users may not know. It lasts as long as the connection, unless its room
is needed:

- A session without a request for `EVICTION_MS` makes room for any other (Kafka's rule).
- If the partitions of all sessions reach their limit, a session within an equal share of the limit
  gets its room from the largest session. That one is then larger than an equal share, so a few
  large sessions never keep small ones out.
- If the number of sessions reaches its limit, a connection with less than an equal share of them
  gets a place from the connection with the most, whose least recently used session is closed.
- One user may hold a part of both limits only (`shared_totals`).
- Any other request is answered without a session, and its client names all partitions each time.

Pure; the caller fetches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sharegroup.core.security.principal import Principal
from sharegroup.core.sessions.user_part import ALL_PARTITIONS_MAX, PARTITIONS_MAX, UserPart
from sharegroup.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    InvalidRequest,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
"""The last epoch and the last session id; after it comes 1."""

EVICTION_MS = 120_000
"""Time without a request after which a session may be closed to make room (Kafka's default)."""

FetchKey = tuple[UUID | str, int]
"""A topic, by id or in older versions by name, and the index of a partition."""


class RequestedPartition(NamedTuple):
    """The fetch offset and the size limit of one partition in a request."""

    fetch_offset: int
    bytes_max: int
    leader_epoch: int


class ReportedOffsets(NamedTuple):
    """The offsets of a partition that the last response reported to the consumer."""

    high_watermark: int
    start_offset: int


class FetchSender(NamedTuple):
    """The sender of a fetch.

    ``user`` is the one whose part of all sessions limits it, if any. ``uses_topic_ids`` says
    whether the request's version names topics by id. A session has one kind of names only, because
    a response of one version cannot carry the other kind.
    """

    connection_id: int
    user: Principal | None = None
    uses_topic_ids: bool = False


class _FetchSession:
    __slots__ = ("expected_epoch", "partitions", "reported", "sender", "used_ms")

    def __init__(
        self,
        sender: FetchSender,
        partitions: Mapping[FetchKey, RequestedPartition],
        used_ms: int,
    ) -> None:
        self.sender = sender
        self.expected_epoch = 1
        self.used_ms = used_ms
        self.partitions = dict(partitions)
        self.reported: dict[FetchKey, int] = {}
        """The last `ReportedOffsets` of each partition as one number, which is half as large."""

    @property
    def user(self) -> Principal | None:
        """The user whose part of all sessions has this one."""
        return self.sender.user


class FetchPlan(NamedTuple):
    """The partitions to fetch, in this order, and the session id for the response."""

    session_id: int
    partitions: dict[FetchKey, RequestedPartition]
    incremental: bool
    """Whether partitions without news are left out of the response."""


class FetchSessions:
    """All fetch sessions of one broker, the least recently used first."""

    __slots__ = (
        "_epoch_max",
        "_next_id",
        "_partitions_max",
        "_sessions",
        "_sessions_max",
        "_user_part",
        "_user_partitions_max",
        "evicted_count",
        "partition_count",
        "refused_count",
        "user_refused_count",
    )

    def __init__(
        self,
        sessions_max: int,
        *,
        partitions_max: int = ALL_PARTITIONS_MAX,
        epoch_max: int = EPOCH_MAX,
        user_percent: int = 100,
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._epoch_max = epoch_max
        self._user_part = UserPart(sessions_max, partitions_max, user_percent)
        self._user_partitions_max = self._user_part.partitions
        self._sessions: dict[int, _FetchSession] = {}
        self._next_id = 1
        self.partition_count = 0
        """Number of partitions of all sessions, counted once per session."""
        self.evicted_count = 0
        """Number of sessions that were closed to make room."""
        self.refused_count = 0
        """Number of sessions that were not opened, or closed when they grew, for lack of room."""
        self.user_refused_count = 0
        """How many of them had no room because their user's part was used up."""

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        *,
        sender: FetchSender,
        named: Mapping[FetchKey, RequestedPartition],
        forgotten: Sequence[FetchKey],
        now_ms: int,
    ) -> FetchPlan:
        """Accept a request, or raise and change nothing.

        One refusal does change state: a session that has no room to grow is closed, because clients
        answer FETCH_SESSION_ID_NOT_FOUND with a request that names all partitions.
        """
        session = self._own(session_id, sender.connection_id)
        # An unknown id is no error here, as in Kafka: the request names all its partitions, so it
        # can be answered without the session.
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchPlan(NO_SESSION, dict(named), incremental=False)
            opened = self._open(sender, named, now_ms)
            return FetchPlan(opened, dict(named), incremental=False)
        if session is None:
            raise FetchSessionIdNotFound(
                f"there is no fetch session {session_id} of this connection"
            )
        if epoch != session.expected_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session_id}: expected epoch {session.expected_epoch}, got {epoch}"
            )
        if sender.uses_topic_ids != session.sender.uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} was opened by a request that "
                f"{_naming(session.sender)}, and this one {_naming(sender)}"
            )
        self._check_growth(session_id, session, named, forgotten, now_ms)
        # After the last check, because a refused request must not use up its epoch.
        session.expected_epoch = self._after(epoch)
        before = len(session.partitions)
        for key in forgotten:
            session.partitions.pop(key, None)
            session.reported.pop(key, None)
        session.partitions.update(named)
        self.partition_count += len(session.partitions) - before
        session.used_ms = now_ms
        # The sessions are in the order of their use.
        self._sessions[session_id] = self._sessions.pop(session_id)
        # A copy: while this fetch waits, later requests may change the session.
        return FetchPlan(session_id, dict(session.partitions), incremental=True)

    def news(self, session_id: int, key: FetchKey, offsets: ReportedOffsets) -> bool:
        """Return whether ``offsets`` differ from the last in a response, and store them."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        # An offset has 63 bits, so the two never overlap.
        packed_offsets = offsets.high_watermark << 64 | offsets.start_offset
        if session.reported.get(key) == packed_offsets:
            return False
        if key in session.partitions:  # A later request may have removed the partition meanwhile.
            session.reported[key] = packed_offsets
        return True

    def records_returned(self, session_id: int, keys: Sequence[FetchKey]) -> None:
        """Move these partitions, which had records, behind the others, so each gets its turn."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        for key in keys:
            partition = session.partitions.pop(key, None)
            if partition is not None:
                session.partitions[key] = partition

    def release_connection(self, connection_id: int) -> None:
        """Close the sessions of a connection that has ended."""
        ended_ids = [
            session_id
            for session_id, session in self._sessions.items()
            if session.sender.connection_id == connection_id
        ]
        for session_id in ended_ids:
            self._close(session_id)

    def _open(
        self, sender: FetchSender, named: Mapping[FetchKey, RequestedPartition], now_ms: int
    ) -> int:
        if not named:
            return NO_SESSION
        if not self._make_part(sender.user, 1, len(named), now_ms=now_ms) or not self._make_room(
            len(named), size=len(named), opens_on=sender.connection_id, now_ms=now_ms
        ):
            self.refused_count += 1
            return NO_SESSION
        session_id = self._next_id
        while session_id in self._sessions:  # Still open after the ids wrapped around.
            session_id = self._after(session_id)
        self._next_id = self._after(session_id)
        self._sessions[session_id] = _FetchSession(sender, named, now_ms)
        self.partition_count += len(named)
        return session_id

    def _own(self, session_id: int, connection_id: int) -> _FetchSession | None:
        """Return a session of the connection; None if it has no session with this id."""
        session = self._sessions.get(session_id)
        if session is None or session.sender.connection_id != connection_id:
            return None
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _check_growth(
        self,
        session_id: int,
        session: _FetchSession,
        named: Mapping[FetchKey, RequestedPartition],
        forgotten: Sequence[FetchKey],
        now_ms: int,
    ) -> None:
        """Refuse a request whose partitions have no room.

        The exact count is taken only if the sum might exceed a limit.
        """
        surely_free = self._partitions_max if session.user is None else self._user_partitions_max
        if (
            len(session.partitions) + len(named) <= PARTITIONS_MAX
            and self.partition_count + len(named) <= surely_free
        ):
            return
        count = len((session.partitions.keys() - set(forgotten)) | named.keys())
        if count > PARTITIONS_MAX:
            raise InvalidRequest(
                f"fetch session {session_id} would have {count} partitions, "
                f"{PARTITIONS_MAX} are allowed"
            )
        self._sessions[session_id] = self._sessions.pop(session_id)  # It is in use, so not evicted.
        session.used_ms = now_ms
        added = count - len(session.partitions)
        if added > 0 and not (
            self._make_part(session.user, 0, added, now_ms=now_ms)
            and self._make_room(added, size=count, opens_on=None, now_ms=now_ms)
        ):
            self.refused_count += 1
            self._close(session_id)
            raise FetchSessionIdNotFound(
                f"fetch session {session_id} was closed: with {count} partitions all sessions "
                f"would have more than {self._partitions_max}, or those of {session.user} more "
                "than its part"
            )

    def _make_part(
        self, user: Principal | None, sessions: int, partitions: int, *, now_ms: int
    ) -> bool:
        """Return whether a user's part has room, after closing its sessions that are not used."""
        while user is not None and not self._has_part(user, sessions, partitions):
            oldest_id = next(
                (key for key, session in self._sessions.items() if session.user == user), None
            )
            if oldest_id is None or now_ms - self._sessions[oldest_id].used_ms <= EVICTION_MS:
                self.user_refused_count += 1
                return False
            self._evict(oldest_id)
        return True

    def _has_part(self, user: Principal, sessions: int, partitions: int) -> bool:
        """Return whether a user may have so many more sessions and partitions."""
        refusal = self._user_part.refusal(
            user,
            self._sessions.values(),
            more_sessions=sessions,
            more_partitions=partitions,
            partition_count=self.partition_count,
        )
        return refusal is None

    def _make_room(self, more: int, *, size: int, opens_on: int | None, now_ms: int) -> bool:
        """Close sessions until ``more`` partitions fit, for a session that will have ``size``.

        ``opens_on`` is the connection of a session to be opened, and None for an existing session.
        """
        sessions = 0 if opens_on is None else 1

        def has_room() -> bool:
            return (
                len(self._sessions) + sessions <= self._sessions_max
                and self.partition_count + more <= self._partitions_max
            )

        while self._sessions and not has_room():
            oldest_id, oldest = next(iter(self._sessions.items()))
            if now_ms - oldest.used_ms <= EVICTION_MS:
                break
            self._evict(oldest_id)
        if opens_on is not None and len(self._sessions) >= self._sessions_max:
            crowded_out = self._crowded_out(opens_on)
            if crowded_out is None:
                return False
            self._evict(crowded_out)
        if has_room():
            return True
        # Only for a session within an equal share: two large ones would otherwise close each other
        # in turn.
        if size > self._partitions_max // (len(self._sessions) + sessions):
            return False
        largest_id, _ = max(self._sessions.items(), key=lambda item: len(item[1].partitions))
        self._evict(largest_id)
        assert has_room(), "the largest session was larger than an equal share"
        return True

    def _crowded_out(self, connection_id: int) -> int | None:
        """Return the session whose place a session of this connection gets; None if none.

        All places are taken, so the connection with the most sessions has more than an equal share.
        """
        counts = Counter(session.sender.connection_id for session in self._sessions.values())
        connection_count = len(counts | Counter([connection_id]))
        if counts[connection_id] >= self._sessions_max // connection_count:
            return None
        (crowded, _), *_ = counts.most_common(1)
        return next(
            session_id
            for session_id, session in self._sessions.items()
            if session.sender.connection_id == crowded
        )

    def _evict(self, session_id: int) -> None:
        self._close(session_id)
        self.evicted_count += 1

    def _after(self, number: int) -> int:
        """Return the next epoch or session id.

        After the greatest comes 1, because 0 and negative numbers have special meanings.
        """
        return 1 if number == self._epoch_max else number + 1


def _naming(sender: FetchSender) -> str:
    return "names topics by id" if sender.uses_topic_ids else "names topics by name"
