"""A worker's metrics, read by prometheus's own parser."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sharegroup.worker.telemetry.lag import GroupBacklog
from sharegroup.worker.telemetry.prometheus import FAMILIES, WorkerCollector
from sharegroup.worker.telemetry.state import (
    SECONDS_BOUNDS,
    AskFigures,
    HandlerCounts,
    Histogram,
    Phase,
    WorkerGroupState,
    WorkerState,
)
from tests.support.scraping import Scrape


class Standing:
    """A worker that has seen something of everything."""

    def __init__(self) -> None:
        counts = HandlerCounts("billing", "bill")
        counts.running = 3
        counts.succeeded, counts.rejected, counts.released = 100, 2, 4
        counts.failed_with("builtins.TimeoutError")
        counts.failed_with("builtins.TimeoutError")
        counts.failed_with("shop.Refused")
        counts.held, counts.postponed, counts.dead_lettered = 5, 6, 7
        counts.filtered, counts.expired = 17, 18
        counts.circuit, counts.opened, counts.parked = "half_open", 19, 20
        counts.unreadable, counts.timed_out, counts.lock_lost = 8, 9, 10
        counts.unwritten = {"result": 17, "reply": 18}
        counts.handling.observe(0.002)
        counts.handling.observe(0.25)
        counts.queued.observe(3600.0)
        self.counts = (counts,)
        self.state = WorkerState(
            Phase.QUIET,
            (WorkerGroupState("billing", "m1", True, 11, 3, 12, 1300, 14),),
            asks=AskFigures(waiting=19, unawaited=20),
        )


def scraped(worker: Standing | None, waiting: GroupBacklog | None = None) -> Scrape:
    registry = CollectorRegistry()
    registry.register(WorkerCollector(lambda: worker, lambda: waiting))
    return Scrape(generate_latest(registry).decode())


def test_all_metrics_have_values() -> None:
    waiting = GroupBacklog(None, None, ())  # type: ignore[arg-type]  # Nobody asks.
    waiting.lag = {("billing", "orders"): 15}
    waiting.in_tiers = {"billing": 16}
    of = scraped(Standing(), waiting)
    ours = {"group": "billing", "handler": "bill"}
    assert of("sharegroup_worker_in_flight", **ours) == 3
    assert of.all("sharegroup_worker_handled_total") == {
        ("billing", "bill", "succeeded"): 100,
        ("billing", "bill", "failed"): 3,
        ("billing", "bill", "rejected"): 2,
        ("billing", "bill", "released"): 4,
    }
    assert of("sharegroup_worker_failed_total", **ours, error="builtins.TimeoutError") == 2
    assert of("sharegroup_worker_failed_total", **ours, error="shop.Refused") == 1
    assert of("sharegroup_worker_retries_total", **ours, how="held") == 5
    assert of("sharegroup_worker_retries_total", **ours, how="postponed") == 6
    assert of("sharegroup_worker_dead_lettered_total", **ours) == 7
    assert of("sharegroup_worker_unreadable_total", **ours) == 8
    assert of("sharegroup_worker_skipped_total", **ours, why="filtered") == 17
    assert of("sharegroup_worker_skipped_total", **ours, why="expired") == 18
    assert of("sharegroup_worker_breaker_open", **ours) == 0.5
    assert of("sharegroup_worker_breaker_opened_total", **ours) == 19
    assert of("sharegroup_worker_parked_total", **ours) == 20
    assert of("sharegroup_worker_timed_out_total", **ours) == 9
    assert of("sharegroup_worker_locks_lost_total", **ours) == 10
    assert of("sharegroup_worker_unwritten_total", **ours, what="result") == 17
    assert of("sharegroup_worker_unwritten_total", **ours, what="reply") == 18
    assert of("sharegroup_worker_asks_waiting") == 19
    assert of("sharegroup_worker_replies_unawaited_total") == 20
    assert of("sharegroup_worker_waiting", group="billing") == 11
    assert of("sharegroup_worker_retries_waiting", group="billing", where="held") == 12
    assert of("sharegroup_worker_retries_waiting", group="billing", where="tiers") == 16
    assert of("sharegroup_worker_held_bytes", group="billing") == 1300
    assert of("sharegroup_worker_writes_blocked", group="billing") == 14
    assert of("sharegroup_worker_joined", group="billing") == 1
    assert of("sharegroup_worker_lag", group="billing", topic="orders") == 15
    assert of("sharegroup_worker_phase", phase="quiet") == 1
    assert of("sharegroup_worker_phase", phase="running") == 0
    assert of("sharegroup_worker_handling_seconds_bucket", **ours, le="0.001") == 0
    assert of("sharegroup_worker_handling_seconds_bucket", **ours, le="0.0025") == 1
    assert of("sharegroup_worker_handling_seconds_bucket", **ours, le="0.1") == 1
    assert of("sharegroup_worker_handling_seconds_bucket", **ours, le="0.25") == 2
    assert of("sharegroup_worker_handling_seconds_bucket", **ours, le="+Inf") == 2
    assert of("sharegroup_worker_handling_seconds_sum", **ours) == 0.252
    assert of("sharegroup_worker_queue_seconds_bucket", **ours, le="1800.0") == 0
    assert of("sharegroup_worker_queue_seconds_count", **ours) == 1


def test_exported_metrics_agree_with_the_documented_table() -> None:
    families = scraped(Standing()).families
    assert [*families] == [family.name.removesuffix("_total") for family in FAMILIES]
    assert [family.type for family in families.values()] == [family.kind for family in FAMILIES]


def test_metrics_without_a_worker_have_no_values() -> None:
    assert all(not family.samples for family in scraped(None).families.values())


def test_unknown_values_are_absent() -> None:
    of = scraped(Standing())
    assert of.all("sharegroup_worker_lag") == {}
    with pytest.raises(KeyError):
        of("sharegroup_worker_retries_waiting", group="billing", where="tiers")


def test_histogram_bounds_are_inclusive() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.0001, 0.00011, 1800.0, 1800.1):
        histogram.observe(seconds)
    last = len(SECONDS_BOUNDS)
    assert {n: count for n, count in enumerate(histogram.counts) if count} == {
        0: 2,
        1: 1,
        last - 1: 1,
        last: 1,
    }
