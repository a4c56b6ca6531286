"""What the driver keeps is what a fetch would bring; where it is not kept, a fetch brings it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest

from sharegroup.client.share.ranges.held_ranges import whole_batches
from sharegroup.client.share.session.acquired_records import AcquiredBatches, AcquiredRecords
from sharegroup.client.share.session.share_session import FetchedPartition
from sharegroup.errors import InvalidConfig
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark import executor_fetch, executor_read
from sharegroup.spark.kept_records import UNREAD_BATCHES_MAX, Keeper, opened
from sharegroup.spark.options import stream_options
from sharegroup.spark.plan import PartitionRuns, RunsPartition, plan
from sharegroup.wire.batches.batches import stamp
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

ORDERS = TopicId(UUID(int=2))
FIRST, SECOND = TopicIdPartition(ORDERS, 0), TopicIdPartition(ORDERS, 1)
NAMES = {ORDERS: TopicName("orders")}
MIB = 1024 * 1024
# Nobody listens there, so what is read was kept.
OPTIONS = stream_options(
    {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": "100",
        "subscribe": "orders",
        "share.group": "any",
    }
)


@contextmanager
def keeping(**limits: int) -> Iterator[Keeper]:
    keeper = Keeper(MIB, **limits)
    yield keeper
    keeper.close()
    executor_fetch.close()


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    with keeping() as keeper:
        yield keeper


@pytest.fixture
def slicing_keeper() -> Iterator[Keeper]:
    """A keeper that puts each batch into a slice of its own."""
    with keeping(slice_bytes=1) as keeper:
        yield keeper


def batch(first: int, end: int) -> bytes:
    """A log batch with one record for each offset, which is its value."""
    records = [SimpleRecord(None, b"%d" % offset, 0) for offset in range(first, end)]
    encoded = encode_batch(records)
    stamp(encoded, base_offset=first, leader_epoch=0)
    return bytes(encoded)


def answer(
    *batches: bytes, acquired: Sequence[tuple[int, int]], key: TopicIdPartition = FIRST
) -> AcquiredBatches:
    ranges = tuple(AcquiredRecords.of_range(first, end, 1) for first, end in acquired)
    kept, _ = whole_batches(FetchedPartition(key, memoryview(b"".join(batches)), ranges, None))
    return kept


def parts_of(keeper: Keeper, *runs: tuple[int, int], key: TopicIdPartition = FIRST):
    """The plan of one task for these runs of the batch that runs."""
    (task,) = plan(
        {key: tuple(AcquiredRecords.of_range(*run, 1) for run in runs)}, NAMES, keeper=keeper
    )
    return task.parts


def read(*parts: PartitionRuns) -> list[int]:
    """The offsets that come without a broker; each has its own value."""
    batches: list[pa.RecordBatch] = list(executor_read.read(OPTIONS, RunsPartition(parts)))
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert [int(row["value"]) for row in rows] == [row["offset"] for row in rows]
    return [row["offset"] for row in rows]


def kept_runs(parts: Sequence[PartitionRuns]) -> list[tuple[bool, list[tuple[int, int]]]]:
    return [
        (part.kept is not None, [(run.first_offset, run.end_offset) for run in part.runs])
        for part in parts
    ]


def test_kept_records_are_read_without_a_broker(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 5), batch(5, 8), acquired=[(0, 8)]))
    keeper.keep(answer(batch(8, 10), acquired=[(8, 10)]))
    keeper.publish()
    assert read(*parts_of(keeper, (0, 10))) == list(range(10))


def test_only_the_runs_are_read(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 9), acquired=[(1, 3), (5, 9)]))
    keeper.publish()
    assert read(*parts_of(keeper, (1, 3), (5, 8))) == [1, 2, 5, 6, 7]


def test_records_of_partitions_are_kept_separately(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 2), acquired=[(0, 2)]))
    keeper.keep(answer(batch(70, 72), acquired=[(70, 72)], key=SECOND))
    keeper.keep(answer(batch(2, 4), acquired=[(2, 4)]))
    keeper.publish()
    assert read(*parts_of(keeper, (0, 4))) == [0, 1, 2, 3]
    assert read(*parts_of(keeper, (70, 72), key=SECOND)) == [70, 71]


def test_batch_received_twice_is_read_once(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 6), acquired=[(0, 4)]))
    keeper.keep(answer(batch(0, 6), batch(6, 8), acquired=[(4, 8)]))
    keeper.publish()
    assert read(*parts_of(keeper, (0, 8))) == list(range(8))


def test_records_that_come_while_a_batch_runs_are_kept_for_the_next(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    keeper.keep(answer(batch(3, 6), acquired=[(3, 6)]))
    assert read(*parts_of(keeper, (0, 3))) == [0, 1, 2]
    keeper.release()
    keeper.keep(answer(batch(6, 9), acquired=[(6, 9)]))
    keeper.publish()
    assert read(*parts_of(keeper, (3, 9))) == [3, 4, 5, 6, 7, 8]


def test_task_can_read_its_records_again(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    parts = parts_of(keeper, (0, 3))
    assert read(*parts) == read(*parts) == [0, 1, 2]


def test_slices_are_mapped_from_any_position(slicing_keeper: Keeper) -> None:
    for first in range(0, 3_000, 100):
        slicing_keeper.keep(answer(batch(first, first + 100), acquired=[(first, first + 100)]))
    slicing_keeper.publish()
    (part,) = parts_of(slicing_keeper, (0, 3_000))
    assert part.kept is not None
    assert len(part.kept.slices) == 30
    assert read(part) == list(range(3_000))
    assert read(
        part._replace(
            runs=(AcquiredRecords.of_range(150, 160, 1), AcquiredRecords.of_range(2_999, 3_000, 1))
        )
    ) == [
        *range(150, 160),
        2_999,
    ]


def test_offset_without_a_record_is_not_waited_for(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), batch(5, 7), acquired=[(0, 7)]))
    keeper.publish()
    assert read(*parts_of(keeper, (0, 7))) == [0, 1, 2, 5, 6]


def test_batch_that_was_cut_off_is_fetched(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), batch(3, 6)[:-1], acquired=[(0, 6)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (0, 6))) == [(True, [(0, 3)]), (False, [(3, 6)])]


def test_records_beyond_the_limit_are_fetched() -> None:
    keeper = Keeper(len(batch(0, 3)))
    for first in (0, 3, 6):
        keeper.keep(answer(batch(first, first + 3), acquired=[(first, first + 3)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (0, 9))) == [(True, [(0, 3)]), (False, [(3, 9)])]
    keeper.close()


def test_records_at_and_after_a_step_backwards_are_fetched(keeper: Keeper) -> None:
    keeper.keep(answer(batch(10, 20), acquired=[(10, 12), (18, 20)]))
    keeper.keep(answer(batch(10, 20), acquired=[(14, 16)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (10, 12), (14, 16), (18, 20))) == [
        (True, [(10, 12)]),
        (False, [(14, 16), (18, 20)]),
    ]


def test_without_room_all_records_are_fetched() -> None:
    keeper = Keeper(0)
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (0, 3))) == [(False, [(0, 3)])]


def test_bytes_that_are_no_records_are_left_to_the_executors(keeper: Keeper) -> None:
    keeper.keep(answer(bytes(200), acquired=[(0, 3)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (0, 3))) == [(False, [(0, 3)])]


def test_late_reader_keeps_its_open_records(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    (part,) = parts_of(keeper, (0, 3))
    assert part.kept is not None
    reader = opened(part.kept)
    assert reader is not None
    keeper.release()
    keeper.keep(answer(batch(50, 53), acquired=[(50, 53)]))
    keeper.publish()
    assert [bytes(view) for _, view in reader.between(0, 3)] == [batch(0, 3)]
    reader.close()


def test_another_file_under_the_same_number_is_not_touched(keeper: Keeper, tmp_path) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    (part,) = parts_of(keeper, (0, 3))
    assert part.kept is not None
    with open(tmp_path / "other", "wb+") as other:
        other.write(b"unchanged")
        other.flush()
        elsewhere = part.kept._replace(path=f"/proc/{os.getpid()}/fd/{other.fileno()}")
        assert opened(elsewhere) is None
    assert (tmp_path / "other").read_bytes() == b"unchanged"
    assert opened(part.kept._replace(path="/proc/0/fd/0")) is None


def test_kept_records_that_cannot_be_opened_are_fetched_with_the_rest(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    parts = parts_of(keeper, (0, 5))
    assert kept_runs(parts) == [(True, [(0, 3)]), (False, [(3, 5)])]
    keeper.release()
    _, far = executor_read.near_and_far(parts)
    assert [(part.partition, part.runs) for part in far] == [
        (0, (AcquiredRecords.of_range(0, 3, 1), AcquiredRecords.of_range(3, 5, 1)))
    ]


def test_keeping_ends_after_several_unread_batches(keeper: Keeper) -> None:
    for number in range(UNREAD_BATCHES_MAX):
        keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
        keeper.publish()
        assert parts_of(keeper, (0, 3))[0].kept is not None, number
        keeper.release()
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    assert kept_runs(parts_of(keeper, (0, 3))) == [(False, [(0, 3)])]


def test_keeping_continues_while_records_are_read(keeper: Keeper) -> None:
    for _ in range(2 * UNREAD_BATCHES_MAX):
        keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
        keeper.publish()
        assert read(*parts_of(keeper, (0, 3))) == [0, 1, 2]
        keeper.release()


@contextmanager
def no_file_grows() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_memory_that_cannot_be_had_is_no_error(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)], key=SECOND))
    with no_file_grows():
        keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
        keeper.publish()
        assert not keeper.covered(FIRST)
    assert not keeper.covered(SECOND)
    keeper.release()
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    assert read(*parts_of(keeper, (0, 3))) == [0, 1, 2]


def test_fetch_that_cannot_begin_leaves_no_file_open(keeper: Keeper) -> None:
    """A Python worker runs many tasks, and its descriptors are limited."""
    keeper.keep(answer(batch(0, 5), acquired=[(0, 5)]))
    keeper.publish()
    near = parts_of(keeper, (0, 5))
    far = parts_of(keeper, (5, 9))
    options = replace(OPTIONS, client={"bootstrap_servers": "no port"})
    descriptors = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(InvalidConfig):
            list(executor_read.read(options, RunsPartition([*near, *far])))
    executor_fetch.close()
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)
