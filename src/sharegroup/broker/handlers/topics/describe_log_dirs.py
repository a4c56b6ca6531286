"""DescribeLogDirs (35): returns the size of each partition and of the volume, in bytes.

An unused partition has no files, and its size is 0.  As in Kafka, the response leaves out requested
partitions that do not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i32, i64

from sharegroup.broker.access import checks as required
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import NO_THROTTLE, ApiHandler, Handling, RequestContext
from sharegroup.broker.handlers.parts import HasConfig, HasTopics
from sharegroup.steps import Steps, paced

UNKNOWN = -1
NO_LAG = i64(0)
"""The lag of every partition, because there are no replicas."""


class DescribeLogDirsParts(HasConfig, HasTopics, Protocol):
    """What these requests touch of the broker."""


def handle(
    parts: DescribeLogDirsParts, context: RequestContext, request: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    described = []
    for topic, partitions in (yield from _asked_for(parts, request)):
        description = yield from _topic(parts.topics, topic, partitions)
        if description.partitions:
            described.append(description)
        yield
    space = parts.topics.disk_space()
    directory = DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=os.path.abspath(parts.config.server.data_directory),
        topics=tuple(described),
        total_bytes=i64(UNKNOWN if space is None else space.total_bytes),
        usable_bytes=i64(UNKNOWN if space is None else space.free_bytes),
    )
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(directory,)
    )


def _asked_for(
    parts: DescribeLogDirsParts, request: DescribeLogDirsRequest
) -> Steps[list[tuple[Topic, Iterable[int]]]]:
    """Return the existing topics of the request, each with its requested partitions, each once."""
    topics = tuple(parts.topics.catalog.topics())
    if request.topics is None:
        return [(topic, range(topic.partition_count)) for topic in topics]
    numbers_by_topic: dict[str, set[int]] = {}
    for requested, pause in paced(request.topics):
        numbers_by_topic.setdefault(requested.topic, set()).update(requested.partitions)
        if pause:
            yield
    selection: list[tuple[Topic, Iterable[int]]] = []
    for topic in topics:
        numbers = numbers_by_topic.get(topic.name)
        if numbers is not None:
            selection.append((topic, sorted(numbers.intersection(range(topic.partition_count)))))
            yield
    return selection


def _topic(topics: Topics, topic: Topic, numbers: Iterable[int]) -> Steps[DescribeLogDirsTopic]:
    partitions = []
    for number, pause in paced(numbers):
        log = topics.opened_log(topic, number)
        partitions.append(
            DescribeLogDirsPartition(
                partition_index=i32(number),
                partition_size=i64(0 if log is None else log.size),
                offset_lag=NO_LAG,
                is_future_key=False,
            )
        )
        if pause:
            yield
    return DescribeLogDirsTopic(name=KioTopicName(topic.name), partitions=tuple(partitions))


SERVED = {
    35: ApiHandler(
        handle,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    )
}
