"""AlterReplicaLogDirs (34): moves replicas to another log directory.

This broker has one log directory, in which every replica is already.  So the only possible move is
done when it is asked for, and any other directory is LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

import os

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, LogDirNotFound, UnknownTopicOrPartition
from sharegroup.ids import TopicName
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    own_directory = os.path.abspath(parts.config.server.log_dirs.strip())
    results = []
    for directory in request.dirs:
        error = None
        if directory.path != own_directory:
            error = LogDirNotFound(f"{directory.path!r} is not the log directory {own_directory!r}")
        for topic in directory.topics:
            results.append((yield from _topic(parts, topic, error)))
            yield
        yield
    return AlterReplicaLogDirsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def refuse(
    request: AlterReplicaLogDirsRequest, error: KafkaError
) -> Steps[AlterReplicaLogDirsResponse]:
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            results.append((yield from _topic(None, topic, error)))
            yield
        yield
    return AlterReplicaLogDirsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _topic(
    parts: Parts | None, topic: AlterReplicaLogDirTopic, error: KafkaError | None
) -> Steps[AlterReplicaLogDirTopicResult]:
    """Return the results of a topic; ``parts`` is None if the whole request is refused."""
    found = None if parts is None else parts.topics.catalog.find(TopicName(topic.name))
    count = 0 if found is None else found.partition_count
    unknown = UnknownTopicOrPartition(f"topic {topic.name!r} has {count} partitions")

    def result(partition: i32) -> AlterReplicaLogDirPartitionResult:
        failure = error or (None if 0 <= partition < count else unknown)
        return AlterReplicaLogDirPartitionResult(
            partition_index=partition,
            error_code=ErrorCode.none if failure is None else error_code(failure),
        )

    results = yield from of_each(result, topic.partitions)
    return AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=results)
