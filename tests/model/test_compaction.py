"""A compacted log with transactions beside a table of its records, through passes and crashes.

The model knows of every offset what was written there and how its transaction ended.  Whatever
the order of appends, transactions, passes of compaction, deletions and losses of power:

- a reader of committed records gets records of the model, at their offsets, and nothing aborted;
- what no pass has reached is all there;
- of each key the newest committed record is there, but for a tombstone whose time has come;
- the log is decided up to the first open transaction, and producers' sequences go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.log.compaction import CompactionLimits
from sharegroup.storage.segment.segment import SegmentLimits
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, batch_records, encode_batch
from tests.unit.storage.logs import TOPIC

SEGMENT_BYTES = 350
DELETE_RETENTION_MS = 1_000
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = [1, 2]

records = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.binary(min_size=1, max_size=30)),
    min_size=1,
    max_size=4,
)


@dataclass
class Written:
    """A record of the model."""

    key: bytes
    value: bytes | None
    producer: int | None
    passes_before: int
    """Passes of compaction that were over when it was written."""
    is_committed: bool | None = True
    """None while its transaction is open."""


class CompactionMachine(RuleBasedStateMachine):
    """Steps on a compacted log, compared with a table of its records."""

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = PowerLossDisk(seed)
        self.now_ms = 1_000_000
        self.written: dict[int, Written] = {}
        self.open_since: dict[int, int] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.passes: list[int] = []
        self.end = self.first = 0
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(
            "/disk/data", files=self.disk, wall_ms=lambda: self.now_ms
        )
        limits = SegmentLimits(bytes=SEGMENT_BYTES, ms=1 << 40)
        self.log = self.directory.create(TOPIC, 0, limits=limits)

    def teardown(self) -> None:
        self.run(self.directory.drain())
        self.directory.abandon()
        self.loop.close()

    def run(self, work: Awaitable[object]) -> object:
        async def ended() -> object:
            return await work

        return self.loop.run_until_complete(ended())

    def append(self, batch: bytearray) -> None:
        async def appended() -> None:
            ticket = self.log.append(batch, now_ms=self.now_ms)
            await ticket
            assert ticket.base_offset == self.end
            self.end = ticket.end_offset

        self.run(appended())

    @rule(records=records)
    def put(self, records: list[tuple[bytes, bytes | None]]) -> None:
        self.remember(records, None)
        self.append(encode_batch([SimpleRecord(*record, self.now_ms) for record in records]))

    @rule(records=records, producer=st.sampled_from(PRODUCERS))
    def put_in_transaction(self, records: list[tuple[bytes, bytes | None]], producer: int) -> None:
        self.open_since.setdefault(producer, self.end)
        self.remember(records, producer)
        batch = encode_batch(
            [SimpleRecord(*record, self.now_ms) for record in records],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            is_transactional=True,
        )
        self.sequences[producer] += len(records)
        self.append(batch)

    def remember(self, records: list[tuple[bytes, bytes | None]], producer: int | None) -> None:
        for number, (key, value) in enumerate(records):
            self.written[self.end + number] = Written(
                key, value, producer, len(self.passes), True if producer is None else None
            )

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        marker = encode_marker(
            is_commit=is_commit, producer_id=producer, producer_epoch=0, timestamp=self.now_ms
        )
        self.append(marker)
        self.open_since.pop(producer, None)
        for record in self.written.values():
            if record.producer == producer and record.is_committed is None:
                record.is_committed = is_commit

    @rule()
    def close_segment(self) -> None:
        async def closed() -> None:
            self.log.roll()

        self.run(closed())

    @rule(passed_ms=st.sampled_from([1, 600, DELETE_RETENTION_MS + 1]))
    def let_time_pass(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(memory_bytes=st.sampled_from([400, 1 << 20]), joined=st.integers(1, 6))
    def compact(self, memory_bytes: int, joined: int) -> None:
        self.run(self.directory.checkpoint())
        found = self.log.compactable(now_ms=self.now_ms, lag_ms=0)
        limits = CompactionLimits(memory_bytes, DELETE_RETENTION_MS, joined * SEGMENT_BYTES)
        self.run(self.directory.compact(self.log, found, limits))
        self.passes.append(self.now_ms)

    @precondition(lambda self: self.log.high_watermark > 0)
    @rule(chance=st.floats(0, 1))
    def delete_before(self, chance: float) -> None:
        offset = int(self.log.high_watermark * chance)
        self.run(self.log.delete_before(offset))
        self.first = max(self.first, offset)

    @rule()
    def checkpoint(self) -> None:
        self.run(self.directory.checkpoint())

    @rule()
    def lose_power(self) -> None:
        self.run(self.directory.drain())
        self.directory.abandon()
        self.disk.cut_power()
        self.open()

    @invariant()
    def committed_records_are_there(self) -> None:
        log = self.log
        stable = min(self.open_since.values(), default=self.end)
        assert (log.start_offset, log.end_offset) == (self.first, self.end)
        assert log.last_stable_offset == max(stable, self.first)
        found = self.committed()
        newest: dict[bytes, int] = {}
        for offset, record in self.written.items():
            if record.is_committed and self.first <= offset < log.last_stable_offset:
                newest[record.key] = offset
                if offset >= log.cleaned_to:
                    assert offset in found, f"offset {offset} is lost, no pass was there"
        for key, offset in newest.items():
            assert offset in found or self.may_be_gone(offset), f"{key!r} at {offset} is lost"

    def committed(self) -> set[int]:
        """The offsets that a reader gets, each with the record that was written there."""
        found: set[int] = set()
        offset, end = self.log.start_offset, self.log.last_stable_offset
        while offset < end:
            data = self.log.read(offset, end=end, bytes_max=1 << 20)
            aborted = self.log.aborted_transactions(offset, end)
            for position, header in scan(data):
                assert header.end_offset > offset
                offset = header.end_offset
                if header.is_control or any(
                    producer == header.producer_id and first <= header.base_offset < last
                    for producer, first, last in aborted
                ):
                    continue
                for record in batch_records(data, position, header, check_crc=True):
                    original = self.written[record.offset]
                    assert (record.key, record.value) == (original.key, original.value)
                    assert original.is_committed, f"offset {record.offset} was aborted"
                    found.add(record.offset)
            if not data:
                break
        return found

    def may_be_gone(self, offset: int) -> bool:
        """Whether it is a tombstone that one pass has met and a later one, in time, dropped."""
        record = self.written[offset]
        since = self.passes[record.passes_before :]
        return record.value is None and bool(since) and since[-1] >= since[0] + DELETE_RETENTION_MS

    @invariant()
    def sequences_go_on(self) -> None:
        for producer, entry in self.log.producers.items():
            if entry.batches:
                assert entry.batches[-1].last_sequence + 1 == self.sequences[producer]
            assert entry.transaction_start == self.open_since.get(producer), (producer, entry)


CompactionMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
)
TestCompaction = CompactionMachine.TestCase
