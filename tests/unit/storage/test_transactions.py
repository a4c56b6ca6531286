"""How far a log is decided, and what of it was aborted; before and after a crash."""

from __future__ import annotations

import contextlib
import errno
import struct
from itertools import combinations

import pytest

from sharegroup.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    KafkaStorageError,
    TransactionCoordinatorFenced,
)
from sharegroup.storage.log.compaction import CompactionLimits
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import Durability
from sharegroup.storage.recovery.checkpoint import RECOVERY_POINTS_FILE
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.unit.storage.logs import (
    FOLDER,
    NOW_MS,
    abort,
    batch,
    commit,
    open_log,
    run,
    transactional,
)

A, B = 41, 42
TXN_INDEX = f"{FOLDER}/00000000000000000000.txnindex"


async def append(log: PartitionLog, *batches: bytearray) -> None:
    for batch_ in batches:
        await log.append(batch_, now_ms=NOW_MS)


async def two_transactions(log: PartitionLog) -> None:
    """Offsets 0-1 A, 2 plain, 3-4 B, 5 B aborts, 6 plain, 7 A commits."""
    await append(
        log,
        transactional(2, producer=A),
        batch(1),
        transactional(2, producer=B),
        abort(B),
        batch(1),
        commit(A),
    )


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        seen = []
        for batch_ in (
            batch(1),  # 0
            transactional(1, producer=A),  # 1
            transactional(1, producer=B),  # 2
            transactional(1, producer=A, sequence=1),  # 3
            commit(B),  # 4
            commit(A),  # 5
            batch(1),  # 6
        ):
            await log.append(batch_, now_ms=NOW_MS)
            seen.append((log.last_stable_offset, log.high_watermark))
        assert seen == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (6, 6), (7, 7)]

    run(main())


def test_marker_has_no_effect_before_it_is_durable() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await append(log, transactional(2, producer=A))
        ticket = log.append(commit(A), now_ms=NOW_MS)
        later = log.append(batch(1), now_ms=NOW_MS)
        assert (log.last_stable_offset, log.high_watermark, log.end_offset) == (0, 2, 4)
        await ticket
        await later
        assert log.last_stable_offset == 4

    run(main())


def test_a_marker_that_the_disk_lost_leaves_its_transaction_open() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        _, log = open_log(disk)
        await append(log, transactional(2, producer=A))
        disk.fail_next_sync(2)
        with pytest.raises(KafkaStorageError):
            await log.append(abort(A), now_ms=NOW_MS)
        assert (log.last_stable_offset, log.end_offset) == (0, 2)
        assert log.aborted_transactions(0, 2) == ()

    run(main())


@pytest.mark.parametrize("durability", list(Durability))
def test_aborted_transactions_that_overlap_a_range_are_returned(durability: Durability) -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), durability)
        await two_transactions(log)
        aborted = ((B, 3, 5),)
        assert log.last_stable_offset == 8
        assert log.aborted_transactions(0, 8) == aborted
        assert log.aborted_transactions(5, 6) == aborted
        assert log.aborted_transactions(0, 4) == aborted
        assert log.aborted_transactions(0, 3) == ()
        assert log.aborted_transactions(6, 8) == ()

    run(main())


def test_an_abort_is_found_from_the_segments_before_its_marker() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), segment_bytes=100)
        for number in range(5):
            await append(log, transactional(1, producer=A, sequence=number))
        await append(log, batch(1), abort(A), batch(1))
        assert log.aborted_transactions(0, 1) == ((A, 0, 6),)
        assert log.aborted_transactions(3, 4) == ((A, 0, 6),)
        assert log.aborted_transactions(7, 8) == ()

    run(main())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [100, 1 << 30])
@pytest.mark.parametrize("checkpoint_after", [0, 1, 3, 4, 6])
def test_transactions_are_the_same_after_a_crash(
    clean: bool, segment_bytes: int, checkpoint_after: int
) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=segment_bytes)
        batches = [
            transactional(2, producer=A),  # 0
            transactional(2, producer=B),  # 2
            abort(B),  # 4
            transactional(1, producer=B, sequence=2),  # 5
            batch(1),  # 6
            abort(A, coordinator_epoch=3),  # 7
            batch(1),  # 8
        ]
        for number, written in enumerate(batches):
            await append(log, written)
            if number == checkpoint_after:
                await directory.checkpoint()
        if clean:
            await directory.close()
        else:
            directory.abandon()
        disk.cut_power()
        _, log = open_log(disk, segment_bytes=segment_bytes)
        assert (log.last_stable_offset, log.high_watermark) == (5, 9)
        assert log.aborted_transactions(0, 5) == ((B, 2, 4), (A, 0, 7))
        with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 3"):
            log.append(commit(A, coordinator_epoch=2), now_ms=NOW_MS)
        await append(log, abort(B))
        assert log.last_stable_offset == 10
        assert log.aborted_transactions(5, 10) == ((A, 0, 7), (B, 5, 9))

    run(main())


def test_aborted_transaction_survives_power_loss_during_a_checkpoint() -> None:
    """Found by the simulation: a snapshot without its recovery point hid it."""

    async def main() -> None:
        cut_after = 0
        while True:
            disk = PowerLossDisk(cut_after)
            directory, log = open_log(disk)
            await append(log, transactional(2, producer=A))
            await directory.checkpoint()
            await append(log, abort(A), batch(1))
            disk.cut_power_after(cut_after)
            with contextlib.suppress(OSError):
                await directory.checkpoint()
            is_whole = disk.has_power
            directory.abandon()
            disk.cut_power()
            _, log = open_log(disk)
            assert log.last_stable_offset == 4
            assert log.aborted_transactions(0, 3) == ((A, 0, 2),)
            if is_whole:
                return
            cut_after += 1

    run(main())


class FullDisk(PowerLossDisk):
    """A disk that may have no room for the last file of a checkpoint, the recovery points."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_full = False
        self.refused_count = 0

    def open(self, path: str, *, create: bool = False) -> int:
        if self.is_full and path.endswith(f"{RECOVERY_POINTS_FILE}.tmp"):
            self.refused_count += 1
            raise OSError(errno.ENOSPC, "no room for", path)
        return super().open(path, create=create)


def test_open_transaction_survives_failed_checkpoints() -> None:
    """Each leaves a snapshot that recovery must not trust; the one to trust stays beside them."""

    async def main() -> None:
        disk = FullDisk()
        directory, log = open_log(disk)
        await append(log, transactional(2, producer=A))
        await directory.checkpoint()
        disk.is_full = True
        for _ in range(3):
            await append(log, batch(1))
            await directory.checkpoint()
        assert disk.refused_count == 3
        directory.abandon()
        disk.cut_power()
        _, log = open_log(disk)
        assert (log.last_stable_offset, log.end_offset) == (0, 5)

    run(main())


def test_a_torn_marker_leaves_its_transaction_open() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await append(log, transactional(2, producer=A))
        size = log.size
        await append(log, abort(A))
        directory.abandon()
        disk.cut_power()
        disk.truncate(disk.open(f"{FOLDER}/00000000000000000000.log"), size + 30)
        _, log = open_log(disk)
        assert (log.end_offset, log.last_stable_offset) == (2, 0)
        assert log.aborted_transactions(0, 2) == ()

    run(main())


def test_the_start_of_the_log_is_decided_even_within_a_transaction() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await append(log, transactional(4, producer=A), batch(2))
        await log.delete_before(3)
        assert (log.start_offset, log.last_stable_offset) == (3, 3)

    run(main())


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await append(log, abort(A), batch(1))
        assert log.last_stable_offset == 2
        assert log.aborted_transactions(0, 2) == ()

    run(main())


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await append(log, transactional(1, producer=A, epoch=2))
        with pytest.raises(InvalidProducerEpoch, match="has epoch 2 here, the marker has 1"):
            log.append(commit(A, epoch=1), now_ms=NOW_MS)
        assert log.end_offset == 1

    run(main())


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        await append(log, transactional(1, producer=A))
        plain = batch(1, producer_id=A, producer_epoch=0, base_sequence=1)
        with pytest.raises(InvalidTransactionState, match="open since offset 0"):
            log.append(plain, now_ms=NOW_MS)
        assert log.end_offset == 1

    run(main())


def test_log_without_aborted_transactions_has_no_transaction_index() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        await append(log, batch(1), transactional(1, producer=A), commit(A))
        await directory.checkpoint()
        assert not disk.exists(TXN_INDEX)
        await append(log, transactional(1, producer=A, sequence=1), abort(A))
        await directory.checkpoint()
        assert disk.size(disk.open(TXN_INDEX)) == 34

    run(main())


@pytest.mark.parametrize("damage", ["cut", "zeros", "a byte for a file that was removed"])
def test_damaged_transaction_index_is_rebuilt(damage: str) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=250)
        for number in range(4):
            await append(log, transactional(2, producer=A, sequence=2 * number), abort(A))
        before = log.aborted_transactions(0, 12)
        assert before == tuple((A, 3 * n, 3 * n + 2) for n in range(4))
        await directory.close()
        fd = disk.open(TXN_INDEX)
        if damage == "cut":
            disk.truncate(fd, 30)
        elif damage == "zeros":
            disk.write(fd, bytes(34), 0)
        else:
            disk.truncate(fd, 0)
            disk.write(fd, b"x", 0)
        disk.sync(fd)
        _, log = open_log(disk, segment_bytes=250)
        assert log.aborted_transactions(0, 12) == before

    run(main())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("operation", range(1, 20))
def test_rebuilt_transaction_index_survives_power_loss(operation: int, seed: int) -> None:
    """Found by the simulation: the old index was durably cut before the new one was durable."""

    async def main() -> None:
        disk = PowerLossDisk(seed)
        directory, log = open_log(disk)
        await two_transactions(log)
        await append(log, transactional(2, producer=A, sequence=2), abort(A))
        before = log.aborted_transactions(0, 11)
        assert before == ((B, 3, 5), (A, 8, 10))
        await directory.checkpoint()
        directory.abandon()
        fd = disk.open(TXN_INDEX)
        disk.write(fd, bytes(20), 2 * 34)  # An end that was torn.
        disk.sync(fd)
        disk.cut_power_after(operation)
        with contextlib.suppress(KafkaStorageError, OSError):
            directory, log = open_log(disk)
            assert log.aborted_transactions(0, 11) == before
            await append(log, batch(1))
            directory.abandon()
        disk.cut_power()
        _, log = open_log(disk)
        assert log.aborted_transactions(0, 11) == before

    run(main())


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_transaction_index_entries_of_lost_batches_are_ignored(is_checkpointed: bool) -> None:
    """The index of a segment survived, but its log did not."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=250)
        large = batch(2, size=100)  # A segment of its own.
        await append(log, large)
        await directory.checkpoint()
        await append(log, large, transactional(2, producer=A), abort(A), large)
        directory.abandon()
        name = f"{FOLDER}/00000000000000000004"
        assert disk.size(disk.open(f"{name}.txnindex")) == 34
        disk.truncate(disk.open(f"{name}.log"), 0)
        directory, log = open_log(disk, segment_bytes=250)
        assert log.end_offset == 4
        await append(log, transactional(2, producer=A), commit(A), large)
        if is_checkpointed:
            await directory.checkpoint()
        directory.abandon()
        disk.cut_power()
        _, log = open_log(disk, segment_bytes=250)
        assert (log.last_stable_offset, log.end_offset) == (9, 9)
        assert log.aborted_transactions(0, 9) == ()

    run(main())


def test_recovered_transactions_of_closed_segments_are_written_to_the_index() -> None:
    """Found by the model: they were in memory only, and lost at the next start."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=250)
        for number in range(4):
            await append(log, transactional(2, producer=A, sequence=2 * number), abort(A))
        before = log.aborted_transactions(0, 12)
        for is_first in (True, False):
            directory.abandon()
            disk.cut_power()
            for name in disk.names(FOLDER) if is_first else ():
                if name.endswith(".txnindex"):
                    disk.remove(f"{FOLDER}/{name}")
            directory, log = open_log(disk, segment_bytes=250)
            await directory.checkpoint()
            assert log.aborted_transactions(0, 12) == before

    run(main())


IMPOSSIBLE = {
    "a stable offset behind the marker": (1, 4, 9),
    "a stable offset that goes back": (2, 4, 2),
    "a negative stable offset": (0, 4, -1),
    "a negative first offset": (0, 2, -5),
    "a first offset behind the marker": (1, 2, 6),
    "a marker below the segment": (0, 3, -1),
    "a marker that no index can name": (2, 3, 2**40),
    "a marker before the one before": (1, 3, 1),
    "another version": (0, 0, 1),
}
"""Number of the entry, field, value."""


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_impossible_entries_of_the_transaction_index_are_made_anew(why: str) -> None:
    """A stable offset that is too high would give readers the records of aborted transactions."""
    number, field, value = IMPOSSIBLE[why]
    layout = struct.Struct(">hqqqq")
    ranges = list(combinations(range(10), 2))

    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk)
        for count in range(3):
            await append(log, transactional(2, producer=A, sequence=2 * count), abort(A))
        log.roll()
        await append(log, batch(1))
        await directory.close()
        before = [log.aborted_transactions(*offsets) for offsets in ranges]
        fd = disk.open(TXN_INDEX)
        assert disk.size(fd) == 3 * layout.size
        entry = list(layout.unpack(disk.read(fd, layout.size, number * layout.size)))
        entry[field] = value
        disk.write(fd, layout.pack(*entry), number * layout.size)
        _, log = open_log(disk)
        assert [log.aborted_transactions(*offsets) for offsets in ranges] == before

    run(main())


def test_compaction_drops_aborted_records_before_it_reaches_their_marker() -> None:
    """Found by the model: aborted records replaced older ones until the marker was reached."""

    async def main() -> None:
        directory, log = open_log(PowerLossDisk(1))
        await append(log, keyed_batch(b"a", b"kept"), transactional_batch(b"a", b"aborted"))
        log.roll()
        await append(log, abort(A), batch(1))
        await directory.checkpoint()
        found = log.compactable(now_ms=NOW_MS, lag_ms=0)
        await directory.compact(log, found, CompactionLimits(1 << 20, 1000, 1 << 20))
        values = [record.value for record in decode_records(log.read(0, bytes_max=1 << 20))]
        assert values == [b"kept"]

    run(main())


def keyed_batch(key: bytes, value: bytes) -> bytearray:
    return encode_batch([SimpleRecord(key, value, NOW_MS)])


def transactional_batch(key: bytes, value: bytes) -> bytearray:
    return encode_batch(
        [SimpleRecord(key, value, NOW_MS)],
        producer_id=A,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
