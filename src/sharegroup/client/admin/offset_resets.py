"""Moves the offsets of a share group or consumer group to the target of one of these scenarios.

    plan = await admin.reset_group_offsets("billing", ToEarliest(), dry_run=True)
    ...look at it, keep it...
    await admin.reset_group_offsets("billing", FromPlan(new_offsets(plan)))

A share group has one start offset in each partition.  Records before it count as processed;
records from it on are delivered, also those that were accepted before.  A consumer group has one
committed offset, at which its next member begins.  Every target is limited to the range from the
log start offset to the log end offset.  The group must have no members; it need not exist yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, assert_never

from sharegroup.client.admin import groups as admin_groups, topics as admin_topics
from sharegroup.client.admin.calls import call
from sharegroup.client.admin.groups_of_any_type import (
    GroupDescription,
    alter_group_offsets,
    describe_share_and_consumer_groups,
    list_group_offsets,
    member_names,
)
from sharegroup.client.admin.types import GroupState, ShareGroupDescription, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec, list_offsets
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    GroupIdNotFound,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sharegroup.protocol_enums import GroupType


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Start at the first record of the log."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Start at the end of the log, so only records produced from now on are delivered."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Keep the start offset; use the log end offset where the group has not started.

    This is useful for a plan that is to be edited.
    """


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Start at this offset, or at the nearest offset inside the log."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToDatetime:
    """Start at the first record at or after this moment; at the log's end if there is none."""

    moment: datetime

    def __post_init__(self) -> None:
        if self.moment.tzinfo is None:
            raise InvalidRequest(f"{self.moment.isoformat()}: expected a datetime with a time zone")


@dataclass(frozen=True, slots=True)
class ByDuration:
    """Start at the first record not older than this; at the log's end if there is none."""

    duration: timedelta


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Move the start offset by ``count`` offsets; a negative count moves it back."""

    count: int


@dataclass(frozen=True, slots=True)
class FromPlan:
    """Start at the given offset of each partition, or at the nearest offset inside the log."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


Scenario = (
    ToEarliest | ToLatest | ToCurrent | ToOffset | ToDatetime | ByDuration | ShiftBy | FromPlan
)


class OffsetChange(NamedTuple):
    """The old and new offset of one partition; ``old_offset`` is None if the group has none."""

    old_offset: int | None
    new_offset: int


REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)

Plan = dict[TopicPartition, OffsetChange | KafkaError]


def new_offsets(
    plan: Mapping[TopicPartition, OffsetChange | KafkaError],
) -> dict[TopicPartition, int]:
    """Return the new offsets of a plan, for `FromPlan`, without partitions that failed."""
    return {
        where: change.new_offset
        for where, change in plan.items()
        if isinstance(change, OffsetChange)
    }


@call
async def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    to: Scenario,
    *,
    partitions: Iterable[str | TopicPartition] | None = None,
    group_type: GroupType | str | None = None,
    dry_run: bool = False,
    timeout: float | None = None,
) -> Plan:
    """Move the offsets of a group without members to the target of a scenario.

    The scenarios, such as `ToEarliest`, are in `offset_resets`.  They move the start offsets of a
    share group, and the committed offsets of a consumer group.  ``group_type`` refuses a group of
    another type, and is the type of a group that does not exist yet, which is otherwise a share
    group: ``"share"``, ``"consumer"`` or ``"classic"``, which means the same here as
    ``"consumer"``.  ``dry_run`` returns the same plan without changing anything.

    The plan has a change or an error for each partition.  Raises NonEmptyGroup if the group has
    members.  ``partitions`` holds partitions or topics; None means the partitions of a `FromPlan`,
    or else those that the group has offsets for.
    """
    is_share = await _is_empty_share_group(cluster, group_id, group_type)
    current_offsets = await list_group_offsets(cluster, group_id, is_share=is_share)
    if partitions is not None:
        chosen_partitions = await _partitions(cluster, partitions)
    else:
        chosen_partitions = list(to.offsets if isinstance(to, FromPlan) else current_offsets)
    plan = await _plan(cluster, chosen_partitions, current_offsets, to)
    offsets = new_offsets(plan)
    if dry_run or not offsets:
        return plan
    results = await carry_out(cluster, group_id, offsets, is_share=is_share)
    return {where: results.get(where) or change for where, change in sorted(plan.items())}


async def carry_out(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], *, is_share: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Set the offsets of a group in existing partitions, and return errors by partition.

    The coordinator is asked again about partitions that it does not know.  In Kafka it learns of
    a new topic a moment after the leaders, which have just answered for the topic.
    """
    results: dict[TopicPartition, KafkaError | None] = {}

    async def attempt() -> None:
        remaining = {
            where: offset
            for where, offset in offsets.items()
            if where not in results or isinstance(results[where], UnknownTopicOrPartition)
        }
        results.update(await alter_group_offsets(cluster, group_id, remaining, is_share=is_share))
        for error in results.values():
            if isinstance(error, UnknownTopicOrPartition):
                raise error

    try:
        await cluster.retrying(attempt, subject=f"offsets of group {group_id!r}")
    except RequestTimedOut:
        # Otherwise the results tell more: the errors of some partitions, and that others are set.
        if not results:
            raise
    return results


async def _is_empty_share_group(
    cluster: Cluster, group_id: str, group_type: GroupType | str | None
) -> bool:
    """Return whether the offsets of the group are those of a share group.

    Raises an error if the group has members, or a type that is not ``group_type`` or has no
    offsets.  A broker refuses such a group too, but a dry run does not get that far.
    """
    types = (GroupType.SHARE, GroupType.CONSUMER, GroupType.CLASSIC)
    if group_type is not None and group_type not in types:
        expected = ", ".join(types)
        raise InvalidRequest(f"group_type {str(group_type)!r}: expected one of {expected}")
    description = await _settled(cluster, group_id)
    if isinstance(description, GroupIdNotFound):
        for group in await admin_groups.list_groups(cluster):
            if group.group_id == group_id and group.type not in types:
                raise GroupIdNotFound(
                    f"group {group_id!r} is a {group.type} group, not a share or consumer group"
                )
        return group_type in (None, GroupType.SHARE)
    if isinstance(description, KafkaError):
        raise description
    is_share = isinstance(description, ShareGroupDescription)
    if group_type is not None and is_share != (group_type == GroupType.SHARE):
        found, expected = ("share", "consumer") if is_share else ("consumer", "share")
        raise GroupIdNotFound(f"group {group_id!r} is a {found} group, not a {expected} group")
    if description.members:
        names = member_names(description)
        raise NonEmptyGroup(f"group {group_id!r} has members; stop them first: {names}")
    return is_share


async def _settled(cluster: Cluster, group_id: str) -> GroupDescription | KafkaError:
    """Describe the group; wait while it rebalances without members.

    A classic group does so if its last member left before the first rebalance had ended
    (group.initial.rebalance.delay.ms), and the coordinator refuses offsets until then.
    """
    backoff = cluster.backoff()
    try:
        async with asyncio.timeout(cluster.call_timeout_ms() / 1000):
            while True:
                described = await describe_share_and_consumer_groups(cluster, [group_id])
                description = described[group_id]
                if (
                    isinstance(description, KafkaError)
                    or description.members
                    or description.state not in REBALANCING
                ):
                    return description
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError as error:
        raise NonEmptyGroup(
            f"group {group_id!r} has no members and is still rebalancing; expected the state Empty"
        ) from error


async def _partitions(
    cluster: Cluster, named: Iterable[str | TopicPartition]
) -> list[TopicPartition]:
    """Return the named partitions, with all partitions of a topic given by name.

    Raises UnknownTopicOrPartition for a topic or partition that does not exist.
    """
    requested = tuple(named)
    topics = {
        name_or_partition if isinstance(name_or_partition, str) else name_or_partition.topic
        for name_or_partition in requested
    }
    described = await admin_topics.describe_topics(cluster, topics)
    chosen_partitions: dict[TopicPartition, None] = {}
    for name_or_partition in requested:
        name, partition = (
            (name_or_partition, None) if isinstance(name_or_partition, str) else name_or_partition
        )
        topic = described.get(name)
        if not isinstance(topic, TopicDescription):
            raise topic or UnknownTopicOrPartition(f"topic {name!r} does not exist")
        if partition is not None and not 0 <= partition < topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {name!r} has partitions 0 to {topic.partition_count - 1}; "
                f"asked for {partition}"
            )
        indexes = range(topic.partition_count) if partition is None else (partition,)
        chosen_partitions |= dict.fromkeys(TopicPartition(name, index) for index in indexes)
    return list(chosen_partitions)


async def _plan(
    cluster: Cluster,
    meant: Iterable[TopicPartition],
    current_offsets: Mapping[TopicPartition, int | KafkaError | None],
    to: Scenario,
) -> Plan:
    sorted_partitions = sorted(meant)
    first = await _listed(cluster, sorted_partitions, OffsetSpec.EARLIEST)
    end = await _listed(cluster, sorted_partitions, OffsetSpec.LATEST)
    at_time: Mapping[TopicPartition, int | KafkaError] = {}
    if isinstance(to, ToDatetime | ByDuration):
        at_time = await _listed(cluster, sorted_partitions, _milliseconds(to))
    plan: Plan = {}
    for where in sorted_partitions:
        low, high, offset_at_time = first[where], end[where], at_time.get(where, -1)
        old = current_offsets.get(where)
        # Of the old offset, too: an error does not mean that the group has not started.
        error = next(
            (value for value in (low, high, offset_at_time, old) if isinstance(value, KafkaError)),
            None,
        )
        if error is not None:
            plan[where] = error
            continue
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert isinstance(offset_at_time, int)
        assert not isinstance(old, KafkaError)
        target = _target(to, where, low=low, high=high, found=offset_at_time, old=old)
        if isinstance(target, KafkaError):
            plan[where] = target
        else:
            plan[where] = OffsetChange(old, min(max(target, low), high))
    return plan


def _target(
    to: Scenario, where: TopicPartition, *, low: int, high: int, found: int, old: int | None
) -> int | KafkaError:
    """Return the target offset in one partition, before it is limited to the log."""
    match to:
        case ToEarliest():
            return low
        case ToLatest():
            return high
        case ToCurrent():
            return high if old is None else old
        case ToOffset(offset):
            return offset
        case ToDatetime() | ByDuration():
            return high if found < 0 else found
        case ShiftBy(count) if old is None:
            text = f"topic {where.topic!r} partition {where.partition}: the group has not started"
            return InvalidRequest(f"{text}; nothing to shift by {count} from")
        case ShiftBy(count):
            assert old is not None
            return old + count
        case FromPlan(offsets):
            if where in offsets:
                return offsets[where]
            text = f"topic {where.topic!r} partition {where.partition} is not in the plan"
            return InvalidRequest(text)
        case _:
            assert_never(to)


def _milliseconds(to: ToDatetime | ByDuration) -> int:
    """Return the scenario's time as a timestamp for ListOffsets, in milliseconds.

    Negative values are named offsets there.  For a time before 1970 it is the first record.
    """
    if isinstance(to, ToDatetime):
        milliseconds = int(to.moment.timestamp() * 1000)
    else:
        milliseconds = time.time_ns() // 1_000_000 - int(to.duration / timedelta(milliseconds=1))
    return milliseconds if milliseconds >= 0 else OffsetSpec.EARLIEST


async def _listed(
    cluster: Cluster, partitions: Iterable[TopicPartition], spec: int
) -> dict[TopicPartition, int | KafkaError]:
    listed = await list_offsets(cluster, dict.fromkeys(partitions, spec))
    return {
        where: offset.offset if isinstance(offset, ListedOffset) else offset
        for where, offset in listed.items()
    }
