"""ShareFetch version 2 with three tagged fields of our own.

Two are for an acquisition without records (ADR 0059), one is the delay of released records (ADR
0061).

Tagged fields that a peer does not know are skipped by it, so Apache Kafka answers such a request
with records.  A message in which they have their defaults has the bytes of Kafka's schema.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.share_fetch.v2 import request as kafka_request, response as kafka_response
from kio.schema.share_fetch.v2.request import ForgottenTopic
from kio.schema.share_fetch.v2.response import AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from sharegroup.protocol_enums import BATCHES_TAG, DELAY_TAG, GROUPS_DELAY

__all__ = [
    "AcknowledgementBatch",
    "AcquiredRecords",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "LogBatch",
    "NodeEndpoint",
    "PartitionData",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareFetchableTopicResponse",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementBatch(kafka_request.AcknowledgementBatch):
    """The acknowledgements of a range of offsets."""

    redelivery_delay_ms: i32 = field(
        metadata={"kafka_type": "int32", "tag": DELAY_TAG}, default=i32(GROUPS_DELAY)
    )
    """The delay of the records that it releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition(kafka_request.FetchPartition):
    """The part of a request about one partition."""

    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTopic(kafka_request.FetchTopic):
    """The part of a request about one topic."""

    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchRequest(kafka_request.ShareFetchRequest):
    """Acknowledges records and acquires others, with or without the bytes of their batches."""

    topics: tuple[FetchTopic, ...]
    without_records: bool = field(
        metadata={"kafka_type": "bool", "tag": BATCHES_TAG}, default=False
    )
    """Whether the response shall have the batches in ``batches`` and not in ``records``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A log batch that holds acquired records."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(78)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    end_offset: i64 = field(metadata={"kafka_type": "int64"})
    """The offset after the last."""
    size: i32 = field(metadata={"kafka_type": "int32"})
    """The size in bytes in the log."""
    flags: i8 = field(metadata={"kafka_type": "int8"})
    """The bits of `BatchFlag`; the others are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData(kafka_response.PartitionData):
    """The part of a response about one partition."""

    batches: tuple[LogBatch, ...] | None = field(metadata={"tag": BATCHES_TAG}, default=None)
    """The batches that ``records`` would have; None if the records are not left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchableTopicResponse(kafka_response.ShareFetchableTopicResponse):
    """The part of a response about one topic."""

    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchResponse(kafka_response.ShareFetchResponse):
    """The acquired records of all partitions."""

    responses: tuple[ShareFetchableTopicResponse, ...]
