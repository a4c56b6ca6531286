"""Bad-record isolation for every permitted number of deliveries, in log batches of 64 records.

Half of the deliveries are of the whole batch, then ever smaller portions go out, and the last
delivery of a record is of that record alone (KIP-932; the sizes are Kafka's, fact by fact).
"""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.delivery import (
    AckBatch,
    Acquired,
    AcquireRequest,
    LogBatches,
    RecordState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcquireMode

A = MemberId("a")
RECORDS = 64
PORTIONS = {
    2: [64, 64],
    3: [64, 64, 1],
    4: [64, 64, 32, 1],
    5: [64, 64, 64, 32, 1],
    6: [64, 64, 64, 32, 16, 1],
    7: [64, 64, 64, 64, 32, 16, 1],
    8: [64, 64, 64, 64, 32, 16, 8, 1],
    9: [64, 64, 64, 64, 64, 32, 16, 8, 1],
    10: [64, 64, 64, 64, 64, 32, 16, 8, 4, 1],
}
"""By the limit: how many records come with the first one, at each of its deliveries."""


def acquire(
    partition: SharePartition, limits: SharePartitionLimits, mode: AcquireMode, now_ms: int
) -> tuple[Acquired, ...]:
    wanted = AcquireRequest(500, RECORDS, mode)
    log = LogBatches(partition.next_fetch_offset(), [0, RECORDS], [RECORDS, 2 * RECORDS])
    taken = partition.acquire(A, log, request=wanted, limits=limits, now_ms=now_ms)
    partition.check()
    return taken.ranges


@pytest.mark.parametrize("mode", AcquireMode)
@pytest.mark.parametrize(("limit", "portions"), PORTIONS.items())
def test_portions_halve_from_half_of_the_deliveries_on(
    limit: int, portions: list[int], mode: AcquireMode
) -> None:
    """The lock of each delivery expires; only the size of the deliveries is compared."""
    limits = SharePartitionLimits(lock_ms=100, delivery_count_max=limit, in_flight_max=RECORDS)
    partition = SharePartition(0)
    sizes = []
    for attempt in range(limit):
        ranges = acquire(partition, limits, mode, now_ms=attempt * 100)
        assert {range_.delivery_count for range_ in ranges} == {attempt + 1}
        assert ranges[0].first == 0
        sizes.append(sum(range_.end - range_.first for range_ in ranges))
        partition.expire(limits=limits, now_ms=attempt * 100 + 100)
    assert sizes == portions
    first = next(iter(partition.runs()), None)
    assert first is None or first.first > 0, "the first record is settled now"


@pytest.mark.parametrize("limit", range(2, 11))
def test_every_record_is_delivered_as_often_as_permitted_and_then_archived(limit: int) -> None:
    """No record is ever settled: each of 64 is delivered exactly ``limit`` times."""
    limits = SharePartitionLimits(lock_ms=100, delivery_count_max=limit, in_flight_max=RECORDS)
    partition = SharePartition(0)
    deliveries = dict.fromkeys(range(RECORDS), 0)
    now_ms = 0
    while partition.start_offset < RECORDS:
        for first, end, count in acquire(partition, limits, AcquireMode.BATCH_OPTIMIZED, now_ms):
            for offset in range(first, min(end, RECORDS)):
                deliveries[offset] += 1
                assert count == deliveries[offset]
        now_ms += 100
        partition.expire(limits=limits, now_ms=now_ms)
    assert set(deliveries.values()) == {limit}


@pytest.mark.parametrize("limit", range(3, 11))
def test_bad_record_does_not_archive_good_records(limit: int) -> None:
    """A delivery with offset 40 fails completely; all records of other deliveries are accepted."""
    limits = SharePartitionLimits(lock_ms=100, delivery_count_max=limit, in_flight_max=RECORDS)
    partition = SharePartition(0)
    accepted: set[int] = set()
    for now_ms in range(0, 100_000, 100):
        ranges = acquire(partition, limits, AcquireMode.BATCH_OPTIMIZED, now_ms)
        offsets = {offset for range_ in ranges for offset in range(range_.first, range_.end)}
        if 40 not in offsets:
            acks = [AckBatch(range_.first, range_.end, (1,)) for range_ in ranges]
            partition.acknowledge(A, acks, limits=limits, now_ms=now_ms)
            accepted |= offsets
        partition.expire(limits=limits, now_ms=now_ms + 100)
        if partition.start_offset >= RECORDS:
            break
    assert accepted >= set(range(RECORDS)) - {40}
    assert all(run.value.state is not RecordState.ACQUIRED for run in partition.runs())
