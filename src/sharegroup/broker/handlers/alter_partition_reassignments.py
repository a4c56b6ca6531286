"""AlterPartitionReassignments (45): moves partitions to other brokers.

Every partition has one replica, on this broker, and there is no other broker.  So an assignment to
this broker is complete at once, every other assignment is INVALID_REPLICA_ASSIGNMENT, and there is
never a reassignment to cancel.
"""

from __future__ import annotations

from functools import partial

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicName
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    responses = []
    for topic in request.topics:
        reassigned = yield from of_each(
            partial(_partition, parts, TopicName(topic.name)), topic.partitions
        )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=reassigned))
        yield
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(responses),
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Steps[AlterPartitionReassignmentsResponse]:
    responses = []
    for topic in request.topics:
        failed = yield from of_each(partial(_response, error=error), topic.partitions)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=failed))
        yield
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        responses=tuple(responses),
    )


def _partition(
    parts: Parts, name: TopicName, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    index, node_id = wanted.partition_index, parts.node.node_id
    topic = parts.topics.catalog.find(name)
    error: KafkaError | None = None
    if topic is None or not 0 <= index < topic.partition_count:
        error = UnknownTopicOrPartition(f"there is no partition {index} of topic {name!r}")
    elif wanted.replicas is None:
        error = NoReassignmentInProgress(f"no reassignment of {name}-{index} is in progress")
    elif wanted.replicas != (node_id,):
        error = InvalidReplicaAssignment(
            f"{name}-{index} cannot have the replicas {list(wanted.replicas[:10])}: this cluster "
            f"has one broker, so its only assignment is [{node_id}]"
        )
    return _response(wanted, error)


def _response(
    wanted: ReassignablePartition, error: KafkaError | None
) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )
