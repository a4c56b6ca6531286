"""The state of every partition that a plain consumer reads: position, pause, fetched records.

    position  --take--  records in the consumer  --fetch--  fetch_offset      log end
       3                     3 4 5 6 7                          8                12

`position` is the offset of the next record that the application gets, and the one that is
committed.  `fetch_offset` is the offset of the next fetch.  Without a position a partition is not
fetched; ``lookup`` says where its position comes from: the committed offset, or an offset by time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sharegroup.client.consume.consumer_record import (
    ConsumerRecord,
    RecordDeserializationError,
    UnreadableConsumerRecord,
)
from sharegroup.client.consume.fetched_records import FetchedRecords
from sharegroup.client.fetch.record_content import Field, copy_as, deserialize
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.option_values import OnUnreadableRecord
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId
from sharegroup.wire.batches.batches import UNREADABLE

if TYPE_CHECKING:
    import pyarrow as pa


COMMITTED = "committed"
"""The position is the group's committed offset; without one, ``auto_offset_reset`` decides."""
RESET = "reset"
"""The position is decided by ``auto_offset_reset``."""

Lookup = str | int
"""`COMMITTED`, `RESET`, or an OffsetSpec or a timestamp in milliseconds."""
NO_EPOCH = -1
NO_REPLICA = -1
BUFFERED_FACTOR = 2
"""Fetch ahead until this many times ``max_partition_fetch_bytes`` of a partition are waiting."""


class PartitionState:
    """The state of one partition."""

    __slots__ = (
        "buffered_bytes", "epoch", "failure", "fetch_epoch", "fetch_offset", "fetched",
        "high_watermark", "is_current", "is_paused", "is_revoked", "last_stable_offset",
        "log_start_offset", "lookup", "position", "replica", "replica_until", "topic_id", "where",
    )  # fmt: skip

    def __init__(self, where: TopicPartition, lookup: Lookup) -> None:
        self.where = where
        self.lookup: Lookup | None = lookup
        self.position: int | None = None
        self.epoch = NO_EPOCH
        """The leader epoch of the last record below the position, if known."""
        self.fetch_offset = -1
        self.fetch_epoch = NO_EPOCH
        self.fetched: deque[FetchedRecords] = deque()
        self.buffered_bytes = 0
        self.is_paused = False
        self.is_current = True
        """False after the partition was taken away; answers about it are dropped then."""
        self.is_revoked = False
        """Whether the partition is being taken away; its records are not handed out."""
        self.failure: KafkaError | None = None
        """An error to raise in the next poll."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.replica = NO_REPLICA
        """The follower that the leader named for this consumer's rack."""
        self.replica_until = 0.0
        self.topic_id: TopicId | None = None
        """The topic that the position is of, since a fetch from the position was answered."""

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Set the position and drop the fetched records."""
        self._drop_fetched()
        self.lookup, self.failure, self.topic_id = None, None, None
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch

    def look_up(self, lookup: Lookup) -> None:
        """Drop the position and the fetched records; the position is looked up."""
        self._drop_fetched()
        self.lookup, self.failure, self.topic_id = lookup, None, None
        self.position, self.epoch = None, NO_EPOCH

    def add(self, fetched: FetchedRecords) -> None:
        """Add the records of an answer behind those that wait already."""
        assert fetched.next_offset == self.fetch_offset
        self.fetched.append(fetched)
        self.buffered_bytes += fetched.size
        self.fetch_offset, self.fetch_epoch = fetched.end_offset, fetched.last_epoch

    def taken(self) -> None:
        """Move the position behind the records taken from the first answer."""
        first = self.fetched[0]
        self.position = first.next_offset
        if first.next_epoch != NO_EPOCH:
            self.epoch = first.next_epoch
        if first.is_empty:
            self.fetched.popleft()
            self.buffered_bytes -= first.size

    def refetch(self) -> None:
        """Drop the fetched records, to fetch them again from the position."""
        self._drop_fetched()
        if self.position is not None:
            self.fetch_offset, self.fetch_epoch = self.position, self.epoch

    def _drop_fetched(self) -> None:
        self.fetched.clear()
        self.buffered_bytes = 0


class PartitionStates:
    """The assigned partitions with their states, and the order in which records are taken."""

    def __init__(self, *, partition_bytes_max: int, bytes_max: int) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._order: deque[PartitionState] = deque()
        """The partitions with fetched records; the next one to take from is the first."""
        self._buffered_max = BUFFERED_FACTOR * partition_bytes_max
        self._total_max = bytes_max

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, where: TopicPartition) -> PartitionState | None:
        """Return the state of an assigned partition, or None."""
        return self._states.get(where)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._states)

    @property
    def buffered_bytes(self) -> int:
        """The size of all fetched records that wait."""
        return sum(state.buffered_bytes for state in self._states.values())

    def assign(self, partitions: Iterable[TopicPartition], lookup: Lookup) -> None:
        """Add partitions; those that are assigned already keep their state."""
        for where in partitions:
            if where not in self._states:
                self._states[where] = PartitionState(where, lookup)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions and drop their records."""
        for where in partitions:
            state = self._states.pop(where, None)
            if state is not None:
                # Answers under way still refer to the state, also if the partition is assigned
                # again.
                state.is_current = False
        self._order = deque(state for state in self._order if state.is_current)

    def positions(self) -> dict[TopicPartition, PartitionState]:
        """Return the states of all partitions that have a position."""
        return {where: state for where, state in self._states.items() if state.position is not None}

    def add(self, state: PartitionState, fetched: FetchedRecords) -> None:
        """Add the records of an answer to a partition."""
        state.add(fetched)
        if state not in self._order:
            self._order.append(state)

    def is_fetchable(self, state: PartitionState) -> bool:
        """Whether the partition has a position and is neither paused nor being taken away."""
        return state.position is not None and not state.is_paused and not state.is_revoked

    def is_full(self, state: PartitionState) -> bool:
        """Whether enough records of a partition wait, or of all partitions together."""
        if state.buffered_bytes >= self._buffered_max:
            return True
        # A partition without records is never full: paused ones may hold all of the room.
        return bool(state.buffered_bytes) and self.buffered_bytes >= self._total_max

    def next_to_take(self) -> PartitionState | None:
        """Return a partition with records to hand out; partitions take turns by answers."""
        for _ in range(len(self._order)):
            state = self._order[0]
            if not state.fetched:
                self._order.popleft()
            elif state.is_paused or state.is_revoked:
                self._order.rotate(-1)
            else:
                return state
        return None

    def taken(self, state: PartitionState) -> None:
        """Note that records of this partition, the first in the order, were taken."""
        before = len(state.fetched)
        state.taken()
        if not state.fetched:
            self._order.remove(state)
        elif len(state.fetched) < before:
            self._order.rotate(-1)

    def failures(self) -> Iterator[KafkaError]:
        """Yield the errors to raise, each once."""
        for state in self._states.values():
            if state.failure is not None:
                error, state.failure = state.failure, None
                yield error

    def lag_max(self) -> int:
        """Return the largest known lag of the partitions; 0 if none is known."""
        return max((lag_of(state) or 0 for state in self._states.values()), default=0)


def lag_of(state: PartitionState) -> int | None:
    """Return the number of offsets between the position and the end that consumers can read."""
    end = state.high_watermark
    if state.last_stable_offset is not None:
        end = state.last_stable_offset
    if end is None or state.position is None:
        return None
    return max(0, end - state.position)


def rewound(
    states: Mapping[TopicPartition, PartitionState], unyielded: Iterable[ConsumerRecord]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return position and leader epoch of the partitions, before the records not yielded yet."""
    positions = {
        where: (state.position, state.epoch)
        for where, state in states.items()
        if state.position is not None
    }
    rewound_partitions: set[TopicPartition] = set()
    for record in unyielded:
        where = record.topic_partition
        if where in positions and where not in rewound_partitions:
            rewound_partitions.add(where)
            positions[where] = (
                record.offset,
                NO_EPOCH if record.leader_epoch is None else record.leader_epoch,
            )
    return positions


# Taking fetched records out of the states of the partitions, for one poll.
#
# A record that cannot be read or deserialized ends a poll: the records before it are returned, and
# the next poll raises the error. The position stays at that record, so a seek can go on behind it.


def take_records(
    states: PartitionStates, config: ConsumerConfig, limit: int
) -> list[ConsumerRecord]:
    """Take up to ``limit`` records; the positions move behind them."""
    deserializes = config.key_deserializer is not None or config.value_deserializer is not None
    taken: list[ConsumerRecord] = []
    while len(taken) < limit and (state := states.next_to_take()) is not None:
        fetched = state.fetched[0]
        try:
            records = fetched.take(limit - len(taken))
        except UNREADABLE:
            state.refetch()
            if taken:
                return taken
            raise
        failure = None
        if deserializes:
            records, failure = _deserialized(records, config)
            if failure is not None:
                fetched.back_to(failure.record)
        states.taken(state)
        # Usually one answer fills a poll; its list is not copied then.
        taken = taken + records if taken else records
        if failure is not None:
            if taken:
                return taken
            raise failure
    return taken


def take_columns(states: PartitionStates, limit: int) -> list[pa.RecordBatch]:
    """Take up to ``limit`` records as Arrow batches, one or more of each partition."""
    taken: list[pa.RecordBatch] = []
    count = 0
    while count < limit and (state := states.next_to_take()) is not None:
        try:
            batch = state.fetched[0].take_columns(limit - count)
        except UNREADABLE:
            state.refetch()
            if taken:
                return taken
            raise
        states.taken(state)
        if batch is not None:
            taken.append(batch)
            count += batch.num_rows
    return taken


def _deserialized(
    records: list[ConsumerRecord], config: ConsumerConfig
) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
    """Deserialize the records up to the first one that fails, and return its error or None."""
    is_raw = config.on_deserialization_error is OnUnreadableRecord.RAW
    done: list[ConsumerRecord] = []
    for record in records:
        try:
            deserialize(record, config, _failure)
        except RecordDeserializationError as error:
            if not is_raw:
                return done, error
            unreadable = copy_as(UnreadableConsumerRecord, record)
            unreadable.error = error
            record = unreadable
        done.append(record)
    return done, None


def _failure(record: ConsumerRecord, field: Field, error: Exception) -> RecordDeserializationError:
    text = (
        f"topic {record.topic!r} partition {record.partition} offset {record.offset}: "
        f"the {field} can't be deserialized: {error}; seek to {record.offset + 1} to go on "
        "behind the record, or use on_deserialization_error='raw'"
    )
    return RecordDeserializationError(text, record, field)
