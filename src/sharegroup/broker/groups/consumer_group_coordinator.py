"""The coordinator of consumer groups: who reads what, and how far they are, kept durable.

It runs `sharegroup.core.ConsumerGroups` over the topic ``__consumer_offsets`` (`GroupLog`), in
the pattern of ADR 0005: decide, append, answer when it is durable.  A request that waits for
other members is a future here and a number in core; a decision names the numbers that it
answers, whoever brought it about: a request of another member, or the clock.

When something that was decided could not be written, everything that is not durable is
forgotten, and who waits is told to come again (NOT_COORDINATOR).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import NamedTuple, TypeVar, cast

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.consumer_group_records import decode, encode
from sharegroup.broker.groups.group_log import GroupLog, Kind, Reading, as_a_coordinator
from sharegroup.core.consumer_group_member import (
    Call,
    Decision,
    Identity,
    JoinReply,
    JoinRequest,
    Limits,
    NewMemberId,
    Now,
    Reply,
    SyncReply,
    SyncRequest,
)
from sharegroup.core.consumer_group_offsets import OffsetsOfGroup
from sharegroup.core.consumer_group_records import OffsetCommit, OffsetTombstone, Records
from sharegroup.core.consumer_groups import (
    Committer,
    ConsumerGroups,
    GroupDescription,
    GroupListing,
)
from sharegroup.errors import (
    InconsistentGroupProtocol,
    InvalidCommitOffsetSize,
    KafkaError,
    NotCoordinator,
    RebalanceInProgress,
)
from sharegroup.ids import GroupId, MemberId, TopicName
from sharegroup.storage.tickets import Ticket
from sharegroup.wire.consumer_protocol import subscribed_topics

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS = 1_000
"""After something could not be written, the clock is not asked again before."""

COMMIT_BYTES_MAX = 4 * 1024 * 1024
"""The notes of one commit together: its records are written as one batch."""

SLICE_GROUPS = 100
"""So many groups are looked through for old offsets before requests have their turn again."""

MINUTE_MS = 60_000


Answer = asyncio.Future[tuple[Reply, Ticket | None]]
"""What to say, and when it may be said."""


class Waiting(NamedTuple):
    """A request that waits for other members."""

    answer: Answer
    group_id: GroupId
    connection_id: int


class ConsumerGroupCoordinator:
    """See the module's text."""

    __slots__ = (
        "_alarm",
        "_by_connection",
        "_calls",
        "_clock",
        "_config",
        "_groups",
        "_is_stopped",
        "_log",
        "_topics",
        "_waiting",
    )

    def __init__(self, log_: GroupLog, topics: Topics, clock: Clock, config: LiveConfig) -> None:
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._alarm = Alarm(clock, self._pass_time)
        self._config = config
        self._groups = ConsumerGroups(subscribed_topics)
        self._calls = count()
        self._waiting: dict[Call, Waiting] = {}
        self._by_connection: dict[int, set[Call]] = {}
        self._is_stopped = False
        topics.on_deleted(self._topic_deleted)

    def agree(self) -> None:
        """The log was read at start: let no offset be beyond what is in the logs now.

        Topics may be gone, and after the loss of power a log may end before what is said of it:
        records that are written there later must not count as read.
        """
        stale: dict[GroupId, list[OffsetCommit | OffsetTombstone]] = {}
        for one in self._groups.all_offsets():
            fitting = self._fitting(one)
            if fitting is not None:
                stale.setdefault(one.group_id, []).append(fitting)
        for group_id, records in stale.items():
            log.warning("event=offsets_cut group=%r partitions=%d", group_id, len(records))
            self._write(group_id, tuple(records))
        self._set_alarm()
        self._check_offsets_later()

    # Membership

    def join(self, request: JoinRequest, connection_id: int) -> Awaitable[JoinReply | NewMemberId]:
        """A member joins; answered when all have, or time is up."""
        group_id = request.group_id
        self._begin(group_id, writes=True)
        if self._log.kind_of(group_id) is Kind.SHARE:
            raise InconsistentGroupProtocol(
                f"group {group_id!r} is a share group: no member of a consumer group can join"
            )
        call = next(self._calls)
        decision = self._groups.join(request, call, now=self._now(), limits=self._limits())
        reply = self._wait(call, decision, connection_id)
        return cast("Awaitable[JoinReply | NewMemberId]", reply)

    def sync(self, request: SyncRequest, connection_id: int) -> Awaitable[SyncReply]:
        """A member asks for its assignment; answered when the leader has assigned."""
        self._begin(request.group_id, writes=True)
        call = next(self._calls)
        decision = self._groups.sync(request, call, now=self._now())
        return cast("Awaitable[SyncReply]", self._wait(call, decision, connection_id))

    def connection_closed(self, connection_id: int) -> None:
        """Nobody reads the answers to what came through it."""
        for call in sorted(self._by_connection.get(connection_id, ())):
            waiting = self._taken(call)
            if waiting is None:
                continue
            waiting.answer.cancel()
            try:
                self._log.forget_what_failed(waiting.group_id)
                decision = self._groups.hang_up(
                    waiting.group_id, call, now=self._now(), limits=self._limits()
                )
                self._follow(decision)
            except KafkaError as error:
                # Its session ends some time.
                log.warning("event=hang_up_not_written error=%r", str(error))
        self._set_alarm()

    def stop(self) -> None:
        """Nothing happens any more by the clock, and who waits need not."""
        self._is_stopped = True
        self._alarm.cancel()
        for call in list(self._waiting):
            waiting = self._taken(call)
            if waiting is not None:
                waiting.answer.cancel()

    def heartbeat(
        self, group_id: GroupId, member_id: MemberId, *, instance_id: str | None, generation: int
    ) -> None:
        """The member lives; RebalanceInProgress tells it to join again."""
        self._begin(group_id)
        must_join = self._groups.heartbeat(
            group_id, member_id, instance_id=instance_id, generation=generation, now=self._now()
        )
        if must_join:
            raise RebalanceInProgress(f"group {group_id!r} rebalances: join again")

    def leave(
        self, group_id: GroupId, leaving: tuple[Identity, ...]
    ) -> Awaitable[list[KafkaError | None]]:
        """Members leave; why each cannot, or None."""
        self._begin(group_id, writes=True)
        decision, outcomes = self._groups.leave(
            group_id, leaving, now=self._now(), limits=self._limits()
        )
        ticket = self._follow(decision)
        self._set_alarm()
        return _durable(ticket, outcomes)

    # Offsets

    def commit(self, committer: Committer, offsets: tuple[OffsetCommit, ...]) -> Awaitable[None]:
        """Note how far the group is."""
        group_id = committer.group_id
        self._begin(group_id)
        self._log.check_kind(group_id, Kind.CLASSIC)
        self._groups.check_commit(committer, count=len(offsets), now=self._now())
        note_bytes = sum(len(one.committed.metadata) for one in offsets)
        if note_bytes > COMMIT_BYTES_MAX:
            raise InvalidCommitOffsetSize(
                f"group {group_id!r}: {note_bytes} bytes beside the offsets of one commit, "
                f"{COMMIT_BYTES_MAX} at most"
            )
        with as_a_coordinator():
            return _durable(self._write(group_id, offsets), None)

    def offsets(self, group_id: GroupId) -> OffsetsOfGroup:
        """What the group has committed; nobody may be told before `durable`."""
        self._begin(group_id)
        return self._groups.offsets(group_id)

    def durable(self, group_id: GroupId) -> Awaitable[None]:
        """When all that was written of the group by now is on disk."""
        return _durable(self._log.last(group_id), None)

    def delete_offsets(
        self, group_id: GroupId, partitions: Mapping[TopicName, Iterable[int]]
    ) -> Awaitable[dict[TopicName, KafkaError]]:
        """Forget offsets; the topics that the group reads are refused."""
        self._begin(group_id)
        with as_a_coordinator():
            records, refused = self._groups.delete_offsets(group_id, partitions)
            return _durable(self._write(group_id, records), refused)

    # Administration

    def list_groups(self) -> tuple[GroupListing, ...]:
        return self._groups.list_groups()

    def describe(self, group_id: GroupId) -> GroupDescription:
        return self._groups.describe(group_id)

    def delete(self, group_id: GroupId) -> Awaitable[None]:
        """Delete an empty group and its offsets."""
        self._begin(group_id)
        with as_a_coordinator():
            records = self._groups.delete_group(group_id)
            ticket = self._write(group_id, records)
        log.info("event=group_deleted group=%r offsets=%d", group_id, len(records) - 1)
        return _durable(ticket, None)

    # Decisions and the log

    def _begin(self, group_id: GroupId, *, writes: bool = False) -> None:
        """Decide on nothing that never happened, nor on what the disk would not take."""
        with as_a_coordinator():
            self._log.forget_what_failed(group_id)
            if writes:
                self._log.check_writable(group_id)

    def _wait(self, call: Call, decision: Decision, connection_id: int) -> Awaitable[Reply]:
        """The answer to this call, in this decision or in a later one."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting[call] = Waiting(answer, decision.group_id, connection_id)
        self._by_connection.setdefault(connection_id, set()).add(call)
        self._follow(decision)
        self._set_alarm()
        return _answered(answer)

    def _answer(self, call: Call, reply: Reply, ticket: Ticket | None) -> None:
        """Let a call have its answer, if somebody still waits for it."""
        waiting = self._taken(call)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result((reply, ticket))

    def _taken(self, call: Call) -> Waiting | None:
        """The call that waited, and waits no more; None if its connection has ended."""
        waiting = self._waiting.pop(call, None)
        if waiting is not None:
            of_connection = self._by_connection[waiting.connection_id]
            of_connection.remove(call)
            if not of_connection:
                del self._by_connection[waiting.connection_id]
        return waiting

    def _follow(self, decision: Decision) -> Ticket | None:
        """Write what has happened to a group, and answer those who waited for it.

        Raises NotCoordinator when it could not be written, and did not happen after all.
        """
        try:
            ticket = self._append(decision.group_id, decision.records)
        except KafkaError as error:
            log.warning("event=groups_reloaded group=%r reason=%r", decision.group_id, str(error))
            self._log.load()
            raise NotCoordinator(str(error)) from error
        for call, reply in decision.answers:
            self._answer(call, reply, ticket)
        return ticket

    def _write(self, group_id: GroupId, records: Records) -> Ticket | None:
        """Write what was decided, and let it have happened."""
        ticket = self._append(group_id, records)
        for record in records:
            self._groups.replay(record)
        return ticket

    def _append(self, group_id: GroupId, records: Records) -> Ticket | None:
        """Nothing to write is durable when what came before it is."""
        if not records:
            return self._log.last(group_id)
        return self._log.append(group_id, [encode(record) for record in records])

    def has(self, group_id: GroupId) -> bool:
        """Whether there is a consumer group of this id."""
        return group_id in self._groups

    def begin_reading(self) -> Reading:
        """What takes the records of consumer groups when the log is read anew."""
        groups = ConsumerGroups(subscribed_topics)

        def replay(key: bytes, value: bytes | None) -> None:
            record = decode(key, value)
            if record is not None:
                groups.replay(record)

        def finish() -> None:
            self._groups = groups
            groups.start(now=self._now(), limits=self._limits())
            again = NotCoordinator("what was agreed could not be written: join again")
            for call in list(self._waiting):
                self._answer(call, again, None)

        return Reading(replay, finish)

    # The clock

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.wall_ms())

    def _limits(self) -> Limits:
        config = self._config.consumer_group
        return Limits(
            session_timeout_ms_min=config.session_timeout_ms_min,
            session_timeout_ms_max=config.session_timeout_ms_max,
            initial_delay_ms=config.rebalance_delay_ms,
            members_max=config.members_max,
        )

    def _pass_time(self) -> None:
        """End what is over.  After a reload everybody has a new session: nothing is over."""
        not_before_ms = 0
        try:
            self._log.forget_what_failed()
            for decision in self._groups.pass_time(now=self._now(), limits=self._limits()):
                self._follow(decision)
        except KafkaError as error:
            log.warning("event=expiry_not_written error=%r", str(error))
            not_before_ms = self._clock.now_ms() + RETRY_MS
        self._set_alarm(not_before_ms=not_before_ms)

    def _set_alarm(self, *, not_before_ms: int = 0) -> None:
        due_ms = self._groups.next_due_ms()
        if due_ms is not None and not self._is_stopped:
            self._alarm.set(max(due_ms, not_before_ms))

    def _check_offsets_later(self) -> None:
        due_ms = self._clock.now_ms() + self._config.consumer_group.offsets_check_ms
        self._clock.call_at_ms(due_ms, lambda: self._check_offsets(self._groups.group_ids()))

    def _check_offsets(self, group_ids: tuple[GroupId, ...]) -> None:
        """Look through some groups now, and the rest when others had their turn."""
        if self._is_stopped:
            return
        retention_ms = self._config.consumer_group.offsets_retention_minutes * MINUTE_MS
        try:
            self._log.forget_what_failed()
            for group_id in group_ids[:SLICE_GROUPS]:
                old = self._groups.expire(group_id, now=self._now(), retention_ms=retention_ms)
                if old:
                    self._write(group_id, old)
                    log.info("event=offsets_expired group=%r records=%d", group_id, len(old))
        except KafkaError as error:
            log.warning("event=offsets_not_expired error=%r", str(error))
        rest = group_ids[SLICE_GROUPS:]
        if rest:
            self._clock.call_at_ms(self._clock.now_ms(), lambda: self._check_offsets(rest))
        else:
            self._check_offsets_later()

    # Topics

    def _fitting(self, one: OffsetCommit) -> OffsetCommit | OffsetTombstone | None:
        """What the offset should be; None when it is that already."""
        topic = self._topics.catalog.find(one.topic)
        known_id = one.committed.topic_id
        if (
            topic is None
            or (known_id is not None and known_id != topic.topic_id)
            or one.partition >= topic.partition_count
        ):
            return OffsetTombstone(one.group_id, one.topic, one.partition)
        end_offset = 0
        if self._topics.is_touched(topic, one.partition):
            end_offset = self._topics.log_of(topic, one.partition).end_offset
        if one.committed.offset <= end_offset:
            return None
        return replace(one, committed=replace(one.committed, offset=end_offset))

    def _topic_deleted(self, topic: Topic) -> None:
        try:
            self._log.forget_what_failed()
            gone = self._groups.topic_deleted(topic.name, topic.topic_id)
            for group_id, records in gone.items():
                self._write(group_id, records)
        except KafkaError as error:
            # The next start finds what is left over.
            log.warning("event=offset_cleanup_failed topic=%s error=%r", topic.name, str(error))


async def _answered(answer: Answer) -> Reply:
    reply, ticket = await answer
    if isinstance(reply, KafkaError):
        raise reply
    return await _durable(ticket, reply)


async def _durable(ticket: Ticket | None, result: T) -> T:
    if ticket is not None:
        with as_a_coordinator():
            await ticket
    return result
