"""Consumer: reads partitions of topics, as a member of a consumer group or alone.

    brokers --fetches, ahead of the application--> states --poll--> application --commit--> group

`poll` makes the changes of the assignment, too, and calls the rebalance listener: partitions are
taken away only while the application is inside `poll`, when it has processed the records before.
Heartbeats and fetches are background tasks; `ConsumerTasks` runs them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from sharegroup.client.consume.consumer_record import ConsumerRecord
from sharegroup.client.consume.consumer_tasks import ConsumerTasks
from sharegroup.client.consume.handover import AssignmentChange, ChangeKind
from sharegroup.client.consume.offset_commits import CommitOrder
from sharegroup.client.consume.partition_states import (
    PartitionState,
    lag_of,
    rewound,
    take_columns,
    take_records,
)
from sharegroup.client.consume.topic_watch import TopicSubscription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec, all_listed, list_offsets
from sharegroup.client.net import telemetry
from sharegroup.client.records import (
    ConsumerGroupMetadata,
    ConsumerHealth,
    IllegalStateError,
    OffsetAndMetadata,
    Offsets,
    RebalanceListener,
    TopicPartition,
    WakeupError,
    checked_offsets,
    checked_time,
    topic_names,
)
from sharegroup.client.settings.client_config import config_from
from sharegroup.client.settings.option_values import GroupProtocol
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig, ConsumerOptions
from sharegroup.client.together import event_within
from sharegroup.errors import KafkaError, RequestTimedOut

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ITERATION_SECONDS = 1.0
"""The poll timeout of `async for`; it has no effect that the application can see."""
CLOSE_SECONDS = 30.0
ARROW_FACTOR = 40
"""Factor from ``max_poll_records`` to the default ``max_records`` of `poll_arrow`."""

CallListener = Callable[[Callable[..., Any], frozenset[TopicPartition]], Any]


class Consumer:
    """Reads partitions of topics, as a member of a consumer group or alone.

    With `subscribe` the members of a group share the partitions; with `assign` the application
    chooses them.  Positions are committed by `commit`, or automatically by the next poll.

    Example::

        async with Consumer(
            "orders",
            bootstrap_servers=bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            for record in await consumer.poll(timeout=10):
                print(record.partition, record.offset, record.value)
            await consumer.commit()
    """

    def __init__(
        self,
        *topics: str,
        listener: RebalanceListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._config = config_from(ConsumerConfig, options)
        self._wake = asyncio.Event()
        self._tasks = ConsumerTasks(self._config, self._wake.set)
        self._telemetry = self._tasks.telemetry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: RebalanceListener | None = None
        self._call_listener: CallListener = _call_in_loop
        self._is_assigned_by_hand = False
        self._polling = False
        self._woken = False
        self._is_closing = False
        """Whether `close` was called; the listener may still commit until it has ended."""
        self._closed = False
        self._commits = CommitOrder(self._tasks.commits, self._config)
        self._unyielded: list[ConsumerRecord] = []
        """Records of `async for` that were taken and not yielded yet, the next one last."""
        self._leaving = False
        if topics:
            self.subscribe(*topics, listener=listener)

    # Properties.

    @property
    def client_id(self) -> str:
        """The client id in the broker's logs and metrics."""
        return self._config.client_id

    @property
    def group_id(self) -> str | None:
        """The id of the consumer group; None without a group."""
        return self._config.group_id

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; for a pattern of this client, those that match it now."""
        return self._tasks.topics.subscribed

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read; a rebalance changes them during `poll` only."""
        return self._tasks.states.partitions

    @property
    def member_id(self) -> str:
        """The id of this member of its group; with the classic protocol, empty before it joins."""
        return self._tasks.identity.member_id

    @property
    def coordinator_error(self) -> KafkaError | None:
        """The error of the last request to the group coordinator, which is retried; or None."""
        member = self._tasks.member
        return None if member is None else member.contact.error

    def health(self) -> ConsumerHealth:
        """Return the health at this moment: the membership, and brokers that are lost.

        A consumer that reads partitions by `assign` has no membership; it counts as joined while
        it runs.
        """
        return self._tasks.health()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's identity, for the offsets that a transactional producer commits.

        Raises CommitFailedError without a membership: a coordinator takes offsets that name no
        member from anybody, so those of a member that was lost would replace its successor's.
        """
        return self._tasks.group_metadata()

    metrics = telemetry.metrics
    client_instance_id = telemetry.client_instance_id
    register_metric_for_subscription = telemetry.register_metric_for_subscription
    unregister_metric_from_subscription = telemetry.unregister_metric_from_subscription

    # Start and close.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception the records of the last poll are probably not all processed.
        await self.close(commit=error is None)

    async def start(self) -> None:
        """Start the background tasks, which join the group; `poll` does this by itself."""
        self._check_open()
        self._loop = asyncio.get_running_loop()
        await self._tasks.start()
        self._tasks.join()

    async def close(
        self,
        timeout: float = CLOSE_SECONDS,  # noqa: ASYNC109  Kafka's signature; bounds a clean-up.
        *,
        commit: bool = True,
    ) -> None:
        """Commit automatically if configured, call the listener, and leave the group.

        ``commit=False`` leaves out the automatic commit.  Failures are logged: the offsets since
        the last commit are read again, and the membership ends after its timeout.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._wake.set()
        self._tasks.polled_at = None
        try:
            async with asyncio.timeout(timeout):
                # Also without tasks: a commit needs no poll before it.
                await self._commits.finish()
                if self._tasks.is_running:
                    await self._leave(commits=commit)
                    await self._tasks.fetcher.end_sessions()
                    await self._tasks.telemetry.stop()
        except (TimeoutError, KafkaError) as error:
            log.warning(
                "event=consumer.close_incomplete group=%s error=%r action='the membership ends "
                "after its timeout'",
                self.group_id,
                error,
            )
        finally:
            self._closed = True
            self._commits.cancel()
            await self._tasks.stop()

    async def _leave(self, *, commits: bool) -> None:
        """Give up all partitions: commit, listener, and the request that leaves the group."""
        tasks = self._tasks
        if self._is_assigned_by_hand:
            if commits:
                await self._commit_given_up(tasks.states.partitions)
            tasks.unassign(tasks.states.partitions)
            return
        if owned := tasks.states.partitions:
            self._leaving = not commits
            try:
                await self._apply(AssignmentChange(ChangeKind.REVOKED, owned))
            except Exception:
                # The listener's.  Without partitions this member would keep them from the others.
                await self._end_membership()
                raise
            finally:
                self._leaving = False
        await self._end_membership()

    async def _end_membership(self) -> None:
        # The listener may have begun a commit, which the group accepts from a member only.
        await self._commits.finish()
        await self._tasks.leave()

    # Subscription and assignment.

    def subscribe(
        self,
        *topics: str | Iterable[str],
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose names match a pattern.

        The topics may also be given as one list.  A compiled pattern is applied by this client.
        A pattern in a string is applied by the group coordinator, in RE2 syntax, with
        ``group_protocol="consumer"``; with ``classic`` it is the same as a compiled one.
        """
        self._check_open()
        if self._config.group_id is None:
            raise IllegalStateError(
                "subscribe needs the option group_id; without a group use assign"
            )
        if self._is_assigned_by_hand:
            raise IllegalStateError("assign was called before: call unsubscribe first")
        names = topic_names(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe: expected names of topics or a pattern, one of the two")
        # KIP-848: with the consumer protocol the broker matches a pattern that is a text. Compiled
        # patterns and those of the classic protocol are matched here.
        on_broker = (
            isinstance(pattern, str) and self._config.group_protocol is GroupProtocol.CONSUMER
        )
        compiled = re.compile(pattern) if pattern is not None and not on_broker else None
        self._listener = listener
        self._tasks.subscribe(
            TopicSubscription(frozenset(names), compiled, str(pattern) if on_broker else None)
        )
        if self._tasks.is_running:
            self._tasks.join()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions instead of those before, without a membership in a group."""
        self._check_open()
        if self._tasks.subscription:
            raise IllegalStateError("subscribe was called before: call unsubscribe first")
        new_assignment = frozenset(TopicPartition(*where) for where in partitions)
        self._is_assigned_by_hand = bool(new_assignment)
        self._tasks.unassign(self._tasks.states.partitions - new_assignment)
        self._drop_unyielded(lambda where: where not in new_assignment)
        self._tasks.assign(new_assignment)

    async def unsubscribe(self) -> None:
        """End the subscription or assignment; the consumer stays usable."""
        self._check_open()
        try:
            await self._leave(commits=True)
        finally:
            # Also if the request failed that leaves: the next poll must not join again.
            self._unyielded = []
            self._tasks.subscribe(TopicSubscription())
            self._is_assigned_by_hand = False

    # Records.

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  It ends in an empty list, not in an error.
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """Return records as soon as there are any, or an empty list after ``timeout`` seconds.

        At most ``max_records`` are returned (default: ``max_poll_records``).  Failures of the
        membership and of fetches are raised here, too.  WakeupError follows `wakeup`.
        """
        limit = self._config.max_poll_records if max_records is None else max_records

        def take() -> list[ConsumerRecord]:
            if self._unyielded:
                # The next record is the last of the list.  Not `-limit`, which is all of it for 0.
                kept = max(len(self._unyielded) - max(limit, 0), 0)
                records, self._unyielded[kept:] = self._unyielded[kept:][::-1], []
                return records
            records = take_records(self._tasks.states, self._config, limit)
            self._tasks.metrics.records_consumed.add(len(records))
            return records

        return await self._poll(time.monotonic() + timeout, take) or []

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  As `poll`.
        max_records: int | None = None,
    ) -> pa.RecordBatch | None:
        """Return records as one Arrow batch, or None when none came within ``timeout`` seconds.

        Columns: topic, partition, offset, timestamp, key, value, headers, leader_epoch.  The
        default of ``max_records`` is forty times ``max_poll_records``, because columns are
        efficient in bulk.  Needs pyarrow and numpy (the extra ``arrow``).  Deserializers do not
        apply to columns.
        """
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.consume.consumed_columns import joined

        config = self._config
        if config.key_deserializer is not None or config.value_deserializer is not None:
            raise IllegalStateError("poll_arrow returns bytes: deserializers are not applied")
        limit = ARROW_FACTOR * config.max_poll_records if max_records is None else max_records
        # They were taken as objects, and have to be fetched again to be columns.
        self._drop_unyielded(lambda _: True)
        batches = await self._poll(
            time.monotonic() + timeout, lambda: take_columns(self._tasks.states, limit)
        )
        if not batches:
            return None
        batch = joined(batches)
        self._tasks.metrics.records_consumed.add(batch.num_rows)
        return batch

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records one by one, without end.

        `commit` commits up to the record that was yielded last.  An automatic commit includes
        that record when the next one was requested.  After ``break`` the next poll returns the
        records behind it.
        """
        while True:
            self._unyielded = (await self.poll(ITERATION_SECONDS))[::-1]
            while self._unyielded:
                yield self._unyielded.pop()

    def wakeup(self) -> None:
        """Raise WakeupError in the poll that is waiting; if none waits, in the next poll.

        This is the only method that may be called from any thread and from a signal handler.
        """
        self._woken = True
        if self._loop is not None:
            # Only the thread of its loop may set an event of asyncio.
            self._loop.call_soon_threadsafe(self._wake.set)

    # Offsets of the group.

    async def commit(
        self,
        offsets: Offsets | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  RequestTimedOut follows, as in Kafka.
        wait: bool = True,
    ) -> None:
        """Commit offsets, by default the positions behind the records that polls have returned.

        An offset to commit is that of the next record to read.  Raises CommitFailedError if the
        partitions belong to other members.  With ``wait=False`` the commit goes on in the
        background, in order with other commits, and a failure is logged.
        """
        self._check_open()
        positions = self._positions_to_commit() if offsets is None else checked_offsets(offsets)
        if not wait:
            _ = self._commits.requests  # Raises if there is no group.
            self._commits.commit_in_background(positions)
            return
        limit_ms = None if timeout is None else round(timeout * 1000)
        await self._commits.commit(positions, timeout_ms=limit_ms)

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  RequestTimedOut follows, as in Kafka.
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, by default of the assignment; None without one."""
        self._check_open()
        requested_partitions = self.assignment if partitions is None else _partitions(partitions)
        if not requested_partitions:
            return {}
        limit_ms = None if timeout is None else round(timeout * 1000)
        return await self._commits.requests.committed(requested_partitions, timeout_ms=limit_ms)

    # Positions.

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of the next records of all partitions, as `commit` commits them.

        Partitions whose position is not known yet are left out.
        """
        return {
            where: OffsetAndMetadata(offset, "", None if epoch < 0 else epoch)
            for where, (offset, epoch) in rewound(
                self._tasks.states.positions(), reversed(self._unyielded)
            ).items()
        }

    async def position(
        self,
        partition: TopicPartition,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  RequestTimedOut follows, as in Kafka.
    ) -> int:
        """Return the offset of the next record of a partition; wait until it is known."""
        state = self._state(partition)
        await self._tasks.start()
        limit = self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
        deadline = time.monotonic() + limit
        while state.position is None:
            if state.failure is not None:
                error, state.failure = state.failure, None
                raise error
            if not state.is_current:
                raise IllegalStateError(f"{partition!r} is not assigned any more")
            self._wake.clear()
            if not await self._wait(deadline):
                raise RequestTimedOut(f"{partition!r}: the position is not known after {limit} s")
        return self.positions()[state.where].offset

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition to an offset."""
        state = self._state(partition)
        target = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if target.offset < 0:
            raise ValueError(f"seek {partition!r}: expected an offset of 0 or more, found {offset}")
        self._drop_unyielded(lambda where: where == state.where)
        state.seek(target.offset, -1 if target.leader_epoch is None else target.leader_epoch)
        self._tasks.positions_moved()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set positions to the first record in the log; without arguments of all partitions."""
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set positions to the end of the log; without arguments of all partitions."""
        self._seek_to(partitions, OffsetSpec.LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Set positions to the first record since a time, or to the end if there is none."""
        self._seek_to(partitions, checked_time("seek_to_time", timestamp_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions, until `resume`; without arguments of all."""
        for state in self._states(partitions):
            state.is_paused = True
        paused = self.paused
        self._drop_unyielded(lambda where: where in paused)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again; without arguments of all."""
        for state in self._states(partitions):
            state.is_paused = False
        self._tasks.positions_moved()
        self._wake.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` was called for."""
        return frozenset(state.where for state in self._tasks.states if state.is_paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of offsets from the position to the end as of the last fetch; or None.

        The end is the high watermark, or the last stable offset with ``read_committed``.
        """
        return lag_of(self._state(partition))

    def end_offset(self, partition: TopicPartition) -> int | None:
        """The high watermark of a partition as of the last fetch; None before that."""
        return self._state(partition).high_watermark

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record in the log of each partition."""
        specs = dict.fromkeys(_partitions(partitions), int(OffsetSpec.EARLIEST))
        return {where: entry.offset for where, entry in (await self._listed(specs)).items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of the log of each partition, as the isolation level sees it."""
        specs = dict.fromkeys(_partitions(partitions), int(OffsetSpec.LATEST))
        return {where: entry.offset for where, entry in (await self._listed(specs)).items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return the first record since a time, by partition; None if there is no such record."""
        listed = await self._listed(
            {
                TopicPartition(*where): checked_time("offsets_for_times", time_ms)
                for where, time_ms in timestamps_ms.items()
            }
        )
        return {where: entry if entry.offset >= 0 else None for where, entry in listed.items()}

    async def _listed(
        self, specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset]:
        self._check_open()
        isolation = int(self._config.reads_committed)
        cluster = self._tasks.cluster
        return all_listed(await list_offsets(cluster, specs, isolation_level=isolation))

    # Inside a poll.

    async def _poll(self, deadline: float, take: Callable[[], list[Any]]) -> list[Any]:
        """Return what ``take`` takes, or an empty list at the deadline."""
        await self._begin_poll()
        try:
            while not self._is_closing:
                # Before the look, so that an event during it ends the wait below.
                self._wake.clear()
                await self._tasks.handover.make(self._apply)
                self._raise_failures()
                if taken := take():
                    self._tasks.fetcher.wake()
                    return taken
                self._tasks.fetcher.wake()
                if not await self._wait(deadline):
                    return []
            raise IllegalStateError("this consumer was closed during a poll")
        finally:
            self._polling = False
            self._tasks.polled_at = time.monotonic()

    async def _begin_poll(self) -> None:
        self._check_open()
        if self._is_closing:
            raise IllegalStateError("this consumer is being closed")
        if self._polling:
            raise IllegalStateError("poll is already running in another task")
        tasks = self._tasks
        if not tasks.subscription and not self._is_assigned_by_hand:
            raise IllegalStateError("call subscribe or assign before poll")
        now = time.monotonic()
        if tasks.polled_at is not None:
            tasks.metrics.between_polls_ms.observe((now - tasks.polled_at) * 1000)
        tasks.metrics.last_poll.mark()
        self._polling, tasks.polled_at = True, None
        try:
            if tasks.identity.left_unpolled:
                tasks.identity.left_unpolled = False
                if owned := tasks.states.partitions:
                    await self._apply(AssignmentChange(ChangeKind.LOST, owned))
            await self.start()
            # Before this poll takes records: the positions are behind records of earlier polls,
            # which the application has processed.
            self._commits.commit_if_due(now, self._positions_to_commit)
            # The tasks get a turn, also if the application polls without ever waiting.
            await asyncio.sleep(0)
        except BaseException:
            self._polling, tasks.polled_at = False, time.monotonic()
            raise

    async def _wait(self, deadline: float) -> bool:
        """Wait for an event of the tasks; return False when the time is up."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        # True in any case: records may have arrived at the last moment, so look once more.
        await event_within(self._wake, remaining)
        return True

    async def _apply(self, change: AssignmentChange) -> None:
        """Make a change of the assignment: commit, call the listener, change states."""
        tasks, listener, partitions = self._tasks, self._listener, change.partitions
        if change.kind is ChangeKind.ASSIGNED:
            # Before the listener is called, which may seek in the new partitions.
            tasks.assign(partitions)
            if listener is not None:
                await self._call_listener(listener.on_partitions_assigned, partitions)
            return
        try:
            if change.kind is ChangeKind.REVOKED:
                async with self._commits.finished():
                    await self._commit_given_up(partitions)
                    if listener is not None:
                        await self._call_listener(listener.on_partitions_revoked, partitions)
            elif listener is not None:
                await self._call_listener(listener.on_partitions_lost, partitions)
        finally:
            # Also when the listener raises: the partitions are given to others in any case.
            self._unyielded = [
                record for record in self._unyielded if record.topic_partition not in partitions
            ]
            tasks.unassign(partitions)

    def _raise_failures(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup was called")
        tasks = self._tasks
        tasks.raise_failure()
        if tasks.member is not None and tasks.member.failure is not None:
            raise tasks.member.failure
        if tasks.topics.failure is not None:
            error, tasks.topics.failure = tasks.topics.failure, None
            raise error
        for error in tasks.states.failures():
            raise error

    async def _commit_given_up(self, partitions: frozenset[TopicPartition]) -> None:
        if not self._leaving:
            positions = self._positions_to_commit()
            await self._commits.commit_automatically(
                {where: positions[where] for where in positions.keys() & partitions}
            )

    # Positions and states.

    def _positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions, without those in topics that are known to be deleted.

        A commit names the topic, and another one may have its name now.
        """
        tasks, positions = self._tasks, self.positions()
        for where, state in tasks.states.positions().items():
            topic = tasks.cluster.last_known_topic(where.topic)
            if state.topic_id is not None and (topic is None or topic.topic_id != state.topic_id):
                del positions[where]
        return positions

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this consumer is closed")

    def _state(self, partition: TopicPartition | tuple[str, int]) -> PartitionState:
        self._check_open()
        state = self._tasks.states.get(TopicPartition(*partition))
        if state is None:
            raise IllegalStateError(
                f"{TopicPartition(*partition)!r} is not assigned to this consumer; it has "
                f"{len(self.assignment)} partitions"
            )
        return state

    def _states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        chosen_partitions = tuple(partitions) or tuple(self.assignment)
        return [self._state(partition) for partition in chosen_partitions]

    def _seek_to(self, partitions: Iterable[TopicPartition], spec: int) -> None:
        states = self._states(partitions)
        moved_partitions = {state.where for state in states}
        self._drop_unyielded(lambda where: where in moved_partitions)
        for state in states:
            state.look_up(spec)
        self._tasks.positions_moved()

    def _drop_unyielded(self, is_dropped: Callable[[TopicPartition], bool]) -> None:
        """Give back records of `async for` that were not yielded; they are fetched again."""
        if not self._unyielded:
            return
        positions = self.positions()
        for where in {record.topic_partition for record in self._unyielded}:
            state = self._tasks.states.get(where)
            if is_dropped(where) and state is not None:
                before = positions[where]
                state.seek(
                    before.offset, -1 if before.leader_epoch is None else before.leader_epoch
                )
        self._unyielded = [
            record for record in self._unyielded if not is_dropped(record.topic_partition)
        ]


def _partitions(partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(*where) for where in partitions)


async def _call_in_loop(
    function: Callable[..., Any], partitions: frozenset[TopicPartition]
) -> None:
    """Call a function of the listener in the event loop, and wait for a coroutine."""
    result = function(partitions)
    if inspect.isawaitable(result):
        await result
