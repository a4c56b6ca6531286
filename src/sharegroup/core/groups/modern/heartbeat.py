"""Heartbeats of a consumer group of KIP-848: their checks, the member that they describe, replies.

Nothing here changes state: the group is only read, and all results are values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sharegroup.core.groups.modern.advance import (
    Advance,
    Change,
    Cluster,
    ModernGroupLimits,
    is_settled,
)
from sharegroup.core.groups.modern.group import PARTITION_BYTES, ModernGroup
from sharegroup.core.groups.modern.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ModernMember,
)
from sharegroup.core.groups.modern.sizes import (
    GROUP_BYTES_MAX,
    LABEL_CHARACTERS_MAX,
    ModernGroupSizeLimits,
)
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from sharegroup.ids import GroupId, MemberId, TopicName

UNCHANGED_MS = -1
"""The rebalance timeout of a request that does not change it."""


@dataclass(frozen=True, slots=True)
class ModernHeartbeat:
    """A heartbeat of a member; None in a field means no change since the last one.

    ``owned`` are the partitions that the member has. ``names_itself`` means that the client has to
    choose the member id (from version 1 on).
    """

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    subscribed_topic_names: tuple[TopicName, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    names_itself: bool = True
    user: Principal | None = None
    """The user whose part of all groups limits it (`shared_totals`)."""

    @property
    def leaves(self) -> bool:
        """Whether the member leaves its group."""
        return self.member_epoch < JOIN_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields, as after an error; its reply has the assignment."""
        return (
            self.rebalance_timeout_ms != UNCHANGED_MS
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.owned is not None
        )


def check_request(request: ModernHeartbeat, limits: ModernGroupLimits) -> None:
    """Raise InvalidRequest or UnsupportedAssignor if the request is invalid for any group."""
    prefix = f"group {request.group_id!r}, member {request.member_id!r}"
    problem = _problem(request)
    if problem:
        raise InvalidRequest(f"{prefix}: {problem}")
    for name, text in (
        ("member id", request.member_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        check_label(prefix, name, text)
    if request.server_assignor is not None and request.server_assignor not in limits.assignors:
        raise UnsupportedAssignor(
            # Cut, because the length of this text is the client's choice.
            f"{prefix}: there is no assignor {request.server_assignor[:100]!r}; expected one of "
            f"{', '.join(limits.assignors)}"
        )


def _problem(request: ModernHeartbeat) -> str:
    """Return what is wrong with the request; an empty text if nothing is."""
    epoch = request.member_epoch
    # In version 0 a member joins without an id, and the broker chooses it.
    needs_id = request.names_itself or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    for name, text in (
        ("member id", request.member_id if needs_id else None),
        ("group id", request.group_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if text is not None and not text.strip():
            return f"the {name} is empty"
    if epoch < STATIC_LEAVE_EPOCH:
        return f"the member epoch must be -2 or more, not {epoch}"
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "only a static member can leave with member epoch -2; the instance id is missing"
    if epoch != JOIN_EPOCH:
        return ""
    if request.rebalance_timeout_ms == UNCHANGED_MS:
        return "a member that joins must send its rebalance timeout"
    # A fenced member gives up all partitions before it joins again. If it could bring some along,
    # another member might have got them meanwhile (KIP-848 «Rebalance Process»).
    if request.owned is None or request.owned:
        return "a member that joins has no partitions and must send an empty list of them"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "a member that joins must send topic names or a regular expression"
    return ""


def check_room(group: ModernGroup, member_id: MemberId, instance_id: str | None, most: int) -> None:
    """Raise GroupMaxSizeReached if a new member finds ``most`` members in the group."""
    # A static member that returns replaces itself or is refused, so the group does not grow
    # (GroupMetadataManager.java).
    if group.static(instance_id) is not None or member_id in group.members:
        return
    if len(group.members) >= most:
        raise GroupMaxSizeReached(
            f"group {group.group_id!r}, member {member_id!r}: the group has {most} members already"
        )


def check_epoch(member: ModernMember, request: ModernHeartbeat) -> None:
    """Raise FencedMemberEpoch if the member is in another epoch.

    The previous epoch is valid if the member has only partitions that are still assigned to it:
    the reply with the new epoch may have been lost.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if (
        epoch < member.member_epoch
        and epoch == member.previous_member_epoch
        and request.owned is not None
        and request.owned <= member.assigned.keys()
    ):
        return
    raise FencedMemberEpoch(
        f"group {request.group_id!r}, member {member.member_id!r}: member epoch {epoch} is fenced: "
        f"expected {member.member_epoch}; the member must give up its partitions and join again"
    )


def existing_member(group: ModernGroup, member_id: MemberId) -> ModernMember:
    """Return a member; raise UnknownMemberId if the group has no such member."""
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(
            f"group {group.group_id!r} has no member {member_id!r}; it must join with epoch 0"
        )
    return member


def identified_member(
    group: ModernGroup, member_id: MemberId, instance_id: str | None
) -> ModernMember:
    """Return a member by its ids; raise FencedInstanceId if another one has the instance id."""
    if instance_id is None:
        return existing_member(group, member_id)
    member = group.static(instance_id)
    if member is None:
        raise UnknownMemberId(
            f"group {group.group_id!r} has no static member with instance id {instance_id!r}"
        )
    # The instance was restarted and has a new member id. FENCED_INSTANCE_ID ends the former client;
    # with UNKNOWN_MEMBER_ID it would join again under the same instance id (KIP-345).
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"group {group.group_id!r}: instance {instance_id!r} is member {member.member_id!r} "
            f"now, not {member_id!r}"
        )
    return member


def check_released(group: ModernGroup, member: ModernMember, new_id: MemberId) -> None:
    """Raise UnreleasedInstanceId if a static member has not left, so its place is not free."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise UnreleasedInstanceId(
            f"group {group.group_id!r}, member {new_id!r}: instance {member.instance_id!r} is "
            f"member {member.member_id!r}, which has not left the group"
        )


def described_member(member: ModernMember, request: ModernHeartbeat) -> ModernMember:
    """Return the member with the properties of its request; null fields keep their values."""
    names = request.subscribed_topic_names
    pattern = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms
        ),
        server_assignor=(
            member.server_assignor if request.server_assignor is None else request.server_assignor
        ),
        subscribed_topic_names=(
            # Sorted, so a client that sends the same topics in another order changes nothing.
            member.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
        subscribed_topic_regex=member.subscribed_topic_regex if pattern is None else pattern,
        # Only the new protocol has this request: a classic member becomes one of it by its first
        # heartbeat.
        classic=None,
    )


# Growth: checks of the memory that a member's request adds to its group; the limits are in `sizes`.


def check_label(prefix: str, name: str, text: str | None) -> None:
    """Raise InvalidRequest for a text that the group would store and that is too long."""
    if text is not None and len(text) > LABEL_CHARACTERS_MAX:
        raise InvalidRequest(
            f"{prefix}: the {name} has at most {LABEL_CHARACTERS_MAX} characters, not {len(text)}"
        )


def size_with(
    group: ModernGroup, member: ModernMember, *, partitions: int, pattern_bytes: int
) -> int:
    """Return the size of the group with ``member``; raise GroupMaxSizeReached if it is too large.

    ``partitions`` is the number of partitions that the group will assign, ``pattern_bytes`` the
    memory of a new pattern with the topics that it matches.
    """
    more_partitions = max(partitions - group.partition_count, 0)
    growth = group.growth_with(member) + PARTITION_BYTES * more_partitions + pattern_bytes
    size = group.size_bytes + growth
    # A request that makes the group no larger is never refused, even if a limit was lowered below
    # what the group has.
    if growth > 0 and size > GROUP_BYTES_MAX:
        raise GroupMaxSizeReached(
            f"group {group.group_id!r}, member {member.member_id!r}: with its members, topic names "
            f"and {partitions} partitions the group would take {size} bytes, {GROUP_BYTES_MAX} are "
            "allowed"
        )
    return size


def check_all_bytes(group_id: GroupId, all_bytes: int, limits: ModernGroupSizeLimits) -> None:
    """Raise GroupMaxSizeReached if ``all_bytes`` for all groups are too many."""
    if all_bytes > limits.all_bytes_max:
        raise GroupMaxSizeReached(
            f"group {group_id!r}: all consumer groups of the consumer protocol would take "
            f"{all_bytes} bytes, {limits.all_bytes_max} are allowed; delete some"
        )


# A heartbeat that is worked out ahead, because it may move thousands of partitions.
#
# The broker works on it in steps and serves other requests between them. Nothing changes meanwhile:
# the plan is only used if the group, its topics and its limits are the same at the end.


LONG_PARTITIONS = 1_000
"""Number of partitions from which on a heartbeat takes milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """A group at one time; ``group`` is None if there was none."""

    group: ModernGroup | None
    revision: int

    @classmethod
    def of(cls, group: ModernGroup | None) -> GroupVersion:
        return cls(group, 0 if group is None else group.revision)

    def is_current(self, group: ModernGroup | None) -> bool:
        """Return whether this is the group, and no record has changed it since."""
        # Both: a group that was deleted and made again may have the same revision.
        return group is self.group and (group is None or group.revision == self.revision)


@dataclass(frozen=True, slots=True)
class HeartbeatPlan:
    """The effect of a heartbeat on its group, and all that it depends on."""

    version: GroupVersion
    change: Change
    cluster: Cluster
    limits: ModernGroupLimits
    result: Advance

    def fits(
        self,
        group: ModernGroup | None,
        change: Change,
        cluster: Cluster,
        limits: ModernGroupLimits,
    ) -> bool:
        """Return whether the plan is still the effect of the heartbeat."""
        return (
            self.version.is_current(group)
            and self.change == change
            and (self.cluster.version, self.cluster.matches) == (cluster.version, cluster.matches)
            and self.limits == limits
        )


def is_long(group: ModernGroup | None, request: ModernHeartbeat, cluster: Cluster) -> bool:
    """Return whether the heartbeat has to be worked out for very many partitions."""
    partition_count = 0 if group is None else group.partition_count
    if partition_count < LONG_PARTITIONS:
        names = request.subscribed_topic_names or ()
        matched = cluster.matches.get(request.subscribed_topic_regex or "", ())
        partition_count = max(partition_count, _partition_count((*names, *matched), cluster))
    if partition_count < LONG_PARTITIONS:
        return False
    stored_member = None if group is None else group.members.get(request.member_id)
    # A new member always leads to a new target assignment for all partitions.
    if group is None or stored_member is None:
        return True
    change = Change(stored_member, described_member(stored_member, request), request.owned)
    return not is_settled(group, change, cluster)


def _partition_count(names: tuple[TopicName, ...], cluster: Cluster) -> int:
    return sum(
        topic.partition_count for name in names if (topic := cluster.topics.get(name)) is not None
    )
