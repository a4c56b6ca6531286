"""The offsets of which a task has no rows, because the log was compacted since the acquisition."""

from __future__ import annotations

import pytest

from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import Range
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.executor_read import _Rows
from sharegroup.spark.plan import PartitionRuns
from tests.unit.spark.test_kept_records import OPTIONS, ORDERS, batch


@pytest.mark.parametrize(
    ("first", "is_listed", "gone"),
    [
        (0, True, ((4, 7), (9, 12))),
        (5, True, ((5, 7), (9, 12))),
        (0, False, None),
    ],
)
def test_holes_are_reported_if_batches_were_listed(
    first: int, is_listed: bool, gone: tuple[Range, ...] | None
) -> None:
    """The log has 0 to 3, 7 to 8 and 12 to 13; requested are 0 to 12, without 3."""
    told = []
    runs = (AcquiredRecords.of_range(0, 3, 1), AcquiredRecords.of_range(4, 13, 1))
    part = PartitionRuns("orders", ORDERS, 0, runs, is_listed=is_listed)
    batches = [batch(0, 4), batch(7, 9), batch(12, 14)]
    positions = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    rows = _Rows(part, OPTIONS, lambda *call: told.append(call))
    tables = [*rows.of(b"".join(batches), first, positions=positions)]
    offsets = [row["offset"] for table in tables for row in table.to_pylist()]
    assert offsets == [offset for offset in (0, 1, 2, 7, 8, 12) if offset >= first]
    expected = [] if gone is None else [(part, AcknowledgeType.GAP, gone)]
    assert [(told_part, kind, found.ranges) for told_part, kind, found in told] == expected


def test_nothing_is_reported_of_batches_without_holes() -> None:
    told: list[object] = []
    part = PartitionRuns("orders", ORDERS, 0, (AcquiredRecords.of_range(1, 6, 1),), is_listed=True)
    batches = [batch(0, 4), batch(4, 9)]
    rows = _Rows(part, OPTIONS, lambda *call: told.append(call))
    [*_] = rows.of(b"".join(batches), 1, positions=[0, len(batches[0])])
    assert not told
