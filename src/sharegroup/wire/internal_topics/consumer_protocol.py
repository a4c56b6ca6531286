"""The bytes that consumers exchange in the classic protocol: subscriptions and assignments.

A broker passes the members' bytes along without interpreting them, with two exceptions. It needs
the topics that they read, because committed offsets of those must neither be deleted nor expire.
And while a group migrates to the protocol of KIP-848 or back, the broker assigns partitions to
members that understand only these bytes.

The bytes begin with a version. A newer version than 3 begins with the fields of version 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from sharegroup.ids import TopicName
from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode

VERSION_BYTES = 2
NEWEST = 3


class Subscription(NamedTuple):
    """A consumer's subscription: its topics, the partitions that it has, and its rack."""

    topic_names: tuple[TopicName, ...]
    owned: Mapping[TopicName, Sequence[int]]
    rack_id: str | None


class Assignment(NamedTuple):
    """A consumer's partitions, and whether its assignor has added data of its own."""

    partitions: Mapping[TopicName, Sequence[int]]
    has_user_data: bool


def subscribed_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """Return the topics that a consumer's subscription names; None if it cannot be decoded.

    Every version begins with the fields of version 0, and more may follow.
    """
    decoded = _decoded("subscription", metadata, version=0)
    return None if decoded is None else frozenset(map(TopicName, decoded.topics))


def decode_subscription(metadata: bytes) -> Subscription | None:
    """Return a consumer's subscription; None if it cannot be decoded."""
    decoded = _decoded("subscription", metadata)
    if decoded is None:
        return None
    owned = {
        TopicName(topic.topic): topic.partitions
        for topic in getattr(decoded, "owned_partitions", ())
    }
    topic_names = tuple(map(TopicName, decoded.topics))
    return Subscription(topic_names, owned, getattr(decoded, "rack_id", None))


def decode_assignment(assignment: bytes) -> Assignment | None:
    """Return a consumer's assignment; None if it cannot be decoded."""
    decoded = _decoded("assignment", assignment)
    if decoded is None:
        return None
    partitions = {TopicName(topic.topic): topic.partitions for topic in decoded.assigned_partitions}
    return Assignment(partitions, bool(decoded.user_data))


def encode_assignment(partitions: Mapping[TopicName, Sequence[int]], subscription: bytes) -> bytes:
    """Return an assignment in the version of the member's subscription."""
    version = _version(subscription)
    messages = _messages("assignment", version)
    return version.to_bytes(VERSION_BYTES, "big") + encode(
        messages.ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                messages.TopicPartition(topic=name, partitions=tuple(numbers))
                for name, numbers in partitions.items()
            )
        )
    )


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    # As in `ConsumerProtocol.java`, which reads a newer version with the newest schema it has.
    return min(max(version, 0), NEWEST)


def _decoded(kind: str, data: bytes, *, version: int | None = None) -> Any | None:
    if len(data) < VERSION_BYTES:
        return None
    messages = _messages(kind, _version(data) if version is None else version)
    message_class = getattr(messages, f"ConsumerProtocol{kind.title()}")
    try:
        message, _ = decode(message_class, data, VERSION_BYTES)
    except DecodeError:
        return None
    return message


@cache
def _messages(kind: str, version: int) -> Any:
    """Return kio's module; it is imported at first use, because few groups need it."""
    return import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
