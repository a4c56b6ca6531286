"""ShareConsumer: one member of a share group (KIP-932).

    poll ---> inbox ---> application ---> settled ---> with the next fetch, commit, close
      |         ^
      '---> one fetch for each broker that leads an assigned partition

Fetches are sent by `poll` when nothing is left to hand out; they go on when `poll` returns,
and what they bring is there for the next one.  Heartbeats run by themselves.  Everything that
runs in the background lives in one task group, so an error there ends the consumer and comes
out of the next `poll`.

A broker that restarts costs the session with it: what was held is delivered again, to
anyone, and acknowledgements of it are reported as failed (never sent) or in doubt (sent, no
answer).  The consumer joins again by itself.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Self, Unpack

from sharegroup.client.assigned import AssignedPartitions
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import config_from
from sharegroup.client.consumer_config import ShareConsumerConfig, ShareConsumerOptions
from sharegroup.client.deliveries import Inbox
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.membership import Heartbeats, Membership
from sharegroup.client.records import (
    AcknowledgementResult,
    AcknowledgeType,
    IllegalStateError,
    Record,
    TopicPartition,
)
from sharegroup.client.share_node import Outcome, ShareNode, needs_the_application
from sharegroup.errors import KafkaError, RequestTimedOut
from sharegroup.ids import GroupId, MemberId
from sharegroup.ids import TopicPartition as TopicIdPartition

log = logging.getLogger(__name__)

AcknowledgementCallback = Callable[[AcknowledgementResult], None]

ITERATION_SECONDS = 1.0
"""How long `async for` waits in one poll; nobody sees it."""

CLOSE_SECONDS = 30.0


class ShareConsumer:
    """Consumes records of topics together with the other members of a share group.

    In implicit mode the next `poll`, `commit` or `close` accepts what the last poll returned.
    In explicit mode every record has to be settled before the next poll.

    Example::

        async with ShareConsumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id="billing",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            for record in await consumer.poll(timeout=10):
                record.accept()
            await consumer.commit()
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        self._config = config_from(ShareConsumerConfig, options)
        member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self._member_id = MemberId(member_id)
        self._cluster = Cluster(self._config)
        self._wake = asyncio.Event()
        self._membership = Membership(
            GroupId(self._config.group_id), self._member_id, self._config.client_rack
        )
        self._heartbeats = Heartbeats(self._cluster, self._membership, changed=self._wake.set)
        self._assigned = AssignedPartitions(self._cluster, self._membership)
        self._nodes: dict[int, ShareNode] = {}
        self._pauses: dict[int, float] = {}
        self._busy: set[int] = set()
        self._inbox = Inbox()
        self._results: list[AcknowledgementResult] = []
        self._unreported: dict[TopicPartition, KafkaError | None] = {}
        self._failure: KafkaError | None = None
        self._callback: AcknowledgementCallback | None = None
        self._lock_timeout_ms: int | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._polling = False
        self._closed = False
        if topics:
            self.subscribe(*topics)

    # What it is.

    @property
    def group_id(self) -> str:
        """The share group."""
        return self._config.group_id

    @property
    def member_id(self) -> str:
        """The id that this member chose for itself."""
        return self._member_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._membership.subscription)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator assigned to this member, as far as known."""
        return self._assigned.named()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay locked for this member; None before the first fetch."""
        return self._lock_timeout_ms

    # Life.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Records in hand when an exception passes were hardly all processed: not accepted.
        await self.close(accept_open=error is None)

    async def start(self) -> None:
        """Begin to join the group; `poll` does it too."""
        self._check_open()
        if self._runner is not None and self._runner.done():
            self._runner.result()  # It ends early by an error alone, which is raised here.
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name=f"share-{self._member_id}")
            await self._ready.wait()

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
        *,
        accept_open: bool = True,
    ) -> None:
        """Send what is settled, give back what is not, leave the group; within ``timeout``.

        In implicit mode ``accept_open=False`` gives back what the last poll returned.
        """
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        if accept_open:
            self._accept_open()
        try:
            if self._runner is not None and not self._runner.done():
                async with asyncio.timeout(timeout):
                    await self._leave()
        except (TimeoutError, KafkaError) as error:
            log.warning(
                "consumer.close_incomplete group=%s member=%s error=%r "
                "(locks and membership end by their timeouts)",
                self.group_id,
                self._member_id,
                error,
            )
        finally:
            self._cluster.close()
            self._stop.set()
        if self._runner is not None:
            await self._runner
        self._run_callbacks()
        self._log_failures(self._unreported)  # There is no next commit that could tell them.

    def subscribe(self, *topics: str) -> None:
        """Replace the subscription."""
        if not topics:
            raise ValueError("subscribe needs a topic; unsubscribe leaves the group")
        for topic in topics:
            if not topic or not topic.strip():
                raise ValueError(f"topic {topic!r}: expected a name")
        self._membership.subscribe(tuple(sorted(set(topics))))
        self._heartbeats.wake()

    async def unsubscribe(self) -> None:
        """Leave the group as `close` does, and stay usable; what is not settled goes back."""
        self._check_open()
        self._accept_open()
        self._membership.subscribe(())
        if self._runner is not None:
            await self._leave()
            for held in self._tables():
                held.forget_open()

    # Records.

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  It ends in an empty list, not in an error.
        max_records: int | None = None,
    ) -> list[Record]:
        """Records as soon as there are some, or none after ``timeout`` seconds."""
        if self._polling:
            raise IllegalStateError("poll runs already in another task")
        if not self._membership.subscription:
            raise IllegalStateError("poll needs a subscription: call subscribe first")
        self._polling = True
        try:
            await self.start()
            self._close_last_batch()
            return await self._poll(time.monotonic() + timeout, max_records)
        finally:
            self._polling = False

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records one by one, for ever.

        Implicit mode: a record is accepted when the next one is asked for, or by `commit` and
        `close`.  Explicit mode: what is yielded from one poll must be settled by its end.
        """
        while True:
            for record in await self.poll(ITERATION_SECONDS, self._iteration_size()):
                yield record

    def acknowledge(
        self, record: Record, acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Choose what becomes of a record; may be changed until it is sent."""
        record.settle(acknowledge_type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, acknowledge_type: AcknowledgeType
    ) -> None:
        """`acknowledge` by position, for a record that came with an exception."""
        for held in self._tables():
            if held.topic_partition == (topic, partition) and held.holds(offset):
                held.settle(offset, acknowledge_type)
                return
        raise IllegalStateError(
            f"topic {topic!r} partition {partition} offset {offset} is not held by this member"
        )

    async def commit(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  The requests go on when it has passed.
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send what is settled, wait until nothing is under way; what the broker said.

        By partition: None: durable.  NetworkException: in doubt, sent without an answer.  Any
        other error: no effect.  A result is about what this commit sent.  For partitions that
        it sent nothing of, and without a callback, it is about what went with fetches since the
        last commit, errors first; an older failure that has no place here is logged.  After
        ``timeout`` seconds RequestTimedOut is raised; the outcome then goes to the callback,
        or comes with the next commit.
        """
        self._check_open()
        limit = self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
        sent = self._send_acknowledgements()
        if sent:
            _, late = await asyncio.wait(sent, timeout=limit)
            if late:
                raise RequestTimedOut(
                    f"group {self.group_id!r}: acknowledgements without an answer for {limit} s"
                )
        self._run_callbacks()
        fresh: dict[TopicPartition, KafkaError | None] = {}
        for one in (result for task in sent for result in task.result().results):
            fresh[one.topic_partition] = fresh.get(one.topic_partition) or one.error
        older, self._unreported = self._unreported, {}
        self._log_failures(
            {where: older[where] for where in fresh if older.get(where) is not fresh[where]}
        )
        return older | fresh

    def commit_async(self) -> None:
        """Send what is settled and don't wait; the callback gets the outcome."""
        self._check_open()
        self._send_acknowledgements()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have every outcome reported, from inside `poll`, `commit` and `close`; None: no more.

        What the callback raises comes out of the call that it was called from.
        """
        self._callback = callback

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    def _log_failures(self, failures: Mapping[TopicPartition, KafkaError | None]) -> None:
        for (topic, partition), error in failures.items():
            if error is not None:
                log.warning(
                    "acknowledgement.failed group=%s member=%s topic=%s partition=%s error=%r "
                    "(set a callback to hear of each, with its offsets)",
                    self.group_id,
                    self._member_id,
                    topic,
                    partition,
                    error,
                )

    # Inside a poll.

    async def _poll(self, deadline: float, max_records: int | None) -> list[Record]:
        limit = self._config.max_poll_records if max_records is None else max_records
        while not self._closed:
            self._wake.clear()
            self._run_callbacks()
            self._raise_failures()
            records = self._inbox.take(limit, now=time.monotonic())
            if records:
                if len(self._inbox):
                    self._send_acknowledgements(accept=False)  # No fetch takes them along yet.
                return records
            self._start_fetches()
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return []
            try:
                async with asyncio.timeout(remaining):
                    await self._wake.wait()
            except TimeoutError:
                continue
        raise IllegalStateError("this consumer was closed during a poll")

    def _close_last_batch(self) -> None:
        if not self._config.explicit:
            self._accept_open()
            return
        for held in self._tables():
            if held.open_count:
                raise IllegalStateError(
                    f"{held.open_count} records of topic {held.topic!r} partition "
                    f"{held.partition} are not acknowledged; explicit mode needs that before "
                    "the next poll"
                )

    def _accept_open(self) -> None:
        if not self._config.explicit:
            for held in self._tables():
                held.accept_open()

    def _raise_failures(self) -> None:
        if self._heartbeats.failure is not None:
            raise self._heartbeats.failure
        for source in (self._heartbeats.report, self._failure):
            if source is not None:
                self._heartbeats.report = self._failure = None
                raise source

    def _iteration_size(self) -> int:
        # One by one, so that a record not yet yielded is never accepted.
        return self._config.max_poll_records if self._config.explicit else 1

    def _tables(self) -> Iterator[HeldRecords]:
        for node in self._nodes.values():
            yield from node.tables()

    # Requests.

    def _start_fetches(self) -> None:
        """A fetch for each broker that has none under way and nothing to wait for."""
        assert self._tasks is not None
        wanted = self._assigned.by_leader(self._tasks, self._wake.set)
        now = time.monotonic()
        one_at_a_time = self._config.share_acquire_mode == "record_limit"
        for node_id in [*wanted, *(one for one in self._nodes if one not in wanted)]:
            if node_id in self._busy or self._pauses.get(node_id, 0.0) > now:
                continue
            if one_at_a_time and self._busy:
                break
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = ShareNode(
                    node_id, self._cluster, self._config, self._member_id
                )
            if node_id in wanted or node.has_settled or node.is_open:
                self._busy.add(node_id)
                self._tasks.create_task(self._fetch(node, wanted.get(node_id, ())))

    async def _fetch(self, node: ShareNode, wanted: tuple[TopicIdPartition, ...]) -> None:
        try:
            if wanted:
                limit = self._config.max_poll_records
                outcome = await node.fetch(wanted, max_records=limit)
            else:
                outcome = await node.acknowledge(close=not node.has_open)
        finally:
            self._busy.discard(node.node_id)
        self._take_in(node, outcome)
        self._wake.set()

    def _send_acknowledgements(self, *, accept: bool = True) -> list[asyncio.Task[Outcome]]:
        if accept:
            self._accept_open()
        if self._tasks is None:
            return []
        return [
            self._tasks.create_task(self._acknowledge(node))
            for node in self._nodes.values()
            if node.has_settled or node.is_acknowledging
        ]

    async def _acknowledge(self, node: ShareNode, *, close: bool = False) -> Outcome:
        outcome = await node.acknowledge(close=close)
        self._take_in(node, outcome)
        return outcome

    def _take_in(self, node: ShareNode, outcome: Outcome) -> None:
        """Make an outcome ours: records, results, and what went wrong."""
        if outcome.lost:
            self._inbox.drop(outcome.lost)
        self._inbox.add(outcome.deliveries)
        self._results += outcome.results
        if outcome.lock_timeout_ms is not None:
            self._lock_timeout_ms = outcome.lock_timeout_ms
        for topic, _ in outcome.outdated:
            self._cluster.outdate(topic)
        if not outcome.failures:
            node.backoff.reset()
            return
        for error in outcome.failures:
            log.info("fetch.failed group=%s node=%s error=%r", self.group_id, node.node_id, error)
            if needs_the_application(error) and self._failure is None:
                self._failure = error
        delay = node.backoff.next_ms() / 1000
        self._pauses[node.node_id] = time.monotonic() + delay
        asyncio.get_running_loop().call_later(delay, self._wake.set)

    def _run_callbacks(self) -> None:
        results, self._results = self._results, []
        for index, one in enumerate(results):
            if self._callback is not None:
                try:
                    self._callback(one)
                except BaseException:
                    self._results = results[index + 1 :] + self._results
                    raise
            else:
                where = one.topic_partition
                self._unreported[where] = self._unreported.get(where) or one.error

    # Background.

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            heartbeats = tasks.create_task(self._heartbeats.run())
            self._ready.set()
            await self._stop.wait()
            heartbeats.cancel()

    async def _leave(self) -> None:
        assert self._tasks is not None
        closing = [
            self._tasks.create_task(self._acknowledge(node, close=True))
            for node in self._nodes.values()
        ]
        if closing:
            await asyncio.wait(closing)
        await self._heartbeats.leave()
