"""ShareAcknowledge version 2 with a tagged field of our own: the delay of released records.

Tagged fields that a peer does not know are skipped by it, so Apache Kafka makes such records
available at once (ADR 0061).  A message without a delay has the bytes of Kafka's schema.
"""

from dataclasses import dataclass, field

from kio.schema.share_acknowledge.v2 import request as kafka_request
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.static.primitive import i32

from sharegroup.protocol_enums import DELAY_TAG, GROUPS_DELAY

__all__ = [
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "AcknowledgementBatch",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeTopicResponse",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBatch(kafka_request.AcknowledgementBatch):
    """The acknowledgements of a range of offsets."""

    redelivery_delay_ms: i32 = field(
        metadata={"kafka_type": "int32", "tag": DELAY_TAG}, default=i32(GROUPS_DELAY)
    )
    """The delay of the records that it releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgePartition(kafka_request.AcknowledgePartition):
    """The part of a request about one partition."""

    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeTopic(kafka_request.AcknowledgeTopic):
    """The part of a request about one topic."""

    partitions: tuple[AcknowledgePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledgeRequest(kafka_request.ShareAcknowledgeRequest):
    """Acknowledges, releases or renews records."""

    topics: tuple[AcknowledgeTopic, ...]
