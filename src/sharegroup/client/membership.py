"""One member of a share group: what it tells the coordinator and what it makes of the answer.

`Membership` decides, without I/O; `Heartbeats` sends.  The epoch is the member's version of
the assignment, set by the coordinator:

    0 join --> n (as answered) --> n ... --> -1 leave
       ^            |
       '--fenced or unknown: drop the assignment, join again with the same member id

Fields are sent when they change and with every join; after a lost answer nobody knows what
arrived, so the next request says everything again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from uuid import uuid4

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i32

from sharegroup.client.client_metrics import ShareConsumerMetrics
from sharegroup.client.cluster import Cluster
from sharegroup.client.refusals import refused
from sharegroup.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    KafkaError,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicPartition, uuid_text

log = logging.getLogger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
INTERVAL_MS_DEFAULT = 5_000
SILENCE_SECONDS = 5.0
"""Brokers that start again and coordinators that move are away for less; longer is told, once."""
INTERVAL_MS_MIN = 10
"""A broker that asks for heartbeats without a pause does not get them."""


class Reaction(Enum):
    """What to do after an answer (fact sheet: «Heartbeat reactions»)."""

    CONTINUE = auto()
    REJOIN = auto()
    FIND_COORDINATOR = auto()
    WAIT = auto()
    REPORT = auto()
    """Tell the application, stay a member: an administrator can put it right."""
    FAIL = auto()
    """Tell the application and stop."""


REACTIONS: dict[int, Reaction] = {
    NONE: Reaction.CONTINUE,
    FencedMemberEpoch.code: Reaction.REJOIN,
    UnknownMemberId.code: Reaction.REJOIN,
    NotCoordinator.code: Reaction.FIND_COORDINATOR,
    CoordinatorNotAvailable.code: Reaction.FIND_COORDINATOR,
    CoordinatorLoadInProgress.code: Reaction.WAIT,
    TopicAuthorizationFailed.code: Reaction.REPORT,
}
"""Every code that is not listed is fatal."""


def new_member_id() -> MemberId:
    """A random one, as Kafka writes its UUIDs; the member keeps it for its whole life."""
    return MemberId(uuid_text(uuid4()))


class Membership:
    """See the module's text."""

    def __init__(self, group_id: GroupId, member_id: MemberId, rack_id: str | None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.interval_ms = INTERVAL_MS_DEFAULT
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.active = True
        """Whether it wants to be a member; off while the application does not poll."""
        self.quiet = False
        """Whether it wants to be assigned nothing and stay a member."""
        self._rack_id = rack_id
        self._epoch = JOIN_EPOCH
        self._subscription: tuple[str, ...] = ()
        self._told: tuple[str, ...] | None = None

    @property
    def epoch(self) -> int:
        """The member epoch that the next heartbeat carries."""
        return self._epoch

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to; empty means: no member."""
        return self._subscription

    @property
    def wants_heartbeat(self) -> bool:
        """Whether it is to be a member; one that is quiet does not join."""
        joins = self._epoch == JOIN_EPOCH
        return bool(self._subscription) and self.active and not (self.quiet and joins)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Replace the subscription; the next heartbeat says so."""
        self._subscription = topics

    def request(self) -> ShareGroupHeartbeatRequest:
        """The next heartbeat."""
        joins = self._epoch == JOIN_EPOCH
        topics = () if self.quiet else self._subscription
        tells = joins or self._told != topics
        return ShareGroupHeartbeatRequest(
            group_id=KioGroupId(self.group_id),
            member_id=self.member_id,
            member_epoch=i32(self._epoch),
            rack_id=self._rack_id if joins else None,
            subscribed_topic_names=tuple(map(KioTopicName, topics)) if tells else None,
        )

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        """The last heartbeat."""
        return ShareGroupHeartbeatRequest(
            group_id=KioGroupId(self.group_id),
            member_id=self.member_id,
            member_epoch=i32(LEAVE_EPOCH),
        )

    def answered(
        self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse
    ) -> Reaction:
        """Take in an answer; says what to do about it."""
        reaction = REACTIONS.get(int(response.error_code), Reaction.FAIL)
        if reaction is Reaction.CONTINUE:
            self._epoch = int(response.member_epoch)
            self.interval_ms = max(
                INTERVAL_MS_MIN, round(response.heartbeat_interval.total_seconds() * 1000)
            )
            if request.subscribed_topic_names is not None:
                self._told = tuple(request.subscribed_topic_names)
            if response.assignment is not None:
                self.assignment = frozenset(
                    TopicPartition(TopicId(topic.topic_id), int(partition))
                    for topic in response.assignment.topic_partitions
                    if topic.topic_id is not None
                    for partition in topic.partitions
                )
        elif reaction is Reaction.REJOIN:
            self.reset()
        return reaction

    def unanswered(self) -> None:
        """The answer was lost: say everything again."""
        self._told = None

    def reset(self) -> None:
        """No member any more: the next heartbeat joins."""
        self._epoch = JOIN_EPOCH
        self._told = None
        self.assignment = frozenset()


class Heartbeats:
    """Sends the heartbeats of one member, for as long as `run` runs."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        *,
        changed: Callable[[], None],
        metrics: ShareConsumerMetrics | None = None,
    ) -> None:
        self._metrics = metrics or ShareConsumerMetrics(cluster.metrics)
        self._cluster = cluster
        self._membership = membership
        self._changed = changed
        self._wake = asyncio.Event()
        self._left = False
        self._turn = asyncio.Lock()
        self._silent_since: float | None = None
        self._silence_told = False
        self.failure: KafkaError | None = None
        """Why the member stopped; it does not start again by itself."""
        self.report: KafkaError | None = None
        """Something for the application to know once."""

    def wake(self) -> None:
        """Send a heartbeat now: the subscription changed, or a member that left is to join."""
        self._left = False
        self._wake.set()

    async def run(self) -> None:
        """Join, and stay joined, until a fatal error; returns then."""
        backoff = self._cluster.backoff()
        while self.failure is None:
            self._wake.clear()
            if self._left or not self._membership.wants_heartbeat:
                await self._wake.wait()
                continue
            reaction = await self._beat()
            if reaction in (Reaction.CONTINUE, Reaction.REPORT):
                backoff.reset()
                await self._pause(self._membership.interval_ms)
            elif reaction is not Reaction.FAIL:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def leave(self) -> None:
        """Tell the coordinator that this member goes; one try.

        Until `wake` there is no heartbeat any more: one that came after would join again, and
        leave a member behind that nobody is.  One under way is waited for, for it may join.
        """
        self._left = True
        async with self._turn:
            try:
                if self._membership.epoch > JOIN_EPOCH:
                    node_id = await self._cluster.coordinator(self._membership.group_id)
                    connection = await self._cluster.connection(node_id)
                    await connection.request(self._membership.leave_request())
            finally:
                self._membership.reset()

    async def _beat(self) -> Reaction:
        async with self._turn:
            return await self._beaten()

    async def _beaten(self) -> Reaction:
        membership = self._membership
        group_id, before = membership.group_id, membership.assignment
        try:
            node_id = await self._cluster.coordinator(group_id)
            connection = await self._cluster.connection(node_id)
            request = membership.request()
            self._metrics.heartbeat.add()
            self._metrics.last_heartbeat.mark()
            sent_at = time.monotonic()
            response: ShareGroupHeartbeatResponse = await connection.request(request)
            self._metrics.heartbeat_ms.observe((time.monotonic() - sent_at) * 1000)
        except KafkaError as error:
            membership.unanswered()
            self._cluster.forget_coordinator(group_id)
            if error.retriable:
                self._note_silence(error)
                return Reaction.FIND_COORDINATOR
            self._stop(error)
            return Reaction.FAIL
        self._silent_since, self._silence_told = None, False
        reaction = membership.answered(request, response)
        if reaction is Reaction.FIND_COORDINATOR:
            self._cluster.forget_coordinator(group_id)
        elif reaction in (Reaction.REPORT, Reaction.FAIL):
            code, message = int(response.error_code), response.error_message
            refusal = refused(code, message, group=group_id, member=membership.member_id)
            self._report(reaction, refusal)
        if membership.assignment != before:
            self._metrics.rebalance.add()
            self._changed()
        return reaction

    def _note_silence(self, error: KafkaError) -> None:
        """Nobody is asked to notice that no record comes: a wrong address looks like no work."""
        now, group_id = asyncio.get_running_loop().time(), self._membership.group_id
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < SILENCE_SECONDS or self._silence_told:
            log.debug("heartbeat.failed group=%s error=%s", group_id, error)
        else:
            log.warning("heartbeat.failed group=%s error=%s (trying on)", group_id, error)
            self._silence_told = True

    def _report(self, reaction: Reaction, error: KafkaError) -> None:
        if reaction is Reaction.FAIL:
            self._stop(error)
        else:
            self.report = error
            self._changed()

    def _stop(self, error: KafkaError) -> None:
        self.failure = error
        self._changed()

    async def _pause(self, interval_ms: int) -> None:
        try:
            async with asyncio.timeout(interval_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
