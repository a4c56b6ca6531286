"""Topics, partitions and offsets: one function for each request, results by item.

Any broker takes the requests that change topics (brokers pass them on to the controller);
those about a partition's log go to its leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v13.response import MetadataResponseTopic
from kio.schema.types import BrokerId
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from sharegroup.client.admin_types import (
    ClusterDescription,
    ListedOffset,
    NewTopic,
    NodeDescription,
    PartitionDescription,
    TopicDescription,
)
from sharegroup.client.cluster import NO_LEADER, Cluster, Topic, topic_refusal
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import refused
from sharegroup.errors import (
    NONE,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)

CONSUMER_REPLICA_ID = -1
READ_UNCOMMITTED = 0

Item = TypeVar("Item")
Key = TypeVar("Key")
Result = TypeVar("Result")


def outcome(code: int, message: str | None, **about: str | int) -> KafkaError | None:
    """None for success, else the error with what it is about."""
    return None if code == NONE else refused(code, message, **about)


def timeout_of(cluster: Cluster) -> i32Timedelta:
    """How long the broker itself may take: no longer than this side waits."""
    return i32Timedelta.parse(timedelta(milliseconds=cluster.config.request_timeout_ms))


def several(names: Iterable[str]) -> tuple[str, ...]:
    """The names.  One name alone is refused: to Python it is a list of names with one letter."""
    if isinstance(names, str | bytes):
        raise TypeError(f"expected a list of names, got one: {names!r}")
    return tuple(names)


def by_item(
    asked: Iterable[Key], answered: Mapping[Key, Result | KafkaError], kind: str
) -> dict[Key, Result | KafkaError]:
    """A result for each item that was asked about, in that order, and for no other.

    A broker that leaves one out, or adds one, is mistaken; the caller gets what it asked for.
    """
    return {
        item: answered[item]
        if item in answered
        else UnknownServerError(f"{kind} {item!r}: the broker's answer says nothing about it")
        for item in asked
    }


async def ask_any(cluster: Cluster, request: Any, *, what: str) -> Any:
    """Ask whichever broker answers, again until the api timeout."""

    async def attempt() -> Any:
        return await (await cluster.any_connection()).request(request)

    return await cluster.retrying(attempt, what=what)


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool
) -> dict[str, KafkaError | None]:
    wanted = tuple(topics)
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=KioTopicName(topic.name),
                num_partitions=i32(topic.num_partitions),
                replication_factor=i16(topic.replication_factor),
                assignments=(),
                configs=tuple(
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in topic.configs.items()
                ),
            )
            for topic in wanted
        ),
        timeout=timeout_of(cluster),
        validate_only=validate_only,
    )
    response = await ask_any(cluster, request, what="create_topics")
    answered = {
        str(one.name): outcome(one.error_code, one.error_message, topic=one.name)
        for one in response.topics
    }
    return by_item((topic.name for topic in wanted), answered, "topic")


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, KafkaError | None]:
    wanted = several(names)
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=KioTopicName(name), topic_id=None) for name in wanted),
        timeout=timeout_of(cluster),
    )
    response = await ask_any(cluster, request, what="delete_topics")
    for name in wanted:
        cluster.outdate(name)
    answered = {
        str(one.name): outcome(one.error_code, one.error_message, topic=one.name)
        for one in response.responses
    }
    return by_item(wanted, answered, "topic")


async def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], *, validate_only: bool
) -> dict[str, KafkaError | None]:
    request = CreatePartitionsRequest(
        topics=tuple(
            CreatePartitionsTopic(name=KioTopicName(name), count=i32(count), assignments=None)
            for name, count in counts.items()
        ),
        timeout=timeout_of(cluster),
        validate_only=validate_only,
    )
    response = await ask_any(cluster, request, what="create_partitions")
    for name in counts:
        cluster.outdate(name)
    answered = {
        str(one.name): outcome(one.error_code, one.error_message, topic=one.name)
        for one in response.results
    }
    return by_item(counts, answered, "topic")


async def describe_topics(
    cluster: Cluster, names: Iterable[str] | None
) -> dict[str, TopicDescription | KafkaError]:
    wanted = None if names is None else several(names)
    response = await cluster.retrying(lambda: cluster.ask_metadata(wanted), what="describe_topics")
    found = {
        str(one.name): _described(one)
        if one.error_code in (NONE, LeaderNotAvailable.code)
        else topic_refusal(one)
        for one in response.topics
        if one.name is not None
    }
    return found if wanted is None else by_item(wanted, found, "topic")


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda one: int(one.partition_index))
    return TopicDescription(
        str(topic.name),
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                int(one.partition_index),
                int(one.leader_id),
                known(one.leader_epoch),
                tuple(map(int, one.replica_nodes)),
                tuple(map(int, one.isr_nodes)),
                tuple(map(int, one.offline_replicas)),
            )
            for one in partitions
        ),
    )


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=False
    )
    response = await ask_any(cluster, request, what="describe_cluster")
    if response.error_code != NONE:
        raise refused(response.error_code, response.error_message, request="describe_cluster")
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(
            NodeDescription(one.broker_id, one.host, one.port, one.rack) for one in response.brokers
        ),
    )


async def list_offsets(
    cluster: Cluster, specs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    def request(part: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=BrokerId(CONSUMER_REPLICA_ID),
            isolation_level=i8(READ_UNCOMMITTED),
            topics=tuple(
                ListOffsetsTopic(
                    name=KioTopicName(topic),
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=i32(index), timestamp=i64(spec))
                        for index, spec in partitions.items()
                    ),
                )
                for topic, partitions in by_topic(part).items()
            ),
            timeout=timeout_of(cluster),
        )

    results: dict[TopicPartition, ListedOffset | KafkaError] = {}
    responses = await _ask_leaders(cluster, specs, request, results, what="list_offsets")
    for response in responses:
        for topic in response.topics:
            for one in topic.partitions:
                where = TopicPartition(topic.name, one.partition_index)
                results[where] = _failed(cluster, where, one.error_code) or ListedOffset(
                    one.offset, one.timestamp, known(one.leader_epoch)
                )
    return by_item(specs, results, "partition")


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    def request(part: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(
            topics=tuple(
                DeleteRecordsTopic(
                    name=KioTopicName(topic),
                    partitions=tuple(
                        DeleteRecordsPartition(partition_index=i32(index), offset=i64(offset))
                        for index, offset in partitions.items()
                    ),
                )
                for topic, partitions in by_topic(part).items()
            ),
            timeout=timeout_of(cluster),
        )

    results: dict[TopicPartition, int | KafkaError] = {}
    responses = await _ask_leaders(cluster, offsets, request, results, what="delete_records")
    for response in responses:
        for topic in response.topics:
            for one in topic.partitions:
                where = TopicPartition(topic.name, one.partition_index)
                failed = _failed(cluster, where, one.error_code)
                results[where] = int(one.low_watermark) if failed is None else failed
    return by_item(offsets, results, "partition")


def by_topic(items: Mapping[TopicPartition, Item]) -> dict[str, dict[int, Item]]:
    """The same items, nested as requests have them."""
    nested: dict[str, dict[int, Item]] = defaultdict(dict)
    for (topic, partition), item in items.items():
        nested[topic][partition] = item
    return nested


async def _ask_leaders(
    cluster: Cluster,
    items: Mapping[TopicPartition, Item],
    request: Callable[[Mapping[TopicPartition, Item]], Any],
    results: dict[TopicPartition, Result | KafkaError],
    *,
    what: str,
) -> list[Any]:
    """Each leader's answer about its partitions; all again while one can't be reached or leads no
    more, or does not know yet that it leads a topic which was just made.

    Partitions without a leader to ask get their error in ``results``.
    """
    answers: list[Any] = []

    async def attempt() -> list[Any]:
        found = await cluster.refresh({where.topic for where in items})
        parts: dict[int, dict[TopicPartition, Item]] = defaultdict(dict)
        for where, item in items.items():
            leader = _leader(where, found.get(where.topic))
            if isinstance(leader, KafkaError):
                results[where] = leader
            else:
                parts[leader][where] = item
        answers[:] = [
            await (await cluster.connection(node_id)).request(request(part))
            for node_id, part in parts.items()
        ]
        for where in _not_led(answers):
            raise NotLeaderOrFollower(f"topic {where.topic!r} partition {where.partition}")
        return answers

    try:
        return await cluster.retrying(attempt, what=what)
    except RequestTimedOut:
        if not answers:
            raise
        return answers  # What one partition waits for hides no answer about the others.


def _not_led(answers: Iterable[Any]) -> Iterator[TopicPartition]:
    for answer in answers:
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code == NotLeaderOrFollower.code:
                    yield TopicPartition(topic.name, one.partition_index)


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
        return LeaderNotAvailable(f"topic {where.topic!r} partition {where.partition}")
    return leader


def _failed(cluster: Cluster, where: TopicPartition, code: int) -> KafkaError | None:
    error = outcome(code, None, topic=where.topic, partition=where.partition)
    if error is not None and error.retriable:
        cluster.outdate(where.topic)
    return error


def known(number: int) -> int | None:
    """None for the -1 that stands for unknown."""
    return None if number < 0 else number
