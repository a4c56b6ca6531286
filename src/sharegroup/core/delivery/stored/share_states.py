"""The share state of every share partition, and the records that it consists of.

A command validates and returns records; it changes nothing. Only `ShareStates.replay` changes
state, from a record just appended or from the log at start. So memory and log cannot disagree: the
state in memory is the state after a restart.

Records are deltas over a snapshot, as in Kafka's ``__share_group_state``:

    snapshot 0   start 100   [100,103) acknowledged x1
    update   0   start 100   [105,107) available x1
    update   0   start 103   (only a new start offset)
    snapshot 1   start 103   [105,107) available x1        <- after a number of updates

Records below a share partition's last snapshot may be deleted from the beginning of the log;
`needless_before` says how far. A start may skip them even earlier. It then forgets the leader
epochs from before the state was initialized again, and the number of updates before a snapshot that
was not due. Neither changes the state of a record.

`combined` defines how two statements about one offset combine.

Two epochs fence. The leader epoch fences former leaders from reading and writing. The state epoch
is the group epoch at which the state was initialized. It fences every write that was decided before
the state was initialized again.

This module does not know the groups' members or the records in a partition's log (see `cut`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, NamedTuple

from sharegroup.core.delivery.delivery import (
    AVAILABLE,
    TERMINAL,
    Delta,
    RecordState,
    StateBatch,
    joined,
    still_due,
)
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run
from sharegroup.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from sharegroup.ids import SharePartitionKey, TopicId, topic_id_text

# Statements about offsets and how they combine: of two about one offset the greater one holds.
#
# A statement is a delivery count and a state, compared in this order. So a count never decreases,
# and a terminal state is final within one count. A statement that comes late, twice or in another
# order changes nothing, so a repeated write is harmless (Kafka's PersisterStateBatchCombiner).
# Between equal ones the later due time and the greater number of a reason hold, for the same end.
#
#     first   [100,106) available x1
#     second  [102,104) acknowledged x1, [105,108) archived x2
#     result  [100,102) available x1, [102,104) acknowledged x1, [104,105) available x1,
#             [105,108) archived x2
#
# The map is total, like every `OffsetRuns`: an offset without a statement has `UNKNOWN`, the least
# value, and is not written.


Known = tuple[int, RecordState] | tuple[int, RecordState, int, int]
"""Delivery count and state, and due time and reason if it has one, in the order of comparison.

So a statement without them is a short tuple, which is less than one that begins alike.
"""

UNKNOWN: Known = (-1, AVAILABLE)
"""The value of an offset without a statement; less than any other."""

KNOWN_MIN: Final = 2
"""The number of elements of a statement without due time and reason."""


def lay_over(runs: OffsetRuns[Known], batches: Iterable[StateBatch]) -> None:
    """Add ``batches`` to the map: for each offset the greater value holds.

    Offsets below the start are settled and ignored.
    """
    for first, end, state, delivery_count, due_ms, reason in batches:
        first = max(first, runs.start)
        if first >= end:
            continue
        statement: Known = (delivery_count, state)
        if due_ms or reason:
            statement = (delivery_count, state, due_ms, reason)
        # Before the map changes: offsets from here on are appended below.
        known_end = runs.end
        if first < known_end:
            runs.overlay(
                [
                    Run(run_first, run_end, max(value, statement))
                    for run_first, run_end, value in runs.between(first, end)
                ]
            )
        else:
            runs.append(first, UNKNOWN)
        if known_end < end:
            runs.append(end, statement)


def forget_before(runs: OffsetRuns[Known], start_offset: int) -> None:
    """Remove the values below a start offset, which may lie behind the end of the map."""
    if start_offset > runs.end:
        runs.append(start_offset, UNKNOWN)
    runs.drop_before(start_offset)


def batches_of(runs: OffsetRuns[Known]) -> tuple[StateBatch, ...]:
    """Return the statements in order: without overlap, equal neighbours joined, holes left out."""
    return tuple(
        StateBatch(first, end, value[1], value[0])
        if len(value) == KNOWN_MIN
        else StateBatch(first, end, value[1], value[0], value[2], value[3])
        for first, end, value in runs
        if value != UNKNOWN
    )


def combined(*said: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """Combine several sequences of batches into one from the start offset on; -1 cuts nothing."""
    # Nearly every acknowledgement writes one batch, which needs no combining.
    if len(said) == len(said[0]) == 1 and said[0][0].first >= start_offset:
        return said[0]
    runs: OffsetRuns[Known] = OffsetRuns(max(start_offset, 0))
    for batches in said:
        lay_over(runs, batches)
    return batches_of(runs)


# The records of the share coordinator in ``__share_group_state`` (types 0 and 1).
#
# They are named after Kafka's, with the fields of key and value; offset ranges are half-open here.


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share partition; ``*_timestamp`` are wall-clock milliseconds."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    batches: tuple[StateBatch, ...]


class ShareUpdate(NamedTuple):
    """The changes since the snapshot of the same epoch and the updates after it.

    It is a plain tuple, because every acknowledgement makes one and every start reads them all.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareTombstone:
    """The record that deletes a share partition's state: a snapshot key without a value."""

    key: SharePartitionKey


ShareStateRecord = ShareSnapshot | ShareUpdate | ShareTombstone
Records = tuple[ShareStateRecord, ...]


UNDECIDED = -1
"""A start offset that the group's reset policy will give, or an unknown count."""

UPDATES_PER_SNAPSHOT = 500
"""Kafka's share.coordinator.snapshot.update.records.per.snapshot."""


SNAPSHOT_BYTES = 80
"""Bytes of a snapshot without batches in the log, without its group id."""

STATE_BATCH_BYTES = 20
DUE_BYTES = 11
"""Bytes of a batch in a snapshot, and of its due time; a reason has fewer."""


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The durable state of a share partition.

    With a start offset of `UNDECIDED`, the reset policy of the group gives the offset.
    """

    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The part of a state that a listing of offsets needs."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


NO_SUMMARY = StateSummary(0, 0, UNDECIDED, UNDECIDED)
"""The summary of a share partition that was not initialized."""


class _ShareState:
    """The state of one share partition; only `ShareStates.replay` changes it."""

    __slots__ = (
        "create_timestamp",
        "delivery_complete_count",
        "leader_epoch",
        "leader_epoch_max",
        "log_offset",
        "runs",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "update_count",
        "write_timestamp",
    )

    def __init__(
        self, snapshot: ShareSnapshot, *, log_offset: int, leader_epoch_max: int, update_count: int
    ) -> None:
        self.log_offset = log_offset  # That of the snapshot; no earlier record is needed.
        self.create_timestamp = snapshot.create_timestamp
        self.write_timestamp = snapshot.write_timestamp
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        # Initializing again sets the leader epoch to 0; fenced leaders stay fenced.
        self.leader_epoch_max = max(leader_epoch_max, snapshot.leader_epoch)
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.update_count = update_count
        self.runs: OffsetRuns[Known] = OffsetRuns(max(snapshot.start_offset, 0))
        lay_over(self.runs, snapshot.batches)

    def update(self, update: ShareUpdate) -> None:
        """Apply an update; `UNDECIDED` leaves the leader epoch or the start offset unchanged."""
        if update.leader_epoch != UNDECIDED:
            self.leader_epoch = update.leader_epoch
            self.leader_epoch_max = max(self.leader_epoch_max, update.leader_epoch)
        if update.start_offset != UNDECIDED:
            self.start_offset = update.start_offset
            # Before the batches, which `lay_over` cuts at the start of the map.
            forget_before(self.runs, update.start_offset)
        self.delivery_complete_count = update.delivery_complete_count
        self.update_count += 1
        lay_over(self.runs, update.batches)


class ShareStates:
    """The share state of all share partitions of this broker."""

    __slots__ = ("_states", "_updates_per_snapshot")

    def __init__(self, *, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self._states: dict[SharePartitionKey, _ShareState] = {}
        self._updates_per_snapshot = updates_per_snapshot

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: SharePartitionKey) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[SharePartitionKey]:
        """Iterate over a copy of the keys, so the caller may replay records meanwhile."""
        return iter(list(self._states))

    def needless_before(self, keys: Iterable[SharePartitionKey], *, log_end: int) -> int:
        """Return the offset of a log below which all records may be deleted.

        ``keys`` are all share partitions of that log. Each needs its last snapshot and all later
        records. Records are only deleted from the beginning of the log, so a tombstone is never
        deleted before the records that it deletes. ``log_end`` is returned if no key has a state.
        """
        states = (self._states.get(key) for key in keys)
        return min((state.log_offset for state in states if state is not None), default=log_end)

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        """Return the topic's share partitions, of all groups."""
        return tuple(key for key in self._states if key.topic_id == topic_id)

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, wall_ms: int
    ) -> Records:
        """Initialize the state at ``start_offset``; returns no records if that was done already."""
        _check_numbers(key, state_epoch=state_epoch)
        state = self._states.get(key)
        snapshot_epoch = 0
        if state is not None:
            _check_state_epoch(key, state, state_epoch)
            # Another snapshot would discard the acknowledgements since the first one, as in Kafka
            # before 4.5.
            if (state.state_epoch, state.start_offset) == (state_epoch, start_offset):
                return ()
            snapshot_epoch = state.snapshot_epoch + 1
        snapshot = ShareSnapshot(
            key=key,
            snapshot_epoch=snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            # KAFKA-20034: a state with a start offset begins with a count of 0.
            delivery_complete_count=UNDECIDED if start_offset == UNDECIDED else 0,
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
            batches=(),
        )
        return (snapshot,)

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int | None, wall_ms: int
    ) -> tuple[Records, PersistedState]:
        """Return the state for a leader; a new leader is recorded, which fences those before it.

        The response may be sent once the records are durable; there are none for a known leader. A
        leader epoch of None stands for the current leader.
        """
        _check_numbers(key, leader_epoch=leader_epoch or 0)
        state = self._initialized(key)
        _check_leader_epoch(key, state, leader_epoch)
        persisted = PersistedState(
            state.state_epoch,
            state.start_offset,
            state.delivery_complete_count,
            batches_of(state.runs),
        )
        # Compared with the highest epoch ever seen: the stored one is 0 after an initialization.
        if leader_epoch is None or leader_epoch == state.leader_epoch_max:
            return (), persisted
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            (),
        )
        return (self._in_turn(state, update, wall_ms),), persisted

    def write(
        self,
        key: SharePartitionKey,
        delta: Delta,
        *,
        state_epoch: int,
        leader_epoch: int | None,
        wall_ms: int,
    ) -> Records:
        """Return the record of a partition leader's decision; None stands for the current leader.

        The start offset never decreases. Of two counts at one start offset the greater is kept,
        because writes may overtake each other.
        """
        _check_numbers(key, state_epoch=state_epoch, leader_epoch=leader_epoch or 0)
        state = self._initialized(key)
        _check_leader_epoch(key, state, leader_epoch)
        _check_state_epoch(key, state, state_epoch)
        start_offset, delivery_complete_count, batches = delta
        if start_offset == state.start_offset:
            delivery_complete_count = max(delivery_complete_count, state.delivery_complete_count)
        elif start_offset < state.start_offset:
            start_offset = state.start_offset
            delivery_complete_count = state.delivery_complete_count
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            # The stored one, even if the request has a higher one: as in Kafka, only a read records
            # a leader.
            state.leader_epoch,
            start_offset,
            delivery_complete_count,
            combined(batches, start_offset=start_offset),
        )
        return (self._in_turn(state, update, wall_ms),)

    def runs(self, key: SharePartitionKey) -> OffsetRuns[Known]:
        """Return the statements about offsets, which must not be changed."""
        return self._initialized(key).runs

    def read_summary(self, key: SharePartitionKey) -> StateSummary:
        """Return the summary for any leader; `NO_SUMMARY` if the state was not initialized."""
        _check_numbers(key)
        state = self._states.get(key)
        if state is None:
            return NO_SUMMARY
        return StateSummary(
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
        )

    def delete(self, key: SharePartitionKey) -> Records:
        """Delete the share partition's state; returns no records if there is none."""
        _check_numbers(key)
        return (ShareTombstone(key),) if key in self._states else ()

    def says_of_offsets(self, key: SharePartitionKey) -> bool:
        """Return whether the state contains any offset; without one, `cut` changes nothing."""
        return self._initialized(key).runs.end > 0

    def cut(self, key: SharePartitionKey, log_end: int, *, wall_ms: int) -> Records:
        """Remove the state of offsets at or above ``log_end``, which the log does not have.

        After a power loss the state may have survived while the records were lost. Offsets from
        ``log_end`` on will be written again, and a new record must not inherit an old
        acknowledgement. Only this snapshot may have a lower start offset than the one before.
        """
        state = self._initialized(key)
        if state.runs.end <= log_end:
            return ()
        batches = tuple(
            batch._replace(end=min(batch.end, log_end))
            for batch in batches_of(state.runs)
            if batch.first < log_end
        )
        # Counted anew: the stored count includes offsets that are cut off.
        complete = sum(batch.end - batch.first for batch in batches if batch.state in TERMINAL)
        start_offset = min(state.start_offset, log_end)
        everything = ShareUpdate(
            key,
            state.snapshot_epoch,
            state.leader_epoch,
            start_offset,
            UNDECIDED if start_offset == UNDECIDED else complete,
            batches,
        )
        return (_snapshot(state, everything, wall_ms),)

    def snapshot(self, key: SharePartitionKey, *, wall_ms: int) -> Records:
        """Return a snapshot of the current state, so no earlier record is needed any more.

        It keeps the time of creation, because nothing was decided.
        """
        state = self._states.get(key)
        if state is None:
            return ()
        everything = ShareUpdate(
            key,
            state.snapshot_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            batches_of(state.runs),
        )
        snapshot = _snapshot(state, everything, wall_ms)
        return (replace(snapshot, create_timestamp=state.create_timestamp),)

    def snapshot_bytes(self, key: SharePartitionKey) -> int:
        """Return the estimated size of the share partition's snapshot in the log."""
        state = self._states.get(key)
        if state is None:
            return 0
        batch_bytes = sum(
            STATE_BATCH_BYTES + (DUE_BYTES if len(run.value) > KNOWN_MIN else 0)
            for run in state.runs
            if run.value != UNKNOWN
        )
        return SNAPSHOT_BYTES + len(key.group_id) + batch_bytes

    def is_cold(self, key: SharePartitionKey, *, since_ms: int) -> bool:
        """Return whether the last snapshot was written at or before that wall-clock time."""
        state = self._states.get(key)
        return state is not None and state.write_timestamp <= since_ms

    def replay(self, record: ShareStateRecord, *, log_offset: int = 0) -> None:
        """Apply a record, which is at ``log_offset`` of its partition of the log."""
        key = record.key
        state = self._states.get(key)
        match record:
            case ShareUpdate():
                if state is None:
                    state = self._states[key] = _from_nothing(record, log_offset)
                state.update(record)
            case ShareSnapshot():
                self._states[key] = _ShareState(
                    record,
                    log_offset=log_offset,
                    leader_epoch_max=0 if state is None else state.leader_epoch_max,
                    update_count=0 if state is None else self._updates_after_snapshot(state),
                )
            case ShareTombstone():
                # The records that it deletes may be gone: the log is pruned from its beginning (ADR
                # 0012).
                self._states.pop(key, None)

    def _updates_after_snapshot(self, state: _ShareState) -> int:
        """Return the number from which the updates are counted after a snapshot.

        As in Kafka, only a snapshot that was due resets the count. A snapshot for another reason
        (the state was initialized again or was cold) does not delay the next.
        """
        due = state.update_count >= self._updates_per_snapshot
        return 0 if due else state.update_count

    def _initialized(self, key: SharePartitionKey) -> _ShareState:
        state = self._states.get(key)
        if state is None:
            raise InvalidRequest(f"{named(key)}: the share partition was never initialized")
        return state

    def _in_turn(
        self, state: _ShareState, update: ShareUpdate, wall_ms: int
    ) -> ShareUpdate | ShareSnapshot:
        """Return the update, or a snapshot with it if one is due."""
        if state.update_count < self._updates_per_snapshot:
            return update
        batches = combined(batches_of(state.runs), update.batches, start_offset=update.start_offset)
        return _snapshot(state, update._replace(batches=batches), wall_ms)


_due_time = attrgetter("due_ms")


def _snapshot(state: _ShareState, everything: ShareUpdate, wall_ms: int) -> ShareSnapshot:
    """Return the next snapshot, with the state in ``everything``.

    Due times that have passed are left out, so a snapshot has about as many batches as the share
    partition has runs.
    """
    batches = everything.batches
    if any(map(_due_time, batches)):
        batches = joined(still_due(batches, wall_ms), start_offset=UNDECIDED)
    return ShareSnapshot(
        key=everything.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=everything.leader_epoch,
        start_offset=everything.start_offset,
        delivery_complete_count=everything.delivery_complete_count,
        create_timestamp=wall_ms,
        write_timestamp=wall_ms,
        batches=batches,
    )


def _from_nothing(update: ShareUpdate, log_offset: int) -> _ShareState:
    """Return the state for an update whose snapshot was lost.

    Acknowledgements before it are lost, too, so their records are delivered again. No record is
    skipped, because every update has a start offset that was valid.
    """
    return _ShareState(
        ShareSnapshot(
            key=update.key,
            snapshot_epoch=update.snapshot_epoch,
            state_epoch=0,
            leader_epoch=0,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            create_timestamp=0,
            write_timestamp=0,
            batches=(),
        ),
        log_offset=log_offset,
        leader_epoch_max=0,
        update_count=0,
    )


def _check_numbers(key: SharePartitionKey, *, state_epoch: int = 0, leader_epoch: int = 0) -> None:
    if key.partition < 0 or state_epoch < 0 or leader_epoch < 0:
        raise InvalidRequest(
            f"{named(key)}: partition, state epoch and leader epoch must be 0 or more, not "
            f"state epoch {state_epoch} and leader epoch {leader_epoch}"
        )


def _check_leader_epoch(
    key: SharePartitionKey, state: _ShareState, leader_epoch: int | None
) -> None:
    if leader_epoch is not None and leader_epoch < state.leader_epoch_max:
        raise FencedLeaderEpoch(
            f"{named(key)}: leader epoch {leader_epoch} is fenced: a leader of epoch "
            f"{state.leader_epoch_max} has been seen"
        )


def _check_state_epoch(key: SharePartitionKey, state: _ShareState, state_epoch: int) -> None:
    if state_epoch < state.state_epoch:
        raise FencedStateEpoch(
            f"{named(key)}: state epoch {state_epoch} is fenced: the state was initialized again "
            f"in epoch {state.state_epoch}"
        )


def named(key: SharePartitionKey) -> str:
    """Return the name of a share partition for error messages."""
    return (
        f"group {key.group_id!r}, topic id {topic_id_text(key.topic_id)}, partition {key.partition}"
    )
