"""Who is in a consumer group: members, static ones by instance id, and ids that were given out.

A *pending* member asked to join without an id and was told one, with which it has to come back
(KIP-394).  A *static* member has an instance id, which outlives its member id (KIP-345).  The
leader is always one of the members, as long as there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.consumer_group_member import (
    Call,
    JoinedMember,
    JoinRequest,
    Member,
    SyncRequest,
    bytes_of,
    restored,
)
from sharegroup.core.consumer_group_records import GroupMetadata, StoredMember
from sharegroup.errors import (
    FencedInstanceId,
    InconsistentGroupProtocol,
    MessageTooLarge,
    PolicyViolation,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Of all members' metadata and assignments: they go into one record, and one answer."""


ALL_BYTES_MAX = 256 * 1024 * 1024
"""Of the members of all groups."""


class Totals:
    """What all groups together hold of their members; each group adds to it and takes away."""

    __slots__ = ("bytes", "pending")

    def __init__(self) -> None:
        self.bytes = 0
        self.pending = 0


class Members:
    """See the module's text."""

    __slots__ = ("_by_id", "_bytes", "_group_id", "_pending", "_static", "_totals", "leader")

    def __init__(self, group_id: GroupId, totals: Totals) -> None:
        self._group_id = group_id
        self._totals = totals
        self._bytes = 0
        self._by_id: dict[MemberId, Member] = {}
        self._static: dict[str, MemberId] = {}
        self.leader: MemberId | None = None
        self._pending: set[MemberId] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        """In the order in which they joined."""
        return iter(self._by_id.values())

    def __getitem__(self, member_id: MemberId) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: MemberId) -> Member | None:
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> MemberId | None:
        """The member that has this instance id; None if none has."""
        return None if instance_id is None else self._static.get(instance_id)

    def check(self, member_id: MemberId, instance_id: str | None) -> None:
        """Raise UnknownMemberId, or FencedInstanceId when another one has the instance id."""
        holder = self.static(instance_id)
        if holder is not None and holder != member_id:
            raise FencedInstanceId(
                f"group {self._group_id!r}: instance {instance_id!r} is member {holder!r} now, "
                f"not {member_id!r}"
            )
        if member_id not in self._by_id or (instance_id is not None and holder is None):
            raise UnknownMemberId(
                f"group {self._group_id!r} has no member {member_id!r} with instance id "
                f"{instance_id!r}: join again without a member id"
            )

    def check_protocols(self, request: JoinRequest, *, protocol_type: str | None) -> None:
        """Raise InconsistentGroupProtocol when one who joins and the others could not agree."""
        names = request.protocols.keys()
        if not request.protocol_type or not names:
            raise InconsistentGroupProtocol(
                f"group {self._group_id!r}: a member needs a protocol type and a protocol"
            )
        if not self._by_id:
            return
        common = self.common_protocols()
        if request.protocol_type != protocol_type or not names & common:
            raise InconsistentGroupProtocol(
                f"group {self._group_id!r} has protocol type {protocol_type!r} and its members "
                f"know {sorted(common)}; who joins has {request.protocol_type!r}, {sorted(names)}"
            )

    def check_metadata(self, request: JoinRequest) -> None:
        """Raise MessageTooLarge when what is said of the members gets too much."""
        known = self._by_id.get(request.member_id)
        more = bytes_of(request.protocols) - (0 if known is None else bytes_of(known.protocols))
        self._check_size(more)

    def check_assignments(self, request: SyncRequest) -> None:
        """Raise MessageTooLarge when the assignments do not go into the group's record."""
        given = sum(map(len, request.assignments.values()))
        self._check_size(given - sum(len(one.assignment) for one in self))

    def _check_size(self, more: int) -> None:
        if self._bytes + more > GROUP_BYTES_MAX:
            raise MessageTooLarge(
                f"group {self._group_id!r}: its members' metadata and assignments would take "
                f"{self._bytes + more} bytes, more than {GROUP_BYTES_MAX}"
            )
        if more > 0 and self._totals.bytes + more > ALL_BYTES_MAX:
            raise PolicyViolation(
                f"group {self._group_id!r}: {more} bytes more than the {self._totals.bytes} of all "
                f"groups' members would pass {ALL_BYTES_MAX}"
            )

    # What is true of them

    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return not self._pending and all(one.joining is not None for one in self)

    def joined_count(self) -> int:
        return sum(1 for one in self if one.joining is not None)

    def common_protocols(self) -> set[str]:
        """The protocols that every member knows; there is a member."""
        members = iter(self)
        common = set(next(members).protocols)
        for member in members:
            common &= member.protocols.keys()
        return common

    def select_protocol(self) -> str:
        """Each votes for what it likes best of what all know; the first with most votes wins."""
        common = self.common_protocols()
        assert common, f"group {self._group_id!r}: members without a common protocol"
        votes: dict[str, int] = {}
        for member in self:
            choice = next(name for name in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def new_that_waits(self, call: Call) -> MemberId | None:
        """The member whose first request to join this is; None if it is another's."""
        found = (one.member_id for one in self if one.is_new and one.joining == call)
        return next(found, None)

    def rebalance_timeout_ms(self) -> int:
        """The longest that one of them may take to join again."""
        return max((one.rebalance_timeout_ms for one in self), default=0)

    def told(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members as the leader is told of them."""
        assert protocol is not None
        return tuple(
            JoinedMember(one.member_id, one.instance_id, one.protocols[protocol]) for one in self
        )

    def stored(self, protocol: str | None) -> tuple[StoredMember, ...]:
        """The members as the group's record has them; a group without a protocol has none."""
        assert protocol is not None or not self._by_id
        return () if protocol is None else tuple(one.stored(protocol) for one in self)

    def expects(self, member_id: MemberId) -> bool:
        """Whether the id was given out and has not come back."""
        return member_id in self._pending

    @property
    def expects_any(self) -> bool:
        return bool(self._pending)

    # What is done to them

    def expect(self, member_id: MemberId) -> None:
        """An id was given out."""
        self._pending.add(member_id)
        self._totals.pending += 1

    def ask(self, member: Member, request: JoinRequest) -> None:
        """Take over what a request to join says of a member."""
        self._hold(bytes_of(request.protocols) - bytes_of(member.protocols))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def assign(self, member: Member, assignment: bytes) -> None:
        """What the member is to have."""
        self._hold(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def add(self, member: Member) -> None:
        """A member with an id and an instance id that nobody else has."""
        assert member.member_id not in self._by_id
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._hold(member.metadata_bytes)
        self._unexpect(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def load(self, metadata: GroupMetadata) -> None:
        """The members, and their leader, that the group's record tells of."""
        for stored in metadata.members:
            assert metadata.protocol is not None, f"{self._group_id!r}: members, no protocol"
            self.add(restored(stored, metadata.protocol))
        self.leader = metadata.leader

    def remove(self, member_id: MemberId) -> Member | None:
        """Let the member, or the id that was given out, be gone; None for the latter."""
        self._unexpect(member_id)
        member = self._by_id.pop(member_id, None)
        if member is not None:
            self._hold(-member.metadata_bytes)
            if member.instance_id is not None:
                del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def clear(self) -> tuple[MemberId, ...]:
        """The group is no more; the ids of all, those given out in vain too."""
        gone = (*self._by_id, *self._pending)
        for member_id in gone:
            self.remove(member_id)
        return gone

    def rename(self, old_id: MemberId, new_id: MemberId) -> Member:
        """A static member has come back under another id."""
        member = self._by_id.pop(old_id)
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        self._by_id[new_id] = member
        member.member_id = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect_leader(self) -> bool:
        """Let one of those who joined lead; False when none has.  The old one, if it is there."""
        if self.leader is not None and self._by_id[self.leader].joining is not None:
            return True
        elected = next((one.member_id for one in self if one.joining is not None), None)
        if elected is None:
            return False
        self.leader = elected
        return True

    def _hold(self, more: int) -> None:
        self._bytes += more
        self._totals.bytes += more

    def _unexpect(self, member_id: MemberId) -> None:
        if member_id in self._pending:
            self._pending.remove(member_id)
            self._totals.pending -= 1


def check_same(request: SyncRequest, *, protocol_type: str | None, protocol: str | None) -> None:
    """Raise InconsistentGroupProtocol when the member believes in another agreement."""
    for said, known in ((request.protocol_type, protocol_type), (request.protocol, protocol)):
        if said is not None and said != known:
            raise InconsistentGroupProtocol(
                f"group {request.group_id!r} uses {known!r}, member {request.member_id!r} said "
                f"{said!r}"
            )
