"""Requests about other brokers, controllers and replicas (34, 43, 45, 46, 55, 64, 80, 81, 94).

This broker is the whole cluster: it leads every partition, has the only replica, is the only voter
of the metadata quorum and has one log directory.  So what such a request asks for is done already,
or it is refused with the error that Kafka has for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.alter_partition_reassignments.v1 import request as reassign, response as reassigned
from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.describe_quorum.v2 import response as quorum
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.elect_leaders.v2 import response as elected
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.static.primitive import i32, i64, u16

from sharegroup.broker.access import checks as required
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasClock, HasConfig, HasListener, HasNode, HasTopics
from sharegroup.errors import (
    BrokerIdNotRegistered,
    ControllerIdNotRegistered,
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidRequest,
    KafkaError,
    LogDirNotFound,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.ids import LEADER_EPOCH, TopicName
from sharegroup.steps import Steps, of_each
from sharegroup.wire.codec.refusals import refusal
from sharegroup.wire.messages.unregister_controller_v0 import UnregisterControllerRequest

METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name for the metadata log; no topic of that name exists here."""

PREFERRED, UNCLEAN = 0, 1


class SingleNodeParts(HasClock, HasConfig, HasListener, HasNode, HasTopics, Protocol):
    """What these requests touch of the broker."""


def change_voters(
    parts: SingleNodeParts,
    context: RequestContext,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
) -> None:
    """Refuse, as a cluster of Kafka whose ``kraft.version`` is 0."""
    raise UnsupportedVersion(
        f"broker {parts.node.node_id} is the only voter of the metadata quorum, and the set of "
        "voters cannot change: kraft.version is 0"
    )


def unregister_broker(
    parts: SingleNodeParts, context: RequestContext, request: UnregisterBrokerRequest
) -> None:
    node_id = parts.node.node_id
    if request.broker_id == node_id:
        raise InvalidRequest(
            f"broker {node_id} is the whole cluster: it cannot be unregistered while it runs"
        )
    raise BrokerIdNotRegistered(
        f"broker {request.broker_id} is not registered; the only broker is {node_id}"
    )


def unregister_controller(
    parts: SingleNodeParts, context: RequestContext, request: UnregisterControllerRequest
) -> None:
    node_id = parts.node.node_id
    if request.controller_id == node_id:
        raise InvalidRequest(
            f"controller {node_id} is the only one: it cannot be unregistered while it runs"
        )
    raise ControllerIdNotRegistered(
        f"controller {request.controller_id} is not registered; the only controller is {node_id}"
    )


def list_reassignments(
    parts: SingleNodeParts, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=()
    )


def alter_reassignments(
    parts: SingleNodeParts,
    context: RequestContext,
    request: reassign.AlterPartitionReassignmentsRequest,
) -> Steps[reassigned.AlterPartitionReassignmentsResponse]:
    """Accept an assignment to this broker, which is complete at once, and refuse any other one."""
    responses = []
    for topic in request.topics:
        count = _partition_count(parts.topics, topic.name)
        one = partial(_reassigned, parts.node.node_id, topic.name, count)
        partitions = yield from of_each(one, topic.partitions)
        responses.append(
            reassigned.ReassignableTopicResponse(name=topic.name, partitions=partitions)
        )
        yield
    return reassigned.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(responses),
    )


def _reassigned(
    node_id: int, name: str, count: int, wanted: reassign.ReassignablePartition
) -> reassigned.ReassignablePartitionResponse:
    index = wanted.partition_index
    error: KafkaError | None = None
    if not 0 <= index < count:
        error = UnknownTopicOrPartition(f"there is no partition {index} of topic {name!r}")
    # KIP-455: null cancels a reassignment, and here there is never one to cancel (spec node-6).
    elif wanted.replicas is None:
        error = NoReassignmentInProgress(f"no reassignment of {name}-{index} is in progress")
    elif wanted.replicas != (node_id,):
        error = InvalidReplicaAssignment(
            f"{name}-{index} cannot have the replicas {list(wanted.replicas[:10])}: this cluster "
            f"has one broker, so its only assignment is [{node_id}]"
        )
    return reassigned.ReassignablePartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )


def alter_log_directories(
    parts: SingleNodeParts, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Accept the directory in which every replica is already, and no other one."""
    own_directory = os.path.abspath(parts.config.server.data_directory)

    def decide(path: str, name: str) -> OfPartition:
        elsewhere = None
        if path != own_directory:
            elsewhere = LogDirNotFound(f"{path!r} is not the log directory {own_directory!r}")
        return partial(_in_directory, name, _partition_count(parts.topics, name), elsewhere)

    return _of_directories(request, decide)


def _refuse_log_directories(
    request: AlterReplicaLogDirsRequest, error: KafkaError
) -> Steps[AlterReplicaLogDirsResponse]:
    """Refuse each partition: the response has no directories, which the request has on top."""
    return _of_directories(request, lambda _, name: partial(_in_directory, name, 0, error))


OfPartition = Callable[[i32], AlterReplicaLogDirPartitionResult]
"""Returns the result of a partition of one topic."""


def _of_directories(
    request: AlterReplicaLogDirsRequest, decide: Callable[[str, str], OfPartition]
) -> Steps[AlterReplicaLogDirsResponse]:
    """Return the response; ``decide`` gets a directory and the name of a topic."""
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = yield from of_each(decide(directory.path, topic.name), topic.partitions)
            results.append(
                AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions)
            )
            yield
        yield
    return AlterReplicaLogDirsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _partition_count(topics: Topics, name: str) -> int:
    """Return the number of partitions of a topic; 0 if there is no such topic."""
    topic = topics.catalog.find(TopicName(name))
    return 0 if topic is None else topic.partition_count


def _in_directory(
    name: str, count: int, elsewhere: KafkaError | None, partition: i32
) -> AlterReplicaLogDirPartitionResult:
    error = elsewhere
    if error is None and not 0 <= partition < count:
        error = UnknownTopicOrPartition(f"topic {name!r} has {count} partitions")
    return AlterReplicaLogDirPartitionResult(
        partition_index=partition,
        error_code=ErrorCode.none if error is None else error_code(error),
    )


def elect_leaders(
    parts: SingleNodeParts, context: RequestContext, request: ElectLeadersRequest
) -> Steps[elected.ElectLeadersResponse]:
    """Tell that no election is needed; as in Kafka, «all partitions» leaves those out."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(
            f"election type {request.election_type} is not known; expected 0 (preferred) or 1 "
            "(unclean)"
        )
    results = []
    for topic in request.topic_partitions or ():
        one = partial(_not_elected, topic.topic, _partition_count(parts.topics, topic.topic))
        partitions = yield from of_each(one, topic.partitions)
        results.append(
            elected.ReplicaElectionResult(topic=topic.topic, partition_result=partitions)
        )
        yield
    return elected.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(results),
    )


def _not_elected(name: str, count: int, partition: i32) -> elected.PartitionResult:
    error: KafkaError = ElectionNotNeeded("this broker leads every partition")
    if not 0 <= partition < count:
        error = UnknownTopicOrPartition(f"there is no partition {partition} of topic {name!r}")
    return elected.PartitionResult(
        partition_id=partition, error_code=error_code(error), error_message=str(error)
    )


def describe_quorum(
    parts: SingleNodeParts, context: RequestContext, request: DescribeQuorumRequest
) -> Steps[quorum.DescribeQuorumResponse]:
    """Describe the quorum of the metadata log, which is the catalog's journal.

    Its end is the number of events in it, all of which are durable when a response tells of them.
    The node's listener is the one by which the request came, because no listener is opened for
    controllers, and each client can use the one that it is connected to.
    """
    asked = [
        # Two show that the request names more than the one partition; it may name any number.
        (topic.topic_name, [partition.partition_index for partition in topic.partitions[:2]])
        for topic in request.topics[:2]
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        error = UnknownTopicOrPartition(
            f"the only metadata log is partition 0 of {METADATA_TOPIC!r}; the request names "
            f"{len(request.topics)} topics, the first with other partitions or another name"
        )
        response: quorum.DescribeQuorumResponse = yield from refusal(
            request, quorum.DescribeQuorumResponse, error, NO_QUORUM, with_items=True
        )
        return replace(response, error_code=ErrorCode.none)
    node = parts.node
    listener = quorum.Listener(name=parts.listener, host=node.host, port=u16(node.port))
    topic = quorum.TopicData(topic_name=request.topics[0].topic_name, partitions=(_quorum(parts),))
    return quorum.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(topic,),
        nodes=(quorum.Node(node_id=BrokerId(node.node_id), listeners=(listener,)),),
    )


def _quorum(parts: SingleNodeParts) -> quorum.PartitionData:
    now_ms, end = i64(parts.clock.wall_ms()), i64(parts.topics.event_count)
    this_voter = quorum.ReplicaState(
        replica_id=BrokerId(parts.node.node_id),
        replica_directory_id=None,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return quorum.PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(parts.node.node_id),
        leader_epoch=i32(LEADER_EPOCH),
        high_watermark=end,
        current_voters=(this_voter,),
        observers=(),
    )


NO_QUORUM = {"leader_id": -1, "leader_epoch": -1, "high_watermark": -1}

_TELLING = partial(ApiHandler, gates=(required.DESCRIBE_CLUSTER,))
_CHANGING = partial(ApiHandler, gates=(required.ALTER_CLUSTER,))
_CHANGING_MANY = partial(_CHANGING, handling=Handling.READS_IN_STEPS)

SERVED = {
    34: _CHANGING_MANY(alter_log_directories, _refuse_log_directories),
    43: _CHANGING_MANY(elect_leaders, refuses_items=True),
    45: _CHANGING_MANY(alter_reassignments, refuses_items=True),
    46: _TELLING(list_reassignments),
    55: _TELLING(
        describe_quorum,
        handling=Handling.READS_IN_STEPS,
        refused=NO_QUORUM,
        refuses_items=True,
    ),
    64: _CHANGING(unregister_broker),
    80: _CHANGING(change_voters),
    81: _CHANGING(change_voters),
    94: _CHANGING(unregister_controller),
}
