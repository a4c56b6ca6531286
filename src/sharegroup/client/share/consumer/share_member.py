"""Runs the background tasks of one share consumer: membership, sessions and renewal.

    heartbeats ---> assignment ---> nodes: a session with each broker that leads a part of it
                                      |  fetch, acknowledge, renew
    application <--- inbox <----------'  results, failures

The consumer makes requests (`ask_fetches`, `flush`).  Each node performs one at a time and passes
its outcome to `_take_in`.  All tasks are in one task group, so an unexpected error ends all of
them, and the next `poll` raises it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

from sharegroup.client.admin.start_position import StartOutcome, set_start
from sharegroup.client.metrics.client_metrics import (
    ShareConsumerMetrics,
    show_idleness,
    show_unreadable_batches,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.refusals import may_pass
from sharegroup.client.net.telemetry import Telemetry
from sharegroup.client.records import Flow, TopicPartition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.acknowledgement_results import AcknowledgementResults
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Inbox
from sharegroup.client.share.consumer.locks import due_locks, say_let_go
from sharegroup.client.share.consumer.settled import PendingResults
from sharegroup.client.share.consumer.share_node import RequestOutcome, ShareNode
from sharegroup.client.share.consumer.window import AheadOf, Window
from sharegroup.client.share.member.group_member import GroupMember
from sharegroup.client.share.member.idleness import AWAY_SECONDS
from sharegroup.client.share.member.membership import Membership
from sharegroup.client.share.session.refused_acknowledgements import Refusal, refusal_of
from sharegroup.client.share.session.renewal_schedule import forbids_renewal, look_seconds
from sharegroup.client.share.session.share_requests import SessionMember
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId
from sharegroup.protocol_enums import AcquireMode

log = logging.getLogger(__name__)


class ShareMember:
    """The background part of a share consumer: heartbeats, share sessions and lock renewal."""

    def __init__(
        self, config: ShareConsumerConfig, member_id: MemberId, wake: asyncio.Event
    ) -> None:
        self.config = config
        self.cluster = Cluster(config)
        self.telemetry = Telemetry(self.cluster, self._labels)
        self.metrics = ShareConsumerMetrics(self.cluster.metrics)
        self.session_member = SessionMember(GroupId(config.group_id), member_id)
        self.group = GroupMember(
            self.cluster,
            Membership(*self.session_member, rack_id=config.client_rack),
            changed=wake.set,
            wants_records=self._wants_records,
            metrics=self.metrics,
            before_join=None if config.start_from is None else self._set_start,
        )
        self.group.idleness.wait_seconds = config.fetch_max_wait_ms / 1000
        self.inbox = Inbox(config)
        show_unreadable_batches(self.cluster.metrics, lambda: self.inbox.unreadable_count)
        self.window = Window(config, self.inbox)
        show_idleness(
            self.cluster.metrics,
            lambda: len(self.group.membership.assignment),
            lambda: self.group.idleness.seconds,
        )
        self.results = AcknowledgementResults(config.group_id, member_id)
        self.failure: KafkaError | None = None
        """An error that the next `poll` raises once."""
        self.lock_ms: int | None = None
        self.release_below = 0
        """`release_waiting` keeps records with this delivery count or a higher one."""
        self._wake = wake
        self._nodes: dict[int, ShareNode] = {}
        self._lock_known = asyncio.Event()
        self._ahead = AheadOf()
        self.on_records: Callable[[], object] | None = None
        """Called when records came, before the node's next step; None unless a poll waits."""
        self.renews = config.auto_renew
        self._tasks: asyncio.TaskGroup | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._polled_at: float | None = None
        """The time at which the last poll ended; None during a poll and before the first."""
        self._was_polled = False
        self._poll_began_at = 0.0

    # Start and stop.

    async def start(self) -> None:
        """Start the background tasks; raise the error that ended them earlier."""
        if self._runner is not None and self._runner.done():
            self._runner.result()  # Only an error ends the runner early; it is raised here.
        if self._runner is None:
            name = f"share-{self.session_member.member_id}"
            self._runner = asyncio.create_task(self._run(), name=name)
            # Requests need the task group, which exists only when the runner has begun.
            await self._ready.wait()

    @property
    def is_running(self) -> bool:
        """Whether the background tasks were started and have not ended."""
        return self._runner is not None and not self._runner.done()

    async def stop(self) -> None:
        """End the background tasks and close the connections."""
        self.cluster.close()
        self._stop.set()
        if self._runner is not None:
            await self._runner
        for node in self._nodes.values():
            self.results.add(node.abandon())

    async def leave(self) -> None:
        """Send outstanding acknowledgements, end the sessions and leave the group.

        A later poll joins the group again.
        """
        await self._ready.wait()  # The caller of `start` may have been cancelled before this.
        assert self._tasks is not None
        # Sessions end before the membership, as in
        # `ShareConsumerImpl.sendAcknowledgementsAndLeaveGroup`: acknowledgements need the session.
        closing = [self._tasks.create_task(node.close()) for node in self._nodes.values()]
        if closing:
            await asyncio.wait(closing)
        await self.group.heartbeats.leave()

    def _labels(self) -> dict[str, str]:
        labels = {
            "group_id": self.config.group_id,
            "group_member_id": str(self.session_member.member_id),
        }
        if self.config.client_rack is not None:
            labels["client_rack"] = self.config.client_rack
        return labels

    async def _set_start(self, topics: tuple[str, ...]) -> None:
        config = self.config
        assert config.start_from is not None, "called only with this option"
        outcome = await set_start(self.cluster, config.group_id, topics, config.start_from)
        if outcome is StartOutcome.HAS_OFFSETS:
            log.info(
                "event=group.start_kept group=%s start_from=%s reason='the group has offsets for "
                "its topics, so start_from has no effect' action='to read records again, reset the "
                "offsets of the group: AdminClient.reset_group_offsets'",
                config.group_id,
                config.start_from,
            )
        elif outcome is StartOutcome.SET:
            log.info(
                "event=group.start_set group=%s start_from=%s", config.group_id, config.start_from
            )

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            background_tasks = [
                *self.group.start(tasks),
                tasks.create_task(self._watch_polls()),
                tasks.create_task(self.telemetry.run()),
            ]
            if self.renews:
                background_tasks.append(tasks.create_task(self._renew_locks()))
            self._ready.set()
            await self._stop.wait()
            for node in self._nodes.values():
                node.stop()
            for task in background_tasks:
                task.cancel()

    # Requests of the consumer.

    def tables(self) -> Iterator[HeldRecords]:
        """Yield the tables of all held records, and of lost ones that are not reported yet."""
        for node in self._nodes.values():
            yield from node.tables()

    def flow(self) -> Flow:
        """Return the numbers of records that are on their way through this member."""
        held_tables = tuple(self.tables())
        return Flow(
            in_flight=sum(table.open_count for table in held_tables),
            in_flight_bytes=round(sum(table.open_bytes for table in held_tables)),
            in_flight_max=self.window.in_flight_max,
            waiting=self.inbox.waiting,
            waiting_bytes=round(self.inbox.waiting_bytes),
            requested=sum(node.asked_records for node in self._nodes.values()),
            is_joined=self.group.is_joined,
            is_paused=self.group.membership.quiet,
            renews_locks=self.renews,
        )

    def held(self) -> dict[TopicPartition, int]:
        """Count the held and unsettled records by partition, handed out or not."""
        counts: Counter[TopicPartition] = Counter()
        for table in self.tables():
            if table.lost is None:
                counts[table.topic_partition] += table.unsettled_count
        for parcel in self.inbox:
            counts[parcel.held.topic_partition] += parcel.waiting
        return {topic_partition: count for topic_partition, count in counts.items() if count}

    def ask_fetches(self, records: int, *, ahead: bool = False) -> None:
        """Send a fetch to every leader of assigned partitions that has none under way.

        Each fetch asks for up to ``records`` records and carries the outstanding
        acknowledgements.  With ``ahead`` only brokers that probably have more records are asked,
        and they do not wait for records.
        """
        assert self._tasks is not None
        wanted_by_node = self.group.assigned.by_leader(self._tasks, self._wake.set)
        if self.group.membership.quiet:
            wanted_by_node = {}
        for node_id in wanted_by_node:
            if node_id not in self._nodes:
                self._add_node(node_id)
        # Two brokers could each bring the whole limit, so record_limit fetches from one node at a
        # time, as Kafka's `ShareConsumeRequestManager` does.
        one_at_a_time = self.window.acquire_mode is AcquireMode.RECORD_LIMIT
        asked_records = sum(node.asked_records for node in self._nodes.values())
        for node_id, node in tuple(self._nodes.items()):
            node.wanted = wanted_by_node.get(node_id, ())
            # It may still hold records of partitions that it has lost.  Without any, this ends its
            # session.
            if not node.wanted:
                node.flush()
                continue
            if node.is_fetching:
                # What a poll has made final is sorted while the broker works.  With a window it is
                # not: the application settles meanwhile, and one sorting is cheaper than many.
                if not self.config.has_window:
                    node.gather()
                continue
            if ahead and not self._ahead.may_help(node_id):
                continue
            if one_at_a_time and asked_records:
                node.flush()
                continue
            max_wait_ms = 0 if ahead else self.window.max_wait_ms
            limits = self.window.to_fetch(records, self.tables(), asked_records, max_wait_ms)
            # The window is full; acknowledgements make room again.
            if limits is None:
                node.flush()
                continue
            node.fetch(limits)
            asked_records += node.asked_records
            # Move this node to the end, so that other nodes come first the next time.
            self._nodes[node_id] = self._nodes.pop(node_id)

    def ends_with(self, limit: int) -> bool:
        """Whether the inbox has records, and a poll of up to ``limit`` records empties it.

        Always False in the acquire mode record_limit: records that are fetched ahead there are
        missing at other members.
        """
        if self.window.acquire_mode is AcquireMode.RECORD_LIMIT or not len(self.inbox):
            return False
        return self.inbox.waiting <= self.window.to_hand_out(limit, self.tables())

    def flush(self) -> None:
        """Send outstanding acknowledgements in separate requests, without a fetch."""
        for node in self._nodes.values():
            if node.has_settled:
                node.flush()

    def stop_fetching(self) -> None:
        """Forget the fetches that are requested and not under way."""
        for node in self._nodes.values():
            node.stop_fetching()

    async def fetches_ended(self) -> None:
        """Wait until no fetch is under way; their records are in the inbox by then."""
        for node in tuple(self._nodes.values()):
            await node.fetch_ended()

    def release_waiting(self) -> None:
        """Release the records in the inbox with a delivery count below `release_below`."""
        self.inbox.release_waiting(delivered_below=self.release_below)
        self.flush()

    def pending_results(self) -> list[PendingResults]:
        """Send outstanding acknowledgements; return all results that are pending then."""
        unfinished = [
            pending for node in self._nodes.values() for pending in node.pending_results()
        ]
        self.flush()
        return unfinished

    def poll_began(self) -> None:
        """Note that a poll began, and join the group again if the member had left unpolled."""
        if not self.group.membership.active:
            log.info("event=consumer.rejoining group=%s member=%s", *self.session_member)
            self.group.membership.active = True
            self.group.heartbeats.wake()
        now = time.monotonic()
        if self._polled_at is not None:
            between_seconds = now - self._poll_began_at
            self.metrics.between_polls_ms.observe(between_seconds * 1000)
            self.metrics.poll_idle_ratio.observe(
                (self._polled_at - self._poll_began_at) / between_seconds
            )
        self.metrics.last_poll.mark()
        self._poll_began_at = now
        self._was_polled = True
        self._polled_at = None

    def poll_ended(self) -> None:
        """Note that the poll ended, so the application works from now on."""
        self._polled_at = time.monotonic()

    def stop_watching(self) -> None:
        """Stop checking ``max_poll_interval_ms``, because the consumer is being closed."""
        self._polled_at = None

    def _wants_records(self) -> bool:
        """Whether a poll waits or ended less than `AWAY_SECONDS` ago, and there is room."""
        membership = self.group.membership
        if not (membership.wants_heartbeat and self.group.heartbeats.failure is None):
            return False
        if membership.quiet or len(self.inbox):
            return False
        is_polled = self._polled_at is None or time.monotonic() - self._polled_at < AWAY_SECONDS
        return self._was_polled and is_polled and self.window.to_hand_out(1, self.tables()) > 0

    def _add_node(self, node_id: int) -> None:
        assert self._tasks is not None
        node = ShareNode(
            node_id, self.cluster, self.config, self.session_member, take_in=self._take_in
        )
        self._nodes[node_id] = node
        self._tasks.create_task(node.run())

    # Outcomes of requests.

    def _take_in(self, node: ShareNode, outcome: RequestOutcome) -> None:
        """Process the outcome of one request: records, results, lost locks and failures."""
        answer = outcome.answer
        # First the losses: they are about records of earlier answers, never about the parcels of
        # this one (`SessionAnswer.lost`).
        if outcome.lost:
            dropped = self.inbox.drop(outcome.lost)
            if dropped:
                log.info("event=inbox.dropped group=%s records=%s", self.config.group_id, dropped)
        self.inbox.add(outcome.parcels)
        # This fetch was under way when the member became quiet.
        if self.group.membership.quiet and outcome.parcels:
            self.release_waiting()
        self.results.add(outcome.results)
        if answer.lock_ms is not None:
            self.lock_ms = answer.lock_ms
            self._lock_known.set()
        self.group.assigned.outdate_leaders(node.node_id, outcome.outdated)
        for error in outcome.failures:
            group_id = self.config.group_id
            log.info("event=fetch.failed group=%s node=%s error=%r", group_id, node.node_id, error)
            # An error that passes is retried by the node; the log and `Idleness` tell of it.
            if not may_pass(error) and self.failure is None:
                self.failure = error
            self.group.idleness.failed(node.node_id, error)
        if outcome.limits is not None:
            brought = [parcel.held.key for parcel in outcome.parcels]
            self.group.fetch_ended(node.node_id, with_records=brought, errors=outcome.failures)
        if outcome.not_renewed:
            self._take_in_refused_renewals(outcome)
        self._measure(node, outcome)
        if self.on_records is not None and outcome.parcels:
            self.on_records()
        self._wake.set()

    def _measure(self, node: ShareNode, outcome: RequestOutcome) -> None:
        metrics, answer = self.metrics, outcome.answer
        for result in outcome.results:
            metrics.acknowledgements_send.add(len(result.offsets))
            if result.error is not None:
                metrics.acknowledgements_error.add(len(result.offsets))
        if outcome.limits is None:
            return
        records = sum(parcel.waiting for parcel in outcome.parcels)
        self._ahead.fetched(node.node_id, records, outcome.limits)
        if answer.failure is None:
            fetched = sum(len(parcel.records) for parcel in outcome.parcels)
            seconds = time.monotonic() - answer.sent_at
            metrics.fetched(seconds, fetched, throttle_ms=answer.throttle_ms)
            if records:
                metrics.records_per_request.observe(records)

    # Renewal.

    async def _renew_locks(self) -> None:
        config = self.config
        # The lock duration is a setting of the group, which the first answer to a fetch tells.
        await self._lock_known.wait()
        while self.renews:
            assert self.lock_ms is not None
            await asyncio.sleep(look_seconds(self.lock_ms))
            for node in self._nodes.values():
                due_for_renewal, let_go = due_locks(
                    (lock for table in node.tables() for lock in table.locks()),
                    now=time.monotonic(),
                    lock_seconds=self.lock_ms / 1000,
                    age_max_seconds=config.renew_age_max_ms / 1000,
                )
                say_let_go(config.group_id, let_go, config.renew_age_max_ms)
                if due_for_renewal:
                    node.renew(due_for_renewal)

    def _take_in_refused_renewals(self, outcome: RequestOutcome) -> None:
        for unit, error in outcome.not_renewed:
            log.warning(
                "event=renewal.failed group=%s topic=%s partition=%s error=%r",
                self.config.group_id,
                *unit.held.topic_partition,
                error,
            )
            if error.retriable or not self.renews:
                continue
            if forbids_renewal(error):
                # Renewal can never succeed here: report that once and continue without it.
                self.renews = False
                ending = type(error)(
                    f"auto_renew is now disabled: {error} (renewal needs the group config "
                    "share.renew.acknowledge.enable=true, and Apache Kafka 4.2 or newer)"
                )
                ending.ends_renewal = True
                # Also in place of an earlier error: that of a fetch comes again, this one does not.
                self.failure = ending
            elif refusal_of(error) is Refusal.LOCK_ENDED:
                for lock, _ in unit.renewals or ():
                    lock.let_go = True  # The broker says that this member has lost the lock.

    # Leaving the group while the application does not poll.

    async def _watch_polls(self) -> None:
        """Leave the group when ``max_poll_interval_ms`` has passed since the last poll."""
        limit_seconds = self.config.max_poll_interval_ms / 1000
        while True:
            away_seconds = 0.0 if self._polled_at is None else time.monotonic() - self._polled_at
            if (
                away_seconds >= limit_seconds
                and self.group.membership.active
                and self.group.membership.subscription
            ):
                await self._leave_unpolled()
            # Not 0 once the limit has passed: after it has left, the time away goes on growing.
            await asyncio.sleep(max(limit_seconds - away_seconds, limit_seconds / 10))

    async def _leave_unpolled(self) -> None:
        log.warning(
            "event=consumer.left group=%s member=%s max_poll_interval_ms=%s reason='poll was not "
            "called for max_poll_interval_ms' action='other members get its records, and the next "
            "poll joins again; process records faster, take fewer records per poll, or increase "
            "max_poll_interval_ms'",
            *self.session_member,
            self.config.max_poll_interval_ms,
        )
        # First, so that a heartbeat that is due in the meantime does not join again.
        self.group.membership.active = False
        try:
            await self.leave()
        except KafkaError as error:
            log.info("event=consumer.leave_failed group=%s error=%r", self.config.group_id, error)
        finally:
            self.group.heartbeats.wake()  # If `poll` was called meanwhile, join again at once.
