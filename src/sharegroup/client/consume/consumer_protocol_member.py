"""The membership in a consumer group of the protocol ``consumer`` (KIP-848).

The group coordinator assigns.  Heartbeats carry what has changed, and their answers the member
epoch and, when it changes, the target assignment.  The member then gives up partitions, takes new
ones, and confirms with the list of those that it owns; heartbeats go on meanwhile.

    0 join --> n --> target --> revoke, assign (in a poll) --> owned partitions --> n + 1 ...
       ^       |
       '--fenced or unknown: the partitions are lost; join again with the same member id
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32, i32Timedelta

from sharegroup.client.consume.coordinator_requests import (
    IN_VAIN_MAX,
    NO_GENERATION,
    CoordinatorContact,
    MemberParts,
)
from sharegroup.client.consume.handover import AssignmentChange, ChangeKind
from sharegroup.client.net.refusals import may_pass
from sharegroup.client.records import TopicPartition
from sharegroup.client.share.member.membership import (
    INTERVAL_MS_DEFAULT,
    checked_epoch,
    interval_ms_of,
)
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from sharegroup.ids import TopicId, TopicIdPartition

log = logging.getLogger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Leave for now: the partitions stay assigned to the static member until its session ends."""


class ConsumerProtocolMember:
    """One member of a consumer group whose partitions the group coordinator assigns."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self._group_id = parts.group_id
        self._wake = asyncio.Event()
        self._interval_ms = INTERVAL_MS_DEFAULT
        self._target: frozenset[TopicIdPartition] | None = None
        """The assignment that the coordinator wants; None if it has sent none since the join."""
        self._made: frozenset[TopicIdPartition] = frozenset()
        """The partitions of the last target that this member has made its own."""
        self._told_subscription: tuple[frozenset[str], str | None] | None = None
        self._told_made: frozenset[TopicIdPartition] | None = None
        self._reconciling: asyncio.Task[None] | None = None
        self._may_be_member = False
        """Whether the coordinator may count this member; also if a join was not answered."""
        self.contact = CoordinatorContact(parts)
        self.failure: KafkaError | None = None
        """The error that ended the membership; None while `run` goes on."""

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of its group, as far as the coordinator answers."""
        return self.contact.is_member(self._interval_ms)

    def topics_changed(self) -> None:
        """Send the subscription if it has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Join the group and stay a member until a fatal error; then return."""
        backoff = self._parts.cluster.backoff()
        in_vain = 0
        try:
            while self.failure is None:
                self._wake.clear()
                if not self._parts.topics.is_listed:
                    await self._wake.wait()
                    continue
                try:
                    await self._beat()
                except (FencedMemberEpoch, UnknownMemberId) as error:
                    await self._lose(error)
                    in_vain += 1
                    if in_vain > IN_VAIN_MAX:
                        await asyncio.sleep(backoff.next_ms() / 1000)
                except KafkaError as error:
                    # The coordinator may not have processed the request, so the next one says all
                    # of it again.
                    self._told_subscription = self._told_made = None
                    # UNRELEASED_INSTANCE_ID passes when the session of the killed process ends
                    # (docs/differences.md).
                    if not may_pass(error) and not isinstance(error, UnreleasedInstanceId):
                        self.failure = error
                        self._parts.changed()
                        return
                    self.contact.failed(error)
                    await asyncio.sleep(backoff.next_ms() / 1000)
                else:
                    backoff.reset()
                    in_vain = 0
                    await self._pause()
        finally:
            await self._stop_reconciling()

    async def leave(self) -> None:
        """Leave the group; a static member keeps its partitions.  `run` must have ended before."""
        identity = self._parts.identity
        was_member = identity.epoch > JOIN_EPOCH or (self._may_be_member and self.failure is None)
        # Before the request: whatever becomes of it, the next heartbeat joins.
        identity.epoch = NO_GENERATION
        self._may_be_member = False
        self._forget()
        if not was_member:
            return
        is_static = identity.instance_id is not None
        leaving = ConsumerGroupHeartbeatRequest(
            group_id=KioGroupId(self._group_id),
            member_id=identity.member_id,
            member_epoch=i32(STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH),
            instance_id=identity.instance_id,
            rack_id=None,
            server_assignor=None,
            topic_partitions=None,
        )
        # The errors of a coordinator that does not count this member: the join was lost, too.
        with suppress(UnknownMemberId, GroupIdNotFound, FencedInstanceId):
            await self.contact.ask(leaving)

    # Heartbeats.

    async def _beat(self) -> None:
        request, subscription, made = self._request()
        self._parts.metrics.heartbeat.add()
        self._parts.metrics.last_heartbeat.mark()
        started_at = time.monotonic()
        response = await self.contact.ask(request, sending=self._note_sent)
        self._parts.metrics.heartbeat_ms.observe((time.monotonic() - started_at) * 1000)
        self._parts.identity.epoch = checked_epoch(
            response.member_epoch, self._group_id, self._parts.identity.member_id
        )
        self._interval_ms = interval_ms_of(response.heartbeat_interval)
        # Only after the answer, and as they were sent: either may have changed during the request.
        self._told_subscription, self._told_made = subscription, made
        if response.assignment is not None:
            self._target = frozenset(
                TopicIdPartition(TopicId(topic.topic_id), int(partition))
                for topic in response.assignment.topic_partitions
                if topic.topic_id is not None
                for partition in topic.partitions
            )
        if self._target is not None and self._target != self._made:
            self._reconcile()

    def _note_sent(self) -> None:
        self._may_be_member = True

    def _request(
        self,
    ) -> tuple[
        ConsumerGroupHeartbeatRequest,
        tuple[frozenset[str], str | None],
        frozenset[TopicIdPartition],
    ]:
        """Return the next heartbeat, and the subscription and partitions that it tells."""
        config, identity = self._parts.config, self._parts.identity
        joins = identity.epoch in (JOIN_EPOCH, NO_GENERATION)
        topics, pattern = self._parts.topics.subscribed, self._parts.broker_pattern()
        subscription, made = (topics, pattern), self._made
        tells_subscription = joins or self._told_subscription != subscription
        tells_made = joins or self._told_made != made
        # KIP-848: -1 and null mean unchanged since the last heartbeat.  After an error all is said
        # again, for the lost answer may have had an assignment: a coordinator repeats that only for
        # a request that has a rebalance timeout, a subscription and partitions.
        is_whole = joins or self._told_made is None
        rebalance_timeout = timedelta(milliseconds=config.max_poll_interval_ms if is_whole else -1)
        names = tuple(map(KioTopicName, sorted(topics)))
        return (
            ConsumerGroupHeartbeatRequest(
                group_id=KioGroupId(self._group_id),
                member_id=identity.member_id,
                member_epoch=i32(JOIN_EPOCH if joins else identity.epoch),
                instance_id=identity.instance_id if is_whole else None,
                rack_id=config.client_rack if is_whole else None,
                rebalance_timeout=i32Timedelta.parse(rebalance_timeout),
                subscribed_topic_names=names if tells_subscription else None,
                # An empty pattern ends the subscription by a pattern.
                subscribed_topic_regex=(pattern or "")
                if tells_subscription and (pattern or not joins)
                else None,
                server_assignor=config.group_remote_assignor if is_whole else None,
                topic_partitions=_by_topic_id(made) if tells_made else None,
            ),
            subscription,
            made,
        )

    async def _pause(self) -> None:
        """Wait for the time of the next heartbeat, or for something to tell."""
        try:
            async with asyncio.timeout(self._interval_ms / 1000):
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    # The watch of the topics also wakes it for changes that the group need not
                    # know.
                    subscription = self._parts.topics.subscribed, self._parts.broker_pattern()
                    if self._told_subscription != subscription or self._told_made != self._made:
                        return
        except TimeoutError:
            return

    async def _lose(self, error: KafkaError) -> None:
        log.warning(
            "event=group.lost group=%s member=%s epoch=%s reason='%s' action='the member joins "
            "again'",
            self._group_id,
            self._parts.identity.member_id,
            self._parts.identity.epoch,
            error,
        )
        # A coordinator that fences an epoch knows the member by another epoch.
        self._may_be_member = isinstance(error, FencedMemberEpoch)
        await self._stop_reconciling()
        self._parts.identity.epoch = NO_GENERATION
        self._forget()
        if owned := self._parts.owned():
            await self._parts.handover.ask(AssignmentChange(ChangeKind.LOST, owned))

    def _forget(self) -> None:
        self._target, self._made = None, frozenset()
        self._told_subscription = self._told_made = None

    # The assignment.

    def _reconcile(self) -> None:
        if self._reconciling is None or self._reconciling.done():
            self._reconciling = asyncio.create_task(
                self._reconciled(), name=f"assignment {self._group_id}"
            )

    async def _reconciled(self) -> None:
        """Make the target assignment this member's own; a target that changes is made, too."""
        backoff = self._parts.cluster.backoff()
        while self._target is not None and self._target != self._made:
            target = self._target
            try:
                names = await self._names({where.topic_id for where in target})
            except KafkaError as error:
                log.info("event=assignment.names_failed group=%s error=%s", self._group_id, error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            target_partitions = frozenset(
                TopicPartition(names[where.topic_id], where.partition)
                for where in target
                if where.topic_id in names
            )
            owned = self._parts.owned()
            if owned - target_partitions:
                await self._parts.handover.ask(
                    AssignmentChange(ChangeKind.REVOKED, owned - target_partitions)
                )
            if target_partitions - owned:
                await self._parts.handover.ask(
                    AssignmentChange(ChangeKind.ASSIGNED, target_partitions - owned)
                )
            # From `target` and not from `_target`, which a heartbeat may have replaced since.
            self._made = frozenset(where for where in target if where.topic_id in names)
            self._parts.metrics.rebalance.add()
            log.info(
                "event=group.assigned group=%s member=%s epoch=%s partitions=%s",
                self._group_id,
                self._parts.identity.member_id,
                self._parts.identity.epoch,
                len(target_partitions),
            )
            self._wake.set()
            if len(self._made) < len(target):
                # The metadata of a new topic has not reached all brokers yet.
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _stop_reconciling(self) -> None:
        task, self._reconciling = self._reconciling, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _names(self, topic_ids: set[TopicId]) -> dict[TopicId, str]:
        """Return the names of topics; those that no broker knows yet are left out."""
        cluster = self._parts.cluster
        missing = {topic_id for topic_id in topic_ids if cluster.name_of(topic_id) is None}
        if missing:
            connection = await cluster.any_connection(in_turn="MetadataByTopicId")
            response = await connection.request(
                MetadataRequest(
                    topics=tuple(
                        MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing
                    ),
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                )
            )
            names = {str(topic.name) for topic in response.topics if topic.name}
            if names:
                await cluster.refresh(names)
        return {
            topic_id: str(name)
            for topic_id in topic_ids
            if (name := cluster.name_of(topic_id)) is not None
        }


def _by_topic_id(partitions: Iterable[TopicIdPartition]) -> tuple[TopicPartitions, ...]:
    numbers: dict[TopicId, list[Any]] = defaultdict(list)
    for where in sorted(partitions):
        numbers[where.topic_id].append(i32(where.partition))
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in numbers.items()
    )
