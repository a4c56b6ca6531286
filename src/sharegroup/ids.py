"""Types for the ids of groups, members, topics and partitions.

Keys are named tuples because every request looks them up and a tuple's hash is computed in C.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import NamedTuple, NewType
from uuid import UUID

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)

LEADER_EPOCH = 0
"""The leader epoch of every partition. It never changes, because there is only one broker."""

OFFSET_MAX = 2**63 - 1
"""The largest offset, used as no limit."""

_JAVA_INT_MIN = -(2**31)

HASHES_MAX = 256
"""Number of cached hashes. An id may have 32,767 characters, each of which takes 0.1 us."""


UUIDS_MAX = 4_096
"""Number of cached UUIDs, of about 100 bytes each."""


class TopicIdPartition(NamedTuple):
    """A partition of a topic, by topic id. A topic that is deleted and recreated has a new id."""

    topic_id: TopicId
    partition: int


class SharePartitionKey(NamedTuple):
    """The key of a share partition: a topic partition as one share group sees it."""

    group_id: GroupId
    topic_id: TopicId
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    """A producer in one of its epochs; only the newest epoch of a producer id may write."""

    producer_id: int
    epoch: int


@lru_cache(maxsize=UUIDS_MAX)
def interned_uuid(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes: the same object each time while few others are asked for.

    Most requests name few topics. A dictionary finds a key that has the same object faster.
    """
    return UUID(bytes=raw)


def topic_id_text(topic_id: TopicId) -> str:
    """Return the topic id in Kafka's text form; see `uuid_text`."""
    return uuid_text(topic_id)


def uuid_text(uuid: UUID) -> str:
    """Return a UUID in Kafka's text form: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode("ascii")


def group_partition(group_id: GroupId, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` that holds this group."""
    return _absolute(_java_hash(group_id)) % partition_count


def transaction_state_partition(transactional_id: str, partition_count: int) -> int:
    """Return the partition of ``__transaction_state`` that holds this transactional id."""
    return _absolute(_java_hash(transactional_id)) % partition_count


def share_state_partition(key: SharePartitionKey, partition_count: int) -> int:
    """Return the partition of ``__share_group_state`` that holds this share partition."""
    beginning = _hash_of_topic(key.group_id, key.topic_id)
    return _absolute(_java_hash_on(beginning, str(key.partition))) % partition_count


@lru_cache(maxsize=HASHES_MAX)
def _hash_of_topic(group_id: GroupId, topic_id: TopicId) -> int:
    return _java_hash_on(_java_hash(group_id), f":{topic_id_text(topic_id)}:")


@lru_cache(maxsize=HASHES_MAX)
def _java_hash(text: str) -> int:
    return _java_hash_on(0, text)


def _java_hash_on(value: int, text: str) -> int:
    """Return Java's ``String.hashCode`` as an unsigned number, continuing from hash ``value``."""
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    return value


def _absolute(value: int) -> int:
    """Return the absolute value of a hash as Kafka does: for -2**31 the result is 0."""
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == _JAVA_INT_MIN else abs(signed)
