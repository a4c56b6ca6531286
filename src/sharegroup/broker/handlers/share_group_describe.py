"""ShareGroupDescribe (77): describes share groups, their members and their assignments."""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId as WireGroupId
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.broker.security.group_descriptions import described_groups
from sharegroup.core.share_group.records import by_topic
from sharegroup.core.share_group.share_groups import DescribedShareMember
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    groups = yield from described_groups(
        context.rights,
        request,
        describe=partial(_group, parts),
        failed=_failed,
        assignments_of=lambda member: (member.assignment,),
    )
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def refuse(
    request: ShareGroupDescribeRequest, error: KafkaError
) -> Steps[ShareGroupDescribeResponse]:
    groups = yield from of_each(partial(_failed, error=error), request.group_ids)
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group(parts: Parts, group_id: WireGroupId, operations: i32) -> Steps[DescribedGroup]:
    try:
        group = parts.share_group_coordinator.describe(GroupId(group_id))
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


def _member(catalog: Catalog, member: DescribedShareMember) -> Member:
    assigned = by_topic(member.assignment).items()
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(WireTopicName, member.subscribed_topic_names)),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic_id,
                    topic_name=WireTopicName(topic.name),
                    partitions=tuple(map(i32, partitions)),
                )
                for topic_id, partitions in assigned
                if (topic := catalog.by_id(topic_id)) is not None
            )
        ),
    )


def _failed(group_id: WireGroupId, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code(error),
        error_message=str(error),
        group_id=group_id,
        group_state="Dead",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )
