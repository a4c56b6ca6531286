"""The share partition against one cell per offset, through crashes, on a log that changes.

Every delta is written to a state log; what that log says must at all times be what the
partition holds, less its locks.  A crash keeps a prefix of the deltas and of the record log and
restores from them.  Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_share_partition.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    LogBatches,
    RecordState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.redelivery import RedeliveryDelay
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcquireMode
from tests.model.share_partition_model import (
    Cell,
    PartitionModel,
    StateLogModel,
    restored,
    state_batches,
    told,
)

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
MEMBERS = st.sampled_from([MemberId("a"), MemberId("b"), MemberId("c")])
LIMITS = st.builds(
    SharePartitionLimits,
    lock_ms=st.sampled_from([5, 10]),
    delivery_count_max=st.integers(1, 6),
    in_flight_max=st.integers(1, 20),
    runs_max=st.integers(2, 12),
    renewal=st.sampled_from([True, True, True, False]),
    dead_letters=st.booleans(),
    completion_records_max=st.sampled_from([0, 1, 2, 3, 4]),
    completion_bytes_max=st.sampled_from([0, 20, 30, 40]),
    paused=st.sampled_from([False, False, False, True]),
    delay=st.none() | st.builds(RedeliveryDelay, st.just(3), st.sampled_from([1, 3, 12])),
    delayed_max=st.sampled_from([1, 5, 100]),
)
TYPES = st.integers(0, 4)
DELAYS = st.sampled_from([-1, -1, 0, 7, 86_400_000])
WANTED = st.builds(
    AcquireRequest,
    st.integers(1, 10),
    st.integers(0, 6),
    st.sampled_from(AcquireMode),
    free=st.none(),
)
LOG = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.integers(1, 4)), min_size=3, max_size=8
)


def size_of(first: int) -> int:
    """The bytes of a log batch, by its first offset: 10 to 50."""
    return 10 + first % 5 * 10


@st.composite
def ack_batches(draw: st.DrawFn) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Ranges relative to the start offset, mostly ascending; now and then malformed."""
    batches = []
    first = draw(st.integers(-2, 12))
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.sampled_from([1, 1, 2, 3, 5, 0]))
        kinds = st.tuples(TYPES) | st.tuples(*[TYPES] * length) | st.just((1, 2, 5))
        delays = st.sampled_from([-1, -1, -1, -2, 0, 5, 86_400_001])
        batches.append((first, first + length, draw(kinds), draw(delays)))
        first += length + draw(st.sampled_from([0, 0, 0, 1, 2, -1, -2]))
    return batches


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.partition = SharePartition(0)
        self.model = PartitionModel()
        self.state_log = StateLogModel()
        self.limits = SharePartitionLimits(lock_ms=10, delivery_count_max=2, in_flight_max=12)
        self.now_ms = 0
        self.batches: list[tuple[int, int]] = []
        self.log_end = 0
        self.pending_read: LogBatches | None = None

    @initialize(batches=LOG)
    def begin(self, batches: list[tuple[int, int]]) -> None:
        self.produce(batches)

    @rule(batches=LOG)
    def produce(self, batches: list[tuple[int, int]]) -> None:
        """Batches of some records, each behind a hole or right after the one before."""
        for hole, size in batches:
            first = self.log_end + hole
            self.batches.append((first, first + size))
            self.log_end = first + size

    @precondition(lambda self: len(self.batches) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """A batch goes; Kafka keeps the last one."""
        del self.batches[data.draw(st.integers(0, len(self.batches) - 2))]

    @rule(ms=st.sampled_from([1, 4, 5, 10, 100]))
    def tick(self, ms: int) -> None:
        self.now_ms += ms

    @rule(limits=LIMITS)
    def configure(self, limits: SharePartitionLimits) -> None:
        self.limits = limits

    @rule(batches_max=st.integers(1, 8), withheld=st.sets(st.integers(0, 7)))
    def read(self, batches_max: int, withheld: Collection[int] = ()) -> None:
        """Read now and acquire later: meanwhile records may be given back or vanish.

        Some batches are for nobody, as those of aborted transactions are.
        """
        position = self.partition.next_fetch_offset()
        found = [batch for batch in self.batches if batch[1] > position][:batches_max]
        kept = [batch for number, batch in enumerate(found) if number not in withheld]
        firsts, ends = [first for first, _ in kept], [end for _, end in kept]
        looked_until = found[-1][1] if found else 0
        self.pending_read = LogBatches(
            position, firsts, ends, looked_until=looked_until, size_of=size_of
        )

    @rule(member_id=MEMBERS, wanted=WANTED)
    def acquire(self, member_id: MemberId, wanted: AcquireRequest) -> None:
        if self.pending_read is None:
            self.read(8)
        log, self.pending_read = self.pending_read, None
        assert log is not None
        hopeful = self.partition.can_acquire(self.limits)
        acquisition = self.partition.acquire(
            member_id,
            log,
            request=wanted,
            limits=self.limits,
            now_ms=self.now_ms,
        )
        self.state_log.write(acquisition.delta)
        expected = self.model.acquire(member_id, log, self.limits, wanted, self.now_ms)
        assert expected == [
            (offset, count)
            for first, end, count in acquisition.ranges
            for offset in range(first, end)
        ]
        assert hopeful or not expected
        for entry, following in zip(acquisition.ranges, acquisition.ranges[1:], strict=False):
            if entry.end == following.first and entry.delivery_count == following.delivery_count:
                assert wanted.mode is AcquireMode.BATCH_OPTIMIZED
                assert entry.end in log.firsts
                assert entry.end - entry.first >= wanted.batch_records

    @rule(member_id=MEMBERS, relative=ack_batches())
    def acknowledge(
        self, member_id: MemberId, relative: list[tuple[int, int, tuple[int, ...], int]]
    ) -> None:
        start = self.model.start
        acks = [AckBatch(start + first, start + end, *more) for first, end, *more in relative]
        self.acknowledge_exactly(member_id, acks)

    @precondition(lambda self: self.model.in_state(RecordState.ACQUIRED))
    @rule(data=st.data(), claimed_by=st.none() | MEMBERS)
    def acknowledge_what_is_held(self, data: st.DataObject, claimed_by: MemberId | None) -> None:
        """Random ranges are mostly refused.  These are locked: by the member that claims them
        (None) or perhaps by another one, and perhaps not for long enough.
        """
        owner = data.draw(st.sampled_from(sorted(self.locked_by())))
        chosen = data.draw(st.lists(st.sampled_from(self.locked_by()[owner]), unique=True))
        types = [data.draw(TYPES) for _ in chosen]
        delay_ms = data.draw(DELAYS)
        self.acknowledge_locked(sorted(chosen), types, owner, claimed_by or owner, delay_ms)

    def locked_by(self) -> dict[MemberId, list[int]]:
        """The locked offsets of each member that has any."""
        owners: dict[MemberId, list[int]] = {}
        for offset in self.model.in_state(RecordState.ACQUIRED):
            owners.setdefault(MemberId(self.model.cells[offset].member_id), []).append(offset)
        return owners

    def acknowledge_locked(
        self,
        offsets: list[int],
        types: list[int],
        owner: MemberId,
        claimed_by: MemberId,
        delay_ms: int = -1,
    ) -> None:
        cells = self.model.cells
        in_time = all(self.now_ms < cells[offset].lock_deadline_ms for offset in offsets)
        acks = [
            AckBatch(offset, offset + 1, (kind,), delay_ms)
            for offset, kind in zip(offsets, types, strict=True)
        ]
        accepted = self.acknowledge_exactly(claimed_by, acks)
        permitted = self.limits.renewal or 4 not in types
        assert accepted == (not offsets or (in_time and claimed_by == owner and permitted))

    def acknowledge_exactly(self, member_id: MemberId, acks: list[AckBatch]) -> bool:
        refusal = self.model.refusal(member_id, acks, self.limits, self.now_ms)
        if refusal is not None:
            with pytest.raises(refusal):
                self.partition.acknowledge(member_id, acks, limits=self.limits, now_ms=self.now_ms)
            return False
        self.state_log.write(
            self.partition.acknowledge(member_id, acks, limits=self.limits, now_ms=self.now_ms)
        )
        self.model.acknowledge(acks, self.limits, self.now_ms)
        return True

    @rule(member_id=MEMBERS)
    def release_member(self, member_id: MemberId) -> None:
        self.state_log.write(self.partition.release_member(member_id, limits=self.limits))
        self.model.release_member(member_id, self.limits)

    @rule(member_id=MEMBERS, data=st.data())
    def release_unreadable(self, member_id: MemberId, data: st.DataObject) -> None:
        held = self.locked_by().get(member_id, [])
        chosen = sorted(data.draw(st.lists(st.sampled_from(held), unique=True))) if held else []
        ranges = [(offset, offset + 1) for offset in chosen]
        self.state_log.write(
            self.partition.release_unreadable(member_id, ranges, limits=self.limits)
        )
        self.model.release_unreadable(member_id, ranges, self.limits)

    @rule(runs_max=st.integers(1, 6), skip=st.integers(0, 1), keep=st.integers(0, 1))
    def copy_dead_letters(self, runs_max: int, skip: int, keep: int) -> None:
        """The copies of some are durable: all of those at hand, or without the first or last."""
        letters = self.partition.dead_letters(limits=self.limits, runs_max=runs_max)
        expected = self.model.dead_letters(self.limits)
        found = {
            offset: (letter.delivery_count, letter.reason)
            for letter in letters
            for offset in range(letter.first, letter.end)
        }
        assert found == {offset: expected[offset] for offset in found}
        assert list(found) == list(expected)[: len(found)]
        assert bool(found) == bool(expected)
        ranges = [(letter.first + skip, letter.end) for letter in letters][: len(letters) - keep]
        ranges = [(first, end) for first, end in ranges if first < end]
        self.state_log.write(self.partition.archived(ranges))
        self.model.archived(ranges)

    @rule()
    def expire(self) -> None:
        self.state_log.write(self.partition.expire(limits=self.limits, now_ms=self.now_ms))
        self.model.expire(self.limits, self.model.due(self.now_ms))

    @rule(runs_max=st.integers(1, 4))
    def expire_some(self, runs_max: int) -> None:
        """A slice: out of what is due, from no more runs than that; all is given back some day."""
        due = self.model.due(self.now_ms)
        runs_before = [run for run in self.partition.runs() if run.value.member_id]
        self.state_log.write(
            self.partition.expire(limits=self.limits, now_ms=self.now_ms, runs_max=runs_max)
        )
        held = {
            offset
            for run in self.partition.runs()
            if run.value.member_id
            for offset in range(run.first, run.end)
        }
        given_back = [offset for offset in due if offset not in held]
        touched = [r for r in runs_before if any(r.first <= o < r.end for o in given_back)]
        assert len(touched) <= runs_max
        self.model.expire(self.limits, given_back)
        expiry_ms = self.partition.next_expiry_ms()
        left = given_back != due or bool(self.model.over(self.now_ms))
        assert (expiry_ms is not None and expiry_ms <= self.now_ms) == left

    @rule(runs_max=st.integers(1, 4) | st.just(1_000))
    def end_delays(self, runs_max: int) -> None:
        over = self.model.over(self.now_ms)
        ended = self.partition.end_delays(now_ms=self.now_ms, runs_max=runs_max)
        assert bool(ended) == bool(over)
        waiting = {
            offset
            for run in self.partition.runs()
            if run.value.state is RecordState.DELAYED
            for offset in range(run.first, run.end)
        }
        given_back = [offset for offset in over if offset not in waiting]
        assert [offset for first, end in ended for offset in range(first, end)] == given_back
        self.model.end_delays(given_back)
        if runs_max == 1_000:
            assert not self.model.over(self.now_ms)

    @rule(count=st.integers(1, 4))
    def truncate(self, count: int) -> None:
        """Retention takes the first batches, except the last one."""
        if len(self.batches) > count:
            del self.batches[:count]
            log_start = self.batches[0][0]
            self.state_log.write(self.partition.move_log_start(log_start))
            self.model.move_log_start(log_start)

    @rule(lost_deltas=st.integers(0, 2), lost_records=st.sampled_from([0, 0, 1, 5]))
    def crash(self, lost_deltas: int, lost_records: int) -> None:
        self.pending_read = None
        self.state_log.lose(lost_deltas)
        start, state = self.state_log.replayed()
        state = told(state, self.now_ms)
        if lost_records:
            self.log_end = max(0, self.log_end - lost_records)
            self.batches = [batch for batch in self.batches if batch[1] <= self.log_end]
            self.log_end = self.batches[-1][1] if self.batches else 0
        self.model = restored(start, state, self.log_end)
        self.partition = SharePartition.restore(start, state_batches(state), log_end=self.log_end)
        if lost_records:  # What was cut off must not come back: the state log begins anew.
            self.state_log.deltas = [self.partition.checkpoint()]

    @invariant()
    def partition_is_the_model(self) -> None:
        self.partition.check()
        cells = {
            offset: Cell(*run.value)
            for run in self.partition.runs()
            for offset in range(run.first, run.end)
        }
        assert cells == self.model.cells
        assert self.partition.start_offset == self.model.start
        assert self.partition.end_offset == self.model.end
        assert self.partition.next_fetch_offset() == self.model.next_fetch_offset()
        assert self.partition.next_expiry_ms() == self.model.next_expiry_ms()
        assert self.partition.snapshot().run_count == self.model.run_count()
        model = self.model
        outcomes = model.accepted_count, model.failed_count, model.absent_count
        assert self.partition.outcomes == outcomes

    @invariant()
    def state_log_knows_all_but_the_locks(self) -> None:
        start, state = self.state_log.replayed()
        known, held = told(state, self.now_ms), self.model.durable(self.now_ms)
        if self.state_log.deltas[-1].start_offset == self.model.start == start:
            assert known == held
        else:  # A restore forgets a settled prefix without writing.
            assert {o: cell for o, cell in known.items() if o >= self.model.start} == held
        expected = sum(cell[0] in (2, 4) for cell in held.values())
        assert self.partition.checkpoint().delivery_complete_count == expected


def one_step(machine: SharePartitionMachine, chance: random.Random) -> None:
    """What brokers really do, most of the time: acquire, acknowledge, let locks run out."""
    member_id = MemberId(chance.choice("abc"))
    locked = machine.locked_by()
    match chance.choices(range(10), weights=(30, 30, 12, 10, 4, 4, 3, 3, 2, 3))[0]:
        case 0:
            mode = chance.choice(list(AcquireMode))
            machine.acquire(
                member_id, AcquireRequest(chance.randint(1, 10), chance.randint(0, 6), mode)
            )
        case 1 if locked:
            owner = chance.choice(sorted(locked))
            chosen = sorted(chance.sample(locked[owner], chance.randint(1, len(locked[owner]))))
            types = chance.choices(range(5), weights=(1, 4, 6, 2, 2), k=len(chosen))
            claimed_by = chance.choice([owner] * 6 + [member_id])
            delay_ms = chance.choice([-1, -1, 0, 50, 400])
            machine.acknowledge_locked(chosen, types, owner, claimed_by, delay_ms)
        case 2:
            machine.tick(chance.choice([1, 4, 5, 10, 100]))
            machine.end_delays(chance.choice([1, 1_000]))
        case 3 if chance.random() < 0.5:
            machine.expire_some(chance.randint(1, 4))
        case 3:
            machine.expire()
        case 4:
            sizes = range(chance.randint(1, 4))
            machine.produce([(chance.choice([0, 0, 1]), chance.randint(1, 4)) for _ in sizes])
        case 5:
            machine.read(chance.randint(1, 8), chance.sample(range(8), chance.choice([0, 0, 1, 4])))
        case 6:
            machine.release_member(member_id)
        case 7:
            machine.truncate(1)
        case 8:
            machine.crash(chance.choice([0, 0, 1, 2]), chance.choice([0, 0, 0, 2]))
        case 9:
            machine.copy_dead_letters(chance.randint(1, 6), chance.randint(0, 1), 0)


@pytest.mark.parametrize("seed", range(int(EXAMPLES or 150)))
def test_long_busy_history_agrees_with_the_model(seed: int) -> None:
    """Hypothesis finds short odd histories; these are long, and most requests in them succeed."""
    chance = random.Random(seed)
    machine = SharePartitionMachine()
    count_max, in_flight_max = chance.randint(2, 8), chance.randint(4, 20)
    runs_max, dead_letters = chance.choice([4, 12, 100]), chance.choice([False, True])
    machine.configure(
        SharePartitionLimits(
            10,
            count_max,
            in_flight_max,
            runs_max,
            dead_letters=dead_letters,
            delay=chance.choice([None, RedeliveryDelay(60, 200)]),
            delayed_max=chance.choice([3, 100]),
            completion_bytes_max=40,
        )
    )
    machine.produce([(chance.choice([0, 0, 0, 2]), chance.randint(1, 4)) for _ in range(15)])
    for _ in range(150):
        one_step(machine, chance)
        machine.partition_is_the_model()
        machine.state_log_knows_all_but_the_locks()


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(
    max_examples=int(EXAMPLES or 100),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
)
