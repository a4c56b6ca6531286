from __future__ import annotations

import pytest

from sharegroup.storage.parts import Durability
from sharegroup.testing.power_loss import PowerLossDisk
from tests.unit.storage.logs import NOW_MS, batch, found_at, latest, open_log, run


@pytest.mark.parametrize("reopened", [False, True])
def test_the_first_record_that_is_not_older_is_found_within_its_batch(reopened: bool) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        directory, log = open_log(disk, segment_bytes=4 * len(batch(10)))
        for number in range(12):
            await log.append(batch(10, timestamp=1000 + 10 * number), now_ms=NOW_MS)
        if reopened:
            await directory.close()
            _, log = open_log(disk)
        assert found_at(log, 0) == (1000, 0)
        assert found_at(log, 1000) == (1000, 0)
        assert found_at(log, 1057) == (1057, 57)
        assert found_at(log, 1119) == (1119, 119)
        assert found_at(log, 1120) is None
        assert latest(log) == (1119, 119)

    run(main())


def test_timestamps_need_not_ascend() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        for timestamp in (5000, 1000, 9000, 2000):
            await log.append(batch(1, timestamp=timestamp), now_ms=NOW_MS)
        assert found_at(log, 1500) == (5000, 0)
        assert found_at(log, 6000) == (9000, 2)
        assert latest(log) == (9000, 2)

    run(main())


def test_many_small_batches_are_searched_through_the_time_index() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1), Durability.OS)
        for number in range(5000):
            log.append(batch(1, size=50, timestamp=10_000 + 2 * number), now_ms=NOW_MS)
        assert found_at(log, 10_000 + 2 * 3210 - 1) == (10_000 + 2 * 3210, 3210)

    run(main())


def test_neither_deleted_nor_undurable_records_are_found() -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        assert latest(log) is None
        await log.append(batch(10, timestamp=1000), now_ms=NOW_MS)
        await log.delete_before(4)
        log.append(batch(1, timestamp=2000), now_ms=NOW_MS)
        assert found_at(log, 1000) == (1004, 4)
        assert found_at(log, 1500) is None
        assert latest(log) == (1009, 9)

    run(main())


@pytest.mark.parametrize(("size", "expected"), [(10, 2_057), (100, 2_000)])
def test_start_by_timestamp_is_a_record_or_the_start_of_its_large_batch(
    size: int, expected: int
) -> None:
    async def main() -> None:
        _, log = open_log(PowerLossDisk(1))
        assert log.times.start_not_older(0) is None
        for timestamp in (1_000, 10_000):
            await log.append(batch(2_000, size=size, timestamp=timestamp), now_ms=NOW_MS)
        assert log.times.start_not_older(10_057) == expected
        assert log.times.start_not_older(12_000) is None
        await log.delete_before(2_100)
        assert log.times.start_not_older(10_057) == 2_100

    run(main())
