"""The two requests of a share session, as messages of their newest version.

A broker that serves only version 1 gets them without the acquire mode, and works as
``batch_optimized`` does; who asks for something else is refused before (`share_session`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
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
from sharegroup.client.consumer_config import AcquireMode
from sharegroup.client.node_session import Acks, SessionRequest
from sharegroup.ids import GroupId, MemberId, TopicPartition

ACQUIRE_MODES: dict[AcquireMode, int] = {"batch_optimized": 0, "record_limit": 1}


class SessionMember(NamedTuple):
    """Whose session it is: a broker knows sessions by group and member."""

    group_id: GroupId
    member_id: MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much one ShareFetch may bring, and how long it may wait for it."""

    max_records: int
    """Over all partitions; with batch_optimized a log batch more than that may come."""
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    acquire_mode: AcquireMode = "batch_optimized"


def fetch_request(
    member: SessionMember, session: SessionRequest, acks: Acks, limits: FetchLimits
) -> ShareFetchRequest:
    """The next ShareFetch of a session."""
    return ShareFetchRequest(
        group_id=KioGroupId(member.group_id),
        member_id=member.member_id,
        share_session_epoch=i32(session.epoch),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=limits.max_wait_ms)),
        min_bytes=i32(limits.min_bytes),
        max_bytes=i32(limits.max_bytes),
        max_records=i32(limits.max_records),
        batch_size=i32(limits.max_records),
        share_acquire_mode=i8(ACQUIRE_MODES[limits.acquire_mode]),
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
    member: SessionMember, epoch: int, acks: Acks, *, renew: bool
) -> ShareAcknowledgeRequest:
    """Acknowledgements alone, or with epoch -1 the end of a session."""
    return ShareAcknowledgeRequest(
        group_id=KioGroupId(member.group_id),
        member_id=member.member_id,
        share_session_epoch=i32(epoch),
        is_renew_ack=renew,
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
