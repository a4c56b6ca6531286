"""What runs beside the application for one share consumer.

    heartbeats ---> assignment ---> nodes: a session with each broker that leads a part of it
                                      |  fetch, acknowledge, renew
    application <--- inbox <----------'  results, failures

The consumer asks (`ask_fetches`, `flush`), the nodes do it one request at a time and hand in
what came of it (`_take_in`).  Everything that runs here lives in one task group, so an error
ends the whole and comes out of the next `poll`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator

from sharegroup.client.ahead import AheadOf
from sharegroup.client.assigned import AssignedPartitions
from sharegroup.client.client_metrics import ShareConsumerMetrics
from sharegroup.client.cluster import Cluster
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.inbox import Inbox
from sharegroup.client.membership import Heartbeats, Membership
from sharegroup.client.outcomes import Outcomes
from sharegroup.client.records import TopicPartition
from sharegroup.client.refusals import may_pass
from sharegroup.client.renewal import due_locks, say_let_go, tick_seconds
from sharegroup.client.settled import Ticket
from sharegroup.client.share_node import Outcome, ShareNode
from sharegroup.client.share_requests import SessionMember
from sharegroup.client.window import Window
from sharegroup.errors import InvalidRecordState, KafkaError, UnsupportedVersion
from sharegroup.ids import GroupId, MemberId

log = logging.getLogger(__name__)


class ShareMember:
    """See the module's text."""

    def __init__(
        self, config: ShareConsumerConfig, member_id: MemberId, wake: asyncio.Event
    ) -> None:
        self.config = config
        self.cluster = Cluster(config)
        self.metrics = ShareConsumerMetrics(self.cluster.metrics)
        self.session_member = SessionMember(GroupId(config.group_id), member_id)
        self.membership = Membership(GroupId(config.group_id), member_id, config.client_rack)
        self.heartbeats = Heartbeats(
            self.cluster, self.membership, changed=wake.set, metrics=self.metrics
        )
        self.assigned = AssignedPartitions(self.cluster, self.membership)
        self.inbox = Inbox(config)
        self.window = Window(config, self.inbox)
        self.outcomes = Outcomes(config.group_id, member_id)
        self.failure: KafkaError | None = None
        """Something for the application to know once."""
        self.lock_ms: int | None = None
        self.give_back_below = 0
        """`give_back` keeps what was delivered so often."""
        self._wake = wake
        self._nodes: dict[int, ShareNode] = {}
        self._lock_known = asyncio.Event()
        self._ahead = AheadOf()
        self.renews = config.auto_renew
        self._tasks: asyncio.TaskGroup | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._polled_at: float | None = None
        """When the last poll ended; None: one runs, or none ever did."""
        self._poll_began_at = 0.0

    # Life.

    async def start(self) -> None:
        """Run in the background; raises what ended it earlier."""
        if self._runner is not None and self._runner.done():
            self._runner.result()  # It ends early by an error alone, which is raised here.
        if self._runner is None:
            name = f"share-{self.session_member.member_id}"
            self._runner = asyncio.create_task(self._run(), name=name)
            await self._ready.wait()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._runner is not None and not self._runner.done()

    async def stop(self) -> None:
        """End everything that runs; connections are cut."""
        self.cluster.close()
        self._stop.set()
        if self._runner is not None:
            await self._runner
        for node in self._nodes.values():
            self.outcomes.add(node.abandon())

    async def leave(self) -> None:
        """Send what is settled, end the sessions, leave the group; come back with a poll."""
        await self._ready.wait()  # Who started it may have been cancelled at once.
        assert self._tasks is not None
        closing = [self._tasks.create_task(node.close()) for node in self._nodes.values()]
        if closing:
            await asyncio.wait(closing)
        await self.heartbeats.leave()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            running = [
                tasks.create_task(self.heartbeats.run()),
                tasks.create_task(self._watch_polls()),
            ]
            if self.renews:
                running.append(tasks.create_task(self._renew_locks()))
            self._ready.set()
            await self._stop.wait()
            for node in self._nodes.values():
                node.stop()
            for one in running:
                one.cancel()

    # What the consumer asks for.

    def tables(self) -> Iterator[HeldRecords]:
        """Everything that is held, and what was lost and is not reported yet."""
        for node in self._nodes.values():
            yield from node.tables()

    def held(self) -> dict[TopicPartition, int]:
        """How many records are held and not settled, handed out or not."""
        counts: Counter[TopicPartition] = Counter()
        for held in self.tables():
            if held.lost is None:
                counts[held.topic_partition] += held.open_count
        for parcel in self.inbox:
            counts[parcel.held.topic_partition] += parcel.waiting
        return {where: count for where, count in counts.items() if count}

    def ask_fetches(self, records: int, *, ahead: bool = False) -> None:
        """A fetch from each broker that has none under way and whatever is there for us.

        ``ahead``: only where it may help, and only what can be given at once.  All that is
        settled goes along.
        """
        assert self._tasks is not None
        wanted = self.assigned.by_leader(self._tasks, self._wake.set)
        if self.membership.quiet:
            wanted = {}
        for node_id in wanted:
            if node_id not in self._nodes:
                self._add_node(node_id)
        one_at_a_time = self.window.acquire_mode == "record_limit"
        asked = sum(node.asked_records for node in self._nodes.values())
        for node_id, node in tuple(self._nodes.items()):
            node.wanted = wanted.get(node_id, ())
            if not node.wanted:
                node.flush()
                continue
            if node.is_fetching or (ahead and not self._ahead.may_help(node_id)):
                continue
            if one_at_a_time and asked:
                node.flush()
                continue
            max_wait_ms = 0 if ahead else self.window.max_wait_ms
            limits = self.window.to_fetch(records, self.tables(), asked, max_wait_ms)
            if limits is None:
                node.flush()
                continue
            node.fetch(limits)
            asked += node.asked_records
            self._nodes[node_id] = self._nodes.pop(node_id)  # Others are first the next time.

    def ends_with(self, limit: int) -> bool:
        """Whether a poll of up to so many records hands out all that waits, and there is some.

        Not where records are counted exactly: what is fetched ahead there, others lack.
        """
        if self.window.acquire_mode == "record_limit" or not len(self.inbox):
            return False
        return self.inbox.waiting <= self.window.to_hand_out(limit, self.tables())

    def flush(self) -> None:
        """Send what is settled by now, in requests of its own."""
        for node in self._nodes.values():
            if node.has_settled:
                node.flush()

    def give_back(self) -> None:
        """Release what waits in the inbox and may well be delivered again."""
        self.inbox.give_back(delivered_below=self.give_back_below)
        self.flush()

    def tickets(self) -> list[Ticket]:
        """Have everything that is settled sent; follows it and all that is under way."""
        tickets = [ticket for node in self._nodes.values() for ticket in node.tickets()]
        self.flush()
        return tickets

    def poll_began(self) -> None:
        """The application is there; if it was away for too long, join again."""
        if not self.membership.active:
            log.info("consumer.rejoining group=%s member=%s", *self.session_member)
            self.membership.active = True
            self.heartbeats.wake()
        now = time.monotonic()
        if self._polled_at is not None:
            between = now - self._poll_began_at
            self.metrics.between_polls_ms.observe(between * 1000)
            self.metrics.poll_idle_ratio.observe((self._polled_at - self._poll_began_at) / between)
        self.metrics.last_poll.mark()
        self._poll_began_at = now
        self._polled_at = None

    def poll_ended(self) -> None:
        """The application works from now on."""
        self._polled_at = time.monotonic()

    def stop_watching(self) -> None:
        """It will not poll any more, and that is no absence."""
        self._polled_at = None

    def _add_node(self, node_id: int) -> None:
        assert self._tasks is not None
        node = ShareNode(
            node_id, self.cluster, self.config, self.session_member, take_in=self._take_in
        )
        self._nodes[node_id] = node
        self._tasks.create_task(node.run())

    # What comes in.

    def _take_in(self, node: ShareNode, outcome: Outcome) -> None:
        """Make an outcome ours: records, results, and what went wrong."""
        answer = outcome.answer
        if outcome.lost:
            dropped = self.inbox.drop(outcome.lost)
            if dropped:
                log.info("inbox.dropped group=%s records=%s", self.config.group_id, dropped)
        self.inbox.add(outcome.parcels)
        if self.membership.quiet and outcome.parcels:
            self.give_back()
        self.outcomes.add(outcome.results)
        if answer.lock_ms is not None:
            self.lock_ms = answer.lock_ms
            self._lock_known.set()
        for topic, _ in outcome.outdated:
            self.cluster.outdate(topic)
        for error in outcome.failures:
            group_id = self.config.group_id
            log.info("fetch.failed group=%s node=%s error=%r", group_id, node.node_id, error)
            if not may_pass(error) and self.failure is None:
                self.failure = error
        if outcome.not_renewed:
            self._take_in_refused_renewals(outcome)
        self._measure(node, outcome)
        self._wake.set()

    def _measure(self, node: ShareNode, outcome: Outcome) -> None:
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
            metrics.fetch.add()
            metrics.fetch_latency_ms.observe((time.monotonic() - answer.sent_at) * 1000)
            metrics.fetch_throttle_ms.observe(answer.throttle_ms)
            metrics.fetch_bytes.observe(fetched)
            metrics.bytes_consumed.add(fetched)
            if records:
                metrics.records_per_request.observe(records)

    # Renewal.

    async def _renew_locks(self) -> None:
        config = self.config
        await self._lock_known.wait()
        while self.renews:
            assert self.lock_ms is not None
            await asyncio.sleep(tick_seconds(self.lock_ms))
            for node in self._nodes.values():
                due, let_go = due_locks(
                    (lock for held in node.tables() for lock in held.locks()),
                    now=time.monotonic(),
                    lock_seconds=self.lock_ms / 1000,
                    age_max_seconds=config.renew_age_max_ms / 1000,
                )
                say_let_go(config.group_id, let_go, config.renew_age_max_ms)
                if due:
                    node.renew(due)

    def _take_in_refused_renewals(self, outcome: Outcome) -> None:
        for unit, error in outcome.not_renewed:
            log.warning(
                "renewal.failed group=%s topic=%s partition=%s error=%r",
                self.config.group_id,
                *unit.held.topic_partition,
                error,
            )
            if error.retriable or not self.renews:
                continue
            if isinstance(error, UnsupportedVersion) or _is_switched_off(error):
                # It will not work: say so once and go on without.
                self.renews = False
                self.failure = self.failure or type(error)(
                    f"auto_renew is off from now on: {error} (the group config "
                    "share.renew.acknowledge.enable allows renewal, Apache Kafka has it since 4.2)"
                )
            elif isinstance(error, InvalidRecordState):
                for lock, _ in unit.renewals:
                    lock.let_go = True  # Not ours any more, whatever we reckoned.

    # An application that does not come back.

    async def _watch_polls(self) -> None:
        limit = self.config.max_poll_interval_ms / 1000
        while True:
            away = 0.0 if self._polled_at is None else time.monotonic() - self._polled_at
            if away >= limit and self.membership.active and self.membership.subscription:
                await self._leave_unpolled()
            await asyncio.sleep(max(limit - away, limit / 10))

    async def _leave_unpolled(self) -> None:
        log.warning(
            "consumer.left group=%s member=%s: poll was not called for max_poll_interval_ms=%s; "
            "its records go to others, and it joins again with the next poll "
            "(work faster, take fewer records a poll, or raise max_poll_interval_ms)",
            *self.session_member,
            self.config.max_poll_interval_ms,
        )
        self.membership.active = False
        try:
            await self.leave()
        except KafkaError as error:
            log.info("consumer.leave_failed group=%s error=%r", self.config.group_id, error)
        finally:
            self.heartbeats.wake()  # If it was polled meanwhile, it joins again at once.


def _is_switched_off(error: KafkaError) -> bool:
    """Whether the group does not allow renewal, which has no code of its own, only words."""
    return any(words in str(error) for words in ("is not enabled", "share.renew.acknowledge"))
