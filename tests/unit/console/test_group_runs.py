"""What a group page makes of very many runs."""

from __future__ import annotations

import pytest

from sharegroup.client.admin.types import ShareRun
from sharegroup.console.pages.groups import BARS_MAX, RUN_ROWS_MAX, Runs, runs_read
from sharegroup.share_runs.share_runs import ShownSharePartition

RUN_COUNT = 20_000
EVERY_OTHER = ShownSharePartition(
    "orders", 0, 0, RUN_COUNT, RUN_COUNT, RUN_COUNT,
    tuple(
        ShareRun(offset, offset, "acknowledged" if offset % 2 else "acquired", 1, "m", 900)
        for offset in range(RUN_COUNT)
    ),
)  # fmt: skip


def test_page_of_twenty_thousand_runs_is_small() -> None:
    runs = Runs((EVERY_OTHER,), "live", None)
    ((_, bar),) = runs.bars()
    assert len(bar) < 50_000
    assert "10,000 acquired, 10,000 acknowledged" in bar
    rows = runs.rows()
    assert len(rows) == RUN_ROWS_MAX
    assert rows[1] == {
        "partition": "orders 0",
        "first_offset": 1,
        "last_offset": 1,
        "state": "acknowledged",
        "delivery_count": 1,
        "member_id": "m",
        "lock_ms_left": 900,
    }


def test_share_partitions_beyond_a_bound_are_not_drawn() -> None:
    shown = ShownSharePartition("orders", 0, 0, 0, 0, 0, ())
    assert len(Runs((shown,) * (BARS_MAX + 1), "live", None).bars()) == BARS_MAX


@pytest.mark.parametrize(
    ("share_partitions", "runs"), [(0, 20_000), (1, 20_000), (2, 20_000), (4, 10_000), (5_000, 200)]
)
def test_share_partitions_of_a_group_share_the_runs_that_are_read(
    share_partitions: int, runs: int
) -> None:
    assert runs_read(share_partitions) == runs
