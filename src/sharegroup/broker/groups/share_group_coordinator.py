"""The coordinator of share groups: membership, assignment and offsets, kept durable.

It runs `core.groups.share.share_groups.ShareGroups` over the topic ``__consumer_offsets``
(`GroupLog`).  It also does what core cannot do:

- It finds the start offset of a group in a log (`share.auto.offset.reset`).
- It initializes the state of new share partitions together with the assignment that contains
  them.  So a member can fetch them as soon as its first heartbeat is answered.

The share coordinator has its own log.  A crash or a failing disk can keep a write to one log and
lose the paired write to the other.  Neither write was answered in that case.  `agree` removes the
difference at start, and before the next command after one of two paired writes has failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.coordinator_log import KeyAndValue
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config_values import reset_duration_ms
from sharegroup.broker.groups.group_log import GroupLog, Reading
from sharegroup.broker.groups.state_preparations import AT_ONCE, StatePreparations
from sharegroup.broker.load.slices import Slices
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.persister import Persister
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import UNDECIDED
from sharegroup.core.groups.share.assignor import Division, assigning
from sharegroup.core.groups.share.heartbeat import Assigned, ShareHeartbeat
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    Records,
    ShareGroupRecord,
    TargetAssignment,
)
from sharegroup.core.groups.share.share_group import HeartbeatReply, TopicMetadata
from sharegroup.core.groups.share.share_groups import (
    DescribedShareGroup,
    ListedGroup,
    MemberKey,
    ShareGroups,
    Uninitialized,
)
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import InvalidGroupId, KafkaError, KafkaStorageError, UnknownTopicOrPartition
from sharegroup.ids import GroupId, SharePartitionKey, TopicIdPartition, TopicName
from sharegroup.protocol_enums import GroupType
from sharegroup.steps import STEP_ELEMENTS, Steps, paced
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.sync.tickets import Ticket

log = logging.getLogger(__name__)

T = TypeVar("T")

EXPIRY_RETRY_MS = 1_000

ENCODED_AT_ONCE = 8
"""Number of target assignments that are encoded in one step."""

NONE_READY: Mapping[ShareGroupRecord, KeyAndValue] = {}


class OffsetListing(NamedTuple):
    """The offsets of a group on one partition; -1 means that the value is not known."""

    start_offset: int
    leader_epoch: int
    lag: int


class _Ahead(NamedTuple):
    """A large assignment that was made ahead of a heartbeat, with its encoded records."""

    assigned: Assigned
    encoded: Mapping[ShareGroupRecord, KeyAndValue]


class ShareGroupCoordinator:
    """Serves the requests of share groups and keeps their state in ``__consumer_offsets``."""

    __slots__ = (
        "_alarm",
        "_assigning",
        "_clock",
        "_groups",
        "_in_doubt",
        "_log",
        "_paired",
        "_preparations",
        "_settings",
        "_share_coordinator",
        "_share_partitions",
        "_topics",
        "rebalance_count",
    )

    def __init__(
        self,
        log_: GroupLog,
        topics: Topics,
        clock: Clock,
        *,
        settings: GroupSettings,
        share_coordinator: Persister,
        share_partitions: SharePartitions,
        user_percent: int = 100,
    ) -> None:
        """``user_percent`` is ``sharegroup.user.limits.percent``."""
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._alarm = Alarm(clock, self._expire_sessions)
        self._settings = settings
        self._share_coordinator = share_coordinator
        self._share_partitions = share_partitions
        self._groups = ShareGroups(user_percent=user_percent)
        self._preparations = StatePreparations(share_coordinator)
        self._assigning: dict[GroupId, asyncio.Future[None]] = {}
        """By group, the end of the large assignment that is under way."""
        self._paired: list[Ticket] = []
        """Pending writes to either log that depend on a write to the other log."""
        self.rebalance_count = 0
        """The number of group epoch changes, of all groups together."""
        self._in_doubt = False
        """Whether a paired write failed and `agree` has not removed the difference since."""
        topics.on_deleted(self._topic_deleted)

    def start(self) -> None:
        """Make both logs agree at start, or before the next command if the disk takes no writes.

        A broker starts on a full disk (ADR 0019).
        """
        try:
            self.agree()
        except KafkaError as error:
            log.warning("event=coordinators_in_doubt error=%r", str(error))
            self._in_doubt = True
            self._set_alarm()

    def agree(self) -> None:
        """Make the share coordinator's state agree with the groups, after both logs were read."""
        self._preparations.invalidate()
        initialized = self._groups.initialized_keys()
        # A dict keeps the order, so the same seed writes in the same order in the simulation (ADR
        # 0015).
        stored_keys = dict.fromkeys(self._share_coordinator.known())
        by_id = self._topics.catalog.by_id
        # Sorting all keys takes long: there may be 200,000, and nearly always both logs agree.
        different = [
            key for key in initialized if key not in stored_keys or by_id(key.topic_id) is None
        ]
        for key in sorted(different):
            topic = by_id(key.topic_id)
            if topic is None:
                self._pair(*self._apply_all(self._groups.topic_deleted(key.topic_id)))
            else:
                start_offset = self._start_offset(key, topic, topic_is_new=True)
                log.warning("event=share_state_made_again %s start_offset=%d", key, start_offset)
                self._pair(
                    self._share_coordinator.initialize(
                        key, state_epoch=0, start_offset=start_offset
                    )
                )
        orphans = [key for key in stored_keys if key not in initialized]
        self._pair(*self._share_coordinator.delete(orphans))
        self._set_alarm()

    def heartbeat(
        self, request: ShareHeartbeat, slices: Slices, ahead: _Ahead | None = None
    ) -> Awaitable[HeartbeatReply]:
        """Serve one heartbeat: decide it at once and answer when its records are durable.

        A heartbeat that initializes many share partitions, or moves many, is decided after their
        preparation, or with what was made ``ahead``.
        """
        self._forget_what_failed(request.group_id)
        limits = self._settings.group_limits(request.group_id)
        self._groups.check_heartbeat(request, limits=limits)
        self._log.check_type(request.group_id, GroupType.SHARE)
        topic_metadata = self._topic_metadata(request)
        missing = self._groups.uninitialized(request, topic_metadata)
        # All checks come before the first write: `_initialize` writes to the other log, and there
        # is no undo over both.
        self._groups.check_partitions(request, missing, limits=limits.sizes)
        if len(self._preparations.unprepared(missing)) > AT_ONCE:
            return self._heartbeat_prepared(request, missing, slices)
        wall_ms = self._clock.wall_ms()
        if not missing and ahead is None:
            division = self._groups.large_division(
                request, topic_metadata, limits=limits, wall_ms=wall_ms
            )
            if division is not None:
                return self._heartbeat_assigned(request, division, slices)
        tickets = self._initialize(request.group_id, missing)
        records, reply = self._groups.heartbeat(
            request,
            topic_metadata,
            limits=limits,
            now_ms=self._clock.now_ms(),
            wall_ms=wall_ms,
            assigned=None if ahead is None else ahead.assigned,
        )
        ready = {} if ahead is None else ahead.encoded
        tickets.append(self._apply(request.group_id, records, ready))
        self._groups.claim(request.group_id, request.user)
        self._set_alarm()
        return _after(tickets, reply)

    async def _heartbeat_prepared(
        self, request: ShareHeartbeat, missing: tuple[Uninitialized, ...], slices: Slices
    ) -> HeartbeatReply:
        """Give the share partitions a state in slices, then serve the heartbeat."""
        try:
            preparing = await self._preparations.prepare(
                request.group_id, missing, self._start_offset_of, slices
            )
        except KafkaError:
            self._in_doubt = True  # States may be written that the group does not know.
            raise
        try:
            # From the beginning, because the group and its topics may have changed during the
            # slices.
            reply = self.heartbeat(request, slices)
        except KafkaStorageError:
            # The preparation ends here, and the group may not know the states that it has written.
            self._in_doubt = True
            raise
        finally:
            # Only after the decision: until then the group's offsets must not change
            # (`check_none`).
            preparing.end()
        return await reply

    async def _heartbeat_assigned(
        self, request: ShareHeartbeat, division: Division, slices: Slices
    ) -> HeartbeatReply:
        """Make a large assignment in slices, then serve the heartbeat.

        Others of its group that would make one wait until it is decided.
        """
        pending = self._assigning.get(request.group_id)
        if pending is not None:
            await asyncio.shield(pending)
            return await self.heartbeat(request, slices)
        self._assigning[request.group_id] = pending = asyncio.get_running_loop().create_future()
        try:
            ahead = await slices.finish(_made_ahead(request.group_id, division))
            # If a member has left meanwhile, this assigns at once: the others wait for answers.
            reply = self.heartbeat(request, slices, ahead)
        finally:
            # Also if this heartbeat failed or was cancelled: then another one makes the assignment.
            del self._assigning[request.group_id]
            pending.set_result(None)
        return await reply

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all groups in bytes, without their share partitions."""
        return self._groups.size_bytes

    @property
    def partition_count(self) -> int:
        """The number of share partitions with a state, of all groups."""
        return self._groups.partition_count

    def stop(self) -> None:
        """Stop the timer of the sessions."""
        self._alarm.stop()

    @property
    def shared_totals(self) -> tuple[SharedTotal[GroupId], ...]:
        """The totals of all groups, with the parts of users."""
        return self._groups.memory, self._groups.partitions

    def has(self, group_id: GroupId) -> bool:
        """Whether a share group with this id exists."""
        return group_id in self._groups

    def owner_of(self, group_id: GroupId) -> Principal | None:
        """Return the user to whom a group belongs; None if nobody owns it."""
        return self._groups.memory.owner(group_id)

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Return all share groups, in the order of their ids."""
        return self._groups.list_groups()

    def describe(self, group_id: GroupId) -> DescribedShareGroup:
        """Return a share group and its members; raise GroupIdNotFound if it does not exist."""
        limits = self._settings.group_limits(group_id)
        return self._groups.describe(group_id, assignor_name=limits.assignor_name)

    def settings_changed(self, group_id: GroupId) -> None:
        """Apply a change of the group's configuration."""
        self._settings.changed(group_id)

    def initialized(self, group_id: GroupId) -> dict[TopicName, tuple[int, ...]]:
        """Return the partitions for which the group has a state, by topic name."""
        return {
            topic.name: tuple(sorted(topic.partitions))
            for topic in self._groups.initialized_topics(group_id)
        }

    def offset(self, key: SharePartitionKey, log_: PartitionLog) -> OffsetListing:
        """Return the start offset and the lag of the group on one partition.

        Records below the log start offset count as finished.
        """
        summary = self._share_coordinator.summary(key)
        if summary.start_offset == UNDECIDED:
            return OffsetListing(UNDECIDED, summary.leader_epoch, -1)
        start_offset = summary.start_offset
        complete = max(0, summary.delivery_complete_count)
        if start_offset < log_.start_offset:
            # Kafka lists the old offset until a member settles a record, but deleted records cannot
            # be settled (docs/differences.md).
            start_offset, complete = self._behind_log_start(key, log_)
        lag = log_.high_watermark - start_offset - complete
        return OffsetListing(start_offset, summary.leader_epoch, max(0, lag))

    def _behind_log_start(self, key: SharePartitionKey, log_: PartitionLog) -> tuple[int, int]:
        """Return the start offset and delivery complete count that the next fetch will set."""
        persisted = self._share_coordinator.read(key)
        state = SharePartition.restore(
            persisted.start_offset, persisted.batches, log_end=log_.end_offset
        )
        state.move_log_start(log_.start_offset)
        checkpoint = state.checkpoint()
        return checkpoint.start_offset, checkpoint.delivery_complete_count

    def alter_offsets(
        self,
        group_id: GroupId,
        offsets: Mapping[TopicIdPartition, int],
        topics: Iterable[Topic],
        *,
        user: Principal | None,
    ) -> Awaitable[None]:
        """Set the start offsets of an empty group; late acknowledgements are fenced."""
        self._forget_what_failed(group_id)
        self._log.check_type(group_id, GroupType.SHARE)
        self._preparations.check_none(group_id)
        topic_metadata = {topic.name: _metadata_of(topic) for topic in topics}
        sizes = self._settings.group_limits(group_id).sizes
        records, altered = self._groups.alter_offsets(
            group_id, offsets, topic_metadata, limits=sizes, user=user
        )
        keys = [altered_partition.key for altered_partition in altered]
        with self._paired_writes(group_id, keys) as tickets:
            tickets += [
                self._share_coordinator.initialize(
                    altered_partition.key,
                    state_epoch=altered_partition.state_epoch,
                    start_offset=altered_partition.start_offset,
                )
                for altered_partition in altered
            ]
            tickets.append(self._apply(group_id, records))
        self._groups.claim(group_id, user)
        # Share partitions in memory still have the old offsets; the next fetch loads the new ones.
        self._share_partitions.drop_group(group_id)
        log.info("event=offsets_altered group=%r partitions=%d", group_id, len(altered))
        return _after(tickets, None)

    def delete_offsets(self, group_id: GroupId, topic: Topic) -> Awaitable[None]:
        """Delete the offsets of one topic; a later subscription to it starts without a state."""
        self._forget_what_failed(group_id)
        self._preparations.check_none(group_id)
        records, keys = self._groups.delete_offsets(group_id, [topic.topic_id])
        if not keys:
            raise UnknownTopicOrPartition(
                f"group {group_id!r} has no offsets for topic {topic.name!r}: "
                "there is nothing to delete"
            )
        with self._paired_writes(group_id, keys) as tickets:
            tickets += self._share_coordinator.delete(keys)
            tickets.append(self._apply(group_id, records))
        self._share_partitions.drop_group(group_id)
        log.info("event=offsets_deleted group=%r topic=%s", group_id, topic.name)
        return _after(tickets, None)

    def check_empty(self, group_id: GroupId) -> None:
        """Raise the error that a change of the group's offsets would raise."""
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        # A command changes nothing: its records are dropped, only its checks count.
        self._groups.delete_group(group_id)

    def delete(self, group_id: GroupId) -> Awaitable[None]:
        """Delete an empty group and the state of its share partitions."""
        self._forget_what_failed(group_id)
        self._preparations.check_none(group_id)
        records, keys = self._groups.delete_group(group_id)
        with self._paired_writes(group_id, keys) as tickets:
            tickets += self._share_coordinator.delete(keys)
            tickets.append(self._apply(group_id, records))
        self._share_partitions.drop_group(group_id)
        log.info("event=group_deleted group=%r", group_id)
        return _after(tickets, None)

    def _initialize(
        self, group_id: GroupId, missing: tuple[Uninitialized, ...]
    ) -> list[Ticket | None]:
        """Initialize the state of share partitions and record in the group that they have one."""
        if not missing:
            return []
        unprepared = self._preparations.unprepared(missing)
        keys = [partition.key for partition in unprepared]
        with self._paired_writes(group_id, keys) as tickets:
            tickets += self._preparations.tickets(group_id)
            for partition in unprepared:
                topic = self._topics.catalog.topic(partition.topic_name)
                start_offset = self._start_offset(
                    partition.key, topic, topic_is_new=partition.topic_is_new
                )
                tickets.append(
                    self._share_coordinator.initialize(
                        partition.key, state_epoch=partition.state_epoch, start_offset=start_offset
                    )
                )
            tickets.append(self._apply(group_id, self._groups.initialized(group_id, missing)))
        return tickets

    def _start_offset_of(self, partition: Uninitialized) -> int | None:
        """Return the start offset of a share partition, or None if its topic was deleted."""
        topic = self._topics.catalog.by_id(partition.key.topic_id)
        if topic is None:
            return None
        return self._start_offset(partition.key, topic, topic_is_new=partition.topic_is_new)

    def _start_offset(self, key: SharePartitionKey, topic: Topic, *, topic_is_new: bool) -> int:
        """Return the start offset for a new share partition.

        It is found once; afterwards the durable state of the share partition has it.
        """
        log_ = self._topics.opened_log(topic, key.partition)
        if log_ is None:
            return 0  # A log is created by its first use, so no record was ever written.
        # A partition that was added to a topic which the group reads already: its first records
        # would be skipped otherwise (KAFKA-20742).
        if not topic_is_new:
            return log_.start_offset
        reset = self._settings.own(key.group_id).auto_offset_reset
        if reset == "earliest":
            return log_.start_offset
        # Resolved here once and stored.  Kafka resolves it with each new leader until the first
        # write, which may skip records (docs/differences.md).
        if reset == "latest":
            return log_.high_watermark
        since_ms = self._clock.wall_ms() - reset_duration_ms(reset)
        offset = log_.times.start_not_older(since_ms)
        # No record is recent enough: the group begins with the next one (`docs/differences.md`).
        return log_.high_watermark if offset is None else offset

    def _topic_metadata(self, request: ShareHeartbeat) -> dict[TopicName, TopicMetadata]:
        """Return the existing topics among those that the group subscribes to."""
        catalog = self._topics.catalog
        names = self._groups.subscribed_names(request, catalog.names)
        return {name: _metadata_of(catalog.topic(name)) for name in names}

    def _topic_deleted(self, topic: Topic) -> Steps[None]:
        """Delete the state that share groups have for a deleted topic."""
        yield from self._share_partitions.drop_topic(topic.topic_id)
        try:
            self._forget_what_failed()
            keys = self._share_coordinator.keys_of_topic(topic.topic_id)
            for first in range(0, len(keys), STEP_ELEMENTS):
                if first:
                    yield
                    self._forget_what_failed()
                piece = keys[first : first + STEP_ELEMENTS]
                self._pair(*self._share_coordinator.delete(piece))
            self._pair(*self._apply_all(self._groups.topic_deleted(topic.topic_id)))
        except KafkaError as error:
            # The topic id is never used again, and `agree` deletes the rest at the next start.
            log.warning("event=group_cleanup_failed topic=%s error=%r", topic.name, str(error))

    def _expire_sessions(self) -> None:
        expired: tuple[MemberKey, ...] = ()
        try:
            self._forget_what_failed()
            records, expired = self._groups.expire_sessions(self._clock.now_ms())
            self._apply_all(records)
        except KafkaError as error:
            # The sessions stay expired.  The pause gives the disk time to recover.
            log.warning("event=expiry_not_written members=%d error=%r", len(expired), str(error))
            self._set_alarm(not_before_ms=self._clock.now_ms() + EXPIRY_RETRY_MS)
        else:
            for group_id, member_id in expired:
                log.info("event=member_expired group=%r member=%r", group_id, member_id)
            self._set_alarm()

    def _set_alarm(self, *, not_before_ms: int = 0) -> None:
        self._alarm.set(self._groups.next_session_expiry_ms(), not_before_ms=not_before_ms)

    def _apply_all(self, records: Records) -> list[Ticket | None]:
        """Write the records of several groups, those of each group to the group's partition."""
        by_group: dict[GroupId, list[ShareGroupRecord]] = {}
        for record in records:
            by_group.setdefault(record.group_id, []).append(record)
        return [
            self._apply(group_id, tuple(group_records))
            for group_id, group_records in by_group.items()
        ]

    def _apply(
        self,
        group_id: GroupId,
        records: Records,
        ready: Mapping[ShareGroupRecord, KeyAndValue] = NONE_READY,
    ) -> Ticket | None:
        """Append and replay records; without records, return the ticket of the last append.

        Records that are ``ready`` are encoded already.

        A decision without records can depend on earlier ones, so its reply waits for them.
        """
        if not records:
            return self._log.last(group_id)
        # Imported at first use, because the classes of Kafka's records take 15 ms to import.
        from sharegroup.broker.groups.share_group_records import encode

        ticket = self._log.append(
            group_id, [ready.get(record) or encode(record) for record in records]
        )
        for record in records:
            self._groups.replay(record)
            self.rebalance_count += isinstance(record, GroupEpoch)
        return ticket

    @contextmanager
    def _paired_writes(
        self, group_id: GroupId, keys: Iterable[SharePartitionKey]
    ) -> Iterator[list[Ticket | None]]:
        """Collect the tickets of a group's record and of the states of its share partitions.

        The writes must all succeed or all be undone.  They are in doubt if one of them raises.
        """
        # Before the first write, because it cannot be undone if a later one is refused.
        self._log.check_writable(group_id)
        for key in {self._share_coordinator.partition_of(key): key for key in keys}.values():
            self._share_coordinator.writable_check(key)()
        tickets: list[Ticket | None] = []
        try:
            yield tickets
        except KafkaError:
            # Earlier writes may be in the logs, without a ticket here: `agree` compares all states.
            self._in_doubt = True
            raise
        self._pair(*tickets)

    def _pair(self, *tickets: Ticket | None) -> None:
        """Register writes that must all succeed or all be undone."""
        self._paired += [ticket for ticket in tickets if ticket is not None]

    def _forget_what_failed(self, group_id: GroupId | None = None) -> None:
        """Restore a valid state in memory if a write to either log has failed.

        Call this before each decision.  None checks the partitions of all groups.
        """
        self._log.forget_what_failed(group_id)
        if self._paired:
            self._in_doubt |= any(ticket.failed for ticket in self._paired)
            # A ticket that is done was looked at above; the others may still fail.
            self._paired = [ticket for ticket in self._paired if not ticket.done]
        if self._in_doubt:
            log.warning("event=coordinators_in_doubt reason='one of two writes failed'")
            self._share_coordinator.forget_what_failed()
            self._log.forget_what_failed()
            # Any share partition in memory may have a state that was lost with the failed write.
            for group_id_ in {key.group_id for key in self._groups.initialized_keys()}:
                self._share_partitions.drop_group(group_id_)
            self.agree()
            # Last: if `agree` cannot write, the next command tries it again.
            self._in_doubt = False

    def begin_reading(self) -> Reading:
        """Begin a reading of the log."""
        groups = self._groups.restarted()

        def replay(key: bytes, value: bytes | None) -> None:
            # Imported at first use like `encode`, because there may be no record.
            from sharegroup.broker.groups.share_group_records import decode

            record = decode(key, value)
            if record is not None:
                groups.replay(record)

        def finish() -> None:
            self._groups = groups
            groups.restart_sessions(
                self._clock.now_ms(),
                session_timeout_ms=lambda group: (
                    self._settings.group_limits(group).session_timeout_ms
                ),
            )

        return Reading(replay, finish)


def _metadata_of(topic: Topic) -> TopicMetadata:
    return TopicMetadata(topic.name, topic.topic_id, topic.partition_count)


async def _after(tickets: list[Ticket | None], reply: T) -> T:
    for ticket in tickets:
        if ticket is not None:
            await ticket
    return reply


def _made_ahead(group_id: GroupId, division: Division) -> Steps[_Ahead]:
    """Make an assignment and encode its records, in steps."""
    # Imported at first use, as in `_apply`.
    from sharegroup.broker.groups.share_group_records import encode

    target = yield from assigning(division)
    encoded: dict[ShareGroupRecord, KeyAndValue] = {}
    for (member_id, partitions), pause in paced(target.items(), ENCODED_AT_ONCE):
        if partitions != division.current.get(member_id):
            record = TargetAssignment(group_id, member_id, partitions)
            encoded[record] = encode(record)
        if pause:
            yield
    return _Ahead(Assigned(division, target), encoded)
