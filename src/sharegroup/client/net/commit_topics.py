"""The topics of a request that commits offsets, in a transaction or outside of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from sharegroup.client.net.leader_requests import by_topic
from sharegroup.client.records import OffsetAndMetadata, TopicPartition

Topic = TypeVar("Topic")


def commit_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_class: Callable[..., Topic],
    partition_class: Callable[..., Any],
) -> tuple[Topic, ...]:
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
