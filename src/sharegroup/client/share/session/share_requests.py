"""A share session with one broker, and its two requests as messages of their newest version.

A broker that serves only version 1 gets them without the acquire mode, and behaves like
``batch_optimized``.  `share_session` refuses other acquire modes for such a broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeVar
from uuid import UUID

from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from sharegroup.client.share.session.acknowledgements import AcknowledgementBatch
from sharegroup.ids import GroupId, MemberId, TopicIdPartition
from sharegroup.protocol_enums import ACQUIRE_MODE_CODES, AcquireMode
from sharegroup.wire.messages.share_acknowledge_v2 import (
    AcknowledgementBatch as AcknowledgeBatchMessage,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from sharegroup.wire.messages.share_fetch_v2 import (
    AcknowledgementBatch as FetchBatchMessage,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

# The client's side of a share session with one broker, without I/O (KIP-932 «Share sessions»).
#
# In a session, client and broker agree on the partitions to fetch, so a request names only changes.
# They also agree on the session epoch, which every request raises, so that a lost or duplicated
# request is noticed.
#
#     epoch 0 (open, all partitions) -> 1 -> 2 -> ... -> 2147483647 -> 1
#     epoch -1: close; the broker releases the records still held
#
# The request that opens a session cannot carry acknowledgements, because no record is held yet.
# After any failure a new session is the only safe step.


OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Message = TypeVar("Message")
Acks = Mapping[TopicIdPartition, tuple[AcknowledgementBatch, ...]]


@dataclass(frozen=True, slots=True)
class ShareSessionRequest:
    """The session epoch and the partitions that one request names."""

    epoch: int
    named: tuple[TopicIdPartition, ...]
    """Partitions that join the session, and partitions that only carry acknowledgements."""
    forgotten: tuple[TopicIdPartition, ...]


class NodeSession:
    """The epoch and partitions of a share session.

    Requests are sent one at a time: call `fetch` (or read `epoch`), then `answered` or `lose`.
    """

    __slots__ = ("_epoch", "_partitions", "_wanted")

    def __init__(self) -> None:
        self._epoch = OPEN_EPOCH
        self._partitions: dict[TopicIdPartition, None] = {}
        self._wanted: tuple[TopicIdPartition, ...] = ()
        """The same as `_partitions`, as the last fetch gave them."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session, as far as the client knows."""
        return self._epoch != OPEN_EPOCH

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def fetch(self, wanted: Iterable[TopicIdPartition], acks: Acks) -> ShareSessionRequest:
        """Return the session part of the next ShareFetch, which fetches the ``wanted`` partitions.

        The request also names the partitions of ``acks``, to carry their acknowledgements.
        """
        assert self.is_open or not acks, "the request that opens a session carries no acks"
        wanted = tuple(wanted)
        # The usual case, without hashes of the keys: a broker that has records waits for this.
        if wanted == self._wanted and acks.keys() <= self._partitions.keys():
            return ShareSessionRequest(self._epoch, tuple(acks), ())
        target = dict.fromkeys(wanted)
        named = [key for key in target if key not in self._partitions]
        # Acknowledging a partition adds it to the session, so the request has to remove it, too.
        strangers = [key for key in acks if key not in target]
        forgotten = [key for key in self._partitions if key not in target]
        forgotten += [key for key in strangers if key not in self._partitions]
        acked = [key for key in acks if key not in named]
        self._partitions, self._wanted = target, wanted
        return ShareSessionRequest(self._epoch, (*named, *acked), tuple(forgotten))

    def answered(self) -> None:
        """Note that the broker accepted the request, so it expects the next epoch now."""
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lose(self) -> None:
        """Note that the session is lost or in doubt; the next request opens a new one."""
        self._epoch = OPEN_EPOCH
        self._partitions, self._wanted = {}, ()


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
    without_records: bool = False
    """Whether the answer need only list the log batches.  Brokers other than ours send them."""


def fetch_request(
    member: SessionMember, session: ShareSessionRequest, acks: Acks, limits: FetchLimits
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
        # As in Java's `ShareSessionHandler`, which sends max.poll.records for both.
        batch_size=i32(limits.max_records),
        share_acquire_mode=i8(ACQUIRE_MODE_CODES[limits.acquire_mode]),
        without_records=limits.without_records,
        topics=tuple(
            FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    FetchPartition(
                        partition_index=i32(key.partition),
                        acknowledgement_batches=_messages(FetchBatchMessage, acks.get(key, ())),
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
                        acknowledgement_batches=_messages(AcknowledgeBatchMessage, acks[key]),
                    )
                    for key in keys
                ),
            )
            for topic_id, keys in _by_topic(acks)
        ),
    )


def _messages(
    kind: Callable[..., Message], batches: Iterable[AcknowledgementBatch]
) -> tuple[Message, ...]:
    """Return the acknowledgement batches as messages of a request's class."""
    return tuple(
        kind(
            first_offset=i64(batch.first_offset),
            last_offset=i64(batch.last_offset),
            # Not converted to i8 one by one: that would check ranges in Python, and these are
            # valid.
            acknowledge_types=batch.acknowledge_types,
            redelivery_delay_ms=batch.delay_ms,
        )
        for batch in batches
    )


def _by_topic(keys: Iterable[TopicIdPartition]) -> Iterable[tuple[UUID, list[TopicIdPartition]]]:
    topics: dict[UUID, list[TopicIdPartition]] = defaultdict(list)
    for key in keys:
        topics[key.topic_id].append(key)
    return topics.items()
