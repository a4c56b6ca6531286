"""The membership in a share group: heartbeats to the group coordinator, and the assignment.

`Membership` decides without I/O; `Heartbeats` sends the requests.  The coordinator sets the
member epoch, which is the member's version of the assignment:

    0 join --> n (as answered) --> n ... --> -1 leave
       ^            |
       '--fenced or unknown: drop the assignment, join again with the same member id

A field is sent when it changes and with every join.  The coordinator sends an assignment once,
when it changes.  So the assignment may be lost after a lost answer or an error (after
COORDINATOR_NOT_AVAILABLE the change may be applied but not yet replicated).  The member then
repeats all fields in the next request, and coordinators since Kafka 4.1 answer with the
assignment.  An older coordinator leaves it out; then the member joins again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from uuid import uuid4

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32

from sharegroup.client.metrics.client_metrics import ShareConsumerMetrics
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.refusals import refused
from sharegroup.client.together import event_within
from sharegroup.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    KafkaError,
    NoAnswer,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, uuid_text

log = logging.getLogger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
INTERVAL_MS_DEFAULT = 5_000
UNCONFIRMED_INTERVALS = 3
"""Number of heartbeat intervals without an answer after which a membership is not confirmed."""
SILENCE_SECONDS = 5.0
"""Time without an answer after which that is logged once; a restart or a move takes less."""
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 10, 60_000
"""The time between heartbeats, even if a broker asks for a shorter or a longer interval.

A heartbeat before its time does no harm, and shows within a minute that a membership has ended.
"""


class Reaction(Enum):
    """The action after the answer to a heartbeat, as in Kafka's AbstractHeartbeatRequestManager."""

    CONTINUE = auto()
    REJOIN = auto()
    FIND_COORDINATOR = auto()
    WAIT = auto()
    REPORT = auto()
    """Report to the application and stay a member, because an administrator can fix it."""
    FAIL = auto()
    """Report to the application and stop."""


REACTIONS: dict[int, Reaction] = {
    NONE: Reaction.CONTINUE,
    FencedMemberEpoch.code: Reaction.REJOIN,
    UnknownMemberId.code: Reaction.REJOIN,
    NotCoordinator.code: Reaction.FIND_COORDINATOR,
    CoordinatorNotAvailable.code: Reaction.FIND_COORDINATOR,
    CoordinatorLoadInProgress.code: Reaction.WAIT,
    TopicAuthorizationFailed.code: Reaction.REPORT,
}
"""The reaction by error code; every code that is not listed is fatal."""


def interval_ms_of(asked: timedelta) -> int:
    """Return the time between heartbeats for the interval in a broker's answer."""
    asked_ms = round(asked.total_seconds() * 1000)
    if asked_ms <= 0:
        return INTERVAL_MS_DEFAULT
    return min(max(asked_ms, INTERVAL_MS_MIN), INTERVAL_MS_MAX)


def checked_epoch(member_epoch: int, group_id: str, member_id: str) -> int:
    """Return the member epoch of an answer without error; raise a retriable error if negative.

    A heartbeat with a negative epoch would leave the group.
    """
    if member_epoch < JOIN_EPOCH:
        raise CoordinatorNotAvailable(
            f"group {group_id!r} member {member_id}: expected a member epoch of 0 or more in the "
            f"coordinator's response, found {member_epoch}; the request is sent again"
        )
    return int(member_epoch)


def new_member_id() -> MemberId:
    """Return a random member id in Kafka's UUID notation; a member never changes its id."""
    return MemberId(uuid_text(uuid4()))


class Membership:
    """The state of one group member: subscription, epoch and assignment; without I/O."""

    def __init__(self, group_id: GroupId, member_id: MemberId, rack_id: str | None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.interval_ms = INTERVAL_MS_DEFAULT
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        self.active = True
        """Whether to be a member; False while the application does not poll."""
        self.quiet = False
        """Whether to stay a member without assigned partitions."""
        self._rack_id = rack_id
        self._epoch = JOIN_EPOCH
        self._subscription: tuple[str, ...] = ()
        self._told: tuple[str, ...] | None = None
        self._in_doubt = False
        """Whether an assignment may be lost, so the coordinator has to repeat it."""
        self.may_be_member = False
        """Whether the coordinator may count this member; also if a join was not answered."""

    @property
    def epoch(self) -> int:
        """The member epoch that the next heartbeat carries."""
        return self._epoch

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to; if empty, this is not a member."""
        return self._subscription

    @property
    def wants_heartbeat(self) -> bool:
        """Whether heartbeats should be sent; a quiet member does not join."""
        joins = self._epoch == JOIN_EPOCH
        return bool(self._subscription) and self.active and not (self.quiet and joins)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Replace the subscription; the next heartbeat sends it."""
        self._subscription = topics

    def request(self) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat, which the caller sends."""
        self.may_be_member = True
        joins = self._epoch == JOIN_EPOCH
        # Without a subscription the coordinator assigns the partitions to others, and the member
        # stays, so its locks stay valid, too.
        topics = () if self.quiet else self._subscription
        sends_topics = joins or self._told != topics
        return ShareGroupHeartbeatRequest(
            group_id=KioGroupId(self.group_id),
            member_id=self.member_id,
            member_epoch=i32(self._epoch),
            # KIP-932, ShareGroupHeartbeat: null means unchanged since the last heartbeat.
            rack_id=self._rack_id if joins else None,
            subscribed_topic_names=tuple(map(KioTopicName, topics)) if sends_topics else None,
        )

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        """Return the last heartbeat, which leaves the group."""
        return ShareGroupHeartbeatRequest(
            group_id=KioGroupId(self.group_id),
            member_id=self.member_id,
            member_epoch=i32(LEAVE_EPOCH),
        )

    def answered(
        self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse
    ) -> Reaction:
        """Process an answer, and return the action to take."""
        reaction = REACTIONS.get(int(response.error_code), Reaction.FAIL)
        # Not after FENCED_MEMBER_EPOCH: that coordinator knows the member by another epoch.
        if int(response.error_code) == UnknownMemberId.code:
            self.may_be_member = False
        if reaction is Reaction.REJOIN:
            self.reset()
        elif reaction is not Reaction.CONTINUE:
            self.unanswered()
        else:
            self._epoch = int(response.member_epoch)
            self.interval_ms = interval_ms_of(response.heartbeat_interval)
            if request.subscribed_topic_names is not None:
                self._told = tuple(request.subscribed_topic_names)
            # KIP-932, ShareGroupHeartbeat: null means unchanged.
            if response.assignment is not None:
                self.assignment = frozenset(
                    TopicIdPartition(TopicId(topic.topic_id), int(partition))
                    for topic in response.assignment.topic_partitions
                    if topic.topic_id is not None
                    for partition in topic.partitions
                )
            # A coordinator older than Kafka 4.1 does not repeat the assignment, so only a join
            # gets it.
            elif self._in_doubt and request.member_epoch != JOIN_EPOCH:
                self._rejoin()
                return Reaction.REJOIN
            self._in_doubt = False
        return reaction

    def unanswered(self) -> None:
        """Note that an answer may be lost, so the next heartbeat repeats all fields."""
        self._told = None
        self._in_doubt = True

    def reset(self) -> None:
        """Forget the membership and the assignment; the next heartbeat joins."""
        self._rejoin()
        self._in_doubt = False
        self.assignment = frozenset()

    def _rejoin(self) -> None:
        self._epoch = JOIN_EPOCH
        self._told = None


def is_answering(cluster: Cluster, group_id: str, answered_at: float, interval_ms: int) -> bool:
    """Whether the group's coordinator is connected and has answered within three intervals.

    ``answered_at`` is a time of `time.monotonic`; ``interval_ms`` that of the heartbeats.
    """
    coordinator = cluster.known_coordinator(group_id)
    if coordinator is None or not cluster.is_connected_to(coordinator):
        return False
    # A broker that hangs keeps its connections open.
    return (time.monotonic() - answered_at) * 1000 < UNCONFIRMED_INTERVALS * interval_ms


BeforeJoin = Callable[[tuple[str, ...]], Awaitable[None]]
"""Prepares the group for a subscription before a heartbeat carries it; may raise KafkaError."""


class Heartbeats:
    """Sends the heartbeats of one member while `run` runs."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        *,
        changed: Callable[[], None],
        metrics: ShareConsumerMetrics | None = None,
        before_join: BeforeJoin | None = None,
    ) -> None:
        self._before_join = before_join
        self._prepared_for: tuple[str, ...] = ()
        """The subscription that ``before_join`` was last called for."""
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
        """The error that stopped the member, which does not start again by itself; or None."""
        self.report: KafkaError | None = None
        """An error to report to the application once."""
        self.last_error: KafkaError | None = None
        """The error of the last heartbeat; None if it succeeded."""
        self._confirmed_at = 0.0
        """When the coordinator last answered a heartbeat without an error."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the coordinator knows the member: it answers, and its connection is open."""
        membership = self._membership
        if membership.epoch == JOIN_EPOCH or self.last_error is not None:
            return False
        return is_answering(
            self._cluster, membership.group_id, self._confirmed_at, membership.interval_ms
        )

    def wake(self) -> None:
        """Send a heartbeat now, after the subscription changed or to join again after leaving."""
        self._left = False
        self._wake.set()

    async def run(self) -> None:
        """Join the group and stay a member until a fatal error; then return."""
        backoff = self._cluster.backoff()
        while self.failure is None:
            self._wake.clear()
            if self._left or not self._membership.wants_heartbeat:
                await self._wake.wait()
                continue
            if self._before_join is None or self._prepared_for == self._membership.subscription:
                reaction = await self._beat()
            elif (reaction := await self._prepare(self._before_join)) is Reaction.CONTINUE:
                continue  # Look again, because the application may have left meanwhile.
            if reaction in (Reaction.CONTINUE, Reaction.REPORT):
                backoff.reset()
                await event_within(self._wake, self._membership.interval_ms / 1000)
            elif reaction is not Reaction.FAIL:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def leave(self) -> None:
        """Tell the coordinator, in one attempt, that this member leaves.

        No heartbeats are sent until `wake`: a later one would join again and leave an orphaned
        member in the group.  A heartbeat under way is awaited, because it may join.
        """
        self._left = True
        async with self._turn:
            try:
                if self._may_be_member:
                    node_id = await self._cluster.coordinator(self._membership.group_id)
                    connection = await self._cluster.connection(node_id)
                    await connection.request(self._membership.leave_request())
            finally:
                # Also without an answer: the broker removes the member after its session timeout,
                # and a later poll has to join in any case.
                self._membership.reset()
                self._membership.may_be_member = False

    @property
    def _may_be_member(self) -> bool:
        """Whether to leave: also if a join was sent, and no answer refused it for good."""
        membership = self._membership
        return membership.epoch > JOIN_EPOCH or (membership.may_be_member and self.failure is None)

    async def _prepare(self, before_join: BeforeJoin) -> Reaction:
        topics = self._membership.subscription
        try:
            # One attempt, so the reason is known soon: `before_join` retries until its own timeout.
            await self._cluster.coordinator(self._membership.group_id)
            await before_join(topics)
        except KafkaError as error:
            self.last_error = error
            if error.retriable:
                self._note_silence(error)
                return Reaction.WAIT
            self._stop(error)
            return Reaction.FAIL
        self._prepared_for = topics
        return Reaction.CONTINUE

    async def _beat(self) -> Reaction:
        async with self._turn:
            return await self._beaten()

    async def _beaten(self) -> Reaction:
        membership = self._membership
        group_id, earlier_assignment = membership.group_id, membership.assignment
        try:
            node_id = await self._cluster.coordinator(group_id)
            connection = await self._cluster.connection(node_id)
            # The application may have left during the waits.  A join without topics, which this
            # would be then, is refused for good.
            if self._left or not membership.wants_heartbeat:
                return Reaction.CONTINUE
            # After the waits, so that it tells the state of this moment.
            request = membership.request()
            self._metrics.heartbeat.add()
            self._metrics.last_heartbeat.mark()
            sent_at = time.monotonic()
            response: ShareGroupHeartbeatResponse = await connection.request(request)
            self._metrics.heartbeat_ms.observe((time.monotonic() - sent_at) * 1000)
            if response.error_code == NONE:
                checked_epoch(response.member_epoch, group_id, membership.member_id)
        except KafkaError as error:
            self.last_error = error
            membership.unanswered()
            coordinator = self._cluster.known_coordinator(group_id)
            if isinstance(error, NoAnswer) and coordinator is not None:
                self._cluster.doubt(coordinator)
            # Also after a lost connection: the group may have another coordinator by now.
            self._cluster.forget_coordinator(group_id)
            if error.retriable:
                self._note_silence(error)
                return Reaction.FIND_COORDINATOR
            self._stop(error)
            return Reaction.FAIL
        self._silent_since, self._silence_told = None, False
        reaction = membership.answered(request, response)
        code, message = int(response.error_code), response.error_message
        self.last_error = None
        if code == NONE:
            self._confirmed_at = time.monotonic()
        else:
            refusal = self._refusal(code, message)
            self.last_error = refusal
            if reaction in (Reaction.REPORT, Reaction.FAIL):
                self._report(reaction, refusal)
        if reaction is Reaction.FIND_COORDINATOR:
            self._cluster.forget_coordinator(group_id)
        if membership.assignment != earlier_assignment:
            self._metrics.rebalance.add()
            self._changed()
        return reaction

    def _refusal(self, code: int, message: str | None) -> KafkaError:
        membership = self._membership
        about: dict[str, str] = {}
        if code == TopicAuthorizationFailed.code:
            about["topic"] = ", ".join(membership.subscription)
        return refused(
            code,
            message,
            operation="READ",
            principal=self._cluster.principal,
            group=membership.group_id,
            member=membership.member_id,
            **about,
        )

    def _note_silence(self, error: KafkaError) -> None:
        """Log once that the coordinator has not answered for `SILENCE_SECONDS`.

        Otherwise a wrong address would look like a topic without records.
        """
        now, group_id = asyncio.get_running_loop().time(), self._membership.group_id
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < SILENCE_SECONDS or self._silence_told:
            log.debug("event=heartbeat.failed group=%s error=%s", group_id, error)
        else:
            log.warning(
                "event=heartbeat.failed group=%s error=%s action='the heartbeat is retried'",
                group_id,
                error,
            )
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
