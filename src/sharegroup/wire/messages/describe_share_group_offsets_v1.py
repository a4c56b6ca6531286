"""DescribeShareGroupOffsets version 1 with tagged fields of our own: the runs of share partitions.

Tagged fields that a peer does not know are skipped by it, so Apache Kafka answers such a request
without runs.  A message in which they have their defaults has the bytes of Kafka's schema.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.describe_share_group_offsets.v1 import (
    request as kafka_request,
    response as kafka_response,
)
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from sharegroup.protocol_enums import RUNS_TAG

__all__ = [
    "NO_RUNS",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsRequestGroup",
    "DescribeShareGroupOffsetsRequestTopic",
    "DescribeShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsResponseGroup",
    "DescribeShareGroupOffsetsResponsePartition",
    "DescribeShareGroupOffsetsResponseTopic",
    "OffsetRun",
    "PartitionRuns",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequestTopic(kafka_request.DescribeShareGroupOffsetsRequestTopic):
    """The partitions of a topic."""

    first_offsets: tuple[i64, ...] = field(
        metadata={"kafka_type": "int64", "tag": RUNS_TAG}, default=()
    )
    """The first offset of the runs of each partition, in their order; 0 for those without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequestGroup(kafka_request.DescribeShareGroupOffsetsRequestGroup):
    """The topics of a group; None: all of them."""

    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequest(kafka_request.DescribeShareGroupOffsetsRequest):
    """Asks for the start offsets of share partitions, and for their runs."""

    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...]
    runs_max: i32 = field(metadata={"kafka_type": "int32", "tag": RUNS_TAG}, default=i32(0))
    """Maximum number of runs in the response; 0: runs are not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRun:
    """Offsets with one state and one delivery count."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    state: i8 = field(metadata={"kafka_type": "int8"})
    """The number of the state in `__share_group_state`; in memory 1 is acquired and 5 delayed."""
    delivery_count: i16 = field(metadata={"kafka_type": "int16"})
    member_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    """The member that holds the records; None unless they are acquired."""
    lock_ms_left: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    """The remaining time of the acquisition lock; -1 unless the records are acquired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRuns:
    """The first runs of a share partition from an offset on, all of the same moment."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    end_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    """The first offset that was never delivered; -1: the group has no offset yet."""
    high_watermark: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    run_count: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    """The number of all runs of the share partition; -1: no answer to the question for runs."""
    next_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    """The first offset of the next run; -1: there is none."""
    runs: tuple[OffsetRun, ...] = ()


NO_RUNS = PartitionRuns()
"""The value without an answer to the question for runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponsePartition(
    kafka_response.DescribeShareGroupOffsetsResponsePartition
):
    """The offsets of a share partition, and its runs if the request asks for them."""

    runs: PartitionRuns = field(metadata={"tag": RUNS_TAG}, default=NO_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseTopic(kafka_response.DescribeShareGroupOffsetsResponseTopic):
    """The part of a response about one topic."""

    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseGroup(kafka_response.DescribeShareGroupOffsetsResponseGroup):
    """The part of a response about one group."""

    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponse(kafka_response.DescribeShareGroupOffsetsResponse):
    """The start offsets of share partitions, by group and topic, with their runs."""

    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...]
