"""The runs of a share group: which offsets are available, acquired, settled, and by whom.

They come from the coordinator by fields of our own in DescribeShareGroupOffsets, in pages.  Apache
Kafka does not know these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32, i64

from sharegroup.client.admin.calls import by_item, call, known, outcome
from sharegroup.client.admin.groups import ask_about_group
from sharegroup.client.admin.types import SharePartitionRuns, ShareRun
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.leader_requests import by_topic
from sharegroup.client.records import TopicPartition
from sharegroup.core.delivery.delivery import RecordState
from sharegroup.errors import KafkaError, UnknownServerError, UnsupportedVersion
from sharegroup.wire.messages.describe_share_group_offsets_v1 import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    OffsetRun,
)

STATES = {int(state): state.name.lower() for state in RecordState}

RUNS_DEFAULT = 1_000
RUNS_MAX = 2**31 - 1


@call
async def list_share_group_runs(
    cluster: Cluster,
    group_id: str,
    partitions: Mapping[TopicPartition, int] | None = None,
    *,
    runs_max: int = RUNS_DEFAULT,
    timeout: float | None = None,
) -> dict[TopicPartition, SharePartitionRuns | KafkaError]:
    """Return a page of the runs of a share group: offsets with one state and one delivery count.

    ``partitions`` has the first offset of the page for each partition; None means all partitions of
    the group, from their start.  All partitions together have ``runs_max`` runs, or fewer if the
    broker returns fewer.  If ``next_offset`` of a partition is not None, the next page of it begins
    there; it may begin where this page does.  Offsets from ``end_offset`` to the high watermark
    were never delivered and have no run.

    Needs DESCRIBE on the group and on the topics.  Raises UnsupportedVersion if the broker lists no
    runs, as Apache Kafka does not; `sharegroup groups inspect` reads the durable ones from
    `__share_group_state` there.
    """
    if runs_max < 1:
        raise ValueError(f"expected runs_max of 1 or more, got {runs_max}")
    request = DescribeShareGroupOffsetsRequest(
        groups=(
            DescribeShareGroupOffsetsRequestGroup(
                group_id=KioGroupId(group_id),
                topics=None if partitions is None else _asked(partitions),
            ),
        ),
        runs_max=i32(min(runs_max, RUNS_MAX)),
    )
    group = await ask_about_group(cluster, group_id, request)
    found = {
        TopicPartition(topic.topic_name, partition.partition_index): _runs(
            cluster, group_id, topic.topic_name, partition
        )
        for topic in group.topics
        for partition in topic.partitions
    }
    return found if partitions is None else by_item(partitions, found, "partition")


def _asked(
    partitions: Mapping[TopicPartition, int],
) -> tuple[DescribeShareGroupOffsetsRequestTopic, ...]:
    return tuple(
        DescribeShareGroupOffsetsRequestTopic(
            topic_name=KioTopicName(topic),
            partitions=tuple(map(i32, firsts)),
            first_offsets=tuple(map(i64, firsts.values())),
        )
        for topic, firsts in by_topic(partitions).items()
    )


def _runs(
    cluster: Cluster, group_id: str, topic: str, partition: Any
) -> SharePartitionRuns | KafkaError:
    index = partition.partition_index
    error = outcome(cluster, partition, "DESCRIBE", topic=topic, partition=index)
    if error is not None:
        return error
    found = getattr(partition, "runs", None)  # Version 0 does not have the field.
    if found is None or found.run_count < 0:
        raise UnsupportedVersion(
            f"group {group_id!r}: the broker does not list the runs of share groups, as Apache "
            "Kafka and older brokers do not; the durable runs are in __share_group_state, which "
            "`sharegroup groups inspect` reads"
        )
    runs = tuple(_run(run) for run in found.runs)
    end = -1
    for run in runs:
        if not end < run.first_offset <= run.last_offset:
            raise UnknownServerError(
                f"group {group_id!r} topic {topic!r} partition {index}: expected ascending runs of "
                f"offsets, the broker listed {run} after offset {end}"
            )
        end = run.last_offset
    return SharePartitionRuns(
        start_offset=known(partition.start_offset),
        end_offset=known(found.end_offset),
        high_watermark=found.high_watermark,
        run_count=found.run_count,
        runs=runs,
        next_offset=known(found.next_offset),
    )


def _run(run: OffsetRun) -> ShareRun:
    state = STATES.get(run.state)
    if state is None:
        raise UnknownServerError(
            f"offsets {run.first_offset} to {run.last_offset}: expected a state of "
            f"{sorted(STATES)}, the broker sent {run.state}"
        )
    return ShareRun(
        run.first_offset,
        run.last_offset,
        state,
        run.delivery_count,
        run.member_id,
        known(run.lock_ms_left),
    )
