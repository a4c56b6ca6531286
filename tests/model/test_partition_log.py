"""The partition log beside a list of batches, through appends, reads, crashes and full disks.

The model is a list of what was written, each with whether it was confirmed.  A crash loses
power: confirmed batches must be there.  Behind them may stand batches that were not confirmed or
even refused (whoever is told of an error does not know what the disk has), each whole and at the
offset that it was written at.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharegroup.errors import KafkaStorageError, OffsetOutOfRange
from sharegroup.storage.disk.files import Files
from sharegroup.storage.sync.syncer import Syncer
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.batches import parse_header
from tests.unit.storage.logs import NOW_MS, batch, open_log

SEGMENT_BYTES = 700


@dataclass
class Written:
    """A batch of the model."""

    first: int
    end: int
    data: bytes
    ticket: Ticket


def timeless(files: Files, root: str) -> Syncer:
    """A syncer whose clock stands still: nothing may depend on how long things take."""
    return Syncer(files, root, clock=lambda: 0.0, probe_seconds=0.0)


class LogMachine(RuleBasedStateMachine):
    """Steps on a partition log, compared with a list of batches."""

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = PowerLossDisk(seed)
        self.model: list[Written] = []
        self.failed: list[Written] = []
        self.start_offset = 0
        self.open()

    def open(self) -> None:
        self.directory, self.log = open_log(self.disk, segment_bytes=SEGMENT_BYTES, syncer=timeless)

    def teardown(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        self.directory.abandon()
        self.loop.close()

    def in_loop(self, call):
        async def called():
            return call()

        return self.loop.run_until_complete(called())

    @rule(count=st.integers(1, 4), size=st.integers(0, 300))
    def append(self, count: int, size: int) -> None:
        data = batch(count, size=size)
        try:
            ticket = self.in_loop(lambda: self.log.append(data, now_ms=NOW_MS))
        except KafkaStorageError:
            self.wait()  # For the probe that this append may have started.
            return
        end = self.model[-1].end if self.model else 0
        assert (ticket.base_offset, ticket.end_offset) == (end, end + count)
        self.model.append(Written(end, end + count, bytes(data), ticket))

    @rule()
    def wait(self) -> None:
        """Let everything that was appended be decided."""
        self.loop.run_until_complete(self.directory.drain())
        self.forget_failed()

    def forget_failed(self) -> None:
        failed = [appended for appended in self.model if appended.ticket.failed]
        assert self.model[len(self.model) - len(failed) :] == failed  # Only the newest fail.
        self.model = self.model[: len(self.model) - len(failed)]
        self.failed += failed

    @rule()
    def checkpoint(self) -> None:
        self.loop.run_until_complete(self.directory.drain())
        self.forget_failed()
        self.loop.run_until_complete(self.directory.checkpoint())

    @rule()
    def fail_syncs(self) -> None:
        self.disk.fail_next_sync(2)

    @rule(room=st.integers(0, 400))
    def fill_up(self, room: int) -> None:
        self.disk.fill_up(room)

    @rule()
    def make_room(self) -> None:
        self.disk.make_room()
        self.disk.fail_next_sync(0)

    @precondition(lambda self: self.log.high_watermark > 0)
    @rule(chance=st.floats(0, 1))
    def delete_before(self, chance: float) -> None:
        offset = int(self.log.high_watermark * chance)
        try:
            self.loop.run_until_complete(self.log.delete_before(offset))
        except KafkaStorageError:
            return
        self.start_offset = max(self.start_offset, offset)

    @rule()
    def lose_power(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        self.forget_failed()
        confirmed = [appended for appended in self.model if appended.ticket.done]
        possible = {appended.first: [] for appended in (*self.model, *self.failed)}
        for appended in (*self.model, *self.failed):
            possible[appended.first].append(appended.data)
        self.directory.abandon()
        self.disk.make_room()
        self.disk.fail_next_sync(0)
        self.disk.cut_power()
        self.open()
        self.model, self.failed = confirmed, []
        end = confirmed[-1].end if confirmed else 0
        while end < self.log.end_offset:
            data = self.log.read(end, bytes_max=1)
            assert data in possible[end]
            first, end = end, parse_header(data).end_offset
            self.model.append(Written(first, end, data, Ticket(first, end, done=True)))
        assert self.log.end_offset == end
        self.start_offset = max(self.start_offset, self.log.start_offset)

    @invariant()
    def same_batches(self) -> None:
        log = self.log
        readable = [appended for appended in self.model if appended.end <= log.high_watermark]
        assert log.start_offset == self.start_offset <= log.high_watermark <= log.end_offset
        assert log.high_watermark == (readable[-1].end if readable else 0)
        for range_ in readable:
            if range_.first >= self.start_offset:
                assert log.read(range_.first, bytes_max=1) == range_.data
                assert log.read_range(range_.end - 1, range_.end) == range_.data
        with pytest.raises(OffsetOutOfRange):
            log.read(log.high_watermark + 1, bytes_max=1)


LogMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
)
TestPartitionLog = LogMachine.TestCase
