"""A worker's metrics for Prometheus (extra ``worker``).

    REGISTRY.register(WorkerCollector(lambda: worker))

Values are read only when they are scraped; `families` describes each metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from sharegroup.errors import MissingExtra
from sharegroup.worker.telemetry import families
from sharegroup.worker.telemetry.families import FAMILIES, MetricFamily
from sharegroup.worker.telemetry.lag import GroupBacklog
from sharegroup.worker.telemetry.state import (
    SECONDS_BOUNDS,
    HandlerCounts,
    Histogram,
    Observed,
    Phase,
)

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra(
        "a worker's metrics need prometheus-client: pip install 'sharegroup[worker]'"
    ) from error

Value = tuple[MetricFamily, tuple[str, ...], float | Histogram]


class WorkerCollector(Collector):
    """Provides a worker's metrics to a Prometheus registry."""

    def __init__(
        self, worker: Callable[[], Observed | None], waiting: Callable[[], GroupBacklog | None]
    ) -> None:
        self._worker = worker
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families, with the current values if a worker runs."""
        metrics = {metric_family.name: _made(metric_family) for metric_family in FAMILIES}
        worker = self._worker()
        for family, labels, value in _values(worker, self._waiting()) if worker else ():
            metric = metrics[family.name]
            if isinstance(value, Histogram):
                assert isinstance(metric, HistogramMetricFamily)
                bounds = [*map(str, SECONDS_BOUNDS), "+Inf"]
                buckets = list(zip(bounds, map(float, accumulate(value.counts)), strict=True))
                metric.add_metric(labels, buckets, value.total)
            else:
                assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
                metric.add_metric(labels, value)
        yield from metrics.values()


def _made(family: MetricFamily) -> Metric:
    kinds: dict[str, type[Metric]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    return kinds[family.kind](family.name, family.text, labels=family.labels)  # type: ignore[call-arg]  # Of the three.


def _values(worker: Observed, waiting: GroupBacklog | None) -> Iterator[Value]:
    for counts in worker.counts:
        yield from _handler_values(counts)
    state = worker.state
    for group in state.groups:
        name = (group.group,)
        yield families.WAITING, name, group.waiting
        yield families.RETRIES_WAITING, (*name, "held"), group.held
        yield families.HELD_BYTES, name, group.held_bytes
        yield families.WRITES_BLOCKED, name, group.blocked_writes
        for outcome, count in group.unrouted.items():
            yield families.UNROUTED, (*name, outcome), count
        yield families.JOINED, name, float(group.joined)
    for phase in Phase:
        yield families.PHASE, (str(phase),), float(state.phase is phase)
    if waiting is not None:
        for (of_group, topic), lag in waiting.lag.items():
            yield families.LAG, (of_group, topic), lag
        for of_group, count in waiting.in_tiers.items():
            yield families.RETRIES_WAITING, (of_group, "tiers"), count


def _handler_values(counts: HandlerCounts) -> Iterator[Value]:
    labels = (counts.group, counts.handler)
    yield families.IN_FLIGHT, labels, counts.running
    for outcome, count in (
        ("succeeded", counts.succeeded),
        ("failed", sum(counts.failed.values())),
        ("rejected", counts.rejected),
        ("released", counts.released),
    ):
        yield families.HANDLED, (*labels, outcome), count
    for error, count in counts.failed.items():
        yield families.FAILED, (*labels, error), count
    yield families.HANDLING, labels, counts.handling
    yield families.QUEUED, labels, counts.queued
    yield families.RETRIES, (*labels, "held"), counts.held
    yield families.RETRIES, (*labels, "postponed"), counts.postponed
    yield families.DEAD_LETTERED, labels, counts.dead_lettered
    yield families.UNREADABLE, labels, counts.unreadable
    yield families.TIMED_OUT, labels, counts.timed_out
    yield families.LOCKS_LOST, labels, counts.lock_lost
