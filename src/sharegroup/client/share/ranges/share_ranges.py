"""A member of a share group that holds ranges of offsets; other processes read the records.

The driver of a Spark query acquires ranges here, and its executors read the records by plain
fetches.  When their work is committed, the driver acknowledges here.  In between, which may take
hours, the locks are renewed after a third of the lock duration.

    acquire ---> ranges by partition, held and renewed; fetched records go to ``on_records``
    acknowledge(runs) ---> offsets that were not acknowledged: they may be delivered again
    close ---> the broker releases the held records

An acquisition continues until no more records come, the wanted number is reached or the time is
up: one ShareFetch brings at most 8 MiB, and a share partition may acquire 200,000 records at once.
Records beyond the wanted number (a broker acquires whole batches) are kept.

All calls run on one event loop, and each ends within a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from sharegroup.client.admin import groups as admin_groups
from sharegroup.client.admin.share_group_runs import list_share_group_runs
from sharegroup.client.admin.types import SharePartitionOffset, SharePartitionRuns
from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.net.cluster import Cluster, ConnectionPurpose, Topic
from sharegroup.client.net.refusals import left_out, may_pass
from sharegroup.client.records import IdlePeriod, TopicPartition
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.member.group_member import GroupMember
from sharegroup.client.share.member.idleness import AWAY_SECONDS
from sharegroup.client.share.member.membership import Membership, new_member_id
from sharegroup.client.share.ranges.held_ranges import FetchedRanges, HeldRanges
from sharegroup.client.share.session.acquired_records import (
    RECORDS_MAX,
    AcquiredBatches,
    AcquiredRecords,
    joined_ranges,
)
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.client.share.session.renewal_schedule import interval_seconds
from sharegroup.client.share.session.share_requests import FetchLimits, SessionMember
from sharegroup.client.share.session.share_session import RunsByPartition, ShareSession
from sharegroup.client.together import event_within, together
from sharegroup.errors import (
    KafkaError,
    NetworkException,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName

log = logging.getLogger(__name__)

FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of one ShareFetch answer.

Memory of this size is reused, on both sides.  For larger answers the kernel has to provide new
pages each time.
"""
TOPIC_MS_MAX = 15_000
"""Maximum time that `ShareRanges.end_offsets` waits for a topic to exist."""
WAIT_MS_OF_MANY = 100
"""Maximum time that a broker may park a fetch, if other brokers may have records."""
LITTLE = 10
"""Fetching ends if a fetch returns at most 1/`LITTLE` of the records acquired before it, and at
most 1/`LITTLE` of `FETCH_BYTES_MAX`."""


@dataclass(slots=True)
class AcquiredRanges:
    """The result of `ShareRanges.acquire`: the acquired ranges and a failure, if any."""

    ranges: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = field(default_factory=dict)
    """Ascending, disjoint ranges; adjacent ones differ in their delivery count."""
    failure: KafkaError | None = None
    """The error that ended the acquisition; ranges acquired before it are kept."""


class ShareRanges:
    """A share group member that acquires, holds, renews and acknowledges ranges of offsets."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        group_id: str,
        topics: Iterable[str],
        member_id: str | None = None,
        on_records: Callable[[AcquiredBatches], None] | None = None,
        without_records: bool = False,
    ) -> None:
        """With ``without_records`` our own broker sends no records; ``on_records`` gets others'."""
        self._on_records = on_records
        self._without_records = without_records
        member = MemberId(member_id) if member_id else new_member_id()
        self.member = SessionMember(GroupId(group_id), member)
        # A share session and its locks end with the connection, also with an idle one.
        self._cluster = Cluster(replace(config, connections_max_idle_ms=-1))
        self._changed = asyncio.Event()
        self._group = GroupMember(
            self._cluster,
            Membership(*self.member, rack_id=None),
            changed=self._changed.set,
            wants_records=self._wants_records,
        )
        self._group.membership.subscribe(tuple(sorted(topics)))
        self._connecting: set[int] = set()
        """Doubtful brokers to which a connection is being opened."""
        self._unreachable: KafkaError | None = None
        """The error if no leader of assigned partitions can be reached, or None."""
        self._acquiring = 0
        self._acquired_at = float("-inf")
        """The time at which the last acquisition ended."""
        self._ahead: asyncio.Task[AcquiredRanges] | None = None
        """The acquisition whose records the next call of `acquire` returns."""
        self._nodes: dict[int, HeldRanges] = {}
        self._runner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def held(self) -> dict[TopicIdPartition, OffsetSet]:
        """The offsets that this member holds by partition, as far as it knows."""
        offsets_by_key: dict[TopicIdPartition, OffsetSet] = {}
        for node in self._nodes.values():
            for key, offsets in node.held.items():
                offsets_by_key[key] = offsets_by_key.get(key, EMPTY) | offsets
        return offsets_by_key

    @property
    def lock_ms(self) -> int | None:
        """The shortest lock duration of all brokers; None before the first answer."""
        return min((node.lock_ms for node in self._nodes.values() if node.lock_ms), default=None)

    @property
    def assigned(self) -> frozenset[TopicIdPartition]:
        """The partitions that the group coordinator assigned to this member."""
        return self._group.membership.assignment

    @property
    def idle(self) -> IdlePeriod | None:
        """How long no broker has answered, and why, if the log says that this member is idle."""
        return self._group.idleness.period

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        """Return the name of a topic from which records were acquired."""
        return self._cluster.name_of(topic_id)

    # Start and stop.

    def start(self) -> None:
        """Start the background tasks, which join the group."""
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name=f"ranges-{self.member.member_id}")

    async def close(self) -> None:
        """Release the held records and leave the group; the caller limits the time.

        The connections, and with them the sessions, are closed in any case.
        """
        try:
            if self._ahead is not None:  # It must not open a session that was closed.
                self._ahead.cancel()
                await asyncio.gather(self._ahead, return_exceptions=True)
            if self._runner is not None and not self._runner.done():
                closing = [node.close() for node in self._nodes.values() if node.session.is_alive]
                results = await asyncio.gather(
                    *closing, self._group.heartbeats.leave(), return_exceptions=True
                )
                for error in (result for result in results if isinstance(result, Exception)):
                    log.info("event=ranges.close_incomplete member=%s error=%r", self.member, error)
        finally:
            self._cluster.close()
            if self._runner is not None:
                self._runner.cancel()
                await asyncio.wait([self._runner])

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._group.start(tasks)
            tasks.create_task(self._keep_renewing())

    # Acquiring.

    async def acquire(self, *, records_max: int = RECORDS_MAX, wait_ms: int) -> AcquiredRanges:
        """Acquire records for this member, and wait up to ``wait_ms`` for the first.

        Errors that only a person can fix are raised; others are in `AcquiredRanges.failure`.
        """
        self.start()
        ahead = await self._acquired_ahead()
        count = sum(run.offset_count for runs in ahead.values() for run in runs)
        if count >= records_max:
            return AcquiredRanges(ahead)
        # Records that are there must not wait for others.
        acquisition = await self._counted(records_max - count, 0 if count else wait_ms)
        for key, ranges in ahead.items():
            acquisition.ranges[key] = joined_ranges((*ranges, *acquisition.ranges.get(key, ())))
        return acquisition

    def acquire_ahead(self, *, records_max: int) -> None:
        """Begin to acquire available records, which the next call of `acquire` returns.

        They are held and renewed like all others.
        """
        assert self._ahead is None, "the records that were acquired ahead are not taken yet"
        self._ahead = asyncio.create_task(self._counted(records_max, 0), name="acquire ahead")

    async def _acquired_ahead(self) -> dict[TopicIdPartition, tuple[AcquiredRecords, ...]]:
        """Return the records that were acquired ahead and are still held."""
        task, self._ahead = self._ahead, None
        if task is None:
            return {}
        # An error that may pass meets the next acquisition, too; others are raised here.
        acquired = (await task).ranges
        held = self.held
        return {
            key: still_held
            for key, ranges in acquired.items()
            if (still_held := _within(ranges, held.get(key, EMPTY)))
        }

    async def _counted(self, records_max: int, wait_ms: int) -> AcquiredRanges:
        """Acquire records; meanwhile the member counts as one that wants records."""
        self._acquiring += 1
        self._group.idleness.wait_seconds = wait_ms / 1000
        try:
            return await self._acquire(records_max, time.monotonic() + wait_ms / 1000)
        finally:
            self._acquiring -= 1
            self._acquired_at = time.monotonic()

    async def _acquire(self, records_max: int, deadline: float) -> AcquiredRanges:
        parts: dict[TopicIdPartition, list[AcquiredRecords]] = defaultdict(list)
        acquisition = AcquiredRanges()
        while not parts and acquisition.failure is None:
            leaders = await self._leaders(deadline)
            if not leaders:
                acquisition.failure = self._unreachable
                break
            fetching = [
                self._drain(node_id, partitions, _share(records_max, len(leaders)), deadline)
                for node_id, partitions in leaders.items()
            ]
            for fetched in (
                node_fetch for fetches in await together(fetching) for node_fetch in fetches
            ):
                acquisition.failure = acquisition.failure or fetched.failure
                for key, ranges in fetched.acquired.items():
                    parts[key] += ranges
            if time.monotonic() >= deadline:
                break
        acquisition.ranges = {key: joined_ranges(ranges) for key, ranges in parts.items()}
        if acquisition.failure is not None and not parts:
            await self._pause(acquisition.failure, deadline)
        return acquisition

    def _wants_records(self) -> bool:
        """Whether an acquisition is under way, or ended less than `AWAY_SECONDS` ago."""
        return bool(self._acquiring) or time.monotonic() - self._acquired_at < AWAY_SECONDS

    async def _leaders(self, deadline: float) -> Mapping[int, tuple[TopicIdPartition, ...]]:
        """Return the assigned partitions by leader; wait for them until the deadline."""
        while True:
            # Before the look, so that a change during it ends the wait below.
            self._changed.clear()
            if self._runner is not None and self._runner.done():
                self._runner.result()  # Only an error ends the runner; it is raised here.
            self._check_heartbeats()
            report, self._group.heartbeats.report = self._group.heartbeats.report, None
            if report is not None:
                raise report
            if self._tasks is not None:
                leaders = self._group.assigned.by_leader(self._tasks, self._changed.set)
                if answering := self._answering(leaders, self._tasks):
                    self._unreachable = None
                    return answering
            if not await event_within(self._changed, deadline - time.monotonic()):
                return {}

    def _answering(
        self, leaders: Mapping[int, tuple[TopicIdPartition, ...]], tasks: asyncio.TaskGroup
    ) -> Mapping[int, tuple[TopicIdPartition, ...]]:
        """Return ``leaders`` without doubtful brokers, for which an acquisition would wait.

        Connections to the doubtful brokers are opened in the background.
        """
        doubtful = {node_id for node_id in leaders if self._cluster.is_doubtful(node_id)}
        for node_id in doubtful - self._connecting:
            self._connecting.add(node_id)
            tasks.create_task(self._connect(node_id))
        if doubtful and self._unreachable is None:
            nodes = ", ".join(map(str, sorted(doubtful)))
            self._unreachable = NetworkException(f"node {nodes}: no connection yet")
        return {node_id: leaders[node_id] for node_id in leaders if node_id not in doubtful}

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id, ConnectionPurpose.RECORDS)
        except KafkaError as error:
            self._unreachable = error
            self._group.idleness.failed(node_id, error)
        finally:
            self._connecting.discard(node_id)
            self._changed.set()

    def _check_heartbeats(self) -> None:
        """Join the group again after a temporary failure; raise one that only a person can fix."""
        failure, self._group.heartbeats.failure = self._group.heartbeats.failure, None
        if failure is None or self._tasks is None:
            return
        if not may_pass(failure):
            raise failure
        log.warning(
            "event=membership.lost member=%s error=%r action='the member joins again'",
            self.member,
            failure,
        )
        self._group.membership.reset()
        self._tasks.create_task(self._join_again())

    async def _join_again(self) -> None:
        """Send heartbeats again, because `Heartbeats.run` ended with a failure."""
        # After a pause: the coordinator may refuse each of them at once.
        await asyncio.sleep(self._cluster.config.retry_backoff_max_ms / 1000)
        await self._group.heartbeats.run()

    async def _drain(
        self,
        node_id: int,
        partitions: tuple[TopicIdPartition, ...],
        records_max: int,
        deadline: float,
    ) -> list[FetchedRanges]:
        """Fetch from one broker until no more records come."""
        node = self._node(node_id)
        wait_ms = max(0, ceil((deadline - time.monotonic()) * 1000))
        # `_acquire` waits for all brokers together, so one without records would hold up those of
        # the others.
        if len(self._nodes) > 1:
            wait_ms = min(wait_ms, WAIT_MS_OF_MANY)
        fetches: list[FetchedRanges] = []
        count = 0
        while count < records_max:
            limits = FetchLimits(
                max_records=records_max - count,
                max_bytes=FETCH_BYTES_MAX,
                max_wait_ms=wait_ms,
                without_records=self._without_records,
            )
            fetched = await node.fetch(partitions, limits)
            fetches.append(fetched)
            self._note(node_id, fetched)
            if fetched.failure is not None or _is_last(fetched, count):
                break
            count += fetched.offset_count
            # Only the first fetch waits; records that were acquired must not wait for others.
            wait_ms = 0
        await node.acknowledge_empty()
        return fetches

    def _note(self, node_id: int, fetched: FetchedRanges) -> None:
        """Note what a fetch says about the leaders of partitions and the state of the member.

        An error of a partition becomes the fetch's failure if nothing was acquired.
        """
        failures = () if fetched.failure is None else (fetched.failure,)
        errors = (*failures, *fetched.errors.values())
        self._group.fetch_ended(node_id, with_records=fetched.acquired, errors=errors)
        self._group.assigned.outdate_leaders(node_id, fetched.outdated)
        if not fetched.acquired:
            fetched.failure = next(iter(errors), None)

    async def _pause(self, failure: KafkaError, deadline: float) -> None:
        if not may_pass(failure):
            raise failure
        log.info("event=acquire.failed member=%s error=%r", self.member, failure)
        pause_seconds = min(self._cluster.backoff().next_ms() / 1000, deadline - time.monotonic())
        await asyncio.sleep(max(0.0, pause_seconds))

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
                session,
                self._cluster,
                on_records=self._on_records,
                on_moved=lambda key: self._group.assigned.outdate_leaders(node_id, [key]),
            )
        return node

    # Holding and settling.

    async def acknowledge(self, runs: RunsByPartition) -> dict[TopicIdPartition, OffsetSet]:
        """Acknowledge records; return the offsets that the broker did not confirm.

        It never raises an error of a broker: unconfirmed records may be delivered again.  Offsets
        that this member does not hold, for example from before a restart, are not sent and count
        as unconfirmed.
        """
        unconfirmed = {key: OffsetSet.of((run.first, run.end) for run in runs[key]) for key in runs}
        nodes = [*self._nodes.values()]
        for confirmed in await together(node.acknowledge(runs) for node in nodes):
            for key, offsets in confirmed.items():
                unconfirmed[key] -= offsets
        return {key: offsets for key, offsets in unconfirmed.items() if offsets}

    def check_delays(self, keys: Iterable[TopicIdPartition]) -> None:
        """Raise UnsupportedVersion if a broker of held records does not read their delays."""
        wanted = frozenset(keys)
        for node_id, node in self._nodes.items():
            if node.session.lacks_delays and not wanted.isdisjoint(node.held):
                raise UnsupportedVersion(
                    f"group {self.member.group_id!r} node {node_id}: expected a broker that keeps "
                    "the delays of released records, as sharegroup serve does; this one does not, "
                    "as Apache Kafka: release the records without a delay, or send them to a topic "
                    "that is read later"
                )

    async def renew(self) -> None:
        """Renew the locks of all held records now; a background task does it periodically."""
        await together(node.renew() for node in [*self._nodes.values()] if node.held)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(interval_seconds(self.lock_ms))
            await self.renew()

    # Offsets and topics of the cluster.

    async def positions(self) -> dict[TopicIdPartition, SharePartitionOffset]:
        """Return start offset and lag of every partition that the group has started to read."""
        group_id = self.member.group_id
        listed = (await admin_groups.list_share_group_offsets(self._cluster, {group_id: None}))[
            group_id
        ]
        if isinstance(listed, KafkaError):
            raise listed
        return {
            key: offset
            for where, offset in listed.items()
            if isinstance(offset, SharePartitionOffset) and (key := self._key(where)) is not None
        }

    async def share_partitions(self) -> list[TopicPartition]:
        """Return the partitions that the group has started to read."""
        return [
            TopicPartition(name, key.partition)
            for key in await self.positions()
            if (name := self.name_of(key.topic_id)) is not None
        ]

    async def list_share_group_runs(
        self, group_id: str, partitions: Mapping[TopicPartition, int], *, runs_max: int
    ) -> dict[TopicPartition, SharePartitionRuns | KafkaError]:
        """Return a page of runs as `AdminClient` does, over the connections of this member."""
        return await list_share_group_runs(self._cluster, group_id, partitions, runs_max=runs_max)

    async def end_offsets(self) -> dict[TopicIdPartition, int]:
        """Return the offset after the last record of every subscribed partition.

        Raises KafkaError if a leader does not tell it until ``default_api_timeout_ms``.
        """
        topics = [
            await self._cluster.topic(name, timeout_ms=TOPIC_MS_MAX)
            for name in sorted(self._group.membership.subscription)
        ]
        partitions = [
            TopicPartition(topic.name, index)
            for topic in topics
            for index in range(len(topic.leaders))
        ]
        ends = await offsets_of(self._cluster, partitions, OffsetSpec.LATEST)
        return {key: end for where, end in ends.items() if (key := self._key(where)) is not None}

    async def topic_ids(self) -> dict[TopicName, TopicId | None]:
        """Return the id of every subscribed topic by name; None if the topic does not exist.

        Raises KafkaError if the broker does not tell that of each topic.
        """
        subscription = self._group.membership.subscription
        topics = await self._cluster.refresh(subscription)
        ids: dict[TopicName, TopicId | None] = {}
        for name in subscription:
            topic = topics.get(name) or left_out("topic", name)
            if isinstance(topic, Topic):
                ids[TopicName(name)] = topic.topic_id
            elif isinstance(topic, UnknownTopicOrPartition):
                ids[TopicName(name)] = None
            else:
                raise topic
        return ids

    def _key(self, where: TopicPartition) -> TopicIdPartition | None:
        topic = self._cluster.last_known_topic(where.topic)
        if topic is None or topic.topic_id is None:
            return None
        return TopicIdPartition(topic.topic_id, where.partition)


def _is_last(fetched: FetchedRanges, count: int) -> bool:
    """Whether a fetch after ``count`` records brought so few that the log probably has no more.

    A trickle of single records must not delay the records acquired before.
    """
    is_full = fetched.record_bytes * LITTLE > FETCH_BYTES_MAX
    return not is_full and fetched.offset_count * LITTLE <= count


def _share(records_max: int, brokers: int) -> int:
    """Return the record limit of one of several brokers."""
    return -(-records_max // brokers)


def _within(ranges: Iterable[AcquiredRecords], offsets: OffsetSet) -> tuple[AcquiredRecords, ...]:
    """Return the parts of the ranges that are in ``offsets``."""
    return tuple(
        AcquiredRecords.of_range(first, end, acquired.delivery_count)
        for acquired in ranges
        for first, end in offsets.between(acquired.first_offset, acquired.end_offset)
    )
