"""The members of a consumer group: by member id, static ones also by instance id, and pending ids.

A *pending* member joined without an id and was given one, with which it has to join again
(KIP-394). A *static* member has an instance id, which stays the same when its member id changes
(KIP-345). The leader is always one of the members, if there are any.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.groups.classic.member import (
    Call,
    ClassicGroupMember,
    JoinedMember,
    JoinRequest,
    SyncRequest,
    bytes_of,
    identity_bytes,
    restored,
)
from sharegroup.core.groups.classic.records import GroupMetadata, StoredMember
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal, text_bytes
from sharegroup.errors import (
    FencedInstanceId,
    InconsistentGroupProtocol,
    MessageTooLarge,
    PolicyViolation,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId


class Totals:
    """The memory and the pending members of all groups together; each group keeps it up to date."""

    __slots__ = ("memory", "pending", "sizes")

    def __init__(self, sizes: ClassicGroupSizeLimits, memory: SharedTotal[GroupId]) -> None:
        self.sizes = sizes
        self.memory = memory
        self.pending = 0


class Members:
    """The members of one consumer group and the ids that were given out."""

    __slots__ = ("_by_id", "_bytes", "_group_id", "_pending", "_static", "_totals", "leader")

    def __init__(self, group_id: GroupId, totals: Totals) -> None:
        self._group_id = group_id
        self._totals = totals
        self._bytes = 0
        self._by_id: dict[MemberId, ClassicGroupMember] = {}
        self._static: dict[str, MemberId] = {}
        self.leader: MemberId | None = None
        self._pending: set[MemberId] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        """Iterate over the members in the order in which they joined."""
        return iter(self._by_id.values())

    def __getitem__(self, member_id: MemberId) -> ClassicGroupMember:
        return self._by_id[member_id]

    def get(self, member_id: MemberId) -> ClassicGroupMember | None:
        """Return the member with this id; None if the id is unknown or only pending."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> MemberId | None:
        """Return the member with this instance id; None if there is none."""
        return None if instance_id is None else self._static.get(instance_id)

    def check(self, member_id: MemberId, instance_id: str | None) -> None:
        """Raise UnknownMemberId, or FencedInstanceId if another member has the instance id."""
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
        """Raise InconsistentGroupProtocol if the members would have no protocol in common."""
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
                f"support the protocols {sorted(common)}; the joining member has protocol type "
                f"{request.protocol_type!r} and supports {sorted(names)}"
            )

    def check_metadata(self, request: JoinRequest) -> None:
        """Raise MessageTooLarge if the request makes the members' metadata too large."""
        member_id = request.member_id or self.static(request.instance_id)
        former = None if member_id is None else self._by_id.get(member_id)
        added_bytes = bytes_of(request.protocols)
        if former is None:
            added_bytes += identity_bytes(
                request.member_id or request.new_member_id,
                request.instance_id,
                request.client_id,
                request.client_host,
            )
        else:
            added_bytes -= bytes_of(former.protocols)
        self._check_size(added_bytes, request.user)

    def check_assignments(self, request: SyncRequest) -> None:
        """Raise MessageTooLarge if the assignments make the group's record too large."""
        given_bytes = sum(map(len, request.assignments.values()))
        self._check_size(given_bytes - sum(len(member.assignment) for member in self), None)

    def _check_size(self, more: int, user: Principal | None) -> None:
        sizes, memory = self._totals.sizes, self._totals.memory
        if self._bytes + more > sizes.group_bytes_max:
            raise MessageTooLarge(
                f"group {self._group_id!r}: its members' ids, metadata and assignments would take "
                f"{self._bytes + more} bytes, more than {sizes.group_bytes_max}"
            )
        # Only growth is refused: above a limit that was lowered, groups must still be able to
        # shrink.
        if more > 0 and memory.used + more > sizes.all_bytes_max:
            raise PolicyViolation(
                f"group {self._group_id!r}: {more} more bytes and the {memory.used} bytes "
                f"of all groups' members would exceed {sizes.all_bytes_max}"
            )
        memory.check(self._group_id, user, more, limit=sizes.all_bytes_max)

    # Queries

    @property
    def size_bytes(self) -> int:
        """The memory of all members of the group."""
        return self._bytes

    def all_joined(self) -> bool:
        """Return whether all members have joined and no id is pending."""
        return not self._pending and all(member.joining is not None for member in self)

    def joined_count(self) -> int:
        """Return how many members wait in the current rebalance for the others to join."""
        return sum(1 for member in self if member.joining is not None)

    def common_protocols(self) -> set[str]:
        """Return the protocols that every member supports; there must be a member."""
        members = iter(self)
        common = set(next(members).protocols)
        for member in members:
            common &= member.protocols.keys()
        return common

    def select_protocol(self) -> str:
        """Return the protocol with the most votes.

        Each member votes for the first of its protocols that all support. On a tie the first wins.
        """
        common = self.common_protocols()
        assert common, f"group {self._group_id!r}: members without a common protocol"
        votes: dict[str, int] = {}
        for member in self:
            choice = next(name for name in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def new_that_waits(self, call: Call) -> MemberId | None:
        """Return the new member whose request to join is ``call``; None if there is none."""
        member_ids = (
            member.member_id for member in self if member.is_new and member.joining == call
        )
        return next(member_ids, None)

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def told(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """Return the members as the leader receives them."""
        assert protocol is not None
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.protocols[protocol])
            for member in self
        )

    def stored(self, protocol: str | None) -> tuple[StoredMember, ...]:
        """Return the members in the form of the group's record.

        A group without a protocol has no members.
        """
        assert protocol is not None or not self._by_id
        return () if protocol is None else tuple(member.stored(protocol) for member in self)

    def expects(self, member_id: MemberId) -> bool:
        """Return whether the id was given out and not used yet."""
        return member_id in self._pending

    @property
    def expects_any(self) -> bool:
        """Whether a member id was given out and not used yet."""
        return bool(self._pending)

    # Changes

    def expect(self, member_id: MemberId) -> None:
        """Note a member id that was given out."""
        self._pending.add(member_id)
        self._totals.pending += 1

    def ask(self, member: ClassicGroupMember, request: JoinRequest) -> None:
        """Store the member's protocols and timeouts from a request to join."""
        self._hold(bytes_of(request.protocols) - bytes_of(member.protocols))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        """Store the member's assignment."""
        self._hold(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member whose id and instance id no other member has."""
        assert member.member_id not in self._by_id
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._hold(member.size_bytes)
        self._unexpect(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def load(self, metadata: GroupMetadata) -> None:
        """Load the members and the leader from the group's record."""
        for stored in metadata.members:
            assert metadata.protocol is not None, f"{self._group_id!r}: members, no protocol"
            self.add(restored(stored, metadata.protocol))
        # After the members, because `add` makes the first one the leader.
        self.leader = metadata.leader

    def remove(self, member_id: MemberId) -> ClassicGroupMember | None:
        """Remove a member or a pending id; return the member, None for a pending id."""
        self._unexpect(member_id)
        member = self._by_id.pop(member_id, None)
        if member is not None:
            self._hold(-member.size_bytes)
            if member.instance_id is not None:
                del self._static[member.instance_id]
        if self.leader == member_id:
            # The one that joined first; `elect_leader` chooses another if it does not join again.
            self.leader = next(iter(self._by_id), None)
        return member

    def clear(self) -> tuple[MemberId, ...]:
        """Remove all members and pending ids, because the group is deleted; return their ids."""
        removed_ids = (*self._by_id, *self._pending)
        for member_id in removed_ids:
            self.remove(member_id)
        return removed_ids

    def rename(self, old_id: MemberId, new_id: MemberId) -> ClassicGroupMember:
        """Give a static member that has returned its new id."""
        member = self._by_id.pop(old_id)
        assert member.instance_id is not None
        self._static[member.instance_id] = new_id
        self._by_id[new_id] = member
        self._hold(text_bytes(new_id) - text_bytes(old_id))
        member.member_id = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect_leader(self) -> bool:
        """Elect a member that has joined; return False if none has.

        The current leader stays if it has joined.
        """
        if self.leader is not None and self._by_id[self.leader].joining is not None:
            return True
        # Only one that has joined: the leader gets the members' metadata with the answer to its
        # join.
        elected = next((member.member_id for member in self if member.joining is not None), None)
        if elected is None:
            return False
        self.leader = elected
        return True

    def _hold(self, more: int) -> None:
        self._bytes += more
        self._totals.memory.change(self._group_id, more)

    def _unexpect(self, member_id: MemberId) -> None:
        if member_id in self._pending:
            self._pending.remove(member_id)
            self._totals.pending -= 1


def check_same(request: SyncRequest, *, protocol_type: str | None, protocol: str | None) -> None:
    """Raise InconsistentGroupProtocol if the request names another protocol than the group's."""
    for named, expected in ((request.protocol_type, protocol_type), (request.protocol, protocol)):
        if named is not None and named != expected:
            raise InconsistentGroupProtocol(
                f"group {request.group_id!r} uses {expected!r}, member {request.member_id!r} sent "
                f"{named!r}"
            )
