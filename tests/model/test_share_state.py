"""The share coordinator against one cell per offset, through crashes of its log.

The model combines statements offset by offset with `max`; the shard does it with runs and, now
and then, a snapshot.  After every step the shard must say what the model says, and so must
shards made from the log: from all of it, from each key's last snapshot on, and from a log in
which every record stands twice.  A crash keeps a prefix of the log; pruning, which waits until all
is durable, a suffix.
Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_share_state.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import (
    Records,
    ShareSnapshot,
    ShareStateRecord,
    ShareStates,
    ShareTombstone,
    StateSummary,
)
from sharegroup.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, KafkaError
from sharegroup.ids import GroupId, SharePartitionKey, TopicId

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
UPDATES_PER_SNAPSHOT = 2

KEYS = [SharePartitionKey(GroupId(group), TopicId(UUID(int=7)), 0) for group in ("a", "b")]
TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)

keys = st.sampled_from(KEYS)
# Most commands are to be accepted, or the state never gets interesting.
epochs = st.sampled_from([2, 2, 2, 2, 3, 3, 1, 0])
seldom = st.sampled_from([False, False, False, True])
offsets = st.integers(0, 24)
batches = st.builds(
    lambda first, length, *value: StateBatch(first, first + length, *value),
    offsets,
    st.integers(1, 6),
    st.sampled_from([RecordState.AVAILABLE, *TERMINAL]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 100, 200]),  # Due times and reasons.
    st.sampled_from([0, 0, 1, 2]),
)


@dataclass
class Model:
    """What is known of one share partition."""

    state_epoch: int
    start_offset: int
    complete: int
    leader_epoch: int = 0
    leader_epoch_max: int = 0
    cells: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def write(self, start_offset: int, complete: int, said: Iterable[StateBatch]) -> None:
        if start_offset > self.start_offset:
            self.start_offset, self.complete = start_offset, complete
        elif start_offset == self.start_offset:
            self.complete = max(self.complete, complete)
        for batch in said:
            for offset in range(batch.first, batch.end):
                cell = (batch.delivery_count, int(batch.state), *batch[4:])
                self.cells[offset] = max(self.cells.get(offset, cell), cell)
        self.keep(lambda offset: offset >= self.start_offset)

    def cut(self, log_end: int) -> None:
        if max(self.cells, default=-1) < log_end and self.start_offset <= log_end:
            return
        self.start_offset = min(self.start_offset, log_end)
        self.keep(lambda offset: offset < log_end)
        if self.start_offset >= 0:
            self.complete = sum(cell[1] in TERMINAL for cell in self.cells.values())
        else:
            self.complete = -1

    def keep(self, wanted: object) -> None:
        self.cells = {offset: cell for offset, cell in self.cells.items() if wanted(offset)}

    def summary(self) -> StateSummary:
        return StateSummary(self.state_epoch, self.leader_epoch, self.start_offset, self.complete)


Models = dict[SharePartitionKey, Model]


def said_of(states: ShareStates, key: SharePartitionKey) -> tuple[StateSummary, dict]:
    """What a shard says, offset by offset; its batches must be in order and joined."""
    # A leader epoch beyond all that are used is never fenced; the record it asks for is dropped.
    _, persisted = states.read(key, leader_epoch=100, wall_ms=0)
    cells: dict[int, tuple[int, ...]] = {}
    previous = StateBatch(-1, -1, RecordState.AVAILABLE, 0)
    for batch in persisted.batches:
        assert max(previous.end, persisted.start_offset) <= batch.first < batch.end
        assert previous.end < batch.first or previous[2:] != batch[2:], "equal neighbours"
        previous = batch
        for offset in range(batch.first, batch.end):
            cells[offset] = (batch.delivery_count, int(batch.state), *batch[4:])
    return states.read_summary(key), cells


def replayed(records: Iterable[ShareStateRecord], *, log_start: int = 0) -> ShareStates:
    states = ShareStates(updates_per_snapshot=UPDATES_PER_SNAPSHOT)
    for offset, record in enumerate(records, log_start):
        states.replay(record, log_offset=offset)
    return states


class ShareStateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.states = replayed([])
        self.log: list[ShareStateRecord] = []
        self.log_start = 0  # The offset of the first record that is left.
        self.durable = 0  # So many of the records that are left no crash takes.
        self.models: Models = {}
        self.models_at: list[Models] = [{}]  # After each length of the log.

    @initialize()
    def two_share_partitions(self) -> None:
        for key in KEYS:
            self.initialize_state(key, state_epoch=1, start_offset=0)

    def done(self, records: Records) -> None:
        """The model has changed already; now the records happen.

        A command has one record at most, so every prefix of the log is a moment between two.
        """
        assert len(records) <= 1
        for record in records:
            self.states.replay(record, log_offset=self.log_start + len(self.log))
            self.log.append(record)
            self.models_at.append(deepcopy(self.models))

    def refused(self, expected: type[KafkaError] | None, error: KafkaError) -> None:
        assert type(error) is expected, f"expected {expected}, got {error!r}"

    @rule(key=keys, state_epoch=epochs, start_offset=st.integers(-1, 12))
    def initialize_state(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        model = self.models.get(key)
        try:
            records = self.states.initialize(
                key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=0
            )
        except FencedStateEpoch:
            assert model is not None
            assert state_epoch < model.state_epoch
            return
        if model is not None and (model.state_epoch, model.start_offset) == (
            state_epoch,
            start_offset,
        ):
            assert records == ()
            return
        assert model is None or state_epoch >= model.state_epoch
        self.models[key] = Model(
            state_epoch,
            start_offset,
            -1 if start_offset == -1 else 0,
            leader_epoch_max=0 if model is None else model.leader_epoch_max,
        )
        self.done(records)

    @rule(
        key=keys,
        state_epoch=epochs,
        leader_epoch=epochs,
        start_offset=st.integers(0, 8),
        complete=st.integers(0, 5),
        said=st.lists(batches, max_size=4).map(tuple),
    )
    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete: int,
        said: tuple[StateBatch, ...],
    ) -> None:
        model = self.models.get(key)
        expected = refusal(model, leader_epoch=leader_epoch, state_epoch=state_epoch)
        try:
            records = self.states.write(
                key,
                Delta(start_offset, complete, said),
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                wall_ms=0,
            )
        except KafkaError as error:
            self.refused(expected, error)
            return
        assert expected is None
        assert model is not None
        model.write(start_offset, complete, said)
        self.done(records)

    @rule(
        key=keys,
        start_offset=st.integers(0, 8),
        complete=st.integers(0, 5),
        said=st.lists(st.lists(batches, max_size=4).map(tuple), min_size=1, max_size=4),
    )
    def write_several_times(
        self,
        key: SharePartitionKey,
        start_offset: int,
        complete: int,
        said: list[tuple[StateBatch, ...]],
    ) -> None:
        for batches in said:
            self.write(key, 3, 3, start_offset, complete, batches)

    @rule(key=keys, leader_epoch=epochs)
    def read(self, key: SharePartitionKey, leader_epoch: int) -> None:
        model = self.models.get(key)
        expected = refusal(model, leader_epoch=leader_epoch, state_epoch=99)
        try:
            records, _ = self.states.read(key, leader_epoch=leader_epoch, wall_ms=0)
        except KafkaError as error:
            self.refused(expected, error)
            return
        assert expected is None
        assert model is not None
        assert bool(records) == (leader_epoch > model.leader_epoch_max)
        if records:
            model.leader_epoch = model.leader_epoch_max = leader_epoch
        self.done(records)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), log_end=offsets)
    def cut(self, data: st.DataObject, log_end: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.models)))
        self.models[key].cut(log_end)
        self.done(self.states.cut(key, log_end, wall_ms=0))

    @rule(key=keys, really=seldom)
    def delete(self, key: SharePartitionKey, really: bool) -> None:
        if not really:
            return
        self.models.pop(key, None)
        self.done(self.states.delete(key))

    @rule(key=keys)
    def snapshot(self, key: SharePartitionKey) -> None:
        self.done(self.states.snapshot(key, wall_ms=0))

    @rule(really=seldom)
    def prune(self, really: bool) -> None:
        if not really:
            return
        log_end = self.log_start + len(self.log)
        needless = self.states.needless_before(list(self.states), log_end=log_end) - self.log_start
        assert 0 <= needless <= len(self.log)
        self.durable = len(self.log) - needless
        del self.log[:needless], self.models_at[:needless]
        self.log_start += needless

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(max(self.durable, len(self.log) - 4), len(self.log)))
        del self.log[kept:], self.models_at[kept + 1 :]
        self.models = deepcopy(self.models_at[kept])
        for key, model in self.models.items():
            # Who led before the state was made again is known as long as the log says so.
            model.leader_epoch_max = leader_epoch_max(self.log, key)
        self.states = replayed(self.log, log_start=self.log_start)

    @invariant()
    def shard_says_what_the_model_says(self) -> None:
        self.check(self.states)

    @invariant()
    def log_says_it_too(self) -> None:
        self.check(replayed(self.log))

    @invariant()
    def log_from_the_last_snapshots_on_says_it_too(self) -> None:
        last = {
            record.key: position
            for position, record in enumerate(self.log)
            if isinstance(record, ShareSnapshot | ShareTombstone)
        }
        self.check(
            replayed(
                record for position, record in enumerate(self.log) if position >= last[record.key]
            )
        )

    @invariant()
    def saying_everything_twice_adds_nothing(self) -> None:
        self.check(replayed(record for record in self.log for _ in range(2)))

    def check(self, states: ShareStates) -> None:
        assert sorted(states) == sorted(self.models)
        for key, model in self.models.items():
            assert said_of(states, key) == (model.summary(), model.cells)


def leader_epoch_max(log: Iterable[ShareStateRecord], key: SharePartitionKey) -> int:
    epochs = [0]
    for record in log:
        if record.key == key:
            epochs = [0] if isinstance(record, ShareTombstone) else [*epochs, record.leader_epoch]
    return max(epochs)


def refusal(model: Model | None, *, leader_epoch: int, state_epoch: int) -> type[KafkaError] | None:
    if model is None:
        return InvalidRequest
    if leader_epoch < model.leader_epoch_max:
        return FencedLeaderEpoch
    return FencedStateEpoch if state_epoch < model.state_epoch else None


TestShareState = ShareStateMachine.TestCase
TestShareState.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=30,
    derandomize=EXAMPLES is None,
    database=None,
)
