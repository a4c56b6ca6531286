"""ElectLeaders (43): elects the leaders of partitions.

This broker leads every partition, so no election is ever needed.
"""

from __future__ import annotations

from functools import partial

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName as WireTopicName
from kio.static.primitive import i32

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import (
    ElectionNotNeeded,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicName
from sharegroup.steps import Steps, of_each

PREFERRED, UNCLEAN = 0, 1


def handle(
    parts: Parts, context: RequestContext, request: ElectLeadersRequest
) -> Steps[ElectLeadersResponse]:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(
            f"election type {request.election_type} is not known; expected 0 (preferred) or 1 "
            "(unclean)"
        )
    # As in Kafka, the answer to "elect all leaders" leaves out the partitions that need none.
    results = []
    for topic in request.topic_partitions or ():
        found = parts.topics.catalog.find(TopicName(topic.topic))
        count = 0 if found is None else found.partition_count
        elected = yield from of_each(partial(_partition, topic.topic, count), topic.partitions)
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=elected))
        yield
    return _response(ErrorCode.none, tuple(results))


def refuse(request: ElectLeadersRequest, error: KafkaError) -> Steps[ElectLeadersResponse]:
    results = []
    for topic in request.topic_partitions or ():
        failed = yield from of_each(partial(_failed, error=error), topic.partitions)
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=failed))
        yield
    return _response(error_code(error), tuple(results))


def _partition(name: WireTopicName, count: int, partition: i32) -> PartitionResult:
    if not 0 <= partition < count:
        error = UnknownTopicOrPartition(f"there is no partition {partition} of topic {name!r}")
        return _failed(partition, error)
    return _failed(partition, ElectionNotNeeded("this broker leads every partition"))


def _failed(partition: i32, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition_id=partition, error_code=error_code(error), error_message=str(error)
    )


def _response(code: ErrorCode, results: tuple[ReplicaElectionResult, ...]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=code, replica_election_results=results
    )
