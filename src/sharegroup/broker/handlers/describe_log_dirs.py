"""DescribeLogDirs (35): how many bytes each partition takes in the one data directory.

A partition that nobody touched yet has no file and takes nothing.  What is asked for and is not
there is left out, as Kafka does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

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

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError

NO_LAG = i64(0)
"""There are no replicas that could be behind."""


def handle(
    parts: Parts, context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    described = [
        _topic(parts, topic, partitions) for topic, partitions in _asked_for(parts, request)
    ]
    directory = DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=os.path.abspath(parts.config.server.log_dirs.strip()),
        topics=tuple(one for one in described if one.partitions),
    )
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(directory,)
    )


def refuse(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=error_code(error), results=()
    )


def _asked_for(parts: Parts, request: DescribeLogDirsRequest) -> list[tuple[Topic, Iterable[int]]]:
    """The topics that there are, each with its partitions that are wanted, each once."""
    topics = {topic.name: topic for topic in parts.topics.catalog.topics()}
    if request.topics is None:
        return [(topic, range(topic.partition_count)) for topic in topics.values()]
    wanted: dict[str, set[int]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.topic, set()).update(asked.partitions)
    return [
        (topic, sorted(wanted[name] & set(range(topic.partition_count))))
        for name, topic in topics.items()
        if name in wanted
    ]


def _topic(parts: Parts, topic: Topic, partitions: Iterable[int]) -> DescribeLogDirsTopic:
    sizes = {log.key.partition: log.size for log in parts.topics.opened(topic)}
    return DescribeLogDirsTopic(
        name=KioTopicName(topic.name),
        partitions=tuple(
            DescribeLogDirsPartition(
                partition_index=i32(partition),
                partition_size=i64(sizes.get(partition, 0)),
                offset_lag=NO_LAG,
                is_future_key=False,
            )
            for partition in partitions
        ),
    )
