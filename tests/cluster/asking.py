"""Requests of Kafka that our clients do not send: of the quorum, and to move replicas."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import (
    AlterPartitionReassignmentsResponse,
)
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i32Timedelta

from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_peer import KafkaPeerError

ANSWER_SECONDS_MAX = 15.0
LIMIT = i32Timedelta.parse(timedelta(seconds=10))
HEADER_BYTES = 5
"""Of an answer: the correlation id, and no tags."""
QUORUM = TopicData(
    topic_name=TopicName("__cluster_metadata"), partitions=(PartitionData(partition_index=i32(0)),)
)


def ask(cluster: KafkaCluster, request: Any, answer_class: type[Any]) -> Any:
    """The answer of a broker, over plain text; the classes are of one flexible version."""
    failure: OSError | None = None
    for node in cluster.nodes:
        host, port = cluster.address_of(node).split(":")
        try:
            with socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX) as connection:
                connection.settimeout(ANSWER_SECONDS_MAX)
                connection.sendall(_frame(request))
                size = int.from_bytes(_read(connection, 4), "big")
                frame = _read(connection, size)
        except OSError as error:
            failure = error
            continue
        return decode(answer_class, frame, HEADER_BYTES)[0]
    raise KafkaPeerError(f"no broker answered: {failure!r}")


def _frame(request: Any) -> bytes:
    header = struct.pack(">hhi", request.__api_key__, request.__version__, 1)
    body = header + struct.pack(">h", -1) + b"\0" + encode(request)
    return struct.pack(">i", len(body)) + body


def _read(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = connection.recv(size - len(found))
        if not chunk:
            raise OSError("the broker hung up")
        found += chunk
    return bytes(found)


def active_controller(cluster: KafkaCluster) -> int:
    """The node that leads the quorum of the controllers; waits until there is one."""

    def leader() -> int | None:
        response = ask(cluster, DescribeQuorumRequest(topics=(QUORUM,)), DescribeQuorumResponse)
        found = int(response.topics[0].partitions[0].leader_id) if response.topics else -1
        return found if found in cluster.controllers else None

    return cluster.wait_for(leader, "an active controller")


def reassign(cluster: KafkaCluster, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Begin to move these partitions to these nodes; returns when the controller has agreed."""
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), nodes in replicas.items():
        by_topic.setdefault(topic, []).append(
            ReassignablePartition(
                partition_index=i32(partition), replicas=tuple(map(BrokerId, nodes))
            )
        )
    response = ask(
        cluster,
        AlterPartitionReassignmentsRequest(
            timeout=LIMIT,
            topics=tuple(
                ReassignableTopic(name=TopicName(topic), partitions=tuple(partitions))
                for topic, partitions in by_topic.items()
            ),
        ),
        AlterPartitionReassignmentsResponse,
    )
    refused = [
        (topic.name, partition.partition_index, partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code
    ]
    assert not response.error_code, response
    assert not refused, refused


def wait_until_reassigned(cluster: KafkaCluster) -> None:
    """Wait until no partition is on its way, and all replicas are in sync."""

    def done() -> bool | None:
        response = ask(
            cluster,
            ListPartitionReassignmentsRequest(timeout=LIMIT, topics=None),
            ListPartitionReassignmentsResponse,
        )
        return True if not response.error_code and not response.topics else None

    cluster.wait_for(done, "the end of all reassignments")
    cluster.wait_until_whole()
