"""The effect of a member's request on its group: the records to write and the member after it.

    member changed? ─▶ patterns ─▶ group epoch ─▶ target assignment ─▶ reconciliation

Nothing here changes state: the group is only read, and all results are values.

A new target assignment is made if the group epoch is above its epoch. The assignment interval can
delay that, so partitions are not moved too often. It never delays a first assignment: not while a
partition has no member, and not while the member has none although another has two. Kafka lets
both wait for a later heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.core.groups.modern.assignors import ASSIGNORS, AssignedMember
from sharegroup.core.groups.modern.group import (
    ModernGroup,
    metadata_hash,
    subscribed_names,
    topic_ids,
)
from sharegroup.core.groups.modern.member import ModernMember
from sharegroup.core.groups.modern.reconciliation import Goal, reconciled
from sharegroup.core.groups.modern.records import (
    ModernGroupRecord,
    ModernGroupRecordType,
    ModernGroupRegularExpression,
    ModernGroupTombstone,
    Records,
)
from sharegroup.core.groups.modern.sizes import DEFAULT_SIZE_LIMITS, ModernGroupSizeLimits
from sharegroup.core.groups.share.assignor import NOTHING, Assignment, of_topics
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.core.groups.share.share_group import Topics
from sharegroup.ids import MemberId, TopicId, TopicName
from sharegroup.steps import Steps, run_to_end


@dataclass(frozen=True, slots=True)
class ModernGroupLimits:
    """The configuration of a group that concerns membership; it may change at any time.

    The first of ``assignors`` is used if no member asks for one.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    members_max: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    assignors: tuple[str, ...] = ("uniform", "range")
    upgrades: bool = True
    """Whether a classic group may become a group of this protocol."""
    downgrades: bool = True
    """Whether a group of this protocol may become a classic group."""
    classic_members_max: int = 1_000
    """Number of members up to which a group may become a classic group."""
    sizes: ModernGroupSizeLimits = DEFAULT_SIZE_LIMITS


class Cluster(NamedTuple):
    """The topics of the cluster as a group needs them.

    ``version`` changes with every change of topics. ``matches`` has the topics that match each
    regular expression; one that is missing keeps the topics that it had.
    """

    topics: Topics
    version: int
    matches: Mapping[str, frozenset[TopicName]]


class Change(NamedTuple):
    """A member as its group knows it and as its request makes it.

    ``known`` is None for a new member. ``owned`` are the partitions that the member says it has.
    """

    known: ModernMember | None
    member: ModernMember
    owned: Assignment | None


Advance = tuple[Records, ModernMember]
"""The records of a request, and its member after it."""


@dataclass(slots=True)
class _Plan:
    """The group after the records so far."""

    epoch: int
    assignment_epoch: int
    target: Assignment
    regexes: dict[str, ModernGroupRegularExpression]
    records: list[ModernGroupRecord] = field(default_factory=list)


def advance(
    group: ModernGroup, change: Change, cluster: Cluster, limits: ModernGroupLimits, wall_ms: int
) -> Advance:
    """Return the records of a checked request, and the member after it."""
    return run_to_end(advance_steps(group, change, cluster, limits, wall_ms))


def advance_steps(
    group: ModernGroup, change: Change, cluster: Cluster, limits: ModernGroupLimits, wall_ms: int
) -> Steps[Advance]:
    """Do the work of `advance` in a few steps.

    A step takes a few milliseconds for 20,000 partitions. The group must not change meanwhile.
    """
    stored_member, member, _ = change
    if is_settled(group, change, cluster):
        return (), member
    plan = _Plan(
        group.epoch,
        group.assignment_epoch,
        group.target.get(member.member_id, NOTHING),
        dict(group.regexes),
    )
    if stored_member is None or not stored_member.has_metadata_of(member):
        plan.records.append(member.metadata(group.group_id))
    names_changed = (
        () if stored_member is None else stored_member.subscribed_topic_names
    ) != member.subscribed_topic_names
    pattern_changed = (
        "" if stored_member is None else stored_member.subscribed_topic_regex
    ) != member.subscribed_topic_regex
    topics_changed = _refresh_patterns(group, change, cluster, plan, wall_ms)
    # One vote can decide which assignor has the most, so the member's own choice is not compared,
    # but the group's before and after.
    is_new_assignor = assignor_name(group, limits) != assignor_name(group, limits, change)
    subscription_changed = names_changed or pattern_changed
    if (
        subscription_changed
        or topics_changed
        or is_new_assignor
        or cluster.version != group.topics_version
    ):
        digest = metadata_hash(_all_names(group, change, plan), cluster.topics)
        must_rise = subscription_changed or topics_changed or is_new_assignor
        # Another topic version may concern topics of other groups only; the hash tells.
        if must_rise or digest != group.metadata_hash:
            plan.epoch += 1
            plan.records.append(GroupEpoch(group.group_id, plan.epoch, digest))
            # Kafka before 4.1 stored the topics themselves. It, too, deletes that record when it
            # meets one.
            if group.has_partition_metadata:
                plan.records.append(
                    ModernGroupTombstone(ModernGroupRecordType.PARTITION_METADATA, group.group_id)
                )
    if plan.assignment_epoch < plan.epoch:
        yield
        yield from _assign(group, change, cluster, limits, plan, wall_ms)
        yield
    return _reconcile(group, change, cluster, plan, subscription_changed=subscription_changed)


def is_settled(group: ModernGroup, change: Change, cluster: Cluster) -> bool:
    """Return whether a request changes nothing, as nearly all do."""
    return (
        change.known is not None
        and change.known.has_metadata_of(change.member)
        and cluster.version == group.topics_version
        and group.assignment_epoch == group.epoch
        and change.member.is_reconciled_to(group.assignment_epoch)
    )


def _reconcile(
    group: ModernGroup,
    change: Change,
    cluster: Cluster,
    plan: _Plan,
    *,
    subscription_changed: bool,
) -> tuple[Records, ModernMember]:
    member = change.member
    # Also a reconciled member whose subscription has changed: it must not keep reading a topic that
    # it has left until the next target assignment.
    if subscription_changed or not member.is_reconciled_to(plan.assignment_epoch):
        names = subscribed_names(member, plan.regexes)
        goal = Goal(
            plan.assignment_epoch,
            plan.target,
            topic_ids(names, cluster.topics),
            subscription_changed,
            group.owners,
            change.owned,
        )
        member = reconciled(member, goal)
        if member != change.member:
            plan.records.append(member.current_assignment(group.group_id))
    return tuple(plan.records), member


# Patterns


def _refresh_patterns(
    group: ModernGroup, change: Change, cluster: Cluster, plan: _Plan, wall_ms: int
) -> bool:
    """Add the records of patterns that are new, unused or match other topics than before.

    Returns whether the topics of a pattern have changed.
    """
    old = "" if change.known is None else change.known.subscribed_topic_regex
    new = change.member.subscribed_topic_regex
    # This member was the only one with its former pattern. Otherwise the pattern would be matched,
    # and its topics assigned, for as long as the group exists.
    if old and old != new and group.regex_member_count(old) == 1 and old in plan.regexes:
        plan.records.append(
            ModernGroupTombstone(
                ModernGroupRecordType.REGULAR_EXPRESSION, group.group_id, pattern=old
            )
        )
        del plan.regexes[old]
    changed = False
    for pattern in dict.fromkeys((*group.patterns, new)):
        topic_names = cluster.matches.get(pattern)
        # The count still has this member under its old pattern.
        is_used = pattern == new or group.regex_member_count(pattern) > (pattern == old)
        resolved = plan.regexes.get(pattern)
        if (
            not pattern
            or topic_names is None
            or not is_used
            or (resolved is not None and resolved.topic_names == topic_names)
        ):
            continue
        plan.regexes[pattern] = ModernGroupRegularExpression(
            group.group_id, pattern, topic_names, cluster.version, wall_ms
        )
        plan.records.append(plan.regexes[pattern])
        changed = True
    return changed


def _all_names(group: ModernGroup, change: Change, plan: _Plan) -> frozenset[TopicName]:
    """Return the topics that the group subscribes to after the change."""
    names = group.names_without(change.known) | frozenset(change.member.subscribed_topic_names)
    return names.union(*(resolved.topic_names for resolved in plan.regexes.values()))


# The target assignment


def assignor_name(
    group: ModernGroup, limits: ModernGroupLimits, change: Change | None = None
) -> str:
    """Return the assignor that most members ask for; the default if none asks for one."""
    counts: dict[str, int] = {}
    members = group.members if change is None else _members(group, change)
    for member in members.values():
        # The setting may have changed since the member named its assignor.
        if member.server_assignor in limits.assignors:
            counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
    if not counts:
        return limits.assignors[0]
    # A tie goes to the assignor that the setting names first, not to the order of the members,
    # which a restart changes.
    return max(counts, key=lambda name: (counts[name], -limits.assignors.index(name)))


def _members(group: ModernGroup, change: Change) -> dict[MemberId, ModernMember]:
    return {**group.members, change.member.member_id: change.member}


def _assign(
    group: ModernGroup,
    change: Change,
    cluster: Cluster,
    limits: ModernGroupLimits,
    plan: _Plan,
    wall_ms: int,
) -> Steps[None]:
    """Make a new target assignment, unless the assignment interval delays it."""
    # By subscription: usually all members of a group have the same one, which may have thousands of
    # topics.
    known_ids: dict[tuple[tuple[TopicName, ...], str], frozenset[TopicId]] = {}
    members: list[AssignedMember] = []
    for member in _members(group, change).values():
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscription not in known_ids:
            names = subscribed_names(member, plan.regexes)
            known_ids[subscription] = topic_ids(names, cluster.topics)
        members.append(
            AssignedMember(
                member.member_id,
                member.instance_id,
                known_ids[subscription],
                group.target.get(member.member_id, NOTHING),
            )
        )
    counts = _partition_counts(_all_names(group, change, plan), cluster)
    if not (
        _interval_has_passed(group, limits, wall_ms)
        or _somebody_waits(change.member.member_id, members, counts)
    ):
        return
    yield
    assigned = ASSIGNORS[assignor_name(group, limits, change)](members, counts)
    plan.records += (
        TargetAssignment(group.group_id, member_id, partitions)
        for member_id, partitions in assigned.items()
        # A record for each member would write the whole assignment at each join.
        if group.target.get(member_id) != partitions
    )
    plan.records.append(TargetAssignmentEpoch(group.group_id, plan.epoch, wall_ms))
    plan.assignment_epoch = plan.epoch
    plan.target = assigned[change.member.member_id]


def _partition_counts(names: Collection[TopicName], cluster: Cluster) -> dict[TopicId, int]:
    return {
        topic.topic_id: topic.partition_count
        for name in names
        if (topic := cluster.topics.get(name)) is not None
    }


def _interval_has_passed(group: ModernGroup, limits: ModernGroupLimits, wall_ms: int) -> bool:
    """Return whether ``assignment_interval_ms`` has passed since the last target assignment.

    It counts as passed if the clock was set back.
    """
    return not 0 <= wall_ms - group.assignment_timestamp < limits.assignment_interval_ms


def _somebody_waits(
    member_id: MemberId, members: list[AssignedMember], counts: Mapping[TopicId, int]
) -> bool:
    """Return whether a partition has no member, or the member should get one of another's two."""
    own = next(member for member in members if member.member_id == member_id)
    served_count, most = 0, 0
    for member in members:
        kept = of_topics(member.current, member.topic_ids)
        served_count += len(kept)
        if not own.current:
            most = max(most, len(of_topics(kept, own.topic_ids)))
    readable = frozenset[TopicId]().union(*(member.topic_ids for member in members))
    return served_count < sum(counts[topic_id] for topic_id in readable) or most >= 2
