"""The requests of simulated clients, each in the version that names topics by their id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_groups.v2 import request as delete_groups
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_share_group_offsets.v0 import request as delete_offsets
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.fetch.v18 import request as fetch
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.list_offsets.v9 import request as list_offsets
from kio.schema.metadata.v13 import request as metadata
from kio.schema.produce.v13 import request as produce
from kio.schema.share_group_heartbeat.v1 import request as heartbeat

from sharegroup.protocol_enums import GROUPS_DELAY
from sharegroup.wire.messages import (
    describe_share_group_offsets_v1 as describe_offsets,
    share_acknowledge_v2 as share_acknowledge,
    share_fetch_v2 as share_fetch,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

GROUP_RESOURCE = 32
TOPIC_RESOURCE = 2

IN_DOUBT = (15, 16, 56)
"""COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR and KAFKA_STORAGE_ERROR: the disk failed, and nobody
knows whether it has what was written."""

NO_SUCH_TOPIC = (3, 100)
"""UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID: it was deleted."""


class Partition(NamedTuple):
    """A partition of a topic that may be gone by now."""

    topic_id: UUID
    index: int


class AckRange(NamedTuple):
    """Inclusive, as it is on the wire."""

    first: int
    last: int
    types: tuple[int, ...]
    delay_ms: int = GROUPS_DELAY
    """Of the records that it releases."""


Acks = Mapping[Partition, Sequence[AckRange]]

SECOND = timedelta(seconds=1)

RUNS_MAX = 20
"""Runs that are asked for with the offsets of a group."""


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def key_of(value: bytes) -> bytes | None:
    """The key of a record with this value: one of a few, or none."""
    number = crc32(value) % 5
    return b"key-%d" % number if number else None


def by_topic(partitions: Iterable[Partition]) -> dict[UUID, list[int]]:
    """Indexes in order, by topic."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in partitions:
        topics.setdefault(topic_id, []).append(index)
    return topics


def make_share_fetch(
    group: str,
    member_id: str,
    epoch: int,
    *,
    partitions: Iterable[Partition],
    forgotten: Iterable[Partition] = (),
    acks: Acks | None = None,
    records_max: int = 100,
    wait_ms: int = 0,
    mode: int = 0,
    renewing: bool = False,
) -> share_fetch.ShareFetchRequest:
    acks = acks or {}
    named = by_topic(dict.fromkeys((*partitions, *acks)))
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait=milliseconds(0 if renewing else wait_ms),
        min_bytes=0 if renewing else 1,
        max_bytes=0 if renewing else 1 << 20,
        max_records=0 if renewing else records_max,
        batch_size=records_max,
        share_acquire_mode=mode,
        is_renew_ack=renewing,
        topics=tuple(
            share_fetch.FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    share_fetch.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=_ack_batches(
                            share_fetch, acks.get(Partition(topic_id, index), ())
                        ),
                    )
                    for index in indexes
                ),
            )
            for topic_id, indexes in named.items()
        ),
        forgotten_topics_data=tuple(
            share_fetch.ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
            for topic_id, indexes in by_topic(forgotten).items()
        ),
    )


def make_share_acknowledge(
    group: str, member_id: str, epoch: int, acks: Acks, *, renewing: bool = False
) -> share_acknowledge.ShareAcknowledgeRequest:
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=renewing,
        topics=tuple(
            share_acknowledge.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    share_acknowledge.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=_ack_batches(
                            share_acknowledge, acks[Partition(topic_id, index)]
                        ),
                    )
                    for index in indexes
                ),
            )
            for topic_id, indexes in by_topic(acks).items()
        ),
    )


def _ack_batches(module: Any, ranges: Iterable[AckRange]) -> tuple[Any, ...]:
    return tuple(
        module.AcknowledgementBatch(
            first_offset=first,
            last_offset=last,
            acknowledge_types=types,
            redelivery_delay_ms=delay_ms,
        )
        for first, last, types, delay_ms in ranges
    )


def make_heartbeat(
    group: str, member_id: str, epoch: int, topics: Sequence[str] | None
) -> heartbeat.ShareGroupHeartbeatRequest:
    return heartbeat.ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=None if topics is None else tuple(topics),
    )


def make_produce(partition: Partition, batch: bytes, *, acks: int) -> produce.ProduceRequest:
    partition_entry = produce.PartitionProduceData(index=partition.index, records=batch)
    topic = produce.TopicProduceData(topic_id=partition.topic_id, partition_data=(partition_entry,))
    return produce.ProduceRequest(
        transactional_id=None, acks=acks, timeout=SECOND, topic_data=(topic,)
    )


def make_fetch(
    partition: Partition, offset: int, *, wait_ms: int = 0, isolation: int = 0
) -> fetch.FetchRequest:
    partition_entry = fetch.FetchPartition(
        partition=partition.index, fetch_offset=offset, partition_max_bytes=1 << 16
    )
    return fetch.FetchRequest(
        max_wait=milliseconds(wait_ms),
        min_bytes=1,
        isolation_level=isolation,
        topics=(fetch.FetchTopic(topic_id=partition.topic_id, partitions=(partition_entry,)),),
        forgotten_topics_data=(),
    )


def make_list_offsets(name: str, index: int, timestamp: int) -> list_offsets.ListOffsetsRequest:
    partition = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    topic = list_offsets.ListOffsetsTopic(name=name, partitions=(partition,))
    return list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))


def make_metadata(*names: str) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=tuple(metadata.MetadataRequestTopic(topic_id=None, name=name) for name in names),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def make_init_producer_id() -> init_producer_id.InitProducerIdRequest:
    return init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout=SECOND)


def make_create_topic(name: str, partitions: int) -> create_topics.CreateTopicsRequest:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    return create_topics.CreateTopicsRequest(topics=(topic,), timeout=SECOND)


def make_create_partitions(name: str, count: int) -> create_partitions.CreatePartitionsRequest:
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return create_partitions.CreatePartitionsRequest(
        topics=(topic,), timeout=SECOND, validate_only=False
    )


def make_delete_topic(name: str) -> delete_topics.DeleteTopicsRequest:
    topic = delete_topics.DeleteTopicState(name=name, topic_id=None)
    return delete_topics.DeleteTopicsRequest(topics=(topic,), timeout=SECOND)


def make_delete_records(name: str, index: int, offset: int) -> delete_records.DeleteRecordsRequest:
    partition = delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name=name, partitions=(partition,))
    return delete_records.DeleteRecordsRequest(topics=(topic,), timeout=SECOND)


def make_alter_config(
    kind: int, name: str, settings: Mapping[str, str]
) -> alter_configs.IncrementalAlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            alter_configs.AlterableConfig(name=key, config_operation=0, value=value)
            for key, value in settings.items()
        ),
    )
    return alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def make_describe_offsets(
    group: str, topics: Mapping[str, int] | None = None
) -> describe_offsets.DescribeShareGroupOffsetsRequest:
    """Of partitions 0 to n - 1 of each topic, or of all there are."""
    wanted = None
    if topics is not None:
        wanted = tuple(
            describe_offsets.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=tuple(range(count))
            )
            for name, count in topics.items()
        )
    group_entry = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=group, topics=wanted
    )
    return describe_offsets.DescribeShareGroupOffsetsRequest(
        groups=(group_entry,), runs_max=RUNS_MAX
    )


def make_alter_offset(
    group: str, topic: str, index: int, offset: int
) -> alter_offsets.AlterShareGroupOffsetsRequest:
    partition = alter_offsets.AlterShareGroupOffsetsRequestPartition(
        partition_index=index, start_offset=offset
    )
    named = alter_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name=topic, partitions=(partition,)
    )
    return alter_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=(named,))


def make_delete_offsets(group: str, topic: str) -> delete_offsets.DeleteShareGroupOffsetsRequest:
    named = delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
    return delete_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=(named,))


def make_delete_group(group: str) -> delete_groups.DeleteGroupsRequest:
    return delete_groups.DeleteGroupsRequest(groups_names=(group,))
