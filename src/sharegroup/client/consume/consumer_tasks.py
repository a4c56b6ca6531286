"""The background tasks of a plain consumer, and what they share with its calls.

topics --> membership --> handover --> (poll) --> states --> lookup of positions --> fetches
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from sharegroup.client.consume.classic_member import ClassicMember
from sharegroup.client.consume.consumer_protocol_member import ConsumerProtocolMember
from sharegroup.client.consume.coordinator_requests import MemberIdentity, MemberParts
from sharegroup.client.consume.fetcher import Fetcher
from sharegroup.client.consume.handover import Handover
from sharegroup.client.consume.offset_commits import OffsetCommits
from sharegroup.client.consume.offset_lookup import OffsetLookup
from sharegroup.client.consume.partition_states import COMMITTED, RESET, PartitionStates
from sharegroup.client.consume.topic_watch import TopicSubscription, TopicWatch
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.telemetry import Telemetry
from sharegroup.client.records import (
    CommitFailedError,
    ConsumerGroupMetadata,
    ConsumerHealth,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from sharegroup.client.settings.option_values import GroupProtocol
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.client.share.member.membership import new_member_id
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)


class ConsumerTasks:
    """Runs the background tasks of one plain consumer; tests replace ``cluster``."""

    def __init__(
        self, config: ConsumerConfig, changed: Callable[[], None], *, cluster: Cluster | None = None
    ) -> None:
        self.config = config
        self.cluster = Cluster(config) if cluster is None else cluster
        self.telemetry = Telemetry(self.cluster, self._labels)
        self.states = PartitionStates(
            partition_bytes_max=config.max_partition_fetch_bytes, bytes_max=config.fetch_max_bytes
        )
        self.metrics = ConsumerMetrics(
            self.cluster.metrics, partitions=lambda: len(self.states), lag_max=self.states.lag_max
        )
        self.subscription = TopicSubscription()
        self.identity = _identity(config)
        self._changed = changed
        self.handover = Handover(changed)
        self.topics = TopicWatch(self.cluster, config, changed=self._topics_changed)
        self.commits: OffsetCommits | None = None
        self.member: ClassicMember | ConsumerProtocolMember | None = None
        self.fetcher = Fetcher(
            self.cluster,
            config,
            self.states,
            changed=self._fetched,
            topics_outdated=self.topics.wake,
            metrics=self.metrics,
        )
        self.lookup = OffsetLookup(
            self.cluster,
            config,
            self.states,
            read_committed=self._read_committed,
            changed=self._positions_changed,
        )
        if config.group_id is not None:
            self._make_member(config.group_id)
        self.polled_at: float | None = None
        """The end of the last poll; None during a poll, and when polls are not watched."""
        self._member_task: asyncio.Task[None] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready, self._stop = asyncio.Event(), asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._background: list[asyncio.Task[None]] = []

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's identity; raises CommitFailedError without a membership."""
        if self.config.group_id is None:
            raise IllegalStateError("this consumer has no group: group_id is not set")
        identity = self.identity
        if not identity.may_commit:
            raise CommitFailedError(
                f"this consumer is not a member of group {self.config.group_id!r} at the moment: "
                "it has not joined yet, or its membership was lost; abort the transaction and poll"
            )
        return ConsumerGroupMetadata(
            self.config.group_id, identity.epoch, identity.member_id, identity.instance_id
        )

    def _labels(self) -> dict[str, str]:
        """Return the labels of the consumer's metrics in telemetry, with Kafka's names."""
        labels = {
            "group_id": self.config.group_id,
            "group_instance_id": self.config.group_instance_id,
            "group_member_id": self.identity.member_id,
            "client_rack": self.config.client_rack,
        }
        return {name: text for name, text in labels.items() if text}

    def _make_member(self, group_id: str) -> None:
        """Make the parts that only a consumer with a group has."""
        self.commits = OffsetCommits(
            self.cluster, group_id, self.identity, self.states, self.metrics
        )
        parts = MemberParts(
            cluster=self.cluster,
            config=self.config,
            identity=self.identity,
            handover=self.handover,
            topics=self.topics,
            broker_pattern=lambda: self.subscription.broker_pattern,
            owned=lambda: self.states.partitions,
            changed=self._changed,
            metrics=self.metrics,
        )
        is_classic = self.config.group_protocol is GroupProtocol.CLASSIC
        self.member = ClassicMember(parts) if is_classic else ConsumerProtocolMember(parts)

    # Life.

    @property
    def is_running(self) -> bool:
        """Whether the background tasks were started and have not ended."""
        return self._runner is not None and not self._runner.done()

    def health(self) -> ConsumerHealth:
        """Return what a health check needs to know; nothing is sent."""
        is_joined, failure = self.is_running, None
        if self.subscription and self.member is not None:
            is_joined, failure = self.member.is_joined, self.member.failure
        is_connected, lost = self.cluster.reachability()
        return ConsumerHealth(is_joined, is_connected, dict(lost), failure)

    def raise_failure(self) -> None:
        """Raise the error that ended the background tasks, if one did; it is a mistake of ours."""
        if self._runner is not None and self._runner.done():
            self._runner.result()

    async def start(self) -> None:
        """Start the background tasks, unless they run already."""
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="consumer")
            # Wakes a poll that waits, which then raises the error of the tasks.
            self._runner.add_done_callback(lambda _: self._changed())
        await self._ready.wait()

    async def stop(self) -> None:
        """End the background tasks and close the connections."""
        self._stop.set()
        try:
            if self._runner is not None:
                await self._runner
        finally:
            self.cluster.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._background += [
                tasks.create_task(self.topics.run(), name="topics"),
                tasks.create_task(self.lookup.run(), name="positions"),
                tasks.create_task(self._watch_polls(), name="polls"),
                tasks.create_task(self.telemetry.run(), name="telemetry"),
            ]
            # The metadata may be known from a call before the start; then no update of them starts
            # the fetches.
            self._fetch_more()
            self._ready.set()
            await self._stop.wait()
            for task in self._background:
                task.cancel()
            if self._member_task is not None:
                self._member_task.cancel()

    # The subscription and the assignment.

    def subscribe(self, subscription: TopicSubscription) -> None:
        """Subscribe to topics instead of those before; the membership tells the group."""
        self.subscription = subscription
        self.identity.is_subscribed = bool(subscription)
        self.topics.subscribe(subscription)
        if self.member is not None:
            self.member.topics_changed()

    def join(self) -> None:
        """Start the membership, unless it runs already or nothing is subscribed."""
        if not self.subscription or self.member is None or self.member.failure is not None:
            return
        if self._member_task is None or self._member_task.done():
            assert self._tasks is not None, "the tasks were started"
            self._member_task = self._tasks.create_task(self.member.run(), name="membership")

    async def leave(self) -> None:
        """End the membership; a later `join` starts it again."""
        task, self._member_task = self._member_task, None
        if task is None:
            return
        if not task.done():
            task.cancel()
            # The membership must not send a heartbeat after the request that leaves.
            await asyncio.wait([task])
        assert self.member is not None
        await self.member.leave()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to those that are read."""
        self.states.assign(partitions, RESET if self.commits is None else COMMITTED)
        self._assignment_changed()

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self.states.remove(partitions)
        self._assignment_changed()

    def positions_moved(self) -> None:
        """Go on after a seek, a pause or a resume."""
        self.lookup.wake()
        self._fetch_more()

    def _assignment_changed(self) -> None:
        self.topics.assign({where.topic for where in self.states.partitions})
        self.lookup.wake()
        self._fetch_more()

    # Events of the tasks.

    def _fetch_more(self) -> None:
        if self._tasks is not None and not self._stop.is_set():
            self._background += self.fetcher.start(self._tasks)
        self.fetcher.wake()

    def _topics_changed(self) -> None:
        if self.member is not None:
            self.member.topics_changed()
        self.lookup.wake()
        self._fetch_more()
        self._changed()

    def _positions_changed(self) -> None:
        self._fetch_more()
        self._changed()

    def _fetched(self) -> None:
        """Note an answer: records, a position to look up, or a leader that has moved."""
        self._changed()
        if any(self.fetcher.is_unplaced(state) for state in self.states):
            self.topics.wake()
            self.lookup.wake()
            self._fetch_more()

    async def _read_committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        assert self.commits is not None, "only members of a group look up committed offsets"
        return await self.commits.committed(tuple(partitions))

    async def _watch_polls(self) -> None:
        """Leave the group when ``max_poll_interval_ms`` has passed since the last poll."""
        limit_seconds = self.config.max_poll_interval_ms / 1000
        while True:
            away_seconds = 0.0 if self.polled_at is None else time.monotonic() - self.polled_at
            if away_seconds >= limit_seconds and self._member_task is not None:
                await self._leave_unpolled()
            # When the limit has passed, the difference is no time to wait.
            await asyncio.sleep(max(limit_seconds - away_seconds, limit_seconds / 10))

    async def _leave_unpolled(self) -> None:
        log.warning(
            "event=consumer.left group=%s member=%s max_poll_interval_ms=%s reason='poll was not "
            "called for max_poll_interval_ms' action='other members get its partitions, and the "
            "next poll joins again; process records faster, take fewer records per poll, or "
            "increase max_poll_interval_ms'",
            self.config.group_id,
            self.identity.member_id,
            self.config.max_poll_interval_ms,
        )
        # Before the request: a poll that comes during it gives up the partitions first.
        self.identity.left_unpolled = True
        try:
            await self.leave()
        except KafkaError as error:
            log.info("event=consumer.leave_failed group=%s error=%s", self.config.group_id, error)


def _identity(config: ConsumerConfig) -> MemberIdentity:
    """Return the identity of a member that has not joined; a classic one gets its id later."""
    has_member_epoch = config.group_protocol is GroupProtocol.CONSUMER
    return MemberIdentity(
        member_id=new_member_id() if has_member_epoch else "",
        instance_id=config.group_instance_id,
        has_member_epoch=has_member_epoch,
    )
