"""The coordinator of share groups: membership, assignment and offsets, kept durable.

It runs `sharegroup.core.ShareGroups` over the topic ``__consumer_offsets`` (`GroupLog`).  It
also decides what core cannot: where in a log a group starts (`share.auto.offset.reset`), and
that a new share partition's state is made in the same breath as the assignment that names it,
so that the answer to a first heartbeat has partitions which can be fetched at once.

The share coordinator has a log of its own; a crash, or a disk that fails, may keep one write
and lose the other.  Neither was answered then, and `agree` makes the two one again: at start,
and before the next command when one of a pair of writes has failed since.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config_values import reset_duration_ms
from sharegroup.broker.groups.group_log import GroupLog, Keeper, Kind, Reading
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.persister import Persister
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.core.share_group import (
    GroupDescription,
    GroupListing,
    MemberKey,
    ShareGroups,
    Uninitialized,
)
from sharegroup.core.share_group_heartbeat import HeartbeatReply, HeartbeatRequest
from sharegroup.core.share_group_picture import TopicPicture
from sharegroup.core.share_group_records import (
    Records,
    RecordType,
    ShareGroupMetadata,
    ShareGroupRecord,
)
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.share_state import NO_SUMMARY, UNDECIDED
from sharegroup.errors import InvalidGroupId, KafkaError, UnknownTopicOrPartition
from sharegroup.ids import (
    GroupId,
    SharePartitionKey,
    TopicName,
    TopicPartition,
)
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.tickets import Ticket

log = logging.getLogger(__name__)

T = TypeVar("T")

EXPIRY_RETRY_MS = 1_000


class OffsetListing(NamedTuple):
    """How far a group is on one partition; -1 for what is not known."""

    start_offset: int
    leader_epoch: int
    lag: int


class ShareGroupCoordinator:
    """See the module's text."""

    __slots__ = (
        "_alarm",
        "_clock",
        "_groups",
        "_in_doubt",
        "_log",
        "_paired",
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
    ) -> None:
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._alarm = Alarm(clock, self._expire_sessions)
        self._settings = settings
        self._share_coordinator = share_coordinator
        self._share_partitions = share_partitions
        self._groups = ShareGroups()
        self._paired: list[Ticket] = []
        """Writes to either log that say something of the other, until they are decided."""
        self.rebalance_count = 0
        """How often the epoch of some group went up."""
        self._in_doubt = False
        """One of them failed, and the two logs were not made to agree since."""
        topics.on_deleted(self._topic_deleted)
        log_.kept_by(
            Keeper(
                Kind.SHARE,
                frozenset(RecordType),
                self._begin_reading,
                lambda group_id: group_id in self._groups,
            )
        )

    def agree(self) -> None:
        """Both logs were read: make the share coordinator's state agree with the groups'."""
        listed = self._groups.initialized_keys()
        for key in sorted(listed):
            topic = self._topics.catalog.by_id(key.topic_id)
            if topic is None:
                self._pair(*self._apply_all(self._groups.topic_deleted(key.topic_id)))
            elif self._share_coordinator.summary(key) == NO_SUMMARY:
                start_offset = self._start_offset(key, topic, topic_is_new=True)
                log.warning("event=share_state_made_again %s start_offset=%d", key, start_offset)
                self._pair(
                    self._share_coordinator.initialize(
                        key, state_epoch=0, start_offset=start_offset
                    )
                )
        orphans = [key for key in self._share_coordinator.known() if key not in listed]
        self._pair(*self._share_coordinator.delete(orphans))
        self._set_alarm()

    def heartbeat(self, request: HeartbeatRequest) -> Awaitable[HeartbeatReply]:
        """Serve one heartbeat: decided now, answered when it is durable."""
        self._forget_what_failed(request.group_id)
        limits = self._settings.group_limits(request.group_id)
        self._groups.check_heartbeat(request, limits=limits)
        self._log.check_kind(request.group_id, Kind.SHARE)
        pictures = self._pictures(request)
        tickets = self._initialize(request.group_id, self._groups.uninitialized(request, pictures))
        records, reply = self._groups.heartbeat(
            request,
            pictures,
            limits=limits,
            now_ms=self._clock.now_ms(),
            wall_ms=self._clock.wall_ms(),
        )
        tickets.append(self._apply(request.group_id, records))
        self._set_alarm()
        return _after(tickets, reply)

    def list_groups(self) -> tuple[GroupListing, ...]:
        return self._groups.list_groups()

    def describe(self, group_id: GroupId) -> GroupDescription:
        return self._groups.describe(group_id)

    def settings_changed(self, group_id: GroupId) -> None:
        """The group's configuration is another now."""
        self._settings.changed(group_id)

    def initialized(self, group_id: GroupId) -> dict[TopicName, tuple[int, ...]]:
        """The partitions that the group has a state for, by topic."""
        return {
            topic.name: tuple(sorted(topic.partitions))
            for topic in self._groups.initialized_topics(group_id)
        }

    def offset(self, key: SharePartitionKey, log_: PartitionLog) -> OffsetListing:
        """How far the group is on one partition; what its log has lost is behind it."""
        summary = self._share_coordinator.summary(key)
        if summary.start_offset == UNDECIDED:
            return OffsetListing(UNDECIDED, summary.leader_epoch, -1)
        start_offset = summary.start_offset
        complete = max(0, summary.delivery_complete_count)
        if start_offset < log_.start_offset:
            start_offset, complete = self._behind_log_start(key, log_)
        lag = log_.high_watermark - start_offset - complete
        return OffsetListing(start_offset, summary.leader_epoch, max(0, lag))

    def _behind_log_start(self, key: SharePartitionKey, log_: PartitionLog) -> tuple[int, int]:
        """Start offset and delivery complete count as the next fetch will make them."""
        persisted = self._share_coordinator.read(key)
        state = SharePartition.restore(
            persisted.start_offset, persisted.batches, log_end=log_.end_offset
        )
        state.move_log_start(log_.start_offset)
        now = state.checkpoint()
        return now.start_offset, now.delivery_complete_count

    def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[TopicPartition, int], topics: Iterable[Topic]
    ) -> Awaitable[None]:
        """Start partitions of an empty group elsewhere; late acknowledgements are fenced."""
        self._forget_what_failed(group_id)
        self._log.check_writable(group_id)
        self._log.check_kind(group_id, Kind.SHARE)
        pictures = {topic.name: _picture(topic) for topic in topics}
        records, altered = self._groups.alter_offsets(group_id, offsets, pictures)
        tickets: list[Ticket | None] = [
            self._share_coordinator.initialize(
                one.key, state_epoch=one.state_epoch, start_offset=one.start_offset
            )
            for one in altered
        ]
        tickets.append(self._apply(group_id, records))
        self._pair(*tickets)
        self._share_partitions.drop_group(group_id)
        log.info("event=offsets_altered group=%r partitions=%d", group_id, len(altered))
        return _after(tickets, None)

    def delete_offsets(self, group_id: GroupId, topic: Topic) -> Awaitable[None]:
        """Forget a topic; the group begins anew if it subscribes to it again."""
        self._forget_what_failed(group_id)
        self._log.check_writable(group_id)
        records, keys = self._groups.delete_offsets(group_id, [topic.topic_id])
        if not keys:
            raise UnknownTopicOrPartition(
                f"group {group_id!r} has no offsets for topic {topic.name!r}: "
                "there is nothing to delete"
            )
        tickets: list[Ticket | None] = [*self._share_coordinator.delete(keys)]
        tickets.append(self._apply(group_id, records))
        self._pair(*tickets)
        self._share_partitions.drop_group(group_id)
        log.info("event=offsets_deleted group=%r topic=%s", group_id, topic.name)
        return _after(tickets, None)

    def check_empty(self, group_id: GroupId) -> None:
        """Raise what keeps the group's offsets from being changed."""
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        self._groups.delete_group(group_id)

    def delete(self, group_id: GroupId) -> Awaitable[None]:
        """Delete an empty group and all that is known of its records."""
        self._forget_what_failed(group_id)
        self._log.check_writable(group_id)
        records, keys = self._groups.delete_group(group_id)
        tickets: list[Ticket | None] = [*self._share_coordinator.delete(keys)]
        tickets.append(self._apply(group_id, records))
        self._pair(*tickets)
        self._share_partitions.drop_group(group_id)
        log.info("event=group_deleted group=%r", group_id)
        return _after(tickets, None)

    def _initialize(
        self, group_id: GroupId, missing: tuple[Uninitialized, ...]
    ) -> list[Ticket | None]:
        """Give share partitions a state, and say in the group that they have one."""
        if not missing:
            return []
        tickets: list[Ticket | None] = []
        for one in missing:
            topic = self._topics.catalog.topic(one.topic_name)
            start_offset = self._start_offset(one.key, topic, topic_is_new=one.topic_is_new)
            tickets.append(
                self._share_coordinator.initialize(
                    one.key, state_epoch=one.state_epoch, start_offset=start_offset
                )
            )
        tickets.append(self._apply(group_id, self._groups.initialized(group_id, missing)))
        self._pair(*tickets)
        return tickets

    def _start_offset(self, key: SharePartitionKey, topic: Topic, *, topic_is_new: bool) -> int:
        """Where the group starts on this partition; decided once, and durable from then on."""
        log_ = self._topics.log_of(topic, key.partition)
        if not topic_is_new:
            return log_.start_offset
        reset = self._settings.own(key.group_id).auto_offset_reset
        if reset == "earliest":
            return log_.start_offset
        if reset == "latest":
            return log_.high_watermark
        since_ms = self._clock.wall_ms() - reset_duration_ms(reset)
        found = log_.offset_for_timestamp(since_ms)
        return log_.high_watermark if found is None else found[1]

    def _pictures(self, request: HeartbeatRequest) -> dict[TopicName, TopicPicture]:
        """The topics that exist of those that the group subscribes to."""
        names = self._groups.subscribed_names(request)
        found = (self._topics.catalog.find(name) for name in names)
        return {topic.name: _picture(topic) for topic in found if topic is not None}

    def _topic_deleted(self, topic: Topic) -> None:
        """A topic is gone: so is what groups knew of it."""
        self._share_partitions.drop_topic(topic.topic_id)
        try:
            self._forget_what_failed()
            keys = self._share_coordinator.keys_of_topic(topic.topic_id)
            self._pair(*self._share_coordinator.delete(keys))
            self._pair(*self._apply_all(self._groups.topic_deleted(topic.topic_id)))
        except KafkaError as error:
            # The topic's id is never used again, and the next start finds what is left over.
            log.warning("event=group_cleanup_failed topic=%s error=%r", topic.name, str(error))

    def _expire_sessions(self) -> None:
        expired: tuple[MemberKey, ...] = ()
        try:
            self._forget_what_failed()
            records, expired = self._groups.expire_sessions(self._clock.now_ms())
            self._apply_all(records)
        except KafkaError as error:
            # They stay expired and are tried again, not before the disk had a moment.
            log.warning("event=expiry_not_written members=%d error=%r", len(expired), str(error))
            self._set_alarm(not_before_ms=self._clock.now_ms() + EXPIRY_RETRY_MS)
        else:
            for group_id, member_id in expired:
                log.info("event=member_expired group=%r member=%s", group_id, member_id)
            self._set_alarm()

    def _set_alarm(self, *, not_before_ms: int = 0) -> None:
        due_ms = self._groups.next_session_expiry_ms()
        if due_ms is not None:
            self._alarm.set(max(due_ms, not_before_ms))

    def _apply_all(self, records: Records) -> list[Ticket | None]:
        """Write records of several groups, each to its own group's partition."""
        by_group: dict[GroupId, list[ShareGroupRecord]] = {}
        for record in records:
            by_group.setdefault(record.group_id, []).append(record)
        return [self._apply(group_id, tuple(own)) for group_id, own in by_group.items()]

    def _apply(self, group_id: GroupId, records: Records) -> Ticket | None:
        """Write and replay; nothing to write is durable when what came before it is."""
        if not records:
            return self._log.last(group_id)
        from sharegroup.broker.groups.share_group_records import encode

        ticket = self._log.append(group_id, [encode(record) for record in records])
        for record in records:
            self._groups.replay(record)
            self.rebalance_count += isinstance(record, ShareGroupMetadata)
        return ticket

    def _pair(self, *tickets: Ticket | None) -> None:
        """Remember writes of which one must not stand without the others."""
        self._paired += [ticket for ticket in tickets if ticket is not None]

    def _forget_what_failed(self, group_id: GroupId | None = None) -> None:
        """Before anything is decided on what never happened, in this log or in the other."""
        self._log.forget_what_failed(group_id)
        if self._paired:
            self._in_doubt |= any(ticket.failed for ticket in self._paired)
            self._paired = [ticket for ticket in self._paired if not ticket.done]
        if self._in_doubt:
            log.warning("event=coordinators_in_doubt reason='one of two writes failed'")
            self._share_coordinator.forget_what_failed()
            self._log.forget_what_failed()
            for group_id_ in {key.group_id for key in self._groups.initialized_keys()}:
                self._share_partitions.drop_group(group_id_)
            self.agree()
            self._in_doubt = False

    def _begin_reading(self) -> Reading:
        groups = ShareGroups()

        def replay(key: bytes, value: bytes | None) -> None:
            # Here and where they are written: a start may find none, and their classes take long.
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


def _picture(topic: Topic) -> TopicPicture:
    return TopicPicture(topic.name, topic.topic_id, topic.partition_count)


async def _after(tickets: list[Ticket | None], reply: T) -> T:
    for ticket in tickets:
        if ticket is not None:
            await ticket
    return reply
