"""What a transcript talks to: the whole of core put together as the broker does, without one.

One share group, ``orders``, on one topic of the same name; everything about records is about its
partition 0.  A command answers with lines: what was replied, what had to be written first, and
the share partition's runs if they changed.  All that is written is kept, and a restart has
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from sharegroup.core.delivery.delivery import (
    AcquireRequest,
    Delta,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.core.delivery.stored.share_states import (
    Records as StateRecords,
    ShareStateRecord,
    ShareStates,
)
from sharegroup.core.groups.share.heartbeat import ShareHeartbeat
from sharegroup.core.groups.share.records import Records as GroupRecords, ShareGroupRecord
from sharegroup.core.groups.share.share_group import TopicMetadata
from sharegroup.core.groups.share.share_groups import ShareGroupLimits, ShareGroups
from sharegroup.core.sessions.share_session import Closed, Fetching, SessionKey, ShareSessions
from sharegroup.errors import FencedStateEpoch, KafkaError
from sharegroup.ids import MemberId, SharePartitionKey, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcquireMode
from tests.support.share_sessions import fetch_filled
from tests.transcripts.words import (
    Range,
    acquired_text,
    assignment_text,
    group_record_text,
    letter_text,
    read_acks,
    read_ms,
    read_range,
    run_text,
    seconds,
    state_record_text,
)
from tests.unit.core.group_under_test import GROUP, topic_id

TOPIC = TopicName("orders")
TOPIC_ID = topic_id(TOPIC)
KEY = SharePartitionKey(GROUP, TOPIC_ID, 0)
SESSIONS_MAX = 2
RECORDS_MAX = 1_000
"""Asked for by a fetch that names no number."""

Lines = Iterator[str]


class Scene:
    """`run` does one command and returns what there is to say about it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.limits = SharePartitionLimits()
        self.group_limits = ShareGroupLimits(assignment_interval_ms=0)
        self.partition_count = 1
        self.batches: list[Range] = []
        self.log_end = 0
        self.written: list[ShareStateRecord] = []
        self.group_written: list[ShareGroupRecord] = []
        self.groups = ShareGroups()
        self.states = ShareStates()
        self.sessions = ShareSessions(SESSIONS_MAX)
        self.partition: SharePartition | None = None
        self.state_epoch = 0

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=") for word in words if "=" in word)
        command: Callable[..., Lines] = getattr(self, f"do_{name}")
        before = self.picture()
        said = list(self.refusing(command(*plain, **options)))
        after = self.picture()
        return said if after == before else [*said, *after]

    def refusing(self, lines: Lines) -> Lines:
        try:
            yield from lines
        except KafkaError as error:
            yield f"refused  {type(error).__name__}: {error}"

    def picture(self) -> list[str]:
        """The share partition, one run a line."""
        if self.partition is None:
            return ["state    not loaded"]
        bounds = f"state    [{self.partition.start_offset}, {self.partition.end_offset})"
        return [bounds, *(f"  {run_text(run)}" for run in self.partition.runs())]

    # What the world is like.

    def do_limits(self, **options: str) -> Lines:
        """What the group is configured to."""
        for name, value in options.items():
            match name:
                case "lock":
                    self.limits = replace(self.limits, lock_ms=read_ms(value))
                case "deliveries":
                    self.limits = replace(self.limits, delivery_count_max=int(value))
                case "in_flight":
                    self.limits = replace(self.limits, in_flight_max=int(value))
                case "runs":
                    self.limits = replace(self.limits, runs_max=int(value))
                case "renewal":
                    self.limits = replace(self.limits, renewal=value == "on")
                case "dead_letters":
                    self.limits = replace(self.limits, dead_letters=value == "on")
                case _:
                    raise AssertionError(f"{name} is no limit")
        yield from ()

    def do_log(self, *batches: str) -> Lines:
        """The log's batches, one word each; ``aborted:`` and ``compacted:`` ones are no records."""
        self.batches = [read_range(batch) for batch in batches if ":" not in batch]
        self.log_end = read_range(batches[-1].rpartition(":")[2])[1]
        yield from ()

    def do_wait(self, time: str) -> Lines:
        """Time passes, and nobody looks yet whether a lock has ended."""
        self.now_ms += read_ms(time)
        yield f"now      {seconds(self.now_ms)}"

    def do_restart(self, log_end: str = "") -> Lines:
        """A new process reads what was written; the log may have lost its end."""
        self.groups, self.states = ShareGroups(), ShareStates()
        self.sessions = ShareSessions(SESSIONS_MAX)
        self.partition = None
        for group_record in self.group_written:
            self.groups.replay(group_record)
        for state_record in self.written:
            self.states.replay(state_record)
        self.groups.restart_sessions(
            self.now_ms, session_timeout_ms=lambda _: self.group_limits.session_timeout_ms
        )
        if log_end:
            self.log_end = int(log_end)
            self.batches = [batch for batch in self.batches if batch[1] <= self.log_end]
            yield from self.write_state(self.states.cut(KEY, self.log_end, wall_ms=self.now_ms))

    # What members say about records.

    def do_fetch(
        self, member: str, *words: str, records: str = "", batch: str = "500", **session: str
    ) -> Lines:
        """Read the log at the next fetch offset and lock what is found; ``exactly`` that many."""
        if session and (yield from self.in_session(member, **session)) is None:
            return
        partition = self.loaded()
        position = partition.next_fetch_offset()
        found = [(first, end) for first, end in self.batches if end > position]
        firsts, ends = [first for first, _ in found], [end for _, end in found]
        mode = AcquireMode.RECORD_LIMIT if "exactly" in words else AcquireMode.BATCH_OPTIMIZED
        acquisition = partition.acquire(
            MemberId(member),
            LogBatches(position, firsts, ends, looked_until=self.log_end),
            request=AcquireRequest(int(records or RECORDS_MAX), int(batch), mode),
            limits=self.limits,
            now_ms=self.now_ms,
        )
        yield from self.write(acquisition.delta)
        yield f"reply    {', '.join(map(acquired_text, acquisition.ranges)) or 'nothing'}"

    def do_ack(self, member: str, *words: str, **session: str) -> Lines:
        """``accept 0-3 release 4`` and so on."""
        if session:
            closed = self.sessions.acknowledge(
                SessionKey(GROUP, MemberId(member)), int(session["epoch"])
            )
            assert closed is None, "a transcript closes sessions by a fetch"
        delta = self.loaded().acknowledge(
            MemberId(member), read_acks(words), limits=self.limits, now_ms=self.now_ms
        )
        yield from self.write(delta)
        yield "reply    accepted"

    def in_session(
        self, member: str, *, epoch: str, on: str = "c1"
    ) -> Generator[str, None, Fetching | None]:
        """Pass the epoch through the sessions; None when the session ended by it."""
        result = fetch_filled(
            self.sessions,
            SessionKey(GROUP, MemberId(member)),
            int(epoch),
            connection_id=on,
            partitions=[TopicIdPartition(TOPIC_ID, 0)] if epoch == "0" else [],
            forgotten=[],
            has_acks=False,
        )
        if isinstance(result, Closed):
            yield from self.closed(result)
            return None
        return result

    def do_disconnect(self, connection: str) -> Lines:
        """A connection is gone, and with it its sessions and their locks."""
        for closed in self.sessions.release_connection(connection):
            yield from self.closed(closed)

    def closed(self, closed: Closed) -> Lines:
        yield f"session  of {closed.key.member_id} is over"
        member_id = closed.key.member_id
        yield from self.write(self.loaded().release_member(member_id, limits=self.limits))

    # What happens to records by itself.

    def do_expire(self) -> Lines:
        """Somebody looks which locks have ended."""
        yield from self.write(self.loaded().expire(limits=self.limits, now_ms=self.now_ms))

    def do_log_start(self, offset: str) -> Lines:
        """Retention or DeleteRecords took what lies below."""
        self.batches = [batch for batch in self.batches if batch[1] > int(offset)]
        yield from self.write(self.loaded().move_log_start(int(offset)))

    def do_letters(self) -> Lines:
        """What is to be copied to the dead-letter queue."""
        found = self.loaded().dead_letters(limits=self.limits, runs_max=100)
        yield f"letters  {', '.join(map(letter_text, found)) or 'none'}"

    def do_copied(self, *ranges: str) -> Lines:
        """The copies of these are durable."""
        yield from self.write(self.loaded().archived(map(read_range, ranges)))

    # What members and administrators say about the group.

    def do_topic(self, partitions: str) -> Lines:
        """The topic has so many partitions from now on."""
        self.partition_count = int(partitions)
        yield from ()

    def do_heartbeat(self, member: str, epoch: str, *names: str) -> Lines:
        """Join (0), stay or leave (-1); a subscription where names are given."""
        request = ShareHeartbeat(
            GROUP,
            MemberId(member),
            int(epoch),
            subscribed_topic_names=tuple(map(TopicName, names)) or None,
        )
        topics = {TOPIC: TopicMetadata(TOPIC, TOPIC_ID, self.partition_count)}
        self.groups.check_heartbeat(request, limits=self.group_limits)
        found = self.groups.uninitialized(request, topics)
        for partition in found:
            yield from self.initialize(partition.key, partition.state_epoch, 0)
        yield from self.write_group(self.groups.initialized(GROUP, found))
        records, reply = self.groups.heartbeat(
            request, topics, limits=self.group_limits, now_ms=self.now_ms, wall_ms=self.now_ms
        )
        yield from self.write_group(records)
        has = "as before" if reply.assignment is None else assignment_text(reply.assignment)
        yield f"reply    epoch {reply.member_epoch}, assignment {has}"

    def do_expire_members(self) -> Lines:
        """Somebody looks who was not heard of in time."""
        records, members = self.groups.expire_sessions(self.now_ms)
        yield f"gone     {', '.join(member_id for _, member_id in members) or 'nobody'}"
        yield from self.write_group(records)

    def do_alter(self, offset: str) -> Lines:
        """An administrator lets partition 0 begin elsewhere."""
        topics = {TOPIC: TopicMetadata(TOPIC, TOPIC_ID, self.partition_count)}
        offsets = {TopicIdPartition(TOPIC_ID, 0): int(offset)}
        records, altered = self.groups.alter_offsets(GROUP, offsets, topics)
        for change in altered:
            yield from self.initialize(change.key, change.state_epoch, change.start_offset)
        yield from self.write_group(records)

    def do_delete(self) -> Lines:
        """An administrator deletes the group: states first."""
        records, keys = self.groups.delete_group(GROUP)
        for key in keys:
            yield from self.write_state(self.states.delete(key))
        yield from self.write_group(records)
        self.partition = None

    # Writing.

    def loaded(self) -> SharePartition:
        """The share partition, made from its state when it is first asked for."""
        if self.partition is None:
            if KEY not in self.states:
                list(self.initialize(KEY, 1, 0))
            records, state = self.states.read(KEY, leader_epoch=None, wall_ms=self.now_ms)
            assert not records, "whoever leads now needs no record"
            self.state_epoch = state.state_epoch
            self.partition = SharePartition.restore(
                state.start_offset, state.batches, log_end=max(self.log_end, state.start_offset)
            )
        return self.partition

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Lines:
        records = self.states.initialize(
            key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=self.now_ms
        )
        yield from self.write_state(records)

    def write(self, delta: Delta | None) -> Lines:
        """A write that fails fences the share partition: what it decided did not happen."""
        if delta is None:
            return
        try:
            records = self.states.write(
                KEY,
                delta,
                state_epoch=self.state_epoch,
                leader_epoch=None,
                wall_ms=self.now_ms,
            )
        except FencedStateEpoch:
            self.partition = None
            raise
        yield from self.write_state(records)

    def write_state(self, records: StateRecords) -> Lines:
        for record in records:
            self.written.append(record)
            self.states.replay(record)
            yield f"written  partition {record.key.partition}: {state_record_text(record)}"

    def write_group(self, records: GroupRecords) -> Lines:
        for record in records:
            self.group_written.append(record)
            self.groups.replay(record)
            yield f"record   {group_record_text(record)}"
