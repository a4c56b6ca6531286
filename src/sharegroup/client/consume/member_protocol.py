"""The bytes that members of a classic consumer group exchange: subscriptions and assignments.

A version number of two bytes precedes the message, and every version begins with the fields of the
older ones.  So a reader takes the newest version that it knows and that the bytes have.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from kio.schema.consumer_protocol_assignment.v3 import data as assignment_v3
from kio.schema.consumer_protocol_subscription.v3 import data as subscription_v3
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i32

from sharegroup.client.consume.assignors import MemberSubscription
from sharegroup.client.net.leader_requests import by_topic
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InconsistentGroupProtocol
from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode

VERSION = 3
ASSIGNMENT_VERSION = 0
"""The version that is written; all newer ones have the same fields."""
VERSION_BYTES = 2


def encode_subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], *, generation: int, rack: str | None
) -> bytes:
    """Return the subscription of a member for its JoinGroup request."""
    message = subscription_v3.ConsumerProtocolSubscription(
        topics=tuple(sorted(topics)),
        user_data=None,
        owned_partitions=tuple(
            subscription_v3.TopicPartition(
                topic=KioTopicName(topic), partitions=tuple(map(i32, sorted(partitions)))
            )
            for topic, partitions in sorted(by_topic(dict.fromkeys(owned)).items())
        ),
        generation_id=i32(generation),
        rack_id=rack,
    )
    return _encoded(VERSION, message)


def decode_subscription(metadata: bytes, instance_id: str | None) -> MemberSubscription:
    """Return the subscription of a member; raise InconsistentGroupProtocol for invalid bytes."""
    message = _decoded("consumer_protocol_subscription", "ConsumerProtocolSubscription", metadata)
    owned = frozenset(
        TopicPartition(str(topic.topic), int(partition))
        for topic in getattr(message, "owned_partitions", ())
        for partition in topic.partitions
    )
    return MemberSubscription(
        frozenset(map(str, message.topics)),
        owned,
        int(getattr(message, "generation_id", -1)),
        instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the assignment of a member for the leader's SyncGroup request."""
    message = assignment_v3.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            assignment_v3.TopicPartition(
                topic=KioTopicName(topic), partitions=tuple(map(i32, sorted(numbers)))
            )
            for topic, numbers in sorted(by_topic(dict.fromkeys(partitions)).items())
        ),
        user_data=None,
    )
    return _encoded(ASSIGNMENT_VERSION, message)


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the assigned partitions; no bytes are an empty assignment."""
    if not assignment:
        return frozenset()
    message = _decoded("consumer_protocol_assignment", "ConsumerProtocolAssignment", assignment)
    return frozenset(
        TopicPartition(str(topic.topic), int(partition))
        for topic in message.assigned_partitions
        for partition in topic.partitions
    )


def _encoded(version: int, message: Any) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big") + encode(message)


def _decoded(module: str, name: str, content: bytes) -> Any:
    # Without a version the message cannot be decoded either, and that error says so.
    version = int.from_bytes(content[:VERSION_BYTES], "big")
    schema = import_module(f"kio.schema.{module}.v{min(version, VERSION)}.data")
    try:
        message, _ = decode(getattr(schema, name), content, min(VERSION_BYTES, len(content)))
    except DecodeError as error:
        raise InconsistentGroupProtocol(
            f"{name} of a member of the group can't be decoded: {error}"
        ) from error
    return message
