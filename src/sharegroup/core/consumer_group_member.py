"""What members of a consumer group ask and are told, and what a group knows of each.

The group does not understand what its members agree upon: a *protocol* is a name with bytes
that mean something to the members alone, an assignment is bytes, too (KIP-62, «Group
management»).  One member, the leader, is handed everybody's bytes and answers with everybody's
assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sharegroup.core.consumer_group_records import Records, StoredMember
from sharegroup.core.deadlines import Deadlines
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId

UNKNOWN_MEMBER = MemberId("")
"""The id of a member that has none yet."""

PROTOCOL_BYTES = 100
"""What a protocol takes beside its name and metadata."""

Call = int
"""A request that waits for its answer; the broker numbers them."""

Protocols = dict[str, bytes]
"""By name, in the order in which the member likes them."""


class State(StrEnum):
    """As DescribeGroups calls them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Timer(NamedTuple):
    """A member's session, or with the member id "" the phase that its group is in.

    A group waits for members to join or for them to sync, never for both.
    """

    group_id: GroupId
    member_id: MemberId


Timers = Deadlines[Timer]
"""What is due when, in all consumer groups together."""


class Now(NamedTuple):
    """The monotonic time, which timers count on, and the wall clock's, for records."""

    ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker's configuration says of consumer groups; may change any time."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_delay_ms: int = 0
    members_max: int = 1_000


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member joins, or joins again.

    ``new_member_id`` is for a member without one, ``must_return`` says that such a member has
    to ask again with it (KIP-394), ``skips_assignment`` that a returning leader can be told not
    to assign (KIP-814).
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


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: MemberId
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The member is in; ``members`` is for the leader, who is to assign."""

    member_id: MemberId
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: MemberId
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class NewMemberId:
    """The member is not in yet: it has to join again with this id (MEMBER_ID_REQUIRED)."""

    member_id: MemberId


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings all of them.

    Protocol type and name are None from clients that do not say them (before version 5).
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
    """A member's assignment."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


Reply = JoinReply | NewMemberId | SyncReply | KafkaError


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from something that has happened to a group.

    The records are to be written, and the answers sent when they are durable.
    """

    group_id: GroupId
    records: Records
    answers: tuple[tuple[Call, Reply], ...]


class Identity(NamedTuple):
    """Who leaves: a member by its id, or a static one by its instance id alone."""

    member_id: MemberId
    instance_id: str | None


class Member:
    """What a group knows of a member; only its group changes it.

    ``joining`` and ``syncing`` are its requests that wait.  A new member has never been given a
    generation: it cannot send heartbeats, so its session runs while it waits.
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
    def metadata_bytes(self) -> int:
        """What the group holds for it."""
        return bytes_of(self.protocols) + len(self.assignment)

    @property
    def waits(self) -> bool:
        """Whether it cannot be expected to send a heartbeat: it waits for the group."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def stored(self, protocol: str) -> StoredMember:
        """As the group's record has it."""
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


def restored(stored: StoredMember, protocol: str) -> Member:
    """The member as the group's record has it."""
    member = Member(
        stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
    )
    member.protocols = {protocol: stored.subscription}
    member.session_timeout_ms = stored.session_timeout_ms
    member.rebalance_timeout_ms = stored.rebalance_timeout_ms
    member.assignment = stored.assignment
    member.is_new = False
    return member


def bytes_of(protocols: Protocols) -> int:
    """What the protocols of a member take, memory for each included."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols.items())
