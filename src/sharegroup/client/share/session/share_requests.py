"""Makes the two requests of a share session, as messages of their newest version.

A broker that serves only version 1 gets them without the acquire mode, and behaves like
``batch_optimized``.  `share_session` refuses other acquire modes for such a broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from kio.schema.share_acknowledge.v2.request import (
    AcknowledgementBatch as AcknowledgeBatchMessage,
)
from kio.schema.share_acknowledge.v2.request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kio.schema.share_fetch.v2.request import (
    AcknowledgementBatch as FetchBatchMessage,
)
from kio.schema.share_fetch.v2.request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.share.session.acknowledgements import AcknowledgementBatch
from sharegroup.client.share.session.node_session import Acks, SessionRequest
from sharegroup.ids import GroupId, MemberId, TopicIdPartition
from sharegroup.protocol_enums import ACQUIRE_MODE_CODES, AcquireMode


class SessionMember(NamedTuple):
    """The group and member of a share session, by which the broker identifies it."""

    group_id: GroupId
    member_id: MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of one ShareFetch: records, bytes and the time to wait for records."""

    max_records: int
    """Maximum over all partitions; batch_optimized may exceed it by up to a log batch."""
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


def fetch_request(
    member: SessionMember, session: SessionRequest, acks: Acks, limits: FetchLimits
) -> ShareFetchRequest:
    """Make the next ShareFetch of a session."""
    return ShareFetchRequest(
        group_id=KioGroupId(member.group_id),
        member_id=member.member_id,
        share_session_epoch=i32(session.epoch),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=limits.max_wait_ms)),
        min_bytes=i32(limits.min_bytes),
        max_bytes=i32(limits.max_bytes),
        max_records=i32(limits.max_records),
        batch_size=i32(limits.max_records),
        share_acquire_mode=i8(ACQUIRE_MODE_CODES[limits.acquire_mode]),
        topics=tuple(
            FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    FetchPartition(
                        partition_index=i32(key.partition),
                        acknowledgement_batches=tuple(
                            FetchBatchMessage(
                                first_offset=i64(batch.first_offset),
                                last_offset=i64(batch.last_offset),
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
    """Make a ShareAcknowledge request; with epoch -1 it also ends the session."""
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
                            AcknowledgeBatchMessage(
                                first_offset=i64(batch.first_offset),
                                last_offset=i64(batch.last_offset),
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


def _types(batch: AcknowledgementBatch) -> tuple[i8, ...]:
    # Not converted to i8 one by one: that would check ranges in Python, and these are valid.
    return batch.acknowledge_types  # type: ignore[return-value]


def _by_topic(
    keys: Iterable[TopicIdPartition],
) -> Iterable[tuple[UUID, list[TopicIdPartition]]]:
    topics: dict[UUID, list[TopicIdPartition]] = defaultdict(list)
    for key in keys:
        topics[key.topic_id].append(key)
    return topics.items()
