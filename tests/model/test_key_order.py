"""Holds `KeyOrder` and the share partition that acquires by it equal to one sentence.

An offset is free if it is available, was learnt, and no lower offset that is not settled has its
key.  Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_key_order.py``.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pickle import dumps, loads

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    Delta,
    LogBatches,
    RecordState,
    SharePartitionLimits,
    still_due,
)
from sharegroup.core.delivery.key_order import KeyOrder
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcquireMode
from tests.model.share_partition_model import AVAILABLE, Cell, PartitionModel, is_enough

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
MEMBERS = st.sampled_from([MemberId("a"), MemberId("b")])
KEYS = st.sampled_from([None, 1, 1, 2, 3])
OPEN = {RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.DELAYED}


class KeyOrderMachine(RuleBasedStateMachine):
    """Batches of some records; keys are numbers, None for a record without one."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = SharePartitionLimits(lock_ms=10, delivery_count_max=3, in_flight_max=6)
        self.partition = SharePartition(0)
        self.order = KeyOrder(0)
        self.state: list[Delta] = []
        self.batches: list[tuple[int, int]] = []
        self.keys: list[int | None] = []
        self.now_ms = 0

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def produce(self, keys: list[int | None]) -> None:
        self.batches.append((len(self.keys), len(self.keys) + len(keys)))
        self.keys += keys

    @rule(count=st.integers(1, 6))
    def learn(self, count: int) -> None:
        first = self.order.known_end
        end = min(first + count, len(self.keys))
        offsets = [o for o in range(first, end) if self.keys[o] is not None]
        if first < end:
            hashes = [key for o in offsets if (key := self.keys[o]) is not None]
            self.order.learn(self.partition, end, offsets, hashes)

    def cells(self) -> dict[int, Cell]:
        return {
            offset: Cell(*run.value)
            for run in self.partition.runs()
            for offset in range(run.first, run.end)
        }

    def free(self) -> list[int]:
        """The sentence of the module's text."""
        found, seen = [], set[int]()
        for offset, cell in sorted(self.cells().items()):
            if offset < self.order.known_end and cell.state in OPEN:
                key = self.keys[offset]
                if cell.state is AVAILABLE and key not in seen:
                    found.append(offset)
                if key is not None:
                    seen.add(key)
        return found

    @rule(
        member_id=MEMBERS,
        records_max=st.integers(1, 5),
        mode=st.sampled_from(AcquireMode),
        vanished=st.sets(st.integers(0, 3)),
    )
    def acquire(
        self,
        member_id: MemberId,
        records_max: int,
        mode: AcquireMode,
        vanished: Collection[int] = (),
    ) -> None:
        free = self.free()
        if not free:
            return
        found = [batch for batch in self.batches if batch[1] > free[0]]
        kept = [batch for number, batch in enumerate(found[:-1]) if number not in vanished]
        kept.append(found[-1])
        log = LogBatches(free[0], [first for first, _ in kept], [end for _, end in kept])
        ranges = self.order.free()
        request = AcquireRequest(records_max, 1, mode, free=ranges)
        model = PartitionModel(self.partition.start_offset, self.partition.end_offset, self.cells())
        expected = expected_of(model, free, log, self.limits, request)
        acquisition = self.partition.acquire(
            member_id, log, request=request, limits=self.limits, now_ms=self.now_ms
        )
        self.order.acquired(acquisition.ranges)
        self.note(acquisition.delta)
        assert expected == [
            offset for first, end, _ in acquisition.ranges for offset in range(first, end)
        ]

    @precondition(lambda self: self.held())
    @rule(
        data=st.data(),
        kind=st.sampled_from([1, 1, 2, 2, 3, 0]),
        delay_ms=st.sampled_from([0, 1, 300]),
    )
    def settle(self, data: st.DataObject, kind: int, delay_ms: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.held())))
        member_id = MemberId(self.held()[offset])
        ack = AckBatch(offset, offset + 1, (kind,), delay_ms)
        cell = self.cells()[offset]
        if cell.lock_deadline_ms > self.now_ms:
            self.note(
                self.partition.acknowledge(member_id, [ack], limits=self.limits, now_ms=self.now_ms)
            )

    @rule(count_max=st.integers(1, 4))
    def some_free(self, count_max: int) -> None:
        ranges = self.order.free(count_max)
        found = [o for first, end in ranges for o in range(first, end)]
        assert found == self.free()[: len(found)]
        assert len(found) >= min(count_max, len(self.free()))

    def held(self) -> dict[int, str]:
        return {o: cell.member_id for o, cell in self.cells().items() if cell.member_id}

    @rule(member_id=MEMBERS)
    def release_member(self, member_id: MemberId) -> None:
        self.note(self.partition.release_member(member_id, limits=self.limits))

    @rule(ms=st.sampled_from([1, 10]))
    def expire(self, ms: int) -> None:
        self.now_ms += ms
        self.note(self.partition.expire(limits=self.limits, now_ms=self.now_ms))

    @rule(ms=st.sampled_from([100, 300]), runs_max=st.sampled_from([1, 10]))
    def end_delays(self, ms: int, runs_max: int) -> None:
        self.now_ms += ms
        self.order.available(self.partition.end_delays(now_ms=self.now_ms, runs_max=runs_max))

    @rule(dead_letters=st.booleans())
    def configure(self, *, dead_letters: bool) -> None:
        self.limits = SharePartitionLimits(
            lock_ms=10, delivery_count_max=3, in_flight_max=6, dead_letters=dead_letters
        )

    @rule()
    def copied(self) -> None:
        letters = self.partition.dead_letters(limits=self.limits, runs_max=2)
        self.note(self.partition.archived([(letter.first, letter.end) for letter in letters]))

    @precondition(lambda self: len(self.batches) > 1)
    @rule()
    def truncate(self) -> None:
        del self.batches[0]
        self.note(self.partition.move_log_start(self.batches[0][0]))

    @rule(member_id=MEMBERS, records_max=st.integers(1, 5))
    def acquire_without_order(self, member_id: MemberId, records_max: int) -> None:
        """The setting was off: several records of a key may be held; then it is on again."""
        position = self.partition.next_fetch_offset()
        found = [batch for batch in self.batches if batch[1] > position]
        log = LogBatches(position, [first for first, _ in found], [end for _, end in found])
        self.partition.acquire(
            member_id,
            log,
            request=AcquireRequest(records_max, 1),
            limits=self.limits,
            now_ms=self.now_ms,
        )
        self.order = KeyOrder(self.partition.start_offset)

    @rule(locks_last=st.booleans())
    def restart(self, *, locks_last: bool) -> None:
        """The object is made anew; in a restart the locks are gone, too."""
        if locks_last:
            self.partition = loads(dumps(self.partition))
        else:
            start, _, batches = self.partition.checkpoint()
            batches = tuple(still_due(batches, self.now_ms))
            self.partition = SharePartition.restore(start, batches, log_end=len(self.keys))
        self.order = KeyOrder(self.partition.start_offset)

    def note(self, delta: Delta | None) -> None:
        if delta is not None:
            self.order.follow(delta)

    @invariant()
    def free_is_the_sentence(self) -> None:
        self.partition.check()
        found = self.order.free()
        assert [o for first, end in found for o in range(first, end)] == self.free()
        known = [o for o, cell in self.cells().items() if cell.state in OPEN]
        assert len(self.order) <= len(self.keys)
        if not known:
            assert len(self.order) == 0, "what is settled takes no memory"
        # Blocked records are counted in stretches of 64, so a multiple of it is exact.
        end = 64 * (len(self.keys) // 64 + 1)
        keys = [key for o in known if o < self.order.known_end and (key := self.keys[o])]
        assert self.order.blocked_count(0, end) == len(keys) - len(set(keys))


def expected_of(
    model: PartitionModel,
    free: list[int],
    log: LogBatches,
    limits: SharePartitionLimits,
    request: AcquireRequest,
) -> list[int]:
    """The free records that a request gets, one after the other."""
    inside = {
        offset
        for first, end in zip(log.firsts, log.ends, strict=True)
        for offset in range(first, end)
    }
    waiting = [offset for offset in free if offset in inside]
    taken, _ = model.from_waiting(waiting, log, limits, request)
    assert all(not is_enough(taken[:index], o, log, request) for index, o in enumerate(taken))
    return taken


TestKeyOrder = KeyOrderMachine.TestCase
TestKeyOrder.settings = settings(
    max_examples=int(EXAMPLES or 30), stateful_step_count=40, deadline=None
)
