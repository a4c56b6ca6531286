"""ConsumerGroupDescribe (69): describes consumer groups of KIP-848 and their members."""

from __future__ import annotations

from functools import partial

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as WireGroupId
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i8, i32

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.group_descriptions import described_groups
from sharegroup.core.modern_group.member import DescribedModernMember
from sharegroup.core.share_group import assignor
from sharegroup.core.share_group.records import by_topic
from sharegroup.errors import InvalidGroupId, KafkaError
from sharegroup.ids import GroupId
from sharegroup.steps import Steps, of_each

CLASSIC_MEMBER = i8(0)
CONSUMER_MEMBER = i8(1)
"""The types of members (KIP-1099)."""


def handle(
    parts: Parts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    groups = yield from described_groups(
        context.rights,
        request,
        describe=partial(_group, parts),
        failed=_failed,
        assignments_of=lambda member: (member.assignment, member.target_assignment),
    )
    return ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def refuse(
    request: ConsumerGroupDescribeRequest, error: KafkaError
) -> Steps[ConsumerGroupDescribeResponse]:
    groups = yield from of_each(partial(_failed, error=error), request.group_ids)
    return ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group(parts: Parts, group_id: WireGroupId, operations: i32) -> Steps[DescribedGroup]:
    try:
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        group = parts.modern_group_coordinator.describe(GroupId(group_id))
    except KafkaError as error:
        return _failed(group_id, error)
    members = []
    for member in group.members:
        members.append(_member(parts.topics.catalog, member))
        yield  # A member may have thousands of partitions and topic names.
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=group.assignor_name,
        members=tuple(members),
        authorized_operations=operations,
    )


def _member(catalog: Catalog, described: DescribedModernMember) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(WireTopicName, member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(catalog, frozenset(member.assigned)),
        target_assignment=_assignment(catalog, described.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(catalog: Catalog, assignment: assignor.Assignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id,
                topic_name=WireTopicName(topic.name),
                partitions=tuple(map(i32, partitions)),
            )
            for topic_id, partitions in by_topic(assignment).items()
            if (topic := catalog.by_id(topic_id)) is not None
        )
    )


def _failed(group_id: WireGroupId, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code(error),
        error_message=str(error),
        group_id=group_id,
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )
