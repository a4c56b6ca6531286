"""The two requests of a share session, as messages of their newest version.

A broker that serves only version 1 gets them without the acquire mode; it then always works
as ``batch_optimized`` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from kio.schema.share_acknowledge.v2.request import (
    AcknowledgementBatch as AcknowledgeBatch,
)
from kio.schema.share_acknowledge.v2.request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kio.schema.share_fetch.v2.request import (
    AcknowledgementBatch as FetchBatch,
)
from kio.schema.share_fetch.v2.request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.acknowledgements import AckBatch
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.node_session import Acks, SessionRequest
from sharegroup.ids import TopicPartition

ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}


def fetch_request(
    session: SessionRequest,
    acks: Acks,
    config: ShareConsumerConfig,
    *,
    member_id: str,
    max_records: int,
) -> ShareFetchRequest:
    """The next ShareFetch of a session."""
    return ShareFetchRequest(
        group_id=KioGroupId(config.group_id),
        member_id=member_id,
        share_session_epoch=i32(session.epoch),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=config.fetch_max_wait_ms)),
        min_bytes=i32(config.fetch_min_bytes),
        max_bytes=i32(config.fetch_max_bytes),
        max_records=i32(max_records),
        batch_size=i32(max_records),
        share_acquire_mode=i8(ACQUIRE_MODES[config.share_acquire_mode]),
        topics=tuple(
            FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    FetchPartition(
                        partition_index=i32(key.partition),
                        acknowledgement_batches=tuple(
                            FetchBatch(
                                first_offset=i64(batch.first),
                                last_offset=i64(batch.end - 1),
                                acknowledge_types=_types(batch),
                            )
                            for batch in acks.get(key, ())
                        ),
                    )
                    for key in keys
                ),
            )
            for topic_id, keys in _by_topic(session.named)
        ),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic_id=topic_id, partitions=tuple(i32(key.partition) for key in keys))
            for topic_id, keys in _by_topic(session.forgotten)
        ),
    )


def acknowledge_request(
    epoch: int, acks: Acks, config: ShareConsumerConfig, *, member_id: str
) -> ShareAcknowledgeRequest:
    """Acknowledgements alone, or with epoch -1 the end of a session."""
    return ShareAcknowledgeRequest(
        group_id=KioGroupId(config.group_id),
        member_id=member_id,
        share_session_epoch=i32(epoch),
        topics=tuple(
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    AcknowledgePartition(
                        partition_index=i32(key.partition),
                        acknowledgement_batches=tuple(
                            AcknowledgeBatch(
                                first_offset=i64(batch.first),
                                last_offset=i64(batch.end - 1),
                                acknowledge_types=_types(batch),
                            )
                            for batch in acks[key]
                        ),
                    )
                    for key in keys
                ),
            )
            for topic_id, keys in _by_topic(acks)
        ),
    )


def _types(batch: AckBatch) -> tuple[i8, ...]:
    # Not i8(...) for each: that checks the range in Python, and the types are ours.
    return batch.types  # type: ignore[return-value]


def _by_topic(
    keys: Iterable[TopicPartition],
) -> Iterable[tuple[UUID, list[TopicPartition]]]:
    topics: dict[UUID, list[TopicPartition]] = defaultdict(list)
    for key in keys:
        topics[key.topic_id].append(key)
    return topics.items()
