"""Requests about topics and partitions: one function for each, with results by item.

Any broker accepts requests that change topics, because brokers forward them to the controller.
Requests about a partition's log go to the partition leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

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
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponseTopic
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i16, i32, i64

from sharegroup.client.admin.calls import (
    ask_any,
    by_item,
    call,
    check,
    known,
    operations_of,
    outcome,
    several,
    timeout_of,
    until_allowed,
)
from sharegroup.client.admin.types import (
    ClusterDescription,
    NewTopic,
    NodeDescription,
    PartitionDescription,
    TopicDescription,
)
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.net.leader_requests import LeaderRequest, ask_leaders, by_topic
from sharegroup.client.net.refusals import refused, topic_refusal
from sharegroup.client.records import TopicPartition
from sharegroup.errors import NONE, KafkaError, LeaderNotAvailable

BY_TOPIC_ID = 12
"""The first version of Metadata that looks up topics by id."""


@call
async def create_topics(
    cluster: Cluster,
    topics: Iterable[NewTopic],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> dict[str, KafkaError | None]:
    """Create topics; the result is None or an error, such as TopicAlreadyExists, by name."""
    new_topics = tuple(topics)

    async def ask(names: Mapping[str, None]) -> dict[str, KafkaError | None]:
        request = CreateTopicsRequest(
            # Only those without a final answer: the ones over the quota are asked for again
            # (KIP-599).
            topics=tuple(_creatable(topic) for topic in new_topics if topic.name in names),
            timeout=timeout_of(cluster),
            validate_only=validate_only,
        )
        response = await ask_any(cluster, request, subject="create_topics")
        return _outcomes(cluster, response.topics, operation="CREATE")

    names = dict.fromkeys(topic.name for topic in new_topics)
    answered = await until_allowed(cluster, names, ask, subject="create_topics")
    return by_item((topic.name for topic in new_topics), answered, "topic")


def _outcomes(
    cluster: Cluster, answers: Iterable[Any], *, operation: str
) -> dict[str, KafkaError | None]:
    """Return None or the error of each topic, by its name."""
    return {
        str(answer.name): outcome(cluster, answer, operation, topic=answer.name)
        for answer in answers
    }


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=KioTopicName(topic.name),
        num_partitions=i32(topic.num_partitions),
        replication_factor=i16(topic.replication_factor),
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()
        ),
    )


@call
async def delete_topics(
    cluster: Cluster, names: Iterable[str], *, timeout: float | None = None
) -> dict[str, KafkaError | None]:
    """Delete topics; the result is None or an error by name.

    The cached metadata of these topics is outdated afterwards, even if a deletion failed.
    """
    topic_names = several(names)

    async def ask(names: Mapping[str, None]) -> dict[str, KafkaError | None]:
        request = DeleteTopicsRequest(
            topics=tuple(
                DeleteTopicState(name=KioTopicName(name), topic_id=None) for name in names
            ),
            timeout=timeout_of(cluster),
        )
        response = await ask_any(cluster, request, subject="delete_topics")
        for name in names:
            cluster.outdate(name)
        return _outcomes(cluster, response.responses, operation="DELETE")

    names = dict.fromkeys(topic_names)
    answered = await until_allowed(cluster, names, ask, subject="delete_topics")
    return by_item(topic_names, answered, "topic")


@call
async def create_partitions(
    cluster: Cluster,
    counts: Mapping[str, int],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> dict[str, KafkaError | None]:
    """Increase the number of partitions of topics to the numbers in ``counts``.

    The cached metadata of these topics is outdated afterwards.
    """

    async def ask(remaining: Mapping[str, int]) -> dict[str, KafkaError | None]:
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=KioTopicName(name), count=i32(count), assignments=None)
                for name, count in remaining.items()
            ),
            timeout=timeout_of(cluster),
            validate_only=validate_only,
        )
        response = await ask_any(cluster, request, subject="create_partitions")
        for name in remaining:
            cluster.outdate(name)
        return _outcomes(cluster, response.results, operation="ALTER")

    answered = await until_allowed(cluster, counts, ask, subject="create_partitions")
    return by_item(counts, answered, "topic")


@call
async def list_topics(
    cluster: Cluster, *, internal: bool = False, timeout: float | None = None
) -> list[str]:
    """Return the sorted names of all topics; internal topics only with ``internal=True``.

    Those of sharegroup, such as ``__sharegroup.jobs``, are internal, too.
    """
    return sorted(
        name
        for name, topic in (await describe_topics(cluster)).items()
        if isinstance(topic, TopicDescription) and (internal or not topic.is_hidden)
    )


@call
async def describe_topics(
    cluster: Cluster,
    names: Iterable[str] | None = None,
    *,
    include_authorized_operations: bool = False,
    operation: str | None = None,
    timeout: float | None = None,
) -> dict[str, TopicDescription | KafkaError]:
    """Describe these topics, or all topics: topic id, partitions and leaders.

    With ``include_authorized_operations`` also the operations that the user may perform.
    ``operation`` is the ACL operation that the caller needs on the topics, for the text of a
    refusal; None means the one of the client's config.
    """
    operation = operation or cluster.config.topic_operation
    topic_names = None if names is None else several(names)
    response = await cluster.retrying(
        lambda: cluster.ask_metadata(
            topic_names, authorized_operations=include_authorized_operations
        ),
        subject="describe_topics",
    )
    results = {
        str(described.name): _described(described)
        if described.error_code in (NONE, LeaderNotAvailable.code)
        else topic_refusal(described, operation, cluster.principal)
        for described in response.topics
        if described.name is not None
    }
    return results if topic_names is None else by_item(topic_names, results, "topic")


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    return TopicDescription(
        str(topic.name),
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                int(partition.partition_index),
                int(partition.leader_id),
                known(partition.leader_epoch),
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
                tuple(map(int, partition.offline_replicas)),
            )
            for partition in partitions
        ),
        operations_of(topic.topic_authorized_operations),
    )


@call
async def describe_topics_by_id(
    cluster: Cluster,
    topic_ids: Iterable[UUID],
    *,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> dict[UUID, TopicDescription | KafkaError]:
    """Describe topics by their ids; a topic that was created again has another id."""
    ids = tuple(topic_ids)
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=include_authorized_operations,
    )
    # Brokers before Kafka 3.1 cannot look up a topic by its id.
    response = await ask_any(
        cluster, request, subject="describe_topics_by_id", version_min=BY_TOPIC_ID
    )
    answered = {
        described.topic_id: _described(described)
        if described.error_code in (NONE, LeaderNotAvailable.code)
        else refused(
            described.error_code,
            None,
            operation="DESCRIBE",
            principal=cluster.principal,
            topic_id=str(described.topic_id),
        )
        for described in response.topics
        if described.topic_id is not None
    }
    return by_item(ids, answered, "topic id")


@call
async def describe_cluster(
    cluster: Cluster,
    *,
    include_fenced: bool = False,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> ClusterDescription:
    """Describe the cluster: its id, controller and brokers.

    With ``include_fenced`` also the brokers that are registered but not running.
    """
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        include_fenced_brokers=include_fenced,
    )
    response = await ask_any(cluster, request, subject="describe_cluster")
    check(cluster, response, request="describe_cluster")
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(
            NodeDescription(
                broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced
            )
            for broker in response.brokers
        ),
        operations_of(response.cluster_authorized_operations),
    )


@call
async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
) -> dict[TopicPartition, int | KafkaError]:
    """Delete the records before these offsets; return the new log start offsets.

    The requests go to the partition leaders.  The offset -1 means the high watermark: it deletes
    all records of the partition.
    """

    def request(part: Mapping[TopicPartition, int], _: Mapping[str, Topic]) -> DeleteRecordsRequest:
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

    return await ask_leaders(
        cluster,
        offsets,
        LeaderRequest(make=request, read=_log_start, operation="DELETE"),
        subject="delete_records",
    )


def _log_start(partition: Any) -> int:
    return int(partition.low_watermark)
