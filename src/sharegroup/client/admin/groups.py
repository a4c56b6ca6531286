"""Requests about groups: all brokers list them, and each group's coordinator answers the rest.

If a coordinator has moved or is loading, it is looked up again until ``default_api_timeout_ms``.
Every other error is the result for that group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
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
from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32, i64

from sharegroup.client.admin.calls import (
    by_item,
    call,
    check,
    known,
    operations_of,
    outcome,
    several,
)
from sharegroup.client.admin.types import (
    GroupListing,
    GroupState,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from sharegroup.client.net.cluster import Cluster, ConnectionPurpose, CoordinatorType
from sharegroup.client.net.leader_requests import by_topic
from sharegroup.client.net.refusals import answer_about
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
)
from sharegroup.protocol_enums import GroupType
from sharegroup.wire.messages.delete_groups_v3 import DeleteGroupsRequest

Result = TypeVar("Result")

Answered: TypeAlias = tuple[TopicPartition, Result | KafkaError]
"""A partition of an answer, and its result or error."""

LOOK_AGAIN = frozenset(
    error.code for error in (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress)
)

GROUPS_PER_REQUEST = 20
"""Groups that are asked about together: few enough for a broker to answer in milliseconds."""

ABOUT_OFFSETS = (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
"""Requests that Kafka's coordinator may answer late: see `ConnectionPurpose.SHARE_OFFSETS`."""


@call
async def list_groups(
    cluster: Cluster,
    *,
    states_filter: Iterable[GroupState | str] = (),
    types_filter: Iterable[GroupType | str] = (),
    timeout: float | None = None,
) -> list[GroupListing]:
    """List groups of all types, sorted by id.

    ``states_filter`` (for example ``GroupState.STABLE`` or ``"Stable"``) and ``types_filter``
    (for example ``GroupType.SHARE`` or ``"share"``) restrict the list.

    Each broker lists the groups that it coordinates.  An error of one broker fails the whole
    request, because a list without its groups would be incomplete.
    """

    # Iterables may be read once, and an attempt may be repeated.
    states, types = tuple(states_filter), tuple(types_filter)

    async def attempt() -> list[GroupListing]:
        # Without topics: only the brokers are asked for.
        await cluster.refresh(())
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        listed = {}
        for node_id in cluster.nodes:
            response = await (await cluster.connection(node_id)).request(request)
            check(cluster, response, request="list_groups", node=node_id)
            for group in response.groups:
                # By id: two brokers may list a group that moves between their answers.
                listed[group.group_id] = GroupListing(
                    group.group_id,
                    GroupType.of(group.group_type),
                    group.protocol_type,
                    GroupState.of(group.group_state),
                )
        return [listed[group_id] for group_id in sorted(listed)]

    return await cluster.retrying(attempt, subject="list_groups")


@call
async def list_share_groups(
    cluster: Cluster,
    *,
    states_filter: Iterable[GroupState | str] = (),
    timeout: float | None = None,
) -> list[GroupListing]:
    """List share groups, sorted by id."""
    return await list_groups(cluster, states_filter=states_filter, types_filter=(GroupType.SHARE,))


@call
async def describe_share_groups(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> dict[str, ShareGroupDescription | KafkaError]:
    """Describe share groups: state, epochs and members."""
    ids = several(group_ids)

    def request(part: Sequence[str]) -> ShareGroupDescribeRequest:
        return ShareGroupDescribeRequest(
            group_ids=tuple(map(KioGroupId, part)),
            include_authorized_operations=include_authorized_operations,
        )

    answered = await _ask_together(cluster, ids, request)

    async def describe(group_id: str) -> ShareGroupDescription:
        group = answered.get(group_id)
        if group is None:
            group = await ask_about_group(cluster, group_id, request([group_id]))
        return _described(group, await cluster.coordinator(group_id))

    return await by_group(ids, describe)


@call
async def list_share_group_offsets(
    cluster: Cluster,
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    timeout: float | None = None,
) -> dict[str, dict[TopicPartition, SharePartitionOffset | KafkaError] | KafkaError]:
    """Return the start offset and lag of share groups by partition.

    None in place of partitions means all partitions that the group has offsets for.
    """

    wanted = {
        group_id: None if partitions is None else tuple(partitions)
        for group_id, partitions in groups.items()
    }

    def together(part: Sequence[str]) -> DescribeShareGroupOffsetsRequest:
        return DescribeShareGroupOffsetsRequest(
            groups=tuple(
                DescribeShareGroupOffsetsRequestGroup(
                    group_id=KioGroupId(group_id),
                    topics=None if (asked := wanted[group_id]) is None else _asked(asked),
                )
                for group_id in part
            )
        )

    def request(group_id: str, _: object) -> DescribeShareGroupOffsetsRequest:
        return together([group_id])

    def offset(topic: Any, partition: Any) -> Answered[SharePartitionOffset]:
        where = TopicPartition(topic.topic_name, partition.partition_index)
        return where, _share_offset(cluster, topic, partition)

    answered = await _ask_together(cluster, wanted, together)
    return await offsets_by_group(cluster, wanted, request, offset, answered=answered)


async def offsets_by_group(
    cluster: Cluster,
    groups: Mapping[str, Iterable[TopicPartition] | None],
    request: Callable[[str, Sequence[TopicPartition] | None], Any],
    offset: Callable[[Any, Any], Answered[Result]],
    *,
    answered: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, dict[TopicPartition, Result | KafkaError] | KafkaError]:
    """Ask for offsets of each group, of some partitions or of all; return them by partition.

    ``request`` makes the request about a group, ``offset`` reads a topic's partition in the answer.
    ``answered`` has the parts of answers about groups that were asked about already.
    """

    async def offsets(group_id: str) -> dict[TopicPartition, Result | KafkaError]:
        partitions = groups[group_id]
        requested = None if partitions is None else tuple(partitions)
        group = answered.get(group_id)
        if group is None:
            group = await ask_about_group(cluster, group_id, request(group_id, requested))
        found = dict(
            offset(topic, partition) for topic in group.topics for partition in topic.partitions
        )
        return found if requested is None else by_item(requested, found, "partition")

    return await by_group(groups, offsets)


@call
async def alter_share_group_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    timeout: float | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Set the start offsets of a share group that has no members.

    The coordinator refuses a group that has members (KIP-932).
    """
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
    response = await ask_coordinator(
        cluster, group_id, request, lambda answer: (answer,), operation="READ"
    )
    answered = {
        TopicPartition(topic.topic_name, partition.partition_index): outcome(
            cluster,
            partition,
            "READ",
            group=group_id,
            topic=topic.topic_name,
            partition=partition.partition_index,
        )
        for topic in response.responses
        for partition in topic.partitions
    }
    return by_item(offsets, answered, "partition")


@call
async def delete_share_group_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str], *, timeout: float | None = None
) -> dict[str, KafkaError | None]:
    """Delete the offsets and state of these topics from a share group without members.

    The coordinator refuses a group that has members (KIP-932).
    """
    topic_names = tuple(topics)
    request = DeleteShareGroupOffsetsRequest(
        group_id=KioGroupId(group_id),
        topics=tuple(
            DeleteShareGroupOffsetsRequestTopic(topic_name=KioTopicName(topic))
            for topic in topic_names
        ),
    )
    response = await ask_coordinator(
        cluster, group_id, request, lambda answer: (answer,), operation="DELETE"
    )
    answered = {
        str(topic_answer.topic_name): outcome(
            cluster, topic_answer, "READ", group=group_id, topic=topic_answer.topic_name
        )
        for topic_answer in response.responses
    }
    return by_item(topic_names, answered, "topic")


@call
async def delete_share_groups(
    cluster: Cluster, group_ids: Iterable[str], *, timeout: float | None = None
) -> dict[str, KafkaError | None]:
    """Delete share groups without members and their state; groups of other types are kept.

    They are described first, because the request deletes groups of any type.
    """
    requested = several(group_ids)
    described = await describe_share_groups(cluster, requested)
    share_group_ids = [
        name for name in requested if isinstance(described[name], ShareGroupDescription)
    ]
    errors = {
        name: description
        for name, description in described.items()
        if isinstance(description, KafkaError)
    }
    return by_item(requested, errors | await delete_groups(cluster, share_group_ids), "group")


@call
async def delete_groups(
    cluster: Cluster, group_ids: Iterable[str], *, timeout: float | None = None
) -> dict[str, KafkaError | None]:
    """Delete groups of any type that have no members.

    A coordinator refuses a group that has members.
    """

    async def delete(group_id: str) -> None:
        request = DeleteGroupsRequest(groups_names=(KioGroupId(group_id),))
        await ask_coordinator(
            cluster, group_id, request, lambda answer: answer.results, operation="DELETE"
        )

    return await by_group(group_ids, delete)


async def by_group(
    group_ids: Iterable[str], ask: Callable[[str], Awaitable[Result]]
) -> dict[str, Result | KafkaError]:
    """Return the result of ``ask``, or its error, for each group."""
    results: dict[str, Result | KafkaError] = {}
    for group_id in several(group_ids):
        try:
            results[group_id] = await ask(group_id)
        except KafkaError as error:
            results[group_id] = error
    return results


async def _ask_together(
    cluster: Cluster, group_ids: Iterable[str], request: Callable[[Sequence[str]], Any]
) -> dict[str, Any]:
    """Ask about groups whose coordinators are known, many in a request; return what has no error.

    The caller asks about each of the others alone, which retries and knows what went wrong.
    """
    every = list(group_ids)
    if len(every) == 1:
        return {}
    by_node: dict[int, list[str]] = {}
    for group_id in every:
        node_id = cluster.known_coordinator(group_id)
        if node_id is not None:
            by_node.setdefault(node_id, []).append(group_id)
    answered: dict[str, Any] = {}
    for node_id, ids in by_node.items():
        for first in range(0, len(ids), GROUPS_PER_REQUEST):
            part = ids[first : first + GROUPS_PER_REQUEST]
            if len(part) == 1:
                continue
            asked = request(part)
            try:
                connection = await cluster.connection(node_id, _purpose(asked))
                response = await connection.request(asked)
            except KafkaError:
                break  # Asked alone, they look for their coordinators again.
            answered.update(
                (group.group_id, group) for group in response.groups if group.error_code == NONE
            )
    return answered


def _purpose(request: Any) -> ConnectionPurpose:
    is_about_offsets = isinstance(request, ABOUT_OFFSETS)
    return ConnectionPurpose.SHARE_OFFSETS if is_about_offsets else ConnectionPurpose.CONTROL


async def ask_about_group(cluster: Cluster, group_id: str, request: Any) -> Any:
    """Return the part of the coordinator's answer that is about the group of the request."""
    response = await ask_coordinator(cluster, group_id, request, lambda answer: answer.groups)
    return answer_about(group_id, response.groups)


async def ask_coordinator(
    cluster: Cluster,
    key: str,
    request: Any,
    answers: Callable[[Any], Sequence[Any] | None],
    *,
    operation: str = "DESCRIBE",
    kind: CoordinatorType = CoordinatorType.GROUP,
) -> Any:
    """Send a request to the coordinator of a group, and raise the error of its answer.

    With ``kind`` it is the coordinator of a transactional id.  ``answers`` returns the parts of
    the response that have error codes, or None if it has none.  ``operation`` is the ACL operation
    on the group that the request needs.  An answer without the expected part is an error, too.
    """
    subject = f"{kind.resource} {key!r}"
    purpose = _purpose(request)

    async def attempt() -> Any:
        node_id = await cluster.coordinator(key, kind=kind, operation=operation)
        try:
            response = await (await cluster.connection(node_id, purpose)).request(request)
        except KafkaError:
            # The node cannot be reached or is no broker any more, so the group moves elsewhere.
            cluster.forget_coordinator(key, kind=kind)
            raise
        parts = answers(response)
        if parts is not None and not parts:
            raise UnknownServerError(f"{subject}: the broker's response is empty")
        for answer in parts or ():
            if answer.error_code in LOOK_AGAIN:
                cluster.forget_coordinator(key, kind=kind)
            check(cluster, answer, operation, **{kind.resource: key})
        return response

    return await cluster.retrying(attempt, subject=subject)


def _asked(
    partitions: Iterable[TopicPartition],
) -> tuple[DescribeShareGroupOffsetsRequestTopic, ...]:
    return tuple(
        DescribeShareGroupOffsetsRequestTopic(
            topic_name=KioTopicName(topic), partitions=tuple(map(i32, indexes))
        )
        for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
    )


def _share_offset(
    cluster: Cluster, topic: Any, partition: Any
) -> SharePartitionOffset | KafkaError:
    return outcome(
        cluster, partition, "DESCRIBE", topic=topic.topic_name, partition=partition.partition_index
    ) or SharePartitionOffset(
        known(partition.start_offset), known(partition.leader_epoch), known(partition.lag)
    )


def _described(group: DescribedGroup, coordinator_id: int) -> ShareGroupDescription:
    return ShareGroupDescription(
        group.group_id,
        GroupState.of(group.group_state),
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(map(_member, group.members)),
        coordinator_id,
        operations_of(group.authorized_operations),
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
