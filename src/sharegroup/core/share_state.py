"""What the share coordinator knows of every share partition, and the records that say so.

A command validates and returns records; it changes nothing.  `ShareStates.replay` alone
changes what is known, from a record just appended or from the log at start, so the two can
never disagree: what is in memory is what a restart would find.

Records are deltas over a snapshot, as in Kafka's ``__share_group_state``:

    snapshot 0   start 100   [100,103) acknowledged x1
    update   0   start 100   [105,107) available x1
    update   0   start 103   (nothing but a new start)
    snapshot 1   start 103   [105,107) available x1        <- after so many updates

Of two statements about one offset the one with the higher (delivery count, state) holds, in
whatever order they came.  That makes writes that arrive late or twice harmless: a count only
grows, and nothing leaves a terminal state within one count.  So the batches of a share
partition are one total map from offset to the greatest pair said of it, where an offset that
nobody spoke of holds the least pair there is; such holes are not written out.

Two epochs fence.  The leader epoch fences leaders of old from reading and writing; the state
epoch, which is the group's epoch when the state was initialized, fences every write that was
decided before the state was made again.

It does not know groups' members, nor which records the partition's log holds; `cut` is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sharegroup.core.delivery import AVAILABLE, TERMINAL, RecordState, StateBatch
from sharegroup.core.offset_runs import OffsetRuns, Run
from sharegroup.core.share_state_records import (
    Records,
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from sharegroup.ids import SharePartitionKey, TopicId, topic_id_text

UNDECIDED = -1
"""A start offset that the group's reset policy will give, or a count that nobody stated."""

UPDATES_PER_SNAPSHOT = 500
"""Kafka's share.coordinator.snapshot.update.records.per.snapshot."""

Known = tuple[int, RecordState]
"""Delivery count and state, in the order in which they are compared."""

UNKNOWN: Known = (-1, AVAILABLE)
"""Less than anything that can be said of an offset."""


@dataclass(frozen=True, slots=True)
class PersistedState:
    """What a share partition is made from; a start offset of `UNDECIDED` asks for the policy."""

    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class StateSummary:
    """What offsets are listed from."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


NO_SUMMARY = StateSummary(0, 0, UNDECIDED, UNDECIDED)
"""What is said of a share partition that nobody initialized."""


class _ShareState:
    """One share partition's picture; only `ShareStates.replay` writes to it."""

    __slots__ = (
        "delivery_complete_count",
        "leader_epoch",
        "leader_epoch_max",
        "runs",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "update_count",
    )

    def __init__(self, snapshot: ShareSnapshot, leader_epoch_max: int) -> None:
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        # Initializing again sets the leader epoch to 0; who was fenced stays fenced.
        self.leader_epoch_max = max(leader_epoch_max, snapshot.leader_epoch)
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.update_count = 0
        self.runs: OffsetRuns[Known] = OffsetRuns(max(snapshot.start_offset, 0))
        _lay_over(self.runs, snapshot.batches)

    def update(self, update: ShareUpdate) -> None:
        if update.leader_epoch != UNDECIDED:
            self.leader_epoch = update.leader_epoch
            self.leader_epoch_max = max(self.leader_epoch_max, update.leader_epoch)
        if update.start_offset != UNDECIDED:
            self.start_offset = update.start_offset
            _forget_before(self.runs, update.start_offset)
        self.delivery_complete_count = update.delivery_complete_count
        self.update_count += 1
        _lay_over(self.runs, update.batches)


class ShareStates:
    """The state of all share partitions of this broker; see the module's text."""

    __slots__ = ("_states", "_updates_per_snapshot")

    def __init__(self, *, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self._states: dict[SharePartitionKey, _ShareState] = {}
        self._updates_per_snapshot = updates_per_snapshot

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: SharePartitionKey) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[SharePartitionKey]:
        """The share partitions that are known; a copy, so the caller may replay meanwhile."""
        return iter(list(self._states))

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        """The topic's share partitions, of all groups."""
        return tuple(key for key in self._states if key.topic_id == topic_id)

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, wall_ms: int
    ) -> Records:
        """Begin anew at ``start_offset``; nothing to do if that was done already."""
        _check_epochs(key, state_epoch=state_epoch)
        state = self._states.get(key)
        snapshot_epoch = 0
        if state is not None:
            _check_state_epoch(key, state, state_epoch)
            if (state.state_epoch, state.start_offset) == (state_epoch, start_offset):
                return ()
            snapshot_epoch = state.snapshot_epoch + 1
        snapshot = ShareSnapshot(
            key=key,
            snapshot_epoch=snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=UNDECIDED if start_offset == UNDECIDED else 0,
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
            batches=(),
        )
        return (snapshot,)

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, wall_ms: int
    ) -> tuple[Records, PersistedState]:
        """The state for a new leader, who is known from then on and fences those before it.

        The answer may be given once the records are durable; there are none for a leader
        that is known already.
        """
        _check_epochs(key, leader_epoch=leader_epoch)
        state = self._initialized(key)
        _check_leader_epoch(key, state, leader_epoch)
        persisted = PersistedState(
            state.state_epoch,
            state.start_offset,
            state.delivery_complete_count,
            _batches(state.runs),
        )
        if leader_epoch == state.leader_epoch_max:
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
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: tuple[StateBatch, ...],
        wall_ms: int,
    ) -> Records:
        """Say what a share partition's leader decided.

        The start offset never goes back, and of two counts at one start offset the greater
        holds: writes may overtake each other.
        """
        _check_epochs(key, state_epoch=state_epoch, leader_epoch=leader_epoch)
        state = self._initialized(key)
        _check_leader_epoch(key, state, leader_epoch)
        _check_state_epoch(key, state, state_epoch)
        if start_offset == state.start_offset:
            delivery_complete_count = max(delivery_complete_count, state.delivery_complete_count)
        elif start_offset < state.start_offset:
            start_offset = state.start_offset
            delivery_complete_count = state.delivery_complete_count
        update = ShareUpdate(
            key,
            state.snapshot_epoch,
            state.leader_epoch,
            start_offset,
            delivery_complete_count,
            _combined(batches, start_offset),
        )
        return (self._in_turn(state, update, wall_ms),)

    def read_summary(self, key: SharePartitionKey) -> StateSummary:
        """Start offset and count, whoever leads; `NO_SUMMARY` where nothing was initialized."""
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
        """Forget the share partition; nothing to do where nothing is known."""
        return (ShareTombstone(key),) if key in self._states else ()

    def cut(self, key: SharePartitionKey, log_end: int, *, wall_ms: int) -> Records:
        """Take back what was said of offsets that the log does not reach any more.

        After a power loss the state can have outlived the records.  Offsets from ``log_end`` on
        will be written again, and a new record must not inherit an old acknowledgement.  This is
        the one snapshot whose start offset may lie below the one before.
        """
        state = self._initialized(key)
        if state.runs.end <= log_end:
            return ()
        batches = tuple(
            batch._replace(end=min(batch.end, log_end))
            for batch in _batches(state.runs)
            if batch.first < log_end
        )
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

    def replay(self, record: ShareStateRecord) -> None:
        """Let a record have happened."""
        key = record.key
        state = self._states.get(key)
        match record:
            case ShareUpdate():
                if state is None:
                    state = self._states[key] = _from_nothing(record)
                state.update(record)
            case ShareSnapshot():
                leader_epoch_max = 0 if state is None else state.leader_epoch_max
                self._states[key] = _ShareState(record, leader_epoch_max)
            case ShareTombstone():
                self._states.pop(key, None)

    def _initialized(self, key: SharePartitionKey) -> _ShareState:
        state = self._states.get(key)
        if state is None:
            raise InvalidRequest(f"{_named(key)}: the share partition was never initialized")
        return state

    def _in_turn(
        self, state: _ShareState, update: ShareUpdate, wall_ms: int
    ) -> ShareUpdate | ShareSnapshot:
        """The update, or the snapshot that is due after so many updates."""
        if state.update_count < self._updates_per_snapshot:
            return update
        merged: OffsetRuns[Known] = OffsetRuns(max(update.start_offset, 0))
        _lay_over(merged, _batches(state.runs))
        _lay_over(merged, update.batches)
        return _snapshot(state, replace(update, batches=_batches(merged)), wall_ms)


def _snapshot(state: _ShareState, everything: ShareUpdate, wall_ms: int) -> ShareSnapshot:
    """The next snapshot, which holds what ``everything`` says and nothing else."""
    return ShareSnapshot(
        key=everything.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=everything.leader_epoch,
        start_offset=everything.start_offset,
        delivery_complete_count=everything.delivery_complete_count,
        create_timestamp=wall_ms,
        write_timestamp=wall_ms,
        batches=everything.batches,
    )


def _from_nothing(update: ShareUpdate) -> _ShareState:
    """What an update says when the snapshot before it was lost.

    Acknowledgements between are lost with it, so their records are delivered again; nothing
    is skipped, because an update always carries a start offset that was true.
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
        leader_epoch_max=0,
    )


def _lay_over(runs: OffsetRuns[Known], batches: Iterable[StateBatch]) -> None:
    """Say ``batches`` too: the greater pair holds, and what lies below the start is settled."""
    for first, end, state, delivery_count in batches:
        first = max(first, runs.start)
        if first >= end:
            continue
        known = (delivery_count, state)
        known_end = runs.end
        if first < known_end:
            runs.overlay(
                [
                    Run(run_first, run_end, max(value, known))
                    for run_first, run_end, value in runs.between(first, end)
                ]
            )
        else:
            runs.append(first, UNKNOWN)
        if known_end < end:
            runs.append(end, known)


def _forget_before(runs: OffsetRuns[Known], start_offset: int) -> None:
    if start_offset > runs.end:
        runs.append(start_offset, UNKNOWN)
    runs.drop_before(start_offset)


def _batches(runs: OffsetRuns[Known]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first, end, value[1], value[0]) for first, end, value in runs if value != UNKNOWN
    )


def _combined(batches: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """``batches`` in order, without overlap, and nothing below the start offset."""
    if not batches:
        return batches
    if len(batches) == 1 and batches[0].first >= start_offset:
        return batches
    runs: OffsetRuns[Known] = OffsetRuns(max(start_offset, 0))
    _lay_over(runs, batches)
    return _batches(runs)


def _check_epochs(key: SharePartitionKey, *, state_epoch: int = 0, leader_epoch: int = 0) -> None:
    if key.partition < 0 or state_epoch < 0 or leader_epoch < 0:
        raise InvalidRequest(
            f"{_named(key)}: partition, state epoch and leader epoch must be 0 or more, not "
            f"state epoch {state_epoch} and leader epoch {leader_epoch}"
        )


def _check_leader_epoch(key: SharePartitionKey, state: _ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch_max:
        raise FencedLeaderEpoch(
            f"{_named(key)}: leader epoch {leader_epoch} is over, a leader of epoch "
            f"{state.leader_epoch_max} was here"
        )


def _check_state_epoch(key: SharePartitionKey, state: _ShareState, state_epoch: int) -> None:
    if state_epoch < state.state_epoch:
        raise FencedStateEpoch(
            f"{_named(key)}: state epoch {state_epoch} is over, the state was initialized again "
            f"in epoch {state.state_epoch}"
        )


def _named(key: SharePartitionKey) -> str:
    return (
        f"group {key.group_id!r}, topic id {topic_id_text(key.topic_id)}, partition {key.partition}"
    )
