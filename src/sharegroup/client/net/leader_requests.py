"""Requests about partitions, sent to the partition leaders: one result for each partition.

    partitions ──▶ leaders, from new metadata ──▶ one request per leader ──▶ result per partition
        ▲                                                                         │
        └──────────── after a pause: those whose error the caller retries ────────┘

ListOffsets and DeleteRecords are such requests; their responses have the same shape.  An answer of
one leader is kept while another leader cannot be reached, so that one failing partition does not
hide the answers about the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from sharegroup.client.net.cluster import NO_LEADER, Cluster, Topic
from sharegroup.client.net.refusals import left_out, refused
from sharegroup.client.records import OffsetAndMetadata, TopicPartition
from sharegroup.errors import (
    NONE,
    FencedLeaderEpoch,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

LEADER_CHANGED: tuple[type[KafkaError], ...] = (
    NotLeaderOrFollower,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
)
"""The errors of a broker that is not the leader, or that knows another leader epoch."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRequest(Generic[Item, Result]):
    """A kind of request to partition leaders, with its answers."""

    make: Callable[[Mapping[TopicPartition, Item], Mapping[str, Topic]], Any]
    """Makes the request for the partitions of one leader; gets the metadata of their topics too."""
    read: Callable[[Any], Result]
    """Returns the result of a partition from its part of the answer."""
    operation: str
    """The ACL operation on the topics that it needs."""


async def ask_leaders(
    cluster: Cluster,
    items: Mapping[TopicPartition, Item],
    request: LeaderRequest[Item, Result],
    *,
    subject: str,
    retried: tuple[type[KafkaError], ...] = LEADER_CHANGED,
) -> dict[TopicPartition, Result | KafkaError]:
    """Ask all leaders until ``default_api_timeout_ms``; return a result for each partition.

    Leaders that cannot be reached and errors of the classes ``retried`` are tried again, with new
    metadata.  All other errors are results, also that a partition has no leader.  Raises
    RequestTimedOut if there is no result at all.
    """
    results: dict[TopicPartition, Result | KafkaError] = {}

    async def attempt() -> None:
        missing = {
            where: item
            for where, item in items.items()
            if where not in results or isinstance(results[where], retried)
        }
        failure = await ask_leaders_once(cluster, missing, request, results)
        if failure is not None:
            raise failure
        # `retrying` tries again only after an exception.
        for result in results.values():
            if isinstance(result, retried):
                raise result

    try:
        await cluster.retrying(attempt, subject=subject)
    except RequestTimedOut as error:
        if not results:
            raise
        return {where: results.get(where, error) for where in items}
    return {where: results[where] for where in items}


async def ask_leaders_once(
    cluster: Cluster,
    items: Mapping[TopicPartition, Item],
    request: LeaderRequest[Item, Result],
    results: dict[TopicPartition, Result | KafkaError],
) -> KafkaError | None:
    """Ask each leader once and add the results; return why a leader could not be reached.

    The partitions of that leader get no result.  An error that no retry can change is raised.
    """
    # Not from the cache: the leader known there may be the one that has just refused.
    described = await cluster.refresh({where.topic for where in items})
    topics = {name: topic for name, topic in described.items() if isinstance(topic, Topic)}
    parts: dict[int, dict[TopicPartition, Item]] = defaultdict(dict)
    for where, item in items.items():
        leader = _leader(where, described.get(where.topic))
        if isinstance(leader, KafkaError):
            results[where] = leader
        else:
            parts[leader][where] = item
    failure: KafkaError | None = None
    for node_id, part in parts.items():
        try:
            connection = await cluster.connection(node_id)
            response = await connection.request(request.make(part, topics))
        except KafkaError as error:
            if not error.retriable:
                raise
            # The other leaders are still asked, so their partitions get results in this attempt.
            failure = failure or error
            continue
        answered: dict[TopicPartition, Result | KafkaError] = _read_response(
            cluster, part, response, request
        )
        results |= answered
    return failure


def by_topic(items: Mapping[TopicPartition, Item]) -> dict[str, dict[int, Item]]:
    """Nest the items by topic and partition number, as requests need them."""
    nested: dict[str, dict[int, Item]] = defaultdict(dict)
    for (topic, partition), item in items.items():
        nested[topic][partition] = item
    return nested


def _read_response(
    cluster: Cluster,
    requested: Mapping[TopicPartition, Any],
    response: Any,
    request: LeaderRequest[Any, Result],
) -> dict[TopicPartition, Result | KafkaError]:
    """Return a result for each requested partition; answers about other partitions are dropped."""
    results: dict[TopicPartition, Result | KafkaError] = {
        where: left_out("partition", where) for where in requested
    }
    for topic in response.topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            if where not in requested:
                continue
            if partition.error_code == NONE:
                results[where] = request.read(partition)
                continue
            error = refused(
                partition.error_code,
                None,
                operation=request.operation,
                principal=cluster.principal,
                topic=where.topic,
                partition=where.partition,
            )
            if error.retriable:
                # Other tasks must not send their requests to the leader that has just refused this
                # one.
                cluster.outdate(where.topic)
            results[where] = error
    return results


def _leader(where: TopicPartition, topic: Topic | KafkaError | None) -> int | KafkaError:
    if not isinstance(topic, Topic):
        return topic or UnknownTopicOrPartition(f"topic {where.topic!r} does not exist")
    if not 0 <= where.partition < len(topic.leaders):
        return UnknownTopicOrPartition(
            f"topic {where.topic!r} has partitions 0 to {len(topic.leaders) - 1}; "
            f"asked for {where.partition}"
        )
    leader = topic.leaders[where.partition]
    if leader == NO_LEADER:
        return LeaderNotAvailable(
            f"topic {where.topic!r} partition {where.partition} has no leader"
        )
    return leader


CommittedTopic = TypeVar("CommittedTopic")


def commit_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_class: Callable[..., CommittedTopic],
    partition_class: Callable[..., Any],
) -> tuple[CommittedTopic, ...]:
    """Return the topics with their offsets, made of the message classes of the request."""
    return tuple(
        topic_class(
            name=TopicName(topic),
            partitions=tuple(
                partition_class(
                    partition_index=i32(partition),
                    committed_offset=i64(committed.offset),
                    committed_leader_epoch=i32(
                        -1 if committed.leader_epoch is None else committed.leader_epoch
                    ),
                    committed_metadata=committed.metadata,
                )
                for partition, committed in partitions.items()
            ),
        )
        for topic, partitions in by_topic(offsets).items()
    )
