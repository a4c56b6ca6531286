"""The membership in a consumer group of the classic protocol (JoinGroup, SyncGroup, Heartbeat).

    revoke (in a poll) --> JoinGroup --> the leader assigns --> SyncGroup --> assign (in a poll)
        ^                                                                          |
        '-- rebalance: a heartbeat says so, the subscription or the topics change -- heartbeats

An eager member gives up all partitions before it joins.  A cooperative one (only the assignor
``cooperative-sticky`` is configured) keeps them, gives up those that it lost in the new assignment,
and joins again, so that the others get them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity as LeavingMember
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i32, i32Timedelta

from sharegroup.client.consume.assignors import MemberSubscription, assign
from sharegroup.client.consume.coordinator_requests import (
    IN_VAIN_MAX,
    NO_GENERATION,
    CoordinatorContact,
    MemberParts,
)
from sharegroup.client.consume.handover import AssignmentChange, ChangeKind
from sharegroup.client.consume.member_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sharegroup.client.net.cluster import ConnectionPurpose
from sharegroup.client.net.refusals import may_pass
from sharegroup.client.records import TopicPartition
from sharegroup.client.together import event_within
from sharegroup.errors import (
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)

log = logging.getLogger(__name__)

PROTOCOL_TYPE = "consumer"
JOIN_EXTRA_MS = 5_000
"""Time beyond the rebalance timeout that the answer to a JoinGroup request may take."""


class ClassicMember:
    """One member of a classic consumer group."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self._group_id = parts.group_id
        self._wake = asyncio.Event()
        self._must_join = True
        self._joined_topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._group_counts: dict[str, int] | None = None
        """The partition counts that this member assigned as the leader; None if it is not."""
        self._beat_at = 0.0
        self.contact = CoordinatorContact(parts)
        self.failure: KafkaError | None = None
        """The error that ended the membership; None while `run` goes on."""

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of its group, as far as the coordinator answers."""
        return self.contact.is_member(self._parts.config.heartbeat_interval_ms)

    def topics_changed(self) -> None:
        """Join again if the subscription or, at the leader, the topics of the group changed."""
        self._wake.set()

    async def run(self) -> None:
        """Join the group and stay a member until a fatal error; then return."""
        backoff = self._parts.cluster.backoff()
        in_vain = 0
        while self.failure is None:
            self._wake.clear()
            if not self._parts.topics.is_listed:
                await self._wake.wait()
                continue
            try:
                if self._must_join or self._is_outdated():
                    await self._rejoin()
                else:
                    await self._stay()
                backoff.reset()
                in_vain = 0
            except RebalanceInProgress:
                self._must_join = True
                in_vain += 1
            except (UnknownMemberId, IllegalGeneration) as error:
                await self._lose(error)
                in_vain += 1
            except KafkaError as error:
                if not may_pass(error):
                    self.failure = error
                    self._parts.changed()
                    return
                self.contact.failed(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
            # An honest coordinator lets members wait in JoinGroup.
            if in_vain > IN_VAIN_MAX:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def leave(self) -> None:
        """Leave the group, unless this is a static member; `run` must have ended before."""
        identity = self._parts.identity
        member_id, identity.member_id = identity.member_id, ""
        identity.epoch = NO_GENERATION
        self._must_join, self._group_counts = True, None
        # KIP-345: the partitions of a static member wait for it until its session ends.
        if not member_id or identity.instance_id is not None:
            return
        await self.contact.ask(
            LeaveGroupRequest(
                group_id=KioGroupId(self._group_id),
                members=(LeavingMember(member_id=member_id, reason="the consumer is closed"),),
            )
        )

    def _is_outdated(self) -> bool:
        """Whether another subscription or other topics make a new assignment necessary."""
        if self._parts.topics.subscribed != self._joined_topics:
            return True
        counts = self._group_counts
        return counts is not None and self._parts.topics.counts(self._group_topics) != counts

    # Joining.

    async def _rejoin(self) -> None:
        """Give up partitions, join, and take the new assignment."""
        await self._give_up()
        topics = self._parts.topics.subscribed
        # Stays set if anything fails before the assignment is here, so that the next round joins.
        self._must_join = True
        joined = await self._join(topics)
        if joined is None:
            return
        assigned = await self._sync(joined)
        # The topics as they were at the join: a subscription that has changed meanwhile joins
        # again.
        self._must_join, self._joined_topics = False, topics
        self._beat_at = time.monotonic()
        self._parts.metrics.rebalance.add()
        log.info(
            "event=group.joined group=%s member=%s generation=%s partitions=%s",
            self._group_id,
            self._parts.identity.member_id,
            self._parts.identity.epoch,
            len(assigned),
        )
        owned = self._parts.owned()
        if owned - assigned:
            await self._change(ChangeKind.REVOKED, owned - assigned)
            # The members that these partitions are meant for get them when all join again.
            self._must_join = True
        if assigned - owned:
            await self._change(ChangeKind.ASSIGNED, assigned - owned)

    async def _give_up(self) -> None:
        """Revoke what has to be given up before joining: everything, if not cooperative."""
        owned = self._parts.owned()
        if self._parts.config.is_cooperative:
            topics = self._parts.topics.subscribed
            # KIP-429: a cooperative member only gives up what it does not subscribe to any more.
            owned = frozenset(where for where in owned if where.topic not in topics)
        if owned:
            await self._change(ChangeKind.REVOKED, owned)

    async def _join(self, topics: frozenset[str]) -> Any:
        """Return the answer of JoinGroup; None if the coordinator only assigned a member id."""
        config, identity = self._parts.config, self._parts.identity
        subscription = encode_subscription(
            topics, self._parts.owned(), generation=identity.epoch, rack=config.client_rack
        )
        request = JoinGroupRequest(
            group_id=KioGroupId(self._group_id),
            session_timeout=_milliseconds(config.session_timeout_ms),
            rebalance_timeout=_milliseconds(config.max_poll_interval_ms),
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=subscription)
                for name in config.assignors
            ),
            reason=None,
        )
        # The coordinator waits as long as the rebalance timeout for members whose application
        # works.
        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_EXTRA_MS)
        try:
            # JoinGroup is parked until all members have joined, so it has its own connection.
            response = await self.contact.ask(
                request, purpose=ConnectionPurpose.GROUP, timeout_ms=timeout_ms
            )
        # KIP-394: `ask` has kept the new member id, with which the next attempt joins.
        except MemberIdRequired as error:
            if request.member_id:
                raise UnknownServerError(
                    f"{error}: the request had {request.member_id!r}"
                ) from error
            return None
        if response.generation_id < 0:
            raise UnknownServerError(
                f"group {self._group_id!r} member {response.member_id!r}: expected a generation of "
                f"0 or more in the coordinator's response, found {response.generation_id}"
            )
        identity.member_id = response.member_id
        identity.epoch = int(response.generation_id)
        return response

    async def _sync(self, joined: Any) -> frozenset[TopicPartition]:
        identity = self._parts.identity
        assignments: dict[str, bytes] = {}
        # KIP-814: a static leader that came back must not assign again; it only learns its
        # partitions.
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._assignments(joined)
        elif joined.leader != joined.member_id:
            self._group_counts = None
        response = await self.contact.ask(
            SyncGroupRequest(
                group_id=KioGroupId(self._group_id),
                generation_id=i32(identity.epoch),
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=tuple(
                    SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                    for member, assignment in assignments.items()
                ),
            ),
            purpose=ConnectionPurpose.GROUP,
            # SyncGroup is parked until the leader has assigned, for up to the rebalance timeout,
            # like JoinGroup.
            timeout_ms=max(
                self._parts.config.request_timeout_ms,
                self._parts.config.max_poll_interval_ms + JOIN_EXTRA_MS,
            ),
        )
        return decode_assignment(response.assignment)

    async def _assignments(self, joined: Any) -> dict[str, bytes]:
        """Compute the assignment of all members, as the leader of the group."""
        members: dict[str, MemberSubscription] = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = frozenset().union(*(member.topics for member in members.values()))
        await self._parts.topics.refresh(topics)
        self._group_topics = topics
        self._parts.topics.watch_group(topics)
        counts = self._group_counts = self._parts.topics.counts(topics)
        assignment = assign(joined.protocol_name, counts, members)
        log.info(
            "event=group.assigned group=%s generation=%s assignor=%s members=%s topics=%s",
            self._group_id,
            self._parts.identity.epoch,
            joined.protocol_name,
            len(members),
            len(counts),
        )
        return {member: encode_assignment(partitions) for member, partitions in assignment.items()}

    # Staying.

    async def _stay(self) -> None:
        """Wait for the time of the next heartbeat, or for a change of topics, and send it."""
        interval_seconds = self._parts.config.heartbeat_interval_ms / 1000
        remaining = self._beat_at + interval_seconds - time.monotonic()
        if remaining > 0 and await event_within(self._wake, remaining):
            return
        await self._beat()

    async def _beat(self) -> None:
        identity = self._parts.identity
        self._parts.metrics.heartbeat.add()
        self._parts.metrics.last_heartbeat.mark()
        self._beat_at = started_at = time.monotonic()
        await self.contact.ask(
            HeartbeatRequest(
                group_id=KioGroupId(self._group_id),
                generation_id=i32(identity.epoch),
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
            )
        )
        self._parts.metrics.heartbeat_ms.observe((time.monotonic() - started_at) * 1000)

    async def _change(self, kind: ChangeKind, partitions: frozenset[TopicPartition]) -> None:
        """Wait until a poll has made the change; send heartbeats meanwhile."""
        change = AssignmentChange(kind, partitions)
        asking = asyncio.ensure_future(self._parts.handover.ask(change))
        interval_seconds = self._parts.config.heartbeat_interval_ms / 1000
        try:
            while True:
                await asyncio.wait([asking], timeout=interval_seconds)
                if asking.done():
                    return
                # Without a generation there is no membership to keep alive.
                if self._parts.identity.epoch == NO_GENERATION:
                    continue
                try:
                    await self._beat()
                except RebalanceInProgress:
                    self._must_join = True
                except KafkaError as error:
                    if not may_pass(error):
                        raise
                    self.contact.failed(error)
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])

    async def _lose(self, error: KafkaError) -> None:
        """Forget the membership: other members may have the partitions already."""
        log.warning(
            "event=group.lost group=%s member=%s generation=%s reason='%s' action='the member "
            "joins again; if this repeats, poll more often or increase session_timeout_ms'",
            self._group_id,
            self._parts.identity.member_id,
            self._parts.identity.epoch,
            error,
        )
        self._parts.identity.epoch = NO_GENERATION
        # After ILLEGAL_GENERATION the coordinator still knows the member, which joins under its id.
        if isinstance(error, UnknownMemberId):
            self._parts.identity.member_id = ""
        self._must_join = True
        if owned := self._parts.owned():
            await self._change(ChangeKind.LOST, owned)


def _milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=number))
