"""The time in requests that `tests.bench.group_start` reports."""

from __future__ import annotations

from tests.bench.group_start import Start
from tests.bench.request_relay import Passed

MS = 1_000_000


def test_time_in_requests_counts_overlapping_requests_once_and_nothing_after_the_record() -> None:
    requests = (
        Passed("Metadata", 1 * MS, 3 * MS),
        Passed("FindCoordinator", 2 * MS, 5 * MS),
        Passed("Heartbeat", 2 * MS, 4 * MS),
        Passed("Fetch", 8 * MS, 30 * MS),
    )
    start = Start(0, 10 * MS, requests)
    assert start.total_ms == 10
    assert start.requests_ms == 4 + 2


def test_time_in_requests_begins_with_the_subscription() -> None:
    start = Start(2 * MS, 10 * MS, (Passed("Metadata", 0, 5 * MS),))
    assert start.requests_ms == 3
    assert start.timeline == "Metadata -2.0+5.0"
