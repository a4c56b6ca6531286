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
from sharegroup.broker.security import requirements as required
from sharegroup.broker.security.permission import Permission, operations_on_group
from sharegroup.core.share_group.records import by_topic
from sharegroup.core.share_group.share_groups import DescribedShareMember
from sharegroup.errors import KafkaError, TopicAuthorizationFailed
from sharegroup.ids import GroupId
from sharegroup.steps import Steps, of_each

FEW = 15
"""Bit mask: a step ends after every 16 groups."""


def handle(
    parts: Parts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    groups_allowed = Permission(context.rights, required.DESCRIBE_GROUPS)
    topics_allowed = Permission(context.rights, required.DESCRIBE_TOPICS)
    groups: list[DescribedGroup] = []
    for group_id in dict.fromkeys(request.group_ids):
        if (denial := groups_allowed.denial(group_id)) is not None:
            groups.append(_failed(group_id, denial))
            continue
        operations = operations_on_group(context.rights, request, group_id)
        group = yield from _group(parts, group_id, operations)
        if (hidden := (yield from _hidden_topic(group, topics_allowed))) is not None:
            group = _failed(group_id, hidden)
        groups.append(group)
        if len(groups) & FEW == FEW:
            yield
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


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


def _hidden_topic(group: DescribedGroup, topics: Permission) -> Steps[KafkaError | None]:
    """Return the error for a group with a topic that the principal may not describe."""
    for member in () if topics.is_unlimited else group.members:
        named = {
            topic.topic_name
            for assignment in (member.assignment,)
            for topic in assignment.topic_partitions
        }
        if not all(map(topics.allows, named.union(member.subscribed_topic_names))):
            return TopicAuthorizationFailed(
                "members of the group use topics that no ACL allows this user to DESCRIBE"
            )
        yield
    return None


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
