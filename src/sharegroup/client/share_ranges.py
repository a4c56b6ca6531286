"""A member of a share group that holds ranges of offsets and leaves the records to others.

The driver of a Spark query acquires here, its executors read by plain fetches, and when their
work is committed the driver acknowledges here.  In between, which may be hours, the locks are
renewed at a third of their time.

    acquire ---> ranges by partition, held and renewed; what came along goes to ``on_records``
    acknowledge(runs) ---> what could not be acknowledged: it may come again
    close ---> the broker gives back what is held

An acquisition goes on until nothing more comes, the wanted number is reached or time is up:
one ShareFetch brings 8 MiB at most, and a share partition may hand out 200,000 records at
once.  What a broker hands out beyond the wanted number (it gives whole batches) is taken.

Everything runs on one event loop and every call ends within a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.client import admin_groups, admin_topics
from sharegroup.client.admin_types import ListedOffset, OffsetSpec, SharePartitionOffset
from sharegroup.client.assigned import AssignedPartitions
from sharegroup.client.cluster import Cluster
from sharegroup.client.config import ClientConfig
from sharegroup.client.held_ranges import Fetched, HeldRanges, Runs
from sharegroup.client.membership import Heartbeats, Membership, new_member_id
from sharegroup.client.offset_set import EMPTY, OffsetSet
from sharegroup.client.records import TopicPartition as NamedPartition
from sharegroup.client.refusals import may_pass
from sharegroup.client.share_requests import FetchLimits, SessionMember
from sharegroup.client.share_session import AcquiredRange, FetchedPartition, ShareSession
from sharegroup.errors import KafkaError
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName, TopicPartition

log = logging.getLogger(__name__)

RECORDS_MAX = 2**31 - 1
"""No limit, as far as the protocol can say it."""
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Of one ShareFetch.  Memory for answers of this size is used again and again, on both sides;
larger ones are sent from, and received into, pages that the kernel has to make anew each time."""
TOPIC_MS_MAX = 15_000
"""How long to wait for a topic whose last offsets are asked for to exist."""
WAIT_MS_OF_MANY = 100
"""How long one of several brokers may park a fetch, while another may have records."""
LITTLE = 10
"""One in so many, of what came before or of what fits, is little."""
RENEWALS_PER_LOCK = 3
LOCK_MS_UNTIL_KNOWN = 1_000
"""How soon to look whether there is something to renew, before a broker has said."""


@dataclass(slots=True)
class Acquisition:
    """What an `acquire` brought."""

    ranges: dict[TopicPartition, tuple[AcquiredRange, ...]] = field(default_factory=dict)
    """Ascending, disjoint; neighbours that touch differ in their delivery count."""
    failure: KafkaError | None = None
    """Why there is not more; what came before is there nevertheless."""


class ShareRanges:
    """See the module's text."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        group_id: str,
        topics: Iterable[str],
        member_id: str | None = None,
        on_records: Callable[[FetchedPartition], None] | None = None,
    ) -> None:
        self._on_records = on_records
        member = MemberId(member_id) if member_id else new_member_id()
        self.member = SessionMember(GroupId(group_id), member)
        self._cluster = Cluster(config)
        self._membership = Membership(*self.member, rack_id=None)
        self._membership.subscribe(tuple(sorted(topics)))
        self._changed = asyncio.Event()
        self._heartbeats = Heartbeats(self._cluster, self._membership, changed=self._changed.set)
        self._assigned = AssignedPartitions(self._cluster, self._membership)
        self._nodes: dict[int, HeldRanges] = {}
        self._runner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def held(self) -> dict[TopicPartition, OffsetSet]:
        """What this member holds, as far as it knows."""
        held: dict[TopicPartition, OffsetSet] = {}
        for node in self._nodes.values():
            for key, offsets in node.held.items():
                held[key] = held.get(key, EMPTY) | offsets
        return held

    @property
    def lock_ms(self) -> int | None:
        """The shortest time that a lock lasts; None before a broker has said."""
        return min((one.lock_ms for one in self._nodes.values() if one.lock_ms), default=None)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator gave this member."""
        return self._membership.assignment

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        """The name of a topic that something was acquired of."""
        return self._cluster.name_of(topic_id)

    # Life.

    def start(self) -> None:
        """Begin to join the group."""
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name=f"ranges-{self.member.member_id}")

    async def close(self) -> None:
        """Give back what is held and leave the group; the caller bounds the time.

        However it ends, the connections are closed, and with them the sessions.
        """
        try:
            if self._runner is not None and not self._runner.done():
                goodbyes = [node.close() for node in self._nodes.values() if node.session.is_alive]
                done = await asyncio.gather(
                    *goodbyes, self._heartbeats.leave(), return_exceptions=True
                )
                for error in (one for one in done if isinstance(one, Exception)):
                    log.info("ranges.close_incomplete member=%s error=%r", self.member, error)
        finally:
            self._cluster.close()
            if self._runner is not None:
                self._runner.cancel()
                await asyncio.wait([self._runner])

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._heartbeats.run())
            tasks.create_task(self._keep_renewing())

    # Acquiring.

    async def acquire(self, *, records_max: int = RECORDS_MAX, wait_ms: int) -> Acquisition:
        """What the group has for this member, waiting ``wait_ms`` for the first of it.

        Raises what only a person can put right; everything else is in the result's failure.
        """
        self.start()
        deadline = time.monotonic() + wait_ms / 1000
        parts: dict[TopicPartition, list[AcquiredRange]] = defaultdict(list)
        acquisition = Acquisition()
        while not parts and acquisition.failure is None:
            leaders = await self._leaders(deadline)
            if not leaders:
                break
            fetching = [
                self._drain(node_id, wanted, _share(records_max, len(leaders)), deadline)
                for node_id, wanted in leaders.items()
            ]
            for fetched in (one for some in await asyncio.gather(*fetching) for one in some):
                acquisition.failure = acquisition.failure or fetched.failure
                for key, ranges in fetched.acquired.items():
                    parts[key] += ranges
            if time.monotonic() >= deadline:
                break
        acquisition.ranges = {key: _joined(ranges) for key, ranges in parts.items()}
        if acquisition.failure is not None and not parts:
            await self._pause(acquisition.failure, deadline)
        return acquisition

    async def _leaders(self, deadline: float) -> Mapping[int, tuple[TopicPartition, ...]]:
        """Who leads what is assigned, waiting for an assignment until the deadline."""
        while True:
            self._changed.clear()
            if self._runner is not None and self._runner.done():
                self._runner.result()  # Only an error ends it; it is raised here.
            self._check_heartbeats()
            report, self._heartbeats.report = self._heartbeats.report, None
            if report is not None:
                raise report
            if self._tasks is not None:
                leaders = self._assigned.by_leader(self._tasks, self._changed.set)
                if leaders:
                    return leaders
            try:
                async with asyncio.timeout_at(_on_loop(deadline)):
                    await self._changed.wait()
            except TimeoutError:
                return {}

    def _check_heartbeats(self) -> None:
        """Join again after what may pass; raise what only a person can put right."""
        failure, self._heartbeats.failure = self._heartbeats.failure, None
        if failure is None or self._tasks is None:
            return
        if not may_pass(failure):
            raise failure
        log.warning("membership.lost member=%s error=%r (joining again)", self.member, failure)
        self._membership.reset()
        self._tasks.create_task(self._heartbeats.run())

    async def _drain(
        self,
        node_id: int,
        wanted: tuple[TopicPartition, ...],
        records_max: int,
        deadline: float,
    ) -> list[Fetched]:
        """Fetch from one broker until nothing more comes."""
        node = self._node(node_id)
        wait_ms = max(0, round((deadline - time.monotonic()) * 1000))
        if len(self._nodes) > 1:
            wait_ms = min(wait_ms, WAIT_MS_OF_MANY)
        brought: list[Fetched] = []
        count = 0
        while count < records_max:
            limits = FetchLimits(
                max_records=records_max - count, max_bytes=FETCH_BYTES_MAX, max_wait_ms=wait_ms
            )
            fetched = await node.fetch(wanted, limits)
            brought.append(fetched)
            self._look_again(fetched, wanted)
            if fetched.failure is not None or _is_last(fetched, count):
                break
            count += fetched.offset_count
            wait_ms = 0
        await node.acknowledge_empty()
        return brought

    def _look_again(self, fetched: Fetched, wanted: Iterable[TopicPartition]) -> None:
        """Have leaders looked up anew when a broker is no longer, or not yet, one."""
        doubtful = set(fetched.errors)
        if fetched.failure is not None:
            doubtful |= frozenset(wanted)
        for key in doubtful:
            name = self._cluster.name_of(key.topic_id)
            if name is not None:
                self._cluster.outdate(name)
        first = next(iter(fetched.errors.values()), None)
        if fetched.failure is None and not fetched.acquired:
            fetched.failure = first

    async def _pause(self, failure: KafkaError, deadline: float) -> None:
        if not may_pass(failure):
            raise failure
        log.info("acquire.failed member=%s error=%r", self.member, failure)
        pause = min(self._cluster.backoff().next_ms() / 1000, deadline - time.monotonic())
        await asyncio.sleep(max(0.0, pause))

    def _node(self, node_id: int) -> HeldRanges:
        node = self._nodes.get(node_id)
        if node is None:
            session = ShareSession(
                node_id,
                self._cluster,
                self.member,
                request_timeout_ms=self._cluster.config.request_timeout_ms,
            )
            node = self._nodes[node_id] = HeldRanges(
                session, self._cluster, on_records=self._on_records
            )
        return node

    # Holding and settling.

    async def acknowledge(self, runs: Runs) -> dict[TopicPartition, OffsetSet]:
        """Settle records; returns the offsets of which the broker did not confirm it.

        Never raises for what a broker says or does not say: what is not confirmed may come
        again, and that is all there is to know about it.  What this member does not hold, such
        as what it held before it was restarted, can't be settled and is not asked for.
        """
        left = {key: OffsetSet.of((run.first, run.end) for run in runs[key]) for key in runs}
        nodes = [*self._nodes.values()]
        for confirmed in await asyncio.gather(*(node.acknowledge(runs) for node in nodes)):
            for key, offsets in confirmed.items():
                left[key] -= offsets
        return {key: offsets for key, offsets in left.items() if offsets}

    async def renew(self) -> None:
        """Begin the locks of everything held anew, now; it is done by itself in time."""
        await asyncio.gather(*(node.renew() for node in self._nodes.values() if node.held))

    async def _keep_renewing(self) -> None:
        while True:
            lock_ms = self.lock_ms or LOCK_MS_UNTIL_KNOWN
            await asyncio.sleep(lock_ms / RENEWALS_PER_LOCK / 1000)
            await self.renew()

    # What the cluster knows.

    async def positions(self) -> dict[TopicPartition, SharePartitionOffset]:
        """Start offset and lag of every partition that the group has begun to read."""
        group_id = self.member.group_id
        listed = (await admin_groups.list_share_group_offsets(self._cluster, {group_id: None}))[
            group_id
        ]
        if isinstance(listed, KafkaError):
            raise listed
        return {
            key: one
            for where, one in listed.items()
            if isinstance(one, SharePartitionOffset) and (key := self._key(where)) is not None
        }

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The offset after the last record of every partition of the subscription."""
        topics = [
            await self._cluster.topic(name, timeout_ms=TOPIC_MS_MAX)
            for name in self._membership.subscription
        ]
        wanted = [
            NamedPartition(topic.name, index)
            for topic in topics
            for index in range(len(topic.leaders))
        ]
        listed = await admin_topics.list_offsets(
            self._cluster, dict.fromkeys(wanted, OffsetSpec.LATEST)
        )
        return {
            key: one.offset
            for where, one in listed.items()
            if isinstance(one, ListedOffset) and (key := self._key(where)) is not None
        }

    async def topic_ids(self) -> dict[TopicName, TopicId | None]:
        """The id of every subscribed topic, by name; None: there is no such topic now."""
        found = await self._cluster.refresh(self._membership.subscription)
        return {
            TopicName(name): None if isinstance(topic, KafkaError) else topic.topic_id
            for name, topic in found.items()
        }

    def _key(self, where: NamedPartition) -> TopicPartition | None:
        topic = self._cluster.last_known_topic(where.topic)
        if topic is None or topic.topic_id is None:
            return None
        return TopicPartition(topic.topic_id, where.partition)


def _is_last(fetched: Fetched, count: int) -> bool:
    """Whether a fetch after ``count`` records brought so little that there is hardly more.

    A trickle of single records must not keep a batch waiting for the next one.
    """
    is_full = fetched.record_bytes * LITTLE > FETCH_BYTES_MAX
    return not is_full and fetched.offset_count * LITTLE <= count


def _share(records_max: int, brokers: int) -> int:
    """What one of several brokers may contribute."""
    return -(-records_max // brokers)


def _joined(ranges: Iterable[AcquiredRange]) -> tuple[AcquiredRange, ...]:
    """Ascending and disjoint, neighbours with one delivery count as one.

    An offset that comes twice was locked, lost and locked again within one acquisition.
    """
    joined: list[AcquiredRange] = []
    for one in sorted(ranges):
        last = joined[-1] if joined else None
        if last is None or one.first > last.end:
            joined.append(one)
        elif one.end > last.end and one.delivery_count == last.delivery_count:
            joined[-1] = last._replace(end=one.end)
        elif one.end > last.end:
            joined.append(one._replace(first=last.end))
    return tuple(joined)


def _on_loop(deadline: float) -> float:
    """A moment of ``time.monotonic()`` on the loop's own clock."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
