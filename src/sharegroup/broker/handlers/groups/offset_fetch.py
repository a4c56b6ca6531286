"""OffsetFetch (9): returns the committed offsets of consumer groups.

A request has one group up to version 7, and any number from version 8 on.  Topics have ids from
version 10 on.  An offset that was never committed is -1 without an error.  So are all offsets of a
group that does not exist or is a share group.  A request may ask for stable offsets only: then an
offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import (
    HasClassicGroups,
    HasModernCoordinator,
    HasModernGroups,
    HasSlices,
    HasTopics,
)
from sharegroup.core.groups.classic.offsets import OffsetsOfGroup
from sharegroup.core.groups.classic.records import OffsetAndMetadata
from sharegroup.errors import KafkaError, UnknownTopicId
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName
from sharegroup.steps import Steps, paced, run_to_end
from sharegroup.wire.codec.apis import response_module
from sharegroup.wire.codec.convert import downgrade

if TYPE_CHECKING:
    # The newest version stands for all.  At run time only those that clients use are imported.
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest, OffsetFetchRequestTopics
    from kio.schema.offset_fetch.v10.response import OffsetFetchResponse

API_KEY = 9
GROUP_ERROR_VERSION = 2
GROUPS_VERSION = 8
TOPIC_ID_VERSION = 10


class OffsetFetchParts(
    HasClassicGroups, HasModernCoordinator, HasModernGroups, HasSlices, HasTopics, Protocol
):
    """What these requests touch of the broker."""


class GroupAndTopics(NamedTuple):
    """A requested group and its topics; None means all topics with committed offsets.

    Repeated groups are answered once.  Otherwise a small request that repeats a large group, each
    time with another member, would get a huge response.
    """

    group_id: GroupId
    topics: tuple[OffsetFetchRequestTopics, ...] | None
    member_id: MemberId | None = None
    member_epoch: int = -1
    """The member of a group of KIP-848 that asks; None and -1 from all others."""


def _is_stable(partition: int) -> bool:
    return False


class TopicOffsets(NamedTuple):
    """A topic of the response, with its name or its id, as in the request."""

    topic: str | UUID | None
    partitions: Iterable[tuple[int, OffsetAndMetadata | None]]
    error: KafkaError | None = None
    is_unstable: Callable[[int], bool] = _is_stable
    """Whether an open transaction may change the offset of a partition, if that was asked."""


def handle(
    parts: OffsetFetchParts, context: RequestContext, request: OffsetFetchRequest
) -> Later[OffsetFetchResponse]:
    return Later(_CommittedOffsets(parts, context, request).response())


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    selections = run_to_end(_selections(request))
    groups = tuple(run_to_end(_refused(request, group, error)) for group in selections)
    return _response(request, groups)


def to_older(response: OffsetFetchResponse, wanted: type[Any]) -> Any:
    """Convert a response to a version before 8, which has one group at the top level."""
    return downgrade(response.groups[0], wanted)


class _CommittedOffsets:
    """Reads the committed offsets of all groups of a request and returns them when durable."""

    def __init__(
        self, parts: OffsetFetchParts, context: RequestContext, request: OffsetFetchRequest
    ) -> None:
        self._parts = parts
        self._connection_id = context.connection_id
        self._groups = Permission(context.rights, required.DESCRIBE_GROUPS)
        self._topics = Permission(context.rights, required.DESCRIBE_TOPICS)
        self._request = request
        self._version: int = request.__version__

    async def response(self) -> OffsetFetchResponse:
        coordinator, slices = self._parts.classic_group_coordinator, self._parts.slices
        answers = slices.run(self._read, self._connection_id)
        groups = []
        for selection, group in await answers if isinstance(answers, asyncio.Future) else answers:
            await slices.turn()
            try:
                # A member must not begin at an offset that a crash takes back: records would be
                # skipped.
                await coordinator.durable(selection.group_id)
            except KafkaError as error:
                groups.append(await slices.finish(_refused(self._request, selection, error)))
            else:
                groups.append(group)
        return _response(self._request, tuple(groups))

    def _read(self) -> Steps[list[tuple[GroupAndTopics, Any]]]:
        answers = []
        for selection, pause in paced((yield from _selections(self._request))):
            answers.append((selection, (yield from self._group(selection))))
            if pause:
                yield
        return answers

    def _group(self, selection: GroupAndTopics) -> Steps[Any]:
        catalog = self._parts.topics.catalog
        try:
            self._groups.require(selection.group_id)
            if self._parts.modern_groups.has(selection.group_id):
                self._parts.modern_group_coordinator.check_fetch(
                    selection.group_id, selection.member_id, selection.member_epoch
                )
            committed = self._parts.classic_group_coordinator.offsets(selection.group_id)
        except KafkaError as error:
            return (yield from _refused(self._request, selection, error))
        if selection.topics is None:
            rows = _every(committed, catalog, self._topics, by_id=self._version >= TOPIC_ID_VERSION)
        else:
            rows = (
                _of_topic(topic, committed, catalog, self._topics) for topic in selection.topics
            )
        if getattr(self._request, "require_stable", False):
            rows = map(partial(self._with_unstable, selection.group_id), rows)
        return (yield from _group(self._request, selection, rows))

    def _with_unstable(self, group_id: GroupId, row: TopicOffsets) -> TopicOffsets:
        if row.error is not None:
            return row  # A refusal does not tell of open transactions.
        catalog, coordinator = self._parts.topics.catalog, self._parts.classic_group_coordinator
        if isinstance(row.topic, UUID):
            topic = catalog.by_id(TopicId(row.topic))
            if topic is None:
                return row
            name = topic.name
        else:
            name = TopicName(row.topic or "")
        return row._replace(is_unstable=partial(coordinator.is_unstable, group_id, name))


def _every(
    committed: OffsetsOfGroup, catalog: Catalog, describe: Permission, *, by_id: bool
) -> Iterator[TopicOffsets]:
    # Copies: offsets may be committed between two steps of the answer.
    for name, partitions in list(committed.items()):
        if not describe.allows(name):
            continue
        if not by_id:
            yield TopicOffsets(name, list(partitions.items()))
            continue
        # Version 10 names topics by id, which a topic that was deleted meanwhile does not have.
        topic = catalog.find(name)
        if topic is not None:
            id_ = topic.topic_id
            offsets = [entry for entry in partitions.items() if _is_of(id_, entry[1])]
            if offsets:
                yield TopicOffsets(topic.topic_id, offsets)


def _of_topic(
    topic_query: OffsetFetchRequestTopics,
    committed: OffsetsOfGroup,
    catalog: Catalog,
    describe: Permission,
) -> TopicOffsets:
    if hasattr(topic_query, "name"):
        if (denial := describe.denial(topic_query.name)) is not None:
            return TopicOffsets(topic_query.name, _looked_up(topic_query, {}), denial)
        partitions = committed.get(TopicName(topic_query.name), {})
        return TopicOffsets(topic_query.name, _looked_up(topic_query, partitions))
    topic = None if topic_query.topic_id is None else catalog.by_id(TopicId(topic_query.topic_id))
    if topic is None:
        unknown = UnknownTopicId(f"there is no topic with id {topic_query.topic_id}")
        return TopicOffsets(topic_query.topic_id, _looked_up(topic_query, {}), unknown)
    if (denial := describe.denial(topic.name, topic.topic_id)) is not None:
        return TopicOffsets(topic.topic_id, _looked_up(topic_query, {}), denial)
    id_ = topic.topic_id
    offsets = _looked_up(topic_query, committed.get(topic.name, {}))
    rows = (
        (index, offset if offset and _is_of(id_, offset) else None) for index, offset in offsets
    )
    return TopicOffsets(id_, rows)


def _is_of(topic_id: TopicId, offset: OffsetAndMetadata) -> bool:
    """Return whether an offset is not that of a deleted topic that had the same name.

    A commit that was under way while the topic was deleted and created again leaves such offsets.
    """
    return offset.topic_id in (None, topic_id)


def _looked_up(
    topic_query: OffsetFetchRequestTopics, partitions: Mapping[int, OffsetAndMetadata]
) -> Iterator[tuple[int, OffsetAndMetadata | None]]:
    return ((index, partitions.get(index)) for index in topic_query.partition_indexes)


def _selections(request: Any) -> Steps[list[GroupAndTopics]]:
    if not hasattr(request, "groups"):
        return [GroupAndTopics(GroupId(request.group_id), request.topics)]
    if len(request.groups) == 1:  # Without a hash, which would visit all topics.
        return [_of_member(group) for group in request.groups]
    selections: dict[tuple[str, Any], GroupAndTopics] = {}
    for group, pause in paced(request.groups):
        selections.setdefault((group.group_id, group.topics), _of_member(group))
        if pause:
            yield
    return list(selections.values())


def _of_member(group: Any) -> GroupAndTopics:
    """Return a group of the request; before version 9 it does not name a member."""
    member_id = getattr(group, "member_id", None)
    return GroupAndTopics(
        GroupId(group.group_id),
        group.topics,
        None if member_id is None else MemberId(member_id),
        getattr(group, "member_epoch", -1),
    )


def _refused(
    request: OffsetFetchRequest, selection: GroupAndTopics, error: KafkaError
) -> Steps[Any]:
    """Return the response for a group with an error; version 1 has it at each partition."""
    if request.__version__ >= GROUP_ERROR_VERSION:
        return (yield from _group(request, selection, (), error))
    rows = (
        TopicOffsets(topic.name, _looked_up(topic, {}), error)
        for topic in selection.topics or ()
        if hasattr(topic, "name")
    )
    return (yield from _group(request, selection, rows))


def _group(
    request: OffsetFetchRequest,
    selection: GroupAndTopics,
    rows: Iterable[TopicOffsets],
    error: KafkaError | None = None,
) -> Steps[Any]:
    messages = _messages(request)
    topics = []
    for row, pause in paced(rows):
        topics.append((yield from _topic(request, row)))
        if pause:
            yield
    return messages.OffsetFetchResponseGroup(
        group_id=selection.group_id,
        topics=tuple(topics),
        error_code=ErrorCode.none if error is None else error_code(error),
    )


def _topic(request: OffsetFetchRequest, row: TopicOffsets) -> Steps[Any]:
    messages = _messages(request)
    code = ErrorCode.none if row.error is None else error_code(row.error)
    by_id = request.__version__ >= TOPIC_ID_VERSION
    partitions = []
    for (index, offset), pause in paced(row.partitions):
        if row.is_unstable(index):
            partitions.append(_unstable(messages, index))
        else:
            partitions.append(
                messages.OffsetFetchResponsePartitions(
                    partition_index=i32(index),
                    committed_offset=i64(-1 if offset is None else offset.offset),
                    committed_leader_epoch=i32(-1 if offset is None else offset.leader_epoch),
                    metadata="" if offset is None else offset.metadata,
                    error_code=code,
                )
            )
        if pause:
            yield
    return messages.OffsetFetchResponseTopics(
        **{"topic_id" if by_id else "name": row.topic}, partitions=tuple(partitions)
    )


def _unstable(messages: Any, index: int) -> Any:
    return messages.OffsetFetchResponsePartitions(
        partition_index=i32(index),
        committed_offset=i64(-1),
        committed_leader_epoch=i32(-1),
        metadata="",
        error_code=ErrorCode.unstable_offset_commit,
    )


def _response(request: OffsetFetchRequest, groups: tuple[Any, ...]) -> OffsetFetchResponse:
    response: OffsetFetchResponse = _messages(request).OffsetFetchResponse(
        throttle_time=NO_THROTTLE, groups=groups
    )
    return response


def _messages(request: OffsetFetchRequest) -> Any:
    """Return the module with the response classes that are used before `to_older`."""
    return response_module(API_KEY, max(request.__version__, GROUPS_VERSION))


SERVED = {
    9: ApiHandler(
        handle,
        refuse,
        checks=(required.DESCRIBE_GROUPS, required.DESCRIBE_TOPICS),
        is_native=True,
        to_older=to_older,
    )
}
