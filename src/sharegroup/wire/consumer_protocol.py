"""What members of a consumer group say to each other, as far as a broker looks into it.

A broker passes their bytes along without understanding them, but for one question: which topics
do they read?  Offsets in those must neither be deleted nor expire.
"""

from __future__ import annotations

from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription

from sharegroup.ids import TopicName
from sharegroup.wire.decoder import DecodeError, decode

VERSION_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[TopicName] | None:
    """The topics that a consumer's subscription names; None when it cannot be read.

    Every version begins with the fields of version 0, and more may follow.
    """
    if len(metadata) < VERSION_BYTES:
        return None
    try:
        subscription, _ = decode(ConsumerProtocolSubscription, metadata, VERSION_BYTES)
    except DecodeError:
        return None
    return frozenset(TopicName(name) for name in subscription.topics)
