"""The requests and answers of consumer group members, and the state of one member.

The group does not interpret what its members agree on. A *protocol* is a name with bytes that only
the members understand; an assignment is bytes, too (KIP-62, «Group management»). One member, the
leader, receives the bytes of all members and answers with the assignments of all members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sharegroup.core.deadlines import Deadlines
from sharegroup.core.groups.classic.records import Records, StoredMember
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import text_bytes
from sharegroup.errors import KafkaError, RebalanceInProgress
from sharegroup.ids import GroupId, MemberId

UNKNOWN_MEMBER = MemberId("")
"""The id of a member that has no id yet."""

LABEL_CHARACTERS_MAX = 249
"""Number of characters of an instance id and of a protocol type; that of a topic name.

Of a client id, this many characters are kept and begin the member ids.
"""

MEMBER_BYTES = 1_000
"""Memory of a member without its ids, protocols and assignment."""

PROTOCOL_BYTES = 100
"""Memory of a protocol without its name and metadata."""

Call = int
"""The number of a request that waits for its answer; assigned by the broker."""

Protocols = dict[str, bytes]
"""Metadata by protocol name, in the member's order of preference."""


class State(StrEnum):
    """The state of a group, named as in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicTimerKey(NamedTuple):
    """The key of a timer: a member's session, or with member id "" the phase of its group.

    One key is enough because a group waits either for members to join or for them to sync.
    """

    group_id: GroupId
    member_id: MemberId


Timers = Deadlines[ClassicTimerKey]
"""The timers of all consumer groups."""


@dataclass(frozen=True, slots=True)
class ClassicGroupLimits:
    """The broker's configuration of consumer groups; it may change at any time."""

    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 1_800_000
    initial_delay_ms: int = 0
    members_max: int = 1_000


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request of a member to join, or to join again.

    ``new_member_id`` is for a member without an id. ``must_return`` says that such a member has to
    join again with it (KIP-394). ``skips_assignment`` says that the client understands the answer
    that a returning leader need not assign (KIP-814).
    """

    group_id: GroupId
    member_id: MemberId
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    new_member_id: MemberId
    must_return: bool = True
    skips_assignment: bool = True
    user: Principal | None = None
    """The user whose part of all groups limits it (`shared_totals`)."""


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: MemberId
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a member that has joined; ``members`` is for the leader, which assigns."""

    member_id: MemberId
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: MemberId
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class NewMemberId:
    """The answer to a new member: it has to join again with this id (MEMBER_ID_REQUIRED)."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A request of a member for its assignment; the leader's request has all assignments.

    ``protocol_type`` and ``protocol`` are None from clients that do not send them (before version
    5).
    """

    group_id: GroupId
    member_id: MemberId
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[MemberId, bytes]


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The assignment of a member."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


Reply = JoinReply | NewMemberId | SyncReply | KafkaError


@dataclass(frozen=True, slots=True)
class Decision:
    """The results of an event in a group.

    The records must be written, and the answers are sent when the records are durable.
    """

    group_id: GroupId
    records: Records
    answers: tuple[tuple[Call, Reply], ...]


class LeavingMember(NamedTuple):
    """The member that leaves: by its member id, or a static member by its instance id alone."""

    member_id: MemberId
    instance_id: str | None


class ClassicGroupMember:
    """The state of one member; only its group changes it.

    ``joining`` and ``syncing`` are its waiting requests. A new member has never received a
    generation. It cannot send heartbeats, so its session runs while it waits.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self, member_id: MemberId, *, instance_id: str | None, client_id: str, client_host: str
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocols: Protocols = {}
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.assignment = b""
        self.joining: Call | None = None
        self.syncing: Call | None = None
        self.is_new = True

    @property
    def size_bytes(self) -> int:
        """Memory that the group uses for the member."""
        identity = identity_bytes(
            self.member_id, self.instance_id, self.client_id, self.client_host
        )
        return identity + bytes_of(self.protocols) + len(self.assignment)

    @property
    def waits(self) -> bool:
        """Whether the member waits for the group, so it cannot send heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def stored(self, protocol: str) -> StoredMember:
        """Return the member in the form of the group's record."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols[protocol],
            self.assignment,
        )


def restored(stored: StoredMember, protocol: str) -> ClassicGroupMember:
    """Return the member that the group's record describes."""
    member = ClassicGroupMember(
        stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
    )
    # The record has only the protocol that was chosen; the others come with the next join.
    member.protocols = {protocol: stored.subscription}
    member.session_timeout_ms = stored.session_timeout_ms
    member.rebalance_timeout_ms = stored.rebalance_timeout_ms
    member.assignment = stored.assignment
    member.is_new = False
    return member


def identity_bytes(*ids: str | None) -> int:
    """Return the memory of a member with these ids, without protocols and assignment."""
    return MEMBER_BYTES + sum(map(text_bytes, ids))


def bytes_of(protocols: Protocols) -> int:
    """Return the memory of a member's protocols."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols.items())


# The waiting requests of a consumer group's members, and the answers given to requests.
#
# Each request is answered once. If a member sends a request again while the first one waits, the
# first one is answered with an error, because its connection may be gone.


class Answers:
    """Collects the answers to requests, and parks requests that have to wait."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: list[tuple[Call, Reply]] = []

    def take(self) -> tuple[tuple[Call, Reply], ...]:
        """Return the answers given since the last `take`."""
        answers = tuple(self._given)
        self._given.clear()
        return answers

    def give(self, call: Call, reply: Reply) -> None:
        """Add the answer to a request; `take` returns it."""
        self._given.append((call, reply))

    def park_join(self, member: ClassicGroupMember, call: Call) -> None:
        """Let the request wait until the other members have joined."""
        self.end_join(member, _asked_again(member))
        member.joining = call

    def park_sync(self, member: ClassicGroupMember, call: Call) -> None:
        """Let the request wait until the leader has assigned."""
        self.end_sync(member, _asked_again(member))
        member.syncing = call

    def end_join(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Answer the member's waiting request to join, if there is one."""
        if member.joining is not None:
            self.give(member.joining, reply)
            member.joining = None

    def end_sync(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Answer the member's waiting request to sync, if there is one."""
        if member.syncing is not None:
            self.give(member.syncing, reply)
            member.syncing = None

    def end(self, member: ClassicGroupMember, reply: Reply) -> None:
        """Answer all waiting requests of the member."""
        self.end_join(member, reply)
        self.end_sync(member, reply)


def _asked_again(member: ClassicGroupMember) -> RebalanceInProgress:
    return RebalanceInProgress(f"member {member.member_id!r} has sent a newer request")
