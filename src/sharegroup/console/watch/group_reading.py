"""Reads groups of all types: their members, and the offsets and lag of their partitions.

type                describe                       partitions
share               describe_share_groups          start offset and lag from the coordinator
consumer            describe_consumer_groups       committed offset; lag from the end of the log
others              describe_groups                the same
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.console.watch.cluster_view import SHARE, GroupPartition, GroupView, MemberView
from sharegroup.console.watch.oldest import OldestRecords
from sharegroup.console.watch.turns import Plan
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import GroupType

REQUEST_SECONDS = 10.0

Description = ShareGroupDescription | ConsumerGroupDescription
Descriptions = dict[str, Description | KafkaError]
Partitions = dict[str, tuple[GroupPartition, ...] | KafkaError]


async def read_groups(
    admin: AdminClient,
    known: Mapping[str, GroupView],
    plan: Plan,
    *,
    oldest: OldestRecords,
    now: float,
) -> list[GroupView]:
    """Read the groups of a plan, and return their views; ``known`` are the views until now.

    What could not be read of a group keeps its older state, and the view says why.
    """
    offsets, members = dict.fromkeys(plan.offsets), dict.fromkeys(plan.members)
    # An error goes away when both parts were read.
    offsets |= dict.fromkeys(name for name in members if known[name].error is not None)
    members |= dict.fromkeys(name for name in offsets if known[name].error is not None)
    described = await _described(admin, known, members)
    partitions = await _partitions(admin, known, offsets)
    views = []
    for group_id in offsets | members:
        view = replace(known[group_id], error=None)
        if group_id in partitions:
            view = _with_partitions(view, partitions[group_id], now)
            if view.type == SHARE and view.error is None:
                view = replace(view, oldest_ms=await oldest.timestamp_ms(view))
        if group_id in described:
            view = _with_members(view, described[group_id], now)
        views.append(view)
    return views


async def _described(
    admin: AdminClient, known: Mapping[str, GroupView], group_ids: Iterable[str]
) -> Descriptions:
    share, consumer, others = _by_type(known, group_ids)
    answers: Descriptions = {}
    if share:
        answers.update(await admin.describe_share_groups(share, timeout=REQUEST_SECONDS))
    if consumer:
        answers.update(await admin.describe_consumer_groups(consumer, timeout=REQUEST_SECONDS))
    if others:
        answers.update(await admin.describe_groups(others, timeout=REQUEST_SECONDS))
    return answers


async def _partitions(
    admin: AdminClient, known: Mapping[str, GroupView], group_ids: Iterable[str]
) -> Partitions:
    share, consumer, others = _by_type(known, group_ids)
    found: Partitions = {}
    if share:
        starts = await admin.list_share_group_offsets(dict.fromkeys(share), timeout=REQUEST_SECONDS)
        for group_id, answer in starts.items():
            found[group_id] = answer if isinstance(answer, KafkaError) else tuple(
                GroupPartition(where, start.start_offset, start.lag)
                for where, start in sorted(answer.items())
                if isinstance(start, SharePartitionOffset)
            )  # fmt: skip
    if consumer or others:
        found |= await _committed(admin, [*consumer, *others])
    return found


async def _committed(admin: AdminClient, group_ids: Iterable[str]) -> Partitions:
    commits = await admin.list_consumer_group_offsets(
        dict.fromkeys(group_ids), timeout=REQUEST_SECONDS
    )
    places = {
        where: OffsetSpec.LATEST
        for answer in commits.values()
        if not isinstance(answer, KafkaError)
        for where in answer
    }
    ends = await admin.list_offsets(places, timeout=REQUEST_SECONDS)
    return {
        group_id: answer if isinstance(answer, KafkaError) else tuple(
            _behind(where, commit, ends.get(where))
            for where, commit in sorted(answer.items())
            if isinstance(commit, CommittedOffset)
        )
        for group_id, answer in commits.items()
    }  # fmt: skip


def _behind(
    where: TopicPartition, commit: CommittedOffset, end: ListedOffset | KafkaError | None
) -> GroupPartition:
    lag = None
    if commit.offset is not None and isinstance(end, ListedOffset):
        lag = max(0, end.offset - commit.offset)
    return GroupPartition(where, commit.offset, lag)


def _by_type(
    known: Mapping[str, GroupView], group_ids: Iterable[str]
) -> tuple[list[str], list[str], list[str]]:
    """Return the ids of share groups, of consumer groups, and of all others."""
    share: list[str] = []
    consumer: list[str] = []
    others: list[str] = []
    for group_id in group_ids:
        kind = known[group_id].type
        part = share if kind == SHARE else consumer if kind == GroupType.CONSUMER else others
        part.append(group_id)
    return share, consumer, others


def _with_partitions(
    view: GroupView, answer: tuple[GroupPartition, ...] | KafkaError, now: float
) -> GroupView:
    if isinstance(answer, KafkaError):
        return replace(view, seen_at=now, error=str(answer))
    return replace(view, seen_at=now, partitions=answer)


def _with_members(view: GroupView, answer: Description | KafkaError, now: float) -> GroupView:
    if isinstance(answer, KafkaError):
        return replace(view, members_at=now, error=str(answer))
    members = _members(answer.members)
    return replace(view, state=str(answer.state), members=members, members_at=now)


def _members(
    members: Iterable[ShareMemberDescription | ConsumerMemberDescription],
) -> tuple[MemberView, ...]:
    return tuple(
        MemberView(
            member.member_id, member.client_id, member.host, tuple(sorted(member.assignment))
        )
        for member in sorted(members, key=lambda member: member.member_id)
    )
