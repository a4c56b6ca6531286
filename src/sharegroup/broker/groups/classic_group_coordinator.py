"""The coordinator of classic groups, and of the committed offsets of all groups, kept durable.

It runs `core.groups.classic.classic_groups.ClassicGroups` over the topic ``__consumer_offsets``
(`GroupLog`), in the pattern of ADR 0005: decide, append, and answer when the records are durable.

A request that waits for other members is a future here and a number (`Call`) in core.  A decision
names the numbers that it answers.  Either a request of another member or the clock causes it.

When a decision cannot be written, the coordinator forgets everything that is not durable.
Waiting requests are answered with NOT_COORDINATOR, so their clients try again (ADR 0014).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import NamedTuple, cast

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.coordinator_log import (
    NO_PRODUCER,
    Durable,
    KeyAndValue,
    Marker,
    as_a_coordinator,
)
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.classic_group_records import decode, encode
from sharegroup.broker.groups.group_log import GroupLog, Reading
from sharegroup.broker.groups.modern_group_view import ModernGroupView
from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_group import ClassicGroup
from sharegroup.core.groups.classic.classic_groups import (
    ClassicGroups,
    Committer,
    DescribedClassicGroup,
    ListedClassicGroup,
)
from sharegroup.core.groups.classic.member import (
    Call,
    ClassicGroupLimits,
    Decision,
    JoinReply,
    JoinRequest,
    LeavingMember,
    NewMemberId,
    Reply,
    SyncReply,
    SyncRequest,
)
from sharegroup.core.groups.classic.offsets import OffsetsOfGroup, OpenTransaction
from sharegroup.core.groups.classic.records import (
    GroupMetadata,
    GroupTombstone,
    OffsetCommit,
    OffsetTombstone,
    Records,
)
from sharegroup.core.groups.classic.sizes import group_totals
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import (
    InconsistentGroupProtocol,
    InvalidCommitOffsetSize,
    KafkaError,
    NotCoordinator,
    RebalanceInProgress,
)
from sharegroup.ids import GroupId, MemberId, ProducerIdAndEpoch, TopicIdPartition, TopicName
from sharegroup.protocol_enums import GroupType
from sharegroup.steps import Steps
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.internal_topics.consumer_protocol import subscribed_topics

log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""Milliseconds until the timers are checked again after a failed write."""

COMMIT_BYTES_MAX = 4 * 1024 * 1024
"""Limit for the metadata of one commit in bytes, because its records are written as one batch."""

SLICE_GROUPS = 100
"""Groups that are searched for expired offsets before other requests get their turn."""

MINUTE_MS = 60_000


PendingReply = asyncio.Future[tuple[Reply, Ticket | None]]
"""The reply, and the ticket that must be durable before the reply is sent."""


class WaitingRequest(NamedTuple):
    """A request that waits for other members."""

    answer: PendingReply
    group_id: GroupId
    connection_id: int


class ClassicGroupCoordinator:
    """Serves the requests of consumer groups and keeps their state in ``__consumer_offsets``."""

    __slots__ = (
        "_alarm",
        "_by_connection",
        "_calls",
        "_clock",
        "_config",
        "_corrections",
        "_groups",
        "_is_stopped",
        "_log",
        "_modern",
        "_topics",
        "_waiting",
    )

    def __init__(
        self,
        log_: GroupLog,
        topics: Topics,
        clock: Clock,
        config: LiveConfig,
        modern: ModernGroupView,
    ) -> None:
        self._log = log_
        self._modern = modern
        self._topics = topics
        self._clock = clock
        self._alarm = Alarm(clock, self._pass_time)
        self._config = config
        self._groups = ClassicGroups(
            subscribed_topics, totals=group_totals(config.server.user_limits_percent)
        )
        self._corrections: dict[GroupId, list[OffsetCommit | OffsetTombstone]] = {}
        """Records that correct offsets and could not be written yet."""
        self._calls = count()
        self._waiting: dict[Call, WaitingRequest] = {}
        self._by_connection: dict[int, set[Call]] = {}
        self._is_stopped = False
        topics.on_deleted(self._topic_deleted)

    def agree(self) -> None:
        """Correct committed offsets that no longer match the logs, after the log was read at start.

        A topic may be gone.  After a loss of power a log may end before a committed offset, and
        records that are written there later must not count as read.
        """
        for commit in self._groups.all_offsets():
            correction = self._fitting(commit)
            if correction is not None:
                self._corrections.setdefault(commit.group_id, []).append(correction)
        try:
            self._forget_what_failed()
        except KafkaError as error:
            # A broker starts on a full disk (ADR 0019), and the next command tries again.
            log.warning("event=offsets_not_cut error=%r", str(error))
        self._set_alarm()
        self._check_offsets_later()

    # Membership

    def join(self, request: JoinRequest, connection_id: int) -> Awaitable[JoinReply | NewMemberId]:
        """Join a member to its group; the reply comes when all members joined or time is up."""
        group_id = request.group_id
        # The disk is asked first: the join changes the group in memory at once, and undoing it
        # drops the state of all groups (ADR 0014).
        self._begin(group_id, writes=True)
        # Only a share group is refused: a group of KIP-848 takes classic members, as in Kafka
        # (`GroupMetadataManager.classicGroupJoin`).
        if self._log.type_of(group_id) is GroupType.SHARE:
            raise InconsistentGroupProtocol(
                f"group {group_id!r} is a share group: no member of a consumer group can join"
            )
        call = next(self._calls)
        decision = self._groups.join(request, call, now=self._now(), limits=self._limits())
        reply = self._wait(call, decision, connection_id)
        self._groups.claim(group_id, request.user)
        return cast("Awaitable[JoinReply | NewMemberId]", reply)

    def sync(self, request: SyncRequest, connection_id: int) -> Awaitable[SyncReply]:
        """Return the assignment of a member; the reply comes when the group leader has assigned."""
        # As for a join: the assignments of the leader change the group before they are written.
        self._begin(request.group_id, writes=True)
        call = next(self._calls)
        decision = self._groups.sync(request, call, now=self._now())
        return cast("Awaitable[SyncReply]", self._wait(call, decision, connection_id))

    def connection_closed(self, connection_id: int) -> None:
        """Drop the waiting requests of a closed connection, whose replies nobody will read."""
        # A copy, because `_taken` changes the set; in order of arrival, which the numbers have.
        for call in sorted(self._by_connection.get(connection_id, ())):
            waiting = self._taken(call)
            if waiting is None:
                # The decision about an earlier call of the connection has answered it.
                continue
            waiting.answer.cancel()
            try:
                self._forget_what_failed(waiting.group_id)
                # Kafka lets a new member that hung up take part for up to five minutes.  If it
                # becomes the leader, all others wait for it (docs/differences.md).
                decision = self._groups.hang_up(
                    waiting.group_id, call, now=self._now(), limits=self._limits()
                )
                self._follow(decision)
            except KafkaError as error:
                # The member leaves the group when its session times out.
                log.warning("event=hang_up_not_written error=%r", str(error))
        self._set_alarm()

    def stop(self) -> None:
        """Stop the timers and cancel all waiting requests."""
        self._is_stopped = True
        self._alarm.stop()
        for call in list(self._waiting):
            waiting = self._taken(call)
            if waiting is not None:
                waiting.answer.cancel()

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, *, instance_id: str | None, generation: int
    ) -> None:
        """Keep a member in its group; raise RebalanceInProgress if it must join again."""
        self._begin(group_id)
        # The alarm is not set: a heartbeat only postpones a deadline, and an alarm that rings for
        # an earlier one is set again.
        must_join = self._groups.heartbeat(
            group_id, member_id, instance_id=instance_id, generation=generation, now=self._now()
        )
        if must_join:
            raise RebalanceInProgress(f"group {group_id!r} is rebalancing: join again")

    def leave(
        self, group_id: GroupId, leaving: tuple[LeavingMember, ...]
    ) -> Awaitable[list[KafkaError | None]]:
        """Remove members; return for each the error that prevented it, or None."""
        self._begin(group_id, writes=True)
        decision, outcomes = self._groups.leave(
            group_id, leaving, now=self._now(), limits=self._limits()
        )
        ticket = self._follow(decision)
        self._set_alarm()
        return Durable(ticket, outcomes)

    # Offsets

    def commit(
        self,
        committer: Committer,
        offsets: tuple[OffsetCommit, ...],
        *,
        api_version: int = 9,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> Awaitable[None]:
        """Commit offsets of a group of either protocol.

        With a producer they count when its transaction is committed.  ``api_version`` is that of
        OffsetCommit.
        """
        group_id = committer.group_id
        # Whether the disk takes writes is not asked first, as it is for a join: no offset changes
        # in memory before its record is appended (ADR 0005).
        self._begin(group_id)
        is_transactional = producer is not NO_PRODUCER
        self._check_commit(
            committer, offsets, api_version=api_version, is_transactional=is_transactional
        )
        with as_a_coordinator():
            ticket = (
                self._write_pending(group_id, offsets, producer)
                if is_transactional
                else self._write(group_id, offsets)
            )
            self._groups.claim(group_id, committer.user)
            return Durable(ticket, None)

    def _check_commit(
        self,
        committer: Committer,
        offsets: tuple[OffsetCommit, ...],
        *,
        api_version: int,
        is_transactional: bool,
    ) -> None:
        group_id = committer.group_id
        bytes_max = self._config.consumer_group.offsets_bytes_max
        # Offsets of both protocols are kept here, so a group keeps them when it changes its
        # protocol (spec modern-28).
        if self._modern.has(group_id):
            partitions = (
                TopicIdPartition(offset.committed.topic_id, offset.partition)
                for offset in offsets
                if offset.committed.topic_id is not None
            )
            self._modern.check_commit(
                committer, partitions, api_version=api_version, is_transactional=is_transactional
            )
            self._groups.check_room(
                committer, offsets, bytes_max=bytes_max, is_transactional=is_transactional
            )
        else:
            self._log.check_type(group_id, GroupType.CLASSIC)
            self._groups.check_commit(
                committer,
                offsets,
                bytes_max=bytes_max,
                now=self._now(),
                is_transactional=is_transactional,
            )
        # A commit has at most `PIECE_OFFSETS` offsets, so only notes of 32 KiB each reach the
        # limit.
        note_bytes = sum(len(offset.committed.metadata) for offset in offsets)
        if note_bytes > COMMIT_BYTES_MAX:
            raise InvalidCommitOffsetSize(
                f"group {group_id!r}: the metadata of one commit has {note_bytes} bytes, "
                f"at most {COMMIT_BYTES_MAX} are allowed"
            )

    def _write_pending(
        self, group_id: GroupId, offsets: tuple[OffsetCommit, ...], producer: ProducerIdAndEpoch
    ) -> Ticket:
        records = [encode(offset) for offset in offsets]
        ticket = self._log.append(group_id, records, producer=producer)
        transaction = OpenTransaction(self._log.partition_of(group_id), producer.producer_id)
        for offset in offsets:
            self._groups.replay_pending(transaction, offset)
        return ticket

    def end_transaction(self, partition: int, marker: Marker) -> Ticket:
        """Write a marker to a partition of the topic, and make its offsets valid or drop them."""
        self._forget_what_failed()
        ticket = self._log.append_marker(partition, marker)
        transaction = OpenTransaction(partition, marker.producer_id)
        self._groups.end_transaction(transaction, is_commit=marker.is_commit)
        return ticket

    def is_unstable(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        """Return whether an open transaction may still change a committed offset (KIP-447)."""
        return self._groups.is_unstable(group_id, topic, partition)

    @property
    def shared_totals(self) -> tuple[SharedTotal[GroupId], ...]:
        """The totals of all groups, with the parts of users."""
        return self._groups.shared_totals

    @property
    def offsets_bytes(self) -> int:
        """The approximate memory of all committed offsets in bytes."""
        return self._groups.offsets_bytes

    def offsets(self, group_id: GroupId) -> OffsetsOfGroup:
        """Return the committed offsets of a group; send them only when `durable` ends."""
        self._begin(group_id)
        return self._groups.offsets(group_id)

    def durable(self, group_id: GroupId) -> Awaitable[None]:
        """Return an awaitable that ends when all earlier writes of the group are durable."""
        return Durable(self._log.last(group_id), None)

    def delete_offsets(
        self, group_id: GroupId, partitions: Mapping[TopicName, Iterable[int]]
    ) -> Awaitable[dict[TopicName, KafkaError]]:
        """Delete offsets; return an error for each topic that the group still reads."""
        self._begin(group_id)
        with as_a_coordinator():
            modern = self._modern.find(group_id)
            records, refused = self._groups.delete_offsets(
                group_id, partitions, reads=None if modern is None else modern.reads
            )
            return Durable(self._write(group_id, records), refused)

    # Administration

    def list_groups(self) -> tuple[ListedClassicGroup, ...]:
        """Return all classic groups, in the order of their ids."""
        listed = self._groups.list_groups()
        # The offsets of a group of KIP-848 are here, too, and look like a classic group without
        # members.
        return tuple(group for group in listed if not self._modern.has(group.group_id))

    def describe(self, group_id: GroupId) -> DescribedClassicGroup:
        """Return a classic group and its members; raise GroupIdNotFound if it does not exist."""
        if self._modern.has(group_id):
            self._log.check_type(group_id, GroupType.CLASSIC)
        return self._groups.describe(group_id)

    def delete(self, group_id: GroupId) -> Awaitable[None]:
        """Delete an empty group and its offsets."""
        self._begin(group_id)
        with as_a_coordinator():
            records = self._groups.delete_group(group_id)
            ticket = self._write(group_id, records)
        log.info("event=group_deleted group=%r offsets=%d", group_id, len(records) - 1)
        return Durable(ticket, None)

    # Migration: a group of the protocol of KIP-848 takes the place of a classic one, or the reverse

    def upgradable(self, group_id: GroupId) -> ClassicGroup | None:
        """Return the classic group with this id if it has members; it must not be changed."""
        group = self._groups.find(group_id)
        return None if group is None or not len(group.members) else group

    def end_group(self, group_id: GroupId) -> list[KeyAndValue]:
        """End the requests of a group that another takes the place of; return its tombstone.

        The caller writes the tombstone and then calls `replay_encoded`.
        """
        group = self._groups.find(group_id)
        if group is None:
            return []
        for call, reply in self._groups.hand_over(group_id).answers:
            # Without a ticket: "join again" promises nothing that a crash could undo.
            self._answer(call, reply, None)
        return [encode(GroupTombstone(group_id))]

    def forget(self, group_id: GroupId) -> list[KeyAndValue]:
        """Return the tombstones of the offsets of a group of KIP-848, for the caller to write."""
        return [encode(record) for record in self._groups.forgotten(group_id)]

    def replay_encoded(self, records: Iterable[KeyAndValue]) -> None:
        """Replay records of this coordinator that the caller has written."""
        for key, value in records:
            record = decode(key, value)
            assert record is not None, "these records were encoded here"
            self._groups.replay(record)
        self._set_alarm()

    def encoded(self, metadata: GroupMetadata) -> KeyAndValue:
        """Return the record of a group that takes the place of one of KIP-848."""
        return encode(metadata)

    def take_over(self, metadata: GroupMetadata, *, rebalances: bool) -> None:
        """Start a group whose record the caller has written."""
        self._follow(
            self._groups.take_over(
                metadata, rebalances=rebalances, now=self._now(), limits=self._limits()
            )
        )
        self._set_alarm()

    # Decisions and the log

    def _begin(self, group_id: GroupId, *, writes: bool = False) -> None:
        """Check, before a decision, that the state in memory is valid and that writes can succeed.

        The state is read again if an earlier write failed.
        """
        with as_a_coordinator():
            self._forget_what_failed(group_id)
            if writes:
                self._log.check_writable(group_id)

    def _forget_what_failed(self, group_id: GroupId | None = None) -> None:
        """Read the log again if a write has failed, and write the corrections that are left.

        These come before every other change of offsets.
        """
        # The correction of any group is an append, and its partition must not be cut either.
        self._log.forget_what_failed(None if self._corrections else group_id)
        while self._corrections:
            of_group, records = next(iter(self._corrections.items()))
            self._write(of_group, tuple(records))
            del self._corrections[of_group]
            log.warning("event=offsets_cut group=%r partitions=%d", of_group, len(records))

    def _wait(self, call: Call, decision: Decision, connection_id: int) -> Awaitable[Reply]:
        """Return the answer to this call, which comes with this decision or a later one."""
        answer: PendingReply = asyncio.get_running_loop().create_future()
        # Registered before `_follow`: the decision may answer this very call.
        self._waiting[call] = WaitingRequest(answer, decision.group_id, connection_id)
        self._by_connection.setdefault(connection_id, set()).add(call)
        self._follow(decision)
        self._set_alarm()
        return _answered(answer)

    def _answer(self, call: Call, reply: Reply, ticket: Ticket | None) -> None:
        """Answer a call if its request still waits."""
        waiting = self._taken(call)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result((reply, ticket))

    def _taken(self, call: Call) -> WaitingRequest | None:
        """Remove and return the request that waits for this call; None if its connection closed."""
        waiting = self._waiting.pop(call, None)
        if waiting is not None:
            connection_calls = self._by_connection[waiting.connection_id]
            connection_calls.remove(call)
            if not connection_calls:
                del self._by_connection[waiting.connection_id]
        return waiting

    def _follow(self, decision: Decision) -> Ticket | None:
        """Write the records of a decision and answer the waiting requests that it names.

        Raises NotCoordinator if the records cannot be written; the decision is undone then.
        """
        try:
            ticket = self._append(decision.group_id, decision.records)
        except KafkaError as error:
            log.warning("event=groups_reloaded group=%r reason=%r", decision.group_id, str(error))
            # The decision has changed the group already; only the durable records undo it (ADR
            # 0014).
            self._log.load()
            raise NotCoordinator(str(error)) from error
        for call, reply in decision.answers:
            self._answer(call, reply, ticket)
        return ticket

    def _write(self, group_id: GroupId, records: Records) -> Ticket | None:
        """Append records and replay them, which changes the groups in memory."""
        ticket = self._append(group_id, records)
        for record in records:
            self._groups.replay(record)
        return ticket

    def _append(self, group_id: GroupId, records: Records) -> Ticket | None:
        return self._log.append_if_any(group_id, [encode(record) for record in records])

    def has(self, group_id: GroupId) -> bool:
        """Whether a consumer group with this id exists."""
        return group_id in self._groups

    def begin_reading(self) -> Reading:
        """Return the consumer of this coordinator's records for a new reading of the log."""
        # The owners of groups are kept, because the log does not have them.
        groups = ClassicGroups(subscribed_topics, totals=self._groups.shared_totals.restarted())

        def replay(key: bytes, value: bytes | None) -> None:
            record = decode(key, value)
            if record is not None:
                groups.replay(record)

        def replay_pending(
            partition: int, producer_id: int, key: bytes, value: bytes | None
        ) -> None:
            record = decode(key, value)
            if isinstance(record, OffsetCommit | OffsetTombstone):
                groups.replay_pending(OpenTransaction(partition, producer_id), record)

        def end_transaction(partition: int, producer_id: int, is_commit: bool) -> None:
            groups.end_transaction(OpenTransaction(partition, producer_id), is_commit=is_commit)

        def finish() -> None:
            self._groups = groups
            groups.start(now=self._now(), limits=self._limits())
            # The groups that were read know nothing of these calls, so nothing else would answer
            # them.
            error = NotCoordinator("the changes of the group could not be written; join again")
            for call in list(self._waiting):
                self._answer(call, error, None)

        return Reading(replay, finish, replay_pending, end_transaction)

    # The clock

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.wall_ms())

    def _limits(self) -> ClassicGroupLimits:
        config = self._config.consumer_group
        return ClassicGroupLimits(
            session_timeout_ms_min=config.session_timeout_ms_min,
            session_timeout_ms_max=config.session_timeout_ms_max,
            initial_delay_ms=config.rebalance_delay_ms,
            members_max=config.members_max,
        )

    def _pass_time(self) -> None:
        """End the sessions and rebalance phases whose time is up.

        After a reload every member has a new session, so nothing is due.
        """
        not_before_ms = 0
        try:
            self._forget_what_failed()
            for decision in self._groups.pass_time(now=self._now(), limits=self._limits()):
                self._follow(decision)
        except KafkaError as error:
            log.warning("event=expiry_not_written error=%r", str(error))
            not_before_ms = self._clock.now_ms() + RETRY_MS
        self._set_alarm(not_before_ms=not_before_ms)

    def _set_alarm(self, *, not_before_ms: int = 0) -> None:
        self._alarm.set(self._groups.next_due_ms(), not_before_ms=not_before_ms)

    def _check_offsets_later(self) -> None:
        due_ms = self._clock.now_ms() + self._config.consumer_group.offsets_check_ms
        self._clock.call_at_ms(due_ms, lambda: self._check_offsets(self._groups.group_ids()))

    def _check_offsets(self, group_ids: tuple[GroupId, ...]) -> None:
        """Expire the offsets of some groups now, and of the rest after other work had its turn."""
        if self._is_stopped:
            return
        retention_ms = self._config.consumer_group.offsets_retention_minutes * MINUTE_MS
        try:
            self._forget_what_failed()
            for group_id in group_ids[:SLICE_GROUPS]:
                modern = self._modern.find(group_id)
                expired = self._groups.expire(
                    group_id,
                    now=self._now(),
                    retention_ms=retention_ms,
                    reads=None if modern is None else modern.reads,
                )
                if expired:
                    self._write(group_id, expired)
                    log.info("event=offsets_expired group=%r records=%d", group_id, len(expired))
        except KafkaError as error:
            log.warning("event=offsets_not_expired error=%r", str(error))
        remaining = group_ids[SLICE_GROUPS:]
        if remaining:
            self._clock.call_at_ms(self._clock.now_ms(), lambda: self._check_offsets(remaining))
        else:
            self._check_offsets_later()

    # Topics

    def _fitting(self, commit: OffsetCommit) -> OffsetCommit | OffsetTombstone | None:
        """Return the record that corrects a committed offset, or None if the offset is valid."""
        topic = self._topics.catalog.find(commit.topic)
        known_id = commit.committed.topic_id
        if (
            topic is None
            or (known_id is not None and known_id != topic.topic_id)
            or commit.partition >= topic.partition_count
        ):
            return OffsetTombstone(commit.group_id, commit.topic, commit.partition)
        end_offset = 0
        # Asking for the log of an untouched partition would create its files (ADR 0007).
        if self._topics.is_touched(topic, commit.partition):
            end_offset = self._topics.log_of(topic, commit.partition).end_offset
        if commit.committed.offset <= end_offset:
            return None
        return replace(commit, committed=replace(commit.committed, offset=end_offset))

    def _topic_deleted(self, topic: Topic) -> Steps[None]:
        groups = None
        try:
            self._forget_what_failed()
            # Again if the log was read meanwhile: a failed write brings offsets back, and the
            # groups of before know nothing of later commits.
            while groups is not self._groups:
                groups = self._groups
                for group_id, records in groups.topic_deleted(topic.name, topic.topic_id):
                    self._write(group_id, records)
                    yield
                    self._forget_what_failed()
                    if groups is not self._groups:
                        break
        except KafkaError as error:
            # `agree` deletes the remaining offsets at the next start.
            log.warning("event=offset_cleanup_failed topic=%s error=%r", topic.name, str(error))


async def _answered(answer: PendingReply) -> Reply:
    reply, ticket = await answer
    if isinstance(reply, KafkaError):
        raise reply
    return await Durable(ticket, reply)
