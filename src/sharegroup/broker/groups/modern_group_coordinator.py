"""The coordinator of consumer groups of KIP-848, kept durable.

It runs `core.groups.modern.modern_groups.ModernGroups` over the topic ``__consumer_offsets``
(`GroupLog`), in the pattern of ADR 0005: decide, append, replay, and answer when the records are
durable.

Committed offsets are kept by the coordinator of classic groups, for groups of both protocols.  A
group changes its protocol by one batch of records, which deletes it in the one form and creates it
in the other; each coordinator replays its part.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.broker.access.permission import Permission
from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.cluster.coordinator_log import Durable, KeyAndValue, as_a_coordinator
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.classic_group_coordinator import ClassicGroupCoordinator
from sharegroup.broker.groups.group_log import GroupLog, Reading
from sharegroup.broker.groups.modern_group_inputs import (
    CatalogTopics,
    TopicPatterns,
    modern_group_limits,
)
from sharegroup.broker.groups.modern_group_records import decode, encode
from sharegroup.broker.load.slices import Slices
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.groups.classic.member import (
    UNKNOWN_MEMBER,
    JoinReply,
    JoinRequest,
    LeavingMember,
    NewMemberId,
    SyncReply,
    SyncRequest,
)
from sharegroup.core.groups.modern.advance import Cluster, ModernGroupLimits
from sharegroup.core.groups.modern.group import ModernGroup
from sharegroup.core.groups.modern.heartbeat import HeartbeatPlan, ModernHeartbeat
from sharegroup.core.groups.modern.member import JOIN_EPOCH, DescribedModernGroup
from sharegroup.core.groups.modern.migration import (
    CONSUMER,
    ClassicAssignment,
    ClassicCodec,
    ClassicSubscription,
    by_name,
    can_downgrade,
    check_upgrade,
    classic_member,
    downgraded,
    upgraded,
)
from sharegroup.core.groups.modern.modern_groups import ModernGroups
from sharegroup.core.groups.modern.records import ClassicMember, Records
from sharegroup.core.groups.modern.sizes import memory_of_groups
from sharegroup.core.groups.share.records import GroupEpoch
from sharegroup.core.groups.share.share_group import HeartbeatReply, ListedGroup
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import InconsistentGroupProtocol, InvalidSessionTimeout, KafkaError
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.protocol_enums import GroupType
from sharegroup.steps import Steps
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.internal_topics import consumer_protocol

log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""Milliseconds until the timers are checked again after a failed write."""

MATCHES_MAX = 3
"""Times that a heartbeat waits for its patterns, if topics change meanwhile."""


PLANS_MAX = 3
"""Times that a long heartbeat is planned anew because its group was changed meanwhile."""


class _Planned(NamedTuple):
    """A long heartbeat and its encoded records, by their `id`; the plan keeps these alive."""

    plan: HeartbeatPlan
    encoded: dict[int, KeyAndValue]


def _subscription(metadata: bytes) -> ClassicSubscription | None:
    decoded = consumer_protocol.decode_subscription(metadata)
    return None if decoded is None else ClassicSubscription(*decoded)


def _assignment(assignment: bytes) -> ClassicAssignment | None:
    decoded = consumer_protocol.decode_assignment(assignment)
    return None if decoded is None else ClassicAssignment(*decoded)


CODEC = ClassicCodec(_subscription, _assignment, consumer_protocol.encode_assignment)


class ModernGroupCoordinator:
    """Serves the requests of consumer groups of KIP-848."""

    __slots__ = (
        "_alarm",
        "_catalog",
        "_classic",
        "_clock",
        "_config",
        "_groups",
        "_log",
        "_patterns",
        "_settings",
        "_topics",
        "rebalance_count",
    )

    def __init__(
        self,
        log_: GroupLog,
        topics: Topics,
        clock: Clock,
        *,
        config: LiveConfig,
        settings: GroupSettings,
        classic: Callable[[], ClassicGroupCoordinator],
    ) -> None:
        """``classic`` returns the coordinator of classic groups, which also keeps the offsets."""
        self._log = log_
        self._catalog = topics.catalog
        self._topics = CatalogTopics(topics.catalog)
        self._patterns = TopicPatterns(topics.catalog)
        self._clock = clock
        self._alarm = Alarm(clock, self._pass_time)
        self._config = config
        self._settings = settings
        self._classic = classic
        self._groups = ModernGroups(memory_of_groups(config.server.user_limits_percent))
        self.rebalance_count = 0
        """The number of group epoch changes, of all groups together."""

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all groups in bytes."""
        return self._groups.memory.used

    @property
    def shared_totals(self) -> tuple[SharedTotal[GroupId], ...]:
        """The total of all groups, with the parts of users."""
        return (self._groups.memory,)

    def find(self, group_id: GroupId) -> ModernGroup | None:
        """Return the group with this id, which must not be changed; None if there is none."""
        return self._groups.find(group_id)

    def agree(self) -> None:
        """Start the timers, after the log was read."""
        self._set_alarm()

    def stop(self) -> None:
        """Stop the timers."""
        self._alarm.stop()

    # Heartbeats

    def heartbeat(
        self, request: ModernHeartbeat, slices: Slices, connection_id: int, *, describe: Permission
    ) -> Awaitable[HeartbeatReply]:
        """Serve one heartbeat: decide it at once and answer when its records are durable.

        A heartbeat with a regular expression is decided after the topics that match it are known.
        As in Kafka, the expression means only topics that its sender may ``describe``.
        """
        self._begin(request.group_id)
        limits = self._limits(request.group_id)
        self._check_kind(request, limits)
        self._groups.check_heartbeat(request, limits)
        if request.leaves:
            return self._leave(request, limits)
        # After the checks: a heartbeat that is refused must not cost the matching of its patterns.
        needed = self._groups.patterns(request, self._version)
        if needed:
            # The result None means that the steps were few and are done; otherwise it is a future.
            matching = slices.run(lambda: self._patterns.match(needed, describe), connection_id)
            if matching is not None:
                return self._heartbeat_matched(matching, request, slices, connection_id, describe)
        if self._is_long(request, describe):
            return self._heartbeat_planned(request, slices, connection_id, describe)
        return self._decide(request, limits, describe)

    async def _heartbeat_matched(
        self,
        matching: Awaitable[None],
        request: ModernHeartbeat,
        slices: Slices,
        connection_id: int,
        describe: Permission,
    ) -> HeartbeatReply:
        await matching
        for _ in range(MATCHES_MAX - 1):
            # Topics or ACLs may have changed during the wait.
            missing = self._unmatched(request)
            if not missing:
                break
            await slices.later(partial(self._patterns.match, missing, describe), connection_id)
        if self._is_long(request, describe):
            return await self._heartbeat_planned(request, slices, connection_id, describe)
        return await self._decide(request, self._checked_limits(request), describe)

    async def _heartbeat_planned(
        self, request: ModernHeartbeat, slices: Slices, connection_id: int, describe: Permission
    ) -> HeartbeatReply:
        """Work out in slices which partitions move, then decide at once."""
        planned = None
        for _ in range(PLANS_MAX):
            planned = await slices.later(lambda: self._plan(request, describe), connection_id)
            if planned is not None:
                break
        # Without a plan, because the group never stayed the same for long enough, it is decided in
        # one piece: the member must get its answer within its session.
        return await self._decide(request, self._checked_limits(request), describe, planned)

    def _plan(self, request: ModernHeartbeat, describe: Permission) -> Steps[_Planned | None]:
        """Plan a heartbeat and encode its records; return None if its group was changed
        meanwhile.
        """
        limits = self._checked_limits(request)
        needed = self._groups.patterns(request, self._version)
        cluster = self._cluster(needed, describe)
        plan = yield from self._groups.plan(request, cluster, limits, self._clock.wall_ms())
        if plan is None:
            return None
        encoded: dict[int, KeyAndValue] = {}
        # Encoded in steps, too: an assignment of thousands of partitions takes milliseconds.
        for record in plan.result[0]:
            yield
            encoded[id(record)] = encode(record)
        return _Planned(plan, encoded)

    def _is_long(self, request: ModernHeartbeat, describe: Permission) -> bool:
        """Return whether a heartbeat is planned first; an upgrade of a classic group is not."""
        if self._is_upgrade(request):
            return False
        needed = self._groups.patterns(request, self._version)
        return self._groups.is_long(request, self._cluster(needed, describe))

    def _checked_limits(self, request: ModernHeartbeat) -> ModernGroupLimits:
        """Return the limits of a group after the checks of a heartbeat that has waited."""
        self._begin(request.group_id)
        limits = self._limits(request.group_id)
        self._check_kind(request, limits)
        self._groups.check_heartbeat(request, limits)
        return limits

    def _unmatched(self, request: ModernHeartbeat) -> tuple[str, ...]:
        """Return the patterns that the heartbeat needs and that must be matched first."""
        needed = self._groups.patterns(request, self._version)
        return tuple(pattern for pattern in needed if self._patterns.known(pattern) is None)

    def _decide(
        self,
        request: ModernHeartbeat,
        limits: ModernGroupLimits,
        describe: Permission,
        planned: _Planned | None = None,
    ) -> Awaitable[HeartbeatReply]:
        group_id = request.group_id
        needed = self._groups.patterns(request, self._version)
        classic = self._classic().upgradable(group_id) if self._is_upgrade(request) else None
        if classic is not None:
            check_upgrade(classic, limits)
        cluster = self._cluster(needed, describe)
        records, reply = self._groups.heartbeat(
            request,
            cluster,
            limits=limits,
            now=self._now(),
            upgraded=() if classic is None else upgraded(classic, self._topics, CODEC),
            plan=None if planned is None else planned.plan,
        )
        # Asked before the write, which creates the group.
        is_new = group_id not in self._groups
        ticket = self._write(
            group_id,
            records,
            before=self._classic_end(group_id, records),
            ready={} if planned is None else planned.encoded,
        )
        self._groups.seen(group_id, cluster)
        self._groups.claim(group_id, request.user)
        if classic is not None:
            log.info("event=group_upgraded group=%r members=%d", group_id, len(classic.members))
            # The session timers of the members were those of the classic coordinator.
            self._restart((group_id,))
        elif is_new:
            log.info("event=consumer_group_created group=%r", group_id)
        self._set_alarm()
        return Durable(ticket, reply)

    def _is_upgrade(self, request: ModernHeartbeat) -> bool:
        """Return whether a member joins a group that is still a classic one."""
        return (
            request.member_epoch == JOIN_EPOCH
            and request.group_id not in self._groups
            and self._log.type_of(request.group_id) is GroupType.CLASSIC
        )

    def _classic_end(self, group_id: GroupId, records: Records) -> list[KeyAndValue]:
        """End the classic group of this id, if a new group replaces it; return its tombstone."""
        if not records or group_id in self._groups:
            return []
        return self._classic().end_group(group_id)

    def _check_kind(self, request: ModernHeartbeat, limits: ModernGroupLimits) -> None:
        """Raise GroupIdNotFound if a group of another type has the id and is not upgraded."""
        existing_type = self._log.type_of(request.group_id)
        if existing_type is GroupType.CLASSIC and request.member_epoch == JOIN_EPOCH:
            classic = self._classic().upgradable(request.group_id)
            if classic is not None:
                check_upgrade(classic, limits)
            return
        self._log.check_type(request.group_id, GroupType.CONSUMER)

    # Leaving

    def _leave(
        self, request: ModernHeartbeat, limits: ModernGroupLimits
    ) -> Awaitable[HeartbeatReply]:
        self._log.check_writable(request.group_id)
        records = self._groups.leave(request)
        if records is None:
            ticket = self._remove(request.group_id, [request.member_id], limits)
        else:
            ticket = self._write(request.group_id, records)
        reply = HeartbeatReply(request.member_id, request.member_epoch, 0, None)
        return Durable(ticket, reply)

    def leave_classic(
        self, group_id: GroupId, leaving: tuple[LeavingMember, ...]
    ) -> Awaitable[list[KafkaError | None]]:
        """Remove members by LeaveGroup; return for each the error that prevented it, or None."""
        self._begin(group_id, writes=True)
        outcomes: list[KafkaError | None] = []
        member_ids: list[MemberId] = []
        for identity in leaving:
            try:
                member_id = self._groups.leaving_classic(group_id, *identity)
            except KafkaError as error:
                outcomes.append(error.with_traceback(None))
            else:
                outcomes.append(None)
                # A request may name one member twice, by its id and by its instance id.
                if member_id not in member_ids:
                    member_ids.append(member_id)
        with as_a_coordinator():
            return Durable(self._remove(group_id, member_ids, self._limits(group_id)), outcomes)

    def _remove(
        self, group_id: GroupId, member_ids: list[MemberId], limits: ModernGroupLimits
    ) -> Ticket | None:
        """Remove members; if only classic members are left, the group becomes a classic one."""
        group = self._groups.existing(group_id)
        if member_ids and can_downgrade(group, member_ids, limits):
            return self._downgrade(group, dict.fromkeys(member_ids), rebalances=True)
        cluster = self._cluster()
        return self._write(group_id, self._groups.removed(group_id, member_ids, cluster))

    # Members of the classic protocol

    def join(self, request: JoinRequest, connection_id: int) -> Awaitable[JoinReply | NewMemberId]:
        """Join a member that uses the classic protocol."""
        group_id = request.group_id
        self._begin(group_id, writes=True)
        group = self._groups.existing(group_id)
        limits = self._limits(group_id)
        if not group.members:
            # An empty group is made a classic one again (`GroupMetadataManager.classicGroupJoin`).
            # No ticket is needed: the records of the join follow in the same partition's log.
            self._write(group_id, self._groups.deleted(group_id))
            return self._classic().join(request, connection_id)
        self._check_joins(request, limits)
        subscription = _subscription(next(iter(request.protocols.values()), b""))
        if subscription is None:
            raise InconsistentGroupProtocol(
                f"group {group_id!r}, member {request.member_id!r}: the subscription in the "
                "metadata of its first protocol cannot be decoded"
            )
        former = group.static(request.instance_id)
        if (
            former is not None
            and former.classic is None
            and request.member_id == UNKNOWN_MEMBER
            and request.protocol_type == CONSUMER
            and can_downgrade(group, [former.member_id], limits)
        ):
            # The last member of the consumer protocol returns with the classic one.
            stand_ins = {former.member_id: classic_member(request)}
            self._downgrade(group, stand_ins, rebalances=group.epoch > group.assignment_epoch)
            return self._classic().join(request, connection_id)
        return self._join(request, subscription, limits)

    def _join(
        self, request: JoinRequest, subscription: ClassicSubscription, limits: ModernGroupLimits
    ) -> Awaitable[JoinReply | NewMemberId]:
        cluster = self._cluster()
        records, joined = self._groups.join_classic(
            request,
            subscription,
            cluster,
            limits=limits,
            now=self._now(),
        )
        # KIP-394: a new member gets its id first, and joins again with it.
        if joined is None:
            return Durable(None, NewMemberId(request.new_member_id))
        ticket = self._write(request.group_id, records)
        self._groups.seen(request.group_id, cluster)
        self._groups.claim(request.group_id, request.user)
        self._set_alarm()
        # No member leads, because the broker assigns.
        reply = JoinReply(
            joined.member_id, joined.generation, CONSUMER, joined.protocol, UNKNOWN_MEMBER
        )
        return Durable(ticket, reply)

    def _check_joins(self, request: JoinRequest, limits: ModernGroupLimits) -> None:
        """Raise if no classic member may join, or not with this session timeout."""
        if not limits.upgrades and not limits.downgrades:
            raise InconsistentGroupProtocol(
                f"group {request.group_id!r} uses the consumer protocol, and "
                "group.consumer.migration.policy=disabled allows no classic members"
            )
        config = self._config.consumer_group
        low, high = config.session_timeout_ms_min, config.session_timeout_ms_max
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"group {request.group_id!r}: a session timeout of {request.session_timeout_ms} "
                f"ms is not between {low} and {high} ms"
            )

    def sync(self, request: SyncRequest) -> Awaitable[SyncReply]:
        """Return the assignment of a member that uses the classic protocol."""
        self._begin(request.group_id)
        assigned, subscription = self._groups.sync_classic(request, self._clock.now_ms())
        self._set_alarm()
        assignment = consumer_protocol.encode_assignment(
            by_name(assigned, self._name_of), subscription
        )
        reply = SyncReply(request.protocol_type, request.protocol, assignment)
        # The assignment may be part of a record that another member's heartbeat has caused and that
        # is not durable yet.
        return Durable(self._log.last(request.group_id), reply)

    def heartbeat_classic(
        self, group_id: GroupId, member_id: MemberId, *, instance_id: str | None, generation: int
    ) -> None:
        """Keep a member in its group; raise RebalanceInProgress if it must join again."""
        self._begin(group_id)
        try:
            self._groups.heartbeat_classic(
                group_id,
                member_id,
                instance_id=instance_id,
                generation=generation,
                now_ms=self._clock.now_ms(),
            )
        # Also after RebalanceInProgress: the session was renewed, and the time to join may have
        # begun.
        finally:
            self._set_alarm()

    def _downgrade(
        self,
        group: ModernGroup,
        stand_ins: Mapping[MemberId, ClassicMember | None],
        *,
        rebalances: bool,
    ) -> Ticket | None:
        """Make the group a classic one, in one batch of records."""
        metadata = downgraded(
            group,
            stand_ins,
            name_of=self._name_of,
            codec=CODEC,
            wall_ms=self._clock.wall_ms(),
        )
        group_id = group.group_id
        records = self._groups.tombstones(group_id)
        classic = self._classic()
        # One batch: after a crash between two of them the group would be gone, or be of both types.
        ticket = self._write(group_id, records, after=[classic.encoded(metadata)])
        classic.take_over(metadata, rebalances=rebalances)
        log.info("event=group_downgraded group=%r members=%d", group_id, len(metadata.members))
        return ticket

    # Offsets

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[TopicIdPartition],
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if a member may not commit offsets of these partitions."""
        self._groups.check_commit(
            committer, partitions, api_version=api_version, is_transactional=is_transactional
        )

    def check_fetch(self, group_id: GroupId, member_id: MemberId | None, epoch: int) -> None:
        """Raise if a member may not fetch committed offsets."""
        self._groups.check_fetch(group_id, member_id, epoch)

    # Administration

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Return all groups, in the order of their ids."""
        return self._groups.list_groups()

    def describe(self, group_id: GroupId) -> DescribedModernGroup:
        """Return a group and its members; raise GroupIdNotFound if it does not exist."""
        return self._groups.describe(group_id, self._limits(group_id))

    def delete(self, group_id: GroupId) -> Awaitable[None]:
        """Delete an empty group and its offsets."""
        self._begin(group_id, writes=True)
        with as_a_coordinator():
            records = self._groups.deleted(group_id)
            # In one batch with the group: offsets that outlive their group would be a classic group
            # without members.
            offsets = self._classic().forget(group_id)
            ticket = self._write(group_id, records, before=offsets)
        # The last one is the tombstone of the group that holds the offsets (`forget`).
        log.info("event=group_deleted group=%r offsets=%d", group_id, max(len(offsets) - 1, 0))
        return Durable(ticket, None)

    # Decisions and the log

    def _begin(self, group_id: GroupId, *, writes: bool = False) -> None:
        """Check, before a decision, that the state in memory is valid and that writes can succeed.

        The state is read again if an earlier write failed.
        """
        with as_a_coordinator():
            self._log.forget_what_failed(group_id)
            if writes:
                self._log.check_writable(group_id)

    def _write(
        self,
        group_id: GroupId,
        records: Records,
        *,
        before: list[KeyAndValue] | None = None,
        after: list[KeyAndValue] | None = None,
        ready: Mapping[int, KeyAndValue] = MappingProxyType({}),
    ) -> Ticket | None:
        """Append and replay records; without records, return the ticket of the last append.

        ``before`` and ``after`` are records of the other coordinator in the same batch.  ``ready``
        has records that are encoded already, by their `id`.
        """
        own = (ready.get(id(record)) or encode(record) for record in records)
        encoded = [*(before or ()), *own, *(after or ())]
        ticket = self._log.append_if_any(group_id, encoded)
        for record in records:
            self._groups.replay(record)
            self.rebalance_count += isinstance(record, GroupEpoch)
        if before:
            # `after` is replayed by `ClassicGroupCoordinator.take_over`, which also starts the
            # group.
            self._classic().replay_encoded(before)
        return ticket

    def has(self, group_id: GroupId) -> bool:
        """Whether a group of KIP-848 with this id exists."""
        return group_id in self._groups

    def begin_reading(self) -> Reading:
        """Return the consumer of this coordinator's records for a new reading of the log."""
        # The owners of groups are kept, because the log does not have them.
        groups = ModernGroups(self._groups.memory.restarted())

        def replay(key: bytes, value: bytes | None) -> None:
            record = decode(key, value)
            if record is not None:
                groups.replay(record)

        def finish() -> None:
            groups.memory.forget_lost()
            self._groups = groups
            self._restart(groups.ids())

        return Reading(replay, finish)

    def _restart(self, group_ids: tuple[GroupId, ...]) -> None:
        """Give the members of these groups all their time."""
        timeouts_ms = {
            group_id: self._limits(group_id).session_timeout_ms for group_id in group_ids
        }
        self._groups.start(group_ids, self._clock.now_ms(), timeouts_ms)

    # The cluster and the clock

    def _limits(self, group_id: GroupId) -> ModernGroupLimits:
        return modern_group_limits(self._config, self._settings.own(group_id))

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.wall_ms())

    @property
    def _version(self) -> int:
        """The number of changes of topics and of ACLs.

        Both change the topics that a regular expression means to its sender.
        """
        # Both numbers only grow, so their sum changes whenever one of them does.
        return self._catalog.topics_version + self._catalog.acls.version

    def _cluster(self, patterns: Iterable[str] = (), describe: Permission | None = None) -> Cluster:
        results = {pattern: self._patterns.known(pattern, describe) for pattern in patterns}
        # Left out if the topics changed since the last match: `ModernGroups.seen` does not count
        # the group as compared then, and the next heartbeat asks for the pattern again.
        matches = {pattern: names for pattern, names in results.items() if names is not None}
        return Cluster(self._topics, self._version, matches)

    def _name_of(self, topic_id: TopicId) -> TopicName | None:
        topic = self._catalog.by_id(topic_id)
        return None if topic is None else topic.name

    def _pass_time(self) -> None:
        """Remove the members whose time is over."""
        not_before_ms = 0
        try:
            self._log.forget_what_failed()
            for group_id, members in self._groups.expired(self._clock.now_ms()).items():
                # All of a group at once: its epoch is raised once, so the others rebalance once.
                self._remove(group_id, list(members), self._limits(group_id))
                for member_id, timer in members.items():
                    log.info(
                        "event=member_expired group=%r member=%r timer=%s",
                        group_id,
                        member_id,
                        timer,
                    )
        except KafkaError as error:
            log.warning("event=expiry_not_written error=%r", str(error))
            not_before_ms = self._clock.now_ms() + RETRY_MS
        self._set_alarm(not_before_ms=not_before_ms)

    def _set_alarm(self, *, not_before_ms: int = 0) -> None:
        self._alarm.set(self._groups.next_due_ms(), not_before_ms=not_before_ms)
