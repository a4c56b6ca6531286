"""Moves the leaders of partitions between healthy brokers: a new preferred replica, an election."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from typing import Any, BinaryIO

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i8, i32, i32Timedelta

from tests.support.cluster_views import View

ANSWER_SECONDS_MAX = 10.0
LIMIT = i32Timedelta.parse(timedelta(seconds=ANSWER_SECONDS_MAX))
PREFERRED = i8(0)
Move = tuple[str, int, tuple[int, ...]]
"""Topic, partition and the replicas in their new order; the first one is to lead."""


def choose_moves(view: View, topics: Collection[str], chance: random.Random) -> list[Move]:
    """Half of the partitions, each to a replica in sync that does not lead it."""
    found = []
    for topic in sorted(topics):
        for index, partition in sorted(view.topics.get(topic, {}).items()):
            others = [node for node in partition.in_sync if node != partition.leader]
            if others and chance.random() < 0.5:
                leader = chance.choice(sorted(others))
                rest = [node for node in partition.replicas if node != leader]
                found.append((topic, index, (leader, *rest)))
    return found


def carry_out(address: str, moves: Sequence[Move]) -> None:
    """Ask a broker for all of them; it forwards to the controller."""
    by_topic: dict[str, list[Move]] = {}
    for move in moves:
        by_topic.setdefault(move[0], []).append(move)
    if not moves:
        return
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX) as connection:
        _ask(connection, _reassignment(by_topic))
        _ask(connection, _election(by_topic))


def _ask(connection: socket.socket, message: Any) -> None:
    """Send a request that our clients do not speak; what its answer says shows in the metadata."""
    header = message.__header_schema__(
        request_api_key=message.__api_key__,
        request_api_version=message.__version__,
        correlation_id=i32(1),
        client_id="moves",
    )
    body = BytesIO()
    entity_writer(message.__header_schema__)(body, header)
    entity_writer(type(message))(body, message)
    frame = body.getvalue()
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    with connection.makefile("rb") as answers:
        (size,) = struct.unpack(">i", _exactly(answers, 4))
        _exactly(answers, size)


def _exactly(answers: BinaryIO, count: int) -> bytes:
    found = answers.read(count)
    if len(found) < count:
        raise ConnectionResetError(f"{len(found)} of {count} bytes came")
    return found


def _reassignment(by_topic: Mapping[str, Sequence[Move]]) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout=LIMIT,
        topics=tuple(
            ReassignableTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ReassignablePartition(
                        partition_index=i32(partition), replicas=tuple(map(BrokerId, replicas))
                    )
                    for _, partition, replicas in moves
                ),
            )
            for topic, moves in by_topic.items()
        ),
    )


def _election(by_topic: Mapping[str, Sequence[Move]]) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=tuple(
            TopicPartitions(
                topic=TopicName(topic), partitions=tuple(i32(move[1]) for move in moves)
            )
            for topic, moves in by_topic.items()
        ),
        timeout=LIMIT,
    )
