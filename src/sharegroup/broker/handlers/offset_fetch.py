"""OffsetFetch (9): how far consumer groups are.

One group a request up to version 7, any number from version 8 on, topics by id from version 10
on.  What was never committed is -1 without an error, and so is all of a group that does not
exist or is a share group.  There are no transactions that could make an offset unstable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.consumer_group_offsets import OffsetsOfGroup
from sharegroup.core.consumer_group_records import CommittedOffset
from sharegroup.errors import KafkaError, UnknownTopicId
from sharegroup.ids import GroupId, TopicId, TopicName
from sharegroup.wire.apis import response_module
from sharegroup.wire.convert import downgrade

NATIVE = True
API_KEY = 9
GROUP_ERROR_VERSION = 2
GROUPS_VERSION = 8
TOPIC_ID_VERSION = 10


class Asked(NamedTuple):
    """A group and the topics that are asked for; None stands for all it has committed in.

    The same is answered once: a small request that names a large group often, each time as
    another member, must not get a huge answer.
    """

    group_id: GroupId
    topics: Any


class Row(NamedTuple):
    """A topic of the answer; its name, or its id, is what the client calls it by."""

    topic: Any
    partitions: Iterable[tuple[int, CommittedOffset | None]]
    error: KafkaError | None = None


def handle(parts: Parts, context: Context, request: Any) -> Any:
    return _Answer(parts, request).give()


def refuse(request: Any, error: KafkaError) -> Any:
    groups = tuple(_refused(request, asked, error) for asked in _asked(request))
    return _response(request, groups)


def to_older(response: Any, wanted: type[Any]) -> Any:
    """Before version 8 there was one group, and what is its own stood at the top."""
    return downgrade(response.groups[0], wanted)


class _Answer:
    """What all groups of a request have committed, as it is now; told when it is durable."""

    def __init__(self, parts: Parts, request: Any) -> None:
        self._parts = parts
        self._request = request
        self._version: int = request.__version__
        self._groups = [(asked, self._group(asked)) for asked in _asked(request)]

    async def give(self) -> Any:
        coordinator = self._parts.consumer_group_coordinator
        groups = []
        for asked, group in self._groups:
            try:
                await coordinator.durable(asked.group_id)
            except KafkaError as error:
                groups.append(_refused(self._request, asked, error))
            else:
                groups.append(group)
        return _response(self._request, tuple(groups))

    def _group(self, asked: Asked) -> Any:
        catalog = self._parts.topics.catalog
        try:
            committed = self._parts.consumer_group_coordinator.offsets(asked.group_id)
        except KafkaError as error:
            return _refused(self._request, asked, error)
        if asked.topics is None:
            rows = _every(committed, catalog, by_id=self._version >= TOPIC_ID_VERSION)
        elif self._version >= TOPIC_ID_VERSION:
            rows = (_by_id(one, committed, catalog) for one in asked.topics)
        else:
            rows = (
                Row(one.name, _looked_up(one, committed.get(TopicName(one.name), {})))
                for one in asked.topics
            )
        return _group(self._request, asked, rows)


def _every(committed: OffsetsOfGroup, catalog: Catalog, *, by_id: bool) -> Iterator[Row]:
    for name, partitions in committed.items():
        if not by_id:
            yield Row(name, partitions.items())
            continue
        topic = catalog.find(name)
        if topic is not None:
            yield Row(topic.topic_id, partitions.items())


def _by_id(wanted: Any, committed: OffsetsOfGroup, catalog: Catalog) -> Row:
    topic = None if wanted.topic_id is None else catalog.by_id(TopicId(wanted.topic_id))
    if topic is None:
        unknown = UnknownTopicId(f"there is no topic with id {wanted.topic_id}")
        return Row(wanted.topic_id, _looked_up(wanted, {}), unknown)
    return Row(topic.topic_id, _looked_up(wanted, committed.get(topic.name, {})))


def _looked_up(wanted: Any, partitions: Any) -> Iterator[tuple[int, CommittedOffset | None]]:
    return ((index, partitions.get(index)) for index in wanted.partition_indexes)


def _asked(request: Any) -> list[Asked]:
    if request.__version__ < GROUPS_VERSION:
        return [Asked(GroupId(request.group_id), request.topics)]
    asked = (Asked(GroupId(one.group_id), one.topics) for one in request.groups)
    return list(dict.fromkeys(asked))


def _refused(request: Any, asked: Asked, error: KafkaError) -> Any:
    """A group's error; version 1 has no room for it but at the partitions."""
    if request.__version__ >= GROUP_ERROR_VERSION:
        return _group(request, asked, (), error)
    rows = (Row(one.name, _looked_up(one, {}), error) for one in asked.topics)
    return _group(request, asked, rows)


def _group(request: Any, asked: Asked, rows: Iterable[Row], error: KafkaError | None = None) -> Any:
    messages = _messages(request)
    return messages.OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=tuple(_topic(request, row) for row in rows),
        error_code=ErrorCode.none if error is None else error_code(error),
    )


def _topic(request: Any, row: Row) -> Any:
    messages = _messages(request)
    code = ErrorCode.none if row.error is None else error_code(row.error)
    by_id = request.__version__ >= TOPIC_ID_VERSION
    return messages.OffsetFetchResponseTopics(
        **{"topic_id" if by_id else "name": row.topic},
        partitions=tuple(
            messages.OffsetFetchResponsePartitions(
                partition_index=i32(index),
                committed_offset=i64(-1 if found is None else found.offset),
                committed_leader_epoch=i32(-1 if found is None else found.leader_epoch),
                metadata="" if found is None else found.metadata,
                error_code=code,
            )
            for index, found in row.partitions
        ),
    )


def _response(request: Any, groups: tuple[Any, ...]) -> Any:
    return _messages(request).OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=groups)


def _messages(request: Any) -> Any:
    """The classes that an answer is made of, before `to_older`."""
    return response_module(API_KEY, max(request.__version__, GROUPS_VERSION))
