"""What the share coordinator knows of every share partition, and the records that say so.

A command validates and returns records; it changes nothing.  `ShareStates.replay` alone
changes what is known, from a record just appended or from the log at start, so the two can
never disagree: what is in memory is what a restart would find.

Records are deltas over a snapshot, as in Kafka's ``__share_group_state``:

    snapshot 0   start 100   [100,103) acknowledged x1
    update   0   start 100   [105,107) available x1
    update   0   start 103   (nothing but a new start)
    snapshot 1   start 103   [105,107) available x1        <- after so many updates

A start may leave out what a snapshot has made superfluous.  It then forgets, as it does after
that was deleted, who led before the state was initialized again and how many updates came before
a snapshot that was not due; neither changes what is known of a record.

How two statements about one offset combine is in `state_batches`.  A record that a snapshot has
made superfluous may be deleted from the log's beginning; `needless_before` says how far.

Two epochs fence.  The leader epoch fences leaders of old from reading and writing; the state
epoch, which is the group's epoch when the state was initialized, fences every write that was
decided before the state was made again.

It does not know groups' members, nor which records the partition's log holds; `cut` is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sharegroup.core.delivery import TERMINAL, StateBatch
from sharegroup.core.offset_runs import OffsetRuns
from sharegroup.core.share_state_records import (
    Records,
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.core.state_batches import (
    UNKNOWN,
    Known,
    batches_of,
    combined,
    forget_before,
    lay_over,
)
from sharegroup.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from sharegroup.ids import SharePartitionKey, TopicId, topic_id_text

UNDECIDED = -1
"""A start offset that the group's reset policy will give, or a count that nobody stated."""

UPDATES_PER_SNAPSHOT = 500
"""Kafka's share.coordinator.snapshot.update.records.per.snapshot."""


SNAPSHOT_BYTES = 80
"""What a snapshot without batches takes in the log, beside its group's id."""

STATE_BATCH_BYTES = 20


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
        self.log_offset = log_offset  # Where the snapshot lies; nothing before it is needed.
        self.create_timestamp = snapshot.create_timestamp
        self.write_timestamp = snapshot.write_timestamp
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        # Initializing again sets the leader epoch to 0; who was fenced stays fenced.
        self.leader_epoch_max = max(leader_epoch_max, snapshot.leader_epoch)
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.update_count = update_count
        self.runs: OffsetRuns[Known] = OffsetRuns(max(snapshot.start_offset, 0))
        lay_over(self.runs, snapshot.batches)

    def update(self, update: ShareUpdate) -> None:
        if update.leader_epoch != UNDECIDED:
            self.leader_epoch = update.leader_epoch
            self.leader_epoch_max = max(self.leader_epoch_max, update.leader_epoch)
        if update.start_offset != UNDECIDED:
            self.start_offset = update.start_offset
            forget_before(self.runs, update.start_offset)
        self.delivery_complete_count = update.delivery_complete_count
        self.update_count += 1
        lay_over(self.runs, update.batches)


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

    def needless_before(self, keys: Iterable[SharePartitionKey], *, log_end: int) -> int:
        """Records below this offset of a log are needed by none of ``keys``, all that it holds.

        A share partition needs its last snapshot and what came after.  Only a whole beginning is
        ever given up: a tombstone goes no sooner than what it took back.
        """
        states = (self._states.get(key) for key in keys)
        return min((state.log_offset for state in states if state is not None), default=log_end)

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        """The topic's share partitions, of all groups."""
        return tuple(key for key in self._states if key.topic_id == topic_id)

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, wall_ms: int
    ) -> Records:
        """Begin anew at ``start_offset``; nothing to do if that was done already."""
        _check_numbers(key, state_epoch=state_epoch)
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
        self, key: SharePartitionKey, *, leader_epoch: int | None, wall_ms: int
    ) -> tuple[Records, PersistedState]:
        """The state for a new leader, who is known from then on and fences those before it.

        The answer may be given once the records are durable; there are none for a leader
        that is known already.  None stands for whoever leads now.
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
        *,
        state_epoch: int,
        leader_epoch: int | None,
        start_offset: int,
        delivery_complete_count: int,
        batches: tuple[StateBatch, ...],
        wall_ms: int,
    ) -> Records:
        """Say what a share partition's leader decided; None stands for whoever leads now.

        The start offset never goes back, and of two counts at one start offset the greater
        holds: writes may overtake each other.
        """
        _check_numbers(key, state_epoch=state_epoch, leader_epoch=leader_epoch or 0)
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
            combined(batches, start_offset=start_offset),
        )
        return (self._in_turn(state, update, wall_ms),)

    def read_summary(self, key: SharePartitionKey) -> StateSummary:
        """Start offset and count, whoever leads; `NO_SUMMARY` where nothing was initialized."""
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
        """Forget the share partition; nothing to do where nothing is known."""
        _check_numbers(key)
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
            for batch in batches_of(state.runs)
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

    def snapshot(self, key: SharePartitionKey, *, wall_ms: int) -> Records:
        """Say again what is known, so that nothing before that is needed any more.

        It keeps the time of creation: nothing was decided.
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
        again = _snapshot(state, everything, wall_ms)
        return (replace(again, create_timestamp=state.create_timestamp),)

    def snapshot_bytes(self, key: SharePartitionKey) -> int:
        """About what a snapshot of the share partition takes in the log."""
        state = self._states.get(key)
        if state is None:
            return 0
        batches = sum(1 for run in state.runs if run.value != UNKNOWN)
        return SNAPSHOT_BYTES + len(key.group_id) + STATE_BATCH_BYTES * batches

    def is_cold(self, key: SharePartitionKey, *, since_ms: int) -> bool:
        """Whether the last snapshot of the share partition was written by that wall-clock time."""
        state = self._states.get(key)
        return state is not None and state.write_timestamp <= since_ms

    def replay(self, record: ShareStateRecord, *, log_offset: int = 0) -> None:
        """Let a record have happened, that lies at ``log_offset`` of its partition of the log."""
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
                self._states.pop(key, None)

    def _updates_after_snapshot(self, state: _ShareState) -> int:
        """What the count goes on from.

        As in Kafka, only the snapshot that was due begins it anew; one that came between, because
        the state was initialized again or lay cold, does not put off the next.
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
        """The update, or the snapshot that is due after so many updates."""
        if state.update_count < self._updates_per_snapshot:
            return update
        batches = combined(batches_of(state.runs), update.batches, start_offset=update.start_offset)
        return _snapshot(state, update._replace(batches=batches), wall_ms)


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


def _from_nothing(update: ShareUpdate, log_offset: int) -> _ShareState:
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
            f"{named(key)}: leader epoch {leader_epoch} is over, a leader of epoch "
            f"{state.leader_epoch_max} was here"
        )


def _check_state_epoch(key: SharePartitionKey, state: _ShareState, state_epoch: int) -> None:
    if state_epoch < state.state_epoch:
        raise FencedStateEpoch(
            f"{named(key)}: state epoch {state_epoch} is over, the state was initialized again "
            f"in epoch {state.state_epoch}"
        )


def named(key: SharePartitionKey) -> str:
    """A share partition in an error's text."""
    return (
        f"group {key.group_id!r}, topic id {topic_id_text(key.topic_id)}, partition {key.partition}"
    )
