"""Looks up offsets in the logs of partitions: the first, the end, or the first since a time.

Three functions differ in what they do with an error:

    list_offsets    an error is the result of its partition; a partition without a leader is one
    offsets_of      all retriable errors are retried until a deadline; the others are raised
    offset_of       one attempt, for a caller that retries

A request names the leader epoch of the metadata (KIP-320), so a broker that has lost the leadership
without knowing it does not answer for the leader.  The end is the high watermark, so records of
open transactions are included, unless a caller of `list_offsets` asks for read_committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import partial
from typing import Any

from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.types import BrokerId, TopicName as KioTopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.net.leader_requests import (
    LEADER_CHANGED,
    LeaderRequest,
    ask_leaders,
    ask_leaders_once,
    by_topic,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    KafkaError,
    KafkaStorageError,
    OffsetNotAvailable,
    ReplicaNotAvailable,
    RequestTimedOut,
    UnknownServerError,
)

CONSUMER_REPLICA_ID = -1
READ_UNCOMMITTED = 0
RETRIED: tuple[type[KafkaError], ...] = (
    *LEADER_CHANGED,
    OffsetNotAvailable,
    KafkaStorageError,
    ReplicaNotAvailable,
    RequestTimedOut,
)
"""The errors of a leader that `list_offsets` retries.

A new leader answers OFFSET_NOT_AVAILABLE until it knows its high watermark (KIP-207).
"""


class OffsetSpec(IntEnum):
    """Named offsets for `AdminClient.list_offsets`, which also takes timestamps as int ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset and the timestamp of its record; -1 if there is no such record."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Look up one offset in each partition by an OffsetSpec or a timestamp in milliseconds.

    A leader is asked again after an error in `RETRIED`, until ``default_api_timeout_ms``.  Raises
    RequestTimedOut if no leader can be reached.  With ``isolation_level`` 1 (read_committed) the
    end is the last stable offset.
    """
    results = await ask_leaders(
        cluster, specs, _request(cluster, isolation_level), subject="list_offsets", retried=RETRIED
    )
    return {where: _checked(where, specs[where], result) for where, result in results.items()}


async def offsets_of(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    spec: int,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, int]:
    """Look up the same offset in all partitions; -1 if no record is as new as the timestamp.

    Retries until ``timeout_ms``, by default ``default_api_timeout_ms``.  Then it raises
    RequestTimedOut, with the last error in its text.
    """
    specs = dict.fromkeys(partitions, spec)

    async def attempt() -> dict[TopicPartition, int]:
        return {
            where: listed.offset for where, listed in (await _listed_once(cluster, specs)).items()
        }

    topics = ", ".join(repr(name) for name in sorted({where.topic for where in specs}))
    return await cluster.retrying(
        attempt, subject=f"offsets of topic {topics}", timeout_ms=timeout_ms
    )


async def offset_of(cluster: Cluster, where: TopicPartition, spec: int) -> int:
    """Look up an offset in one attempt; all errors are raised."""
    return (await _listed_once(cluster, {where: spec}))[where].offset


async def _listed_once(
    cluster: Cluster, specs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ListedOffset]:
    """Ask each leader once; raise the first error."""
    results: dict[TopicPartition, ListedOffset | KafkaError] = {}
    failure = await ask_leaders_once(cluster, specs, _request(cluster), results)
    if failure is not None:
        raise failure
    return all_listed(
        {where: _checked(where, specs[where], result) for where, result in results.items()}
    )


def all_listed(
    results: Mapping[TopicPartition, ListedOffset | KafkaError],
) -> dict[TopicPartition, ListedOffset]:
    """Return the offsets of all partitions; raise the first error among them."""
    listed = {}
    for where, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        listed[where] = result
    return listed


def _request(
    cluster: Cluster, isolation_level: int = READ_UNCOMMITTED
) -> LeaderRequest[int, ListedOffset]:
    """Return the request for one leader; the leader epochs are those of the metadata."""
    return LeaderRequest(
        make=partial(_message, cluster, isolation_level), read=_listed, operation="DESCRIBE"
    )


def _message(
    cluster: Cluster,
    isolation_level: int,
    specs: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=BrokerId(CONSUMER_REPLICA_ID),
        isolation_level=i8(isolation_level),
        topics=tuple(
            ListOffsetsTopic(
                name=KioTopicName(name),
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=i32(index),
                        current_leader_epoch=i32(topics[name].leader_epoch_of(index)),
                        timestamp=i64(spec),
                    )
                    for index, spec in partitions.items()
                ),
            )
            for name, partitions in by_topic(specs).items()
        ),
        timeout=i32Timedelta.parse(timedelta(milliseconds=cluster.config.request_timeout_ms)),
    )


def _checked(
    where: TopicPartition, spec: int, result: ListedOffset | KafkaError
) -> ListedOffset | KafkaError:
    """Return the result, or an error: every log has a first offset and an end."""
    is_named = spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    if is_named and isinstance(result, ListedOffset) and result.offset < 0:
        return UnknownServerError(
            f"topic {where.topic!r} partition {where.partition}: expected an offset of 0 or more "
            f"for {OffsetSpec(spec).name}, found {result.offset} in the broker's response"
        )
    return result


def _listed(partition: Any) -> ListedOffset:
    epoch = int(partition.leader_epoch)
    return ListedOffset(partition.offset, partition.timestamp, None if epoch < 0 else epoch)
