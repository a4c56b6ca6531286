"""Let a share group start elsewhere: where to is one of the scenarios below.

    plan = await admin.reset_group_offsets("billing", ToEarliest(), dry_run=True)
    ...look at it, keep it...
    await admin.reset_group_offsets("billing", FromPlan(new_offsets(plan)))

A group starts at one offset in each partition; what lies before it counts as done, what lies
behind it is delivered, also what was accepted before.  So every target is brought inside of the
log: no group is put where there will never be, or was never, a record.  The group must have no
members, and may be one that does not exist yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, assert_never

from sharegroup.client import admin_groups, admin_topics
from sharegroup.client.admin_types import (
    ListedOffset,
    OffsetSpec,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    GroupIdNotFound,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    RequestTimedOut,
    UnknownTopicOrPartition,
)


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first record there is."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Only what is produced from now on."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Where the group is; the log's end where it has not started.  Useful for a plan."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """This offset, or the nearest there is."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToDatetime:
    """The first record at or after this moment, or else the log's end."""

    moment: datetime

    def __post_init__(self) -> None:
        if self.moment.tzinfo is None:
            raise InvalidRequest(f"{self.moment.isoformat()}: expected a datetime with a time zone")


@dataclass(frozen=True, slots=True)
class ByDuration:
    """The first record that is not older than this, or else the log's end."""

    duration: timedelta


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many offsets further on (or back, below 0) than where the group is."""

    count: int


@dataclass(frozen=True, slots=True)
class FromPlan:
    """An offset for each partition, or the nearest there is."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


Scenario = (
    ToEarliest | ToLatest | ToCurrent | ToOffset | ToDatetime | ByDuration | ShiftBy | FromPlan
)


class OffsetChange(NamedTuple):
    """What a reset does, or would do, to one partition; ``old_offset`` None: not started."""

    old_offset: int | None
    new_offset: int


Plan = dict[TopicPartition, OffsetChange | KafkaError]


def new_offsets(
    plan: Mapping[TopicPartition, OffsetChange | KafkaError],
) -> dict[TopicPartition, int]:
    """The offsets of a plan, for `FromPlan`; partitions that failed are left out."""
    return {
        where: change.new_offset
        for where, change in plan.items()
        if isinstance(change, OffsetChange)
    }


async def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    to: Scenario,
    *,
    partitions: Iterable[str | TopicPartition] | None,
    dry_run: bool,
) -> Plan:
    await _refuse_unless_empty(cluster, group_id)
    known = await _current(cluster, group_id)
    if partitions is not None:
        meant = await _partitions(cluster, partitions)
    else:
        meant = list(to.offsets if isinstance(to, FromPlan) else known)
    plan = await _plan(cluster, meant, known, to)
    offsets = new_offsets(plan)
    if dry_run or not offsets:
        return plan
    done = await carry_out(cluster, group_id, offsets)
    return {where: done.get(where) or change for where, change in sorted(plan.items())}


async def carry_out(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, KafkaError | None]:
    """Move a group to offsets of partitions that there are.

    A coordinator that knows nothing of one is asked again: Kafka's hears of a new topic a moment
    after the leaders, which have just said where it begins and ends.
    """
    done: dict[TopicPartition, KafkaError | None] = {}

    async def attempt() -> None:
        left = {
            where: offset
            for where, offset in offsets.items()
            if where not in done or isinstance(done[where], UnknownTopicOrPartition)
        }
        done.update(await admin_groups.alter_share_group_offsets(cluster, group_id, left))
        for error in done.values():
            if isinstance(error, UnknownTopicOrPartition):
                raise error

    try:
        await cluster.retrying(attempt, what=f"offsets of group {group_id!r}")
    except RequestTimedOut:
        if not done:
            raise
    return done


async def _refuse_unless_empty(cluster: Cluster, group_id: str) -> None:
    """It must be none of another type either.  A broker says so, too, but not before a dry run."""
    found = (await admin_groups.describe_share_groups(cluster, [group_id]))[group_id]
    if isinstance(found, GroupIdNotFound):
        for group in await admin_groups.list_groups(cluster, states=(), types=()):
            if group.group_id == group_id:
                raise GroupIdNotFound(
                    f"group {group_id!r} is a {group.type} group, not a share group"
                )
    elif isinstance(found, KafkaError):
        raise found
    elif found.members:
        names = ", ".join(
            f"{member.client_id!r} ({member.member_id}) at {member.host}"
            for member in found.members
        )
        raise NonEmptyGroup(f"group {group_id!r} has members; stop them first: {names}")


async def _current(cluster: Cluster, group_id: str) -> dict[TopicPartition, int | None]:
    """Where the group stands, by partition; None where it has not started."""
    listed = await admin_groups.list_share_group_offsets(cluster, {group_id: None})
    offsets = listed[group_id]
    if isinstance(offsets, KafkaError):
        raise offsets
    return {
        where: offset.start_offset if isinstance(offset, SharePartitionOffset) else None
        for where, offset in offsets.items()
    }


async def _partitions(
    cluster: Cluster, named: Iterable[str | TopicPartition]
) -> list[TopicPartition]:
    """Topics stand for all their partitions; a name that there is none of is refused."""
    meant = tuple(named)
    topics = {one if isinstance(one, str) else one.topic for one in meant}
    described = await admin_topics.describe_topics(cluster, topics)
    found: dict[TopicPartition, None] = {}
    for one in meant:
        name, partition = (one, None) if isinstance(one, str) else one
        topic = described.get(name)
        if not isinstance(topic, TopicDescription):
            raise topic or UnknownTopicOrPartition(f"topic {name!r} does not exist")
        if partition is not None and not 0 <= partition < topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {name!r} has partitions 0 to {topic.partition_count - 1}; "
                f"asked for {partition}"
            )
        chosen = range(topic.partition_count) if partition is None else (partition,)
        found |= dict.fromkeys(TopicPartition(name, index) for index in chosen)
    return list(found)


async def _plan(
    cluster: Cluster,
    meant: Iterable[TopicPartition],
    known: Mapping[TopicPartition, int | None],
    to: Scenario,
) -> Plan:
    wanted = sorted(meant)
    first = await _listed(cluster, wanted, OffsetSpec.EARLIEST)
    end = await _listed(cluster, wanted, OffsetSpec.LATEST)
    at_time: Mapping[TopicPartition, int | KafkaError] = {}
    if isinstance(to, ToDatetime | ByDuration):
        at_time = await _listed(cluster, wanted, _milliseconds(to))
    plan: Plan = {}
    for where in wanted:
        low, high, found = first[where], end[where], at_time.get(where, -1)
        failed = next((one for one in (low, high, found) if isinstance(one, KafkaError)), None)
        if failed is not None:
            plan[where] = failed
            continue
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert isinstance(found, int)
        old = known.get(where)
        target = _target(to, where, low=low, high=high, found=found, old=old)
        if isinstance(target, KafkaError):
            plan[where] = target
        else:
            plan[where] = OffsetChange(old, min(max(target, low), high))
    return plan


def _target(
    to: Scenario, where: TopicPartition, *, low: int, high: int, found: int, old: int | None
) -> int | KafkaError:
    """Where to in one partition, before it is brought inside of the log."""
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
    """A time for ListOffsets, where what is negative is no time but means latest, earliest..."""
    if isinstance(to, ToDatetime):
        return max(0, int(to.moment.timestamp() * 1000))
    return max(0, time.time_ns() // 1_000_000 - int(to.duration / timedelta(milliseconds=1)))


async def _listed(
    cluster: Cluster, partitions: Iterable[TopicPartition], spec: int
) -> dict[TopicPartition, int | KafkaError]:
    listed = await admin_topics.list_offsets(cluster, dict.fromkeys(partitions, spec))
    return {
        where: one.offset if isinstance(one, ListedOffset) else one for where, one in listed.items()
    }
