"""Groups: listed by every broker, everything else asked of each group's coordinator.

A coordinator that moved or loads is looked for again until the api timeout; every other
error is the result for that group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import DescribedGroup, Member
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i32, i64

from sharegroup.client.admin_topics import by_item, by_topic, known, outcome, several
from sharegroup.client.admin_types import (
    GroupListing,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from sharegroup.client.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import refused
from sharegroup.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)

Result = TypeVar("Result")

LOOK_AGAIN = frozenset(
    error.code for error in (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress)
)


async def list_groups(
    cluster: Cluster, *, states: tuple[str, ...], types: tuple[str, ...]
) -> list[GroupListing]:
    async def attempt() -> list[GroupListing]:
        await cluster.refresh(())
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        listed = {}
        for node_id in cluster.nodes:
            response = await (await cluster.connection(node_id)).request(request)
            if response.error_code != NONE:
                raise refused(response.error_code, None, request="list_groups", node=node_id)
            for one in response.groups:
                listed[one.group_id] = GroupListing(
                    one.group_id, one.group_type.lower(), one.protocol_type, one.group_state
                )
        return [listed[group_id] for group_id in sorted(listed)]

    return await cluster.retrying(attempt, what="list_groups")


async def describe_share_groups(
    cluster: Cluster, group_ids: Iterable[str]
) -> dict[str, ShareGroupDescription | KafkaError]:
    async def describe(group_id: str) -> ShareGroupDescription:
        request = ShareGroupDescribeRequest(
            group_ids=(KioGroupId(group_id),), include_authorized_operations=False
        )
        response = await ask_coordinator(cluster, group_id, request, lambda answer: answer.groups)
        return _described(response.groups[0], await cluster.coordinator(group_id))

    return await by_group(group_ids, describe)


async def list_share_group_offsets(
    cluster: Cluster, groups: Mapping[str, Iterable[TopicPartition] | None]
) -> dict[str, dict[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError]:
    async def offsets(group_id: str) -> dict[TopicPartition, SharePartitionOffset | KafkaError]:
        partitions = groups[group_id]
        request = DescribeShareGroupOffsetsRequest(
            groups=(
                DescribeShareGroupOffsetsRequestGroup(
                    group_id=KioGroupId(group_id),
                    topics=None if partitions is None else _asked(partitions),
                ),
            )
        )
        response = await ask_coordinator(cluster, group_id, request, lambda answer: answer.groups)
        return {
            TopicPartition(topic.topic_name, one.partition_index): _share_offset(topic, one)
            for topic in response.groups[0].topics
            for one in topic.partitions
        }

    return await by_group(groups, offsets)


async def alter_share_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, KafkaError | None]:
    request = AlterShareGroupOffsetsRequest(
        group_id=KioGroupId(group_id),
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=KioTopicName(topic),
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=i32(index), start_offset=i64(offset)
                    )
                    for index, offset in partitions.items()
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )
    response = await ask_coordinator(cluster, group_id, request, lambda answer: (answer,))
    answered = {
        TopicPartition(topic.topic_name, one.partition_index): outcome(
            one.error_code,
            one.error_message,
            group=group_id,
            topic=topic.topic_name,
            partition=one.partition_index,
        )
        for topic in response.responses
        for one in topic.partitions
    }
    return by_item(offsets, answered, "partition")


async def delete_share_group_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str]
) -> dict[str, KafkaError | None]:
    wanted = tuple(topics)
    request = DeleteShareGroupOffsetsRequest(
        group_id=KioGroupId(group_id),
        topics=tuple(
            DeleteShareGroupOffsetsRequestTopic(topic_name=KioTopicName(topic)) for topic in wanted
        ),
    )
    response = await ask_coordinator(cluster, group_id, request, lambda answer: (answer,))
    answered = {
        str(one.topic_name): outcome(
            one.error_code, one.error_message, group=group_id, topic=one.topic_name
        )
        for one in response.responses
    }
    return by_item(wanted, answered, "topic")


async def delete_share_groups(
    cluster: Cluster, group_ids: Iterable[str]
) -> dict[str, KafkaError | None]:
    """The request itself does not ask what type a group is of."""
    wanted = several(group_ids)
    described = await describe_share_groups(cluster, wanted)
    meant = [name for name in wanted if isinstance(described[name], ShareGroupDescription)]
    others = {name: one for name, one in described.items() if isinstance(one, KafkaError)}
    return by_item(wanted, others | await delete_groups(cluster, meant), "group")


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
    async def delete(group_id: str) -> None:
        request = DeleteGroupsRequest(groups_names=(KioGroupId(group_id),))
        await ask_coordinator(cluster, group_id, request, lambda answer: answer.results)

    return await by_group(group_ids, delete)


async def by_group(
    group_ids: Iterable[str], ask: Callable[[str], Awaitable[Result]]
) -> dict[str, Result | KafkaError]:
    """What is found of each group, or its error, which does not hide the others."""
    results: dict[str, Result | KafkaError] = {}
    for group_id in several(group_ids):
        try:
            results[group_id] = await ask(group_id)
        except KafkaError as error:
            results[group_id] = error
    return results


async def ask_coordinator(
    cluster: Cluster,
    group_id: str,
    request: Any,
    answers: Callable[[Any], Sequence[Any] | None],
) -> Any:
    """Ask the group's coordinator; ``answers`` finds what carries error codes, None if nothing.

    An answer that should say something of the group and does not is an error, too.
    """

    async def attempt() -> Any:
        node_id = await cluster.coordinator(group_id)
        try:
            response = await (await cluster.connection(node_id)).request(request)
        except KafkaError:
            # It can't be reached, or is no broker any more: the group has moved by now, or will.
            cluster.forget_coordinator(group_id)
            raise
        found = answers(response)
        if found is not None and not found:
            raise UnknownServerError(f"group {group_id!r}: the broker's answer is empty")
        for answer in found or ():
            if answer.error_code in LOOK_AGAIN:
                cluster.forget_coordinator(group_id)
            if answer.error_code != NONE:
                message = getattr(answer, "error_message", None)
                raise refused(answer.error_code, message, group=group_id)
        return response

    return await cluster.retrying(attempt, what=f"group {group_id!r}")


def _asked(
    partitions: Iterable[TopicPartition],
) -> tuple[DescribeShareGroupOffsetsRequestTopic, ...]:
    return tuple(
        DescribeShareGroupOffsetsRequestTopic(
            topic_name=KioTopicName(topic), partitions=tuple(map(i32, indexes))
        )
        for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
    )


def _share_offset(topic: Any, one: Any) -> SharePartitionOffset | KafkaError:
    return outcome(
        one.error_code, one.error_message, topic=topic.topic_name, partition=one.partition_index
    ) or SharePartitionOffset(known(one.start_offset), known(one.leader_epoch), known(one.lag))


def _described(group: DescribedGroup, coordinator_id: int) -> ShareGroupDescription:
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(map(_member, group.members)),
        coordinator_id,
    )


def _member(member: Member) -> ShareMemberDescription:
    return ShareMemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        member.member_epoch,
        tuple(member.subscribed_topic_names),
        tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
    )
