"""The subscription that a consumer sends to its group's leader, as far as a broker reads it.

A broker passes the members' bytes along without interpreting them, with one exception: it needs the
topics that they read. Committed offsets of those must neither be deleted nor expire.
"""

from __future__ import annotations

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription

from sharegroup.ids import TopicName
from sharegroup.wire.decoder import DecodeError, decode

VERSION_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """Return the topics that a consumer's subscription names; None if it cannot be decoded.

    Every version begins with the fields of version 0, and more may follow.
    """
    if len(metadata) < VERSION_BYTES:
        return None
    try:
        subscription, _ = decode(ConsumerProtocolSubscription, metadata, VERSION_BYTES)
    except DecodeError:
        return None
    return frozenset(TopicName(name) for name in subscription.topics)
