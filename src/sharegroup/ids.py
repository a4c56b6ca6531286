"""Names of things: group, member, topic and partition ids, as types of their own.

Keys are named tuples because they are looked up on every request and a tuple's hash is
computed in C.
"""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType
from uuid import UUID

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)

_JAVA_INT_MIN = -(2**31)


class TopicPartition(NamedTuple):
    """One partition of one incarnation of a topic; a topic made again gets another id."""

    topic_id: TopicId
    partition: int


class SharePartitionKey(NamedTuple):
    """One topic partition as one share group sees it."""

    group_id: GroupId
    topic_id: TopicId
    partition: int


def topic_id_text(topic_id: TopicId) -> str:
    """The id as Kafka writes it."""
    return uuid_text(topic_id)


def uuid_text(uuid: UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of url-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode("ascii")


def group_partition(group_id: GroupId, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that holds this group."""
    return _absolute_java_hash(group_id) % partition_count


def share_state_partition(key: SharePartitionKey, partition_count: int) -> int:
    """The partition of ``__share_group_state`` that holds this share partition."""
    text = f"{key.group_id}:{topic_id_text(key.topic_id)}:{key.partition}"
    return _absolute_java_hash(text) % partition_count


def _absolute_java_hash(text: str) -> int:
    """``abs`` of Java's ``String.hashCode``, with Kafka's exception: -2**31 becomes 0."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == _JAVA_INT_MIN else abs(signed)
