"""A worker's metrics for Prometheus (extra ``worker``).

    REGISTRY.register(WorkerCollector(lambda: worker))

Values are read only when they are scraped.  `FAMILIES` has all metrics with their types, labels and
meanings; ``docs/metrics.md`` is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Literal, NamedTuple

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install
from sharegroup.worker.telemetry.lag import GroupBacklog
from sharegroup.worker.telemetry.state import (
    SECONDS_BOUNDS,
    HandlerCounts,
    Histogram,
    Observed,
    Phase,
)

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra(
        f"a worker's metrics need prometheus-client: {pip_install('worker')}"
    ) from error


class MetricFamily(NamedTuple):
    """A metric family: name, type, unit, description and labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    text: str
    labels: tuple[str, ...]


_GROUP = ("group",)
_HANDLER = ("group", "handler")

IN_FLIGHT = MetricFamily(
    "sharegroup_worker_in_flight", "gauge", "records",
    "Records that are being processed by a handler.", _HANDLER,
)  # fmt: skip
HANDLED = MetricFamily(
    "sharegroup_worker_handled_total", "counter", "records",
    "Handler runs that ended, by outcome: `succeeded`, `failed`, `rejected`, `released`.",
    (*_HANDLER, "outcome"),
)  # fmt: skip
FAILED = MetricFamily(
    "sharegroup_worker_failed_total", "counter", "records",
    "Handler runs that failed, by the class of the exception.", (*_HANDLER, "error"),
)  # fmt: skip
HANDLING = MetricFamily(
    "sharegroup_worker_handling_seconds", "histogram", "seconds",
    "Duration of a handler run.", _HANDLER,
)  # fmt: skip
QUEUED = MetricFamily(
    "sharegroup_worker_queue_seconds", "histogram", "seconds",
    "Time from the timestamp of a record to the start of its handler run; for a record from a "
    "retry topic, from its due time.",
    _HANDLER,
)  # fmt: skip
RETRIES = MetricFamily(
    "sharegroup_worker_retries_total", "counter", "records",
    "Retries, by the way they wait: `held` in this process with a renewed lock, or `postponed` to "
    "a retry topic.",
    (*_HANDLER, "how"),
)  # fmt: skip
DEAD_LETTERED = MetricFamily(
    "sharegroup_worker_dead_lettered_total", "counter", "records",
    "Records written to the dead-letter topic.", _HANDLER,
)  # fmt: skip
UNREADABLE = MetricFamily(
    "sharegroup_worker_unreadable_total", "counter", "records",
    "Records whose value could not be decoded for the handler, and offsets of unreadable batches.",
    _HANDLER,
)  # fmt: skip
SKIPPED = MetricFamily(
    "sharegroup_worker_skipped_total", "counter", "records",
    "Records for which the handler was not called: `filtered` by `only`, `expired`.",
    (*_HANDLER, "why"),
)  # fmt: skip
BREAKER = MetricFamily(
    "sharegroup_worker_breaker_open", "gauge", "",
    "1 while the circuit breaker of the handler is open, 0.5 while it tries one record, 0 while it "
    "is closed (only of handlers with `breaker`).",
    _HANDLER,
)  # fmt: skip
BREAKER_OPENED = MetricFamily(
    "sharegroup_worker_breaker_opened_total", "counter", "",
    "How often the circuit breaker of the handler has opened.", _HANDLER,
)  # fmt: skip
PARKED = MetricFamily(
    "sharegroup_worker_parked_total", "counter", "records",
    "Records that were written to a retry topic without a run, because the circuit breaker was "
    "open.",
    _HANDLER,
)  # fmt: skip
RATE_ASSUMED = MetricFamily(
    "sharegroup_worker_rate_assumed", "gauge", "",
    "1 while this process does not know the others that share the rate limit of the handler, and "
    "has one part of `assumed_processes` (only of handlers with a shared limit).",
    _HANDLER,
)  # fmt: skip
CIRCUITS = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
TIMED_OUT = MetricFamily(
    "sharegroup_worker_timed_out_total", "counter", "records",
    "Handler runs that were cancelled because they took longer than `max_handling`.", _HANDLER,
)  # fmt: skip
LOCKS_LOST = MetricFamily(
    "sharegroup_worker_locks_lost_total", "counter", "records",
    "Handler runs that were cancelled because the lock of the record had expired.", _HANDLER,
)  # fmt: skip
WAITING = MetricFamily(
    "sharegroup_worker_waiting", "gauge", "records",
    "Records that were acquired and whose handler has not started.", _GROUP,
)  # fmt: skip
RETRIES_WAITING = MetricFamily(
    "sharegroup_worker_retries_waiting", "gauge", "records",
    "Retries that wait: `held` in this process; in the `tiers` of the whole group, as far as the "
    "scheduler has committed (the same in each process, updated every 15 s).",
    (*_GROUP, "where"),
)  # fmt: skip
HELD_BYTES = MetricFamily(
    "sharegroup_worker_held_bytes", "gauge", "bytes",
    "Bytes of the records that are held for a retry.", _GROUP,
)  # fmt: skip
WRITES_BLOCKED = MetricFamily(
    "sharegroup_worker_writes_blocked", "gauge", "records",
    "Records whose retry or dead letter cannot be written at the moment.", _GROUP,
)  # fmt: skip
UNROUTED = MetricFamily(
    "sharegroup_worker_unrouted_total", "counter", "records",
    "Records of the group's own topic for whose origin this process has no handler, by outcome: "
    "`postponed` for other processes; `dead_lettered`, or `rejected` if the group has no dead "
    "letters, because no process has a handler.",
    (*_GROUP, "outcome"),
)  # fmt: skip
JOINED = MetricFamily(
    "sharegroup_worker_joined", "gauge", "",
    "1 while this process is a member of the share group.", _GROUP,
)  # fmt: skip
LAG = MetricFamily(
    "sharegroup_worker_lag", "gauge", "records",
    "Records of a topic that the group has not settled, including records in flight (the same in "
    "each process, updated every 15 s; absent while the lag is unknown).",
    (*_GROUP, "topic"),
)  # fmt: skip
PHASE = MetricFamily(
    "sharegroup_worker_phase", "gauge", "",
    "1 for the phase of the process: `starting`, `running`, `quiet`, `stopping`, "
    "`stopped`, `failed`.",
    ("phase",),
)  # fmt: skip
UNWRITTEN = MetricFamily(
    "sharegroup_worker_unwritten_total", "counter", "records",
    "Outcomes of records that could not be reported: a `result` that was not written to the store, "
    "or a `reply` that was not sent to the asking process.",
    (*_HANDLER, "what"),
)  # fmt: skip
ASKS = MetricFamily(
    "sharegroup_worker_asks_waiting", "gauge", "",
    "Asks of this process that wait for a reply (absent before its first one).", (),
)  # fmt: skip
UNAWAITED = MetricFamily(
    "sharegroup_worker_replies_unawaited_total", "counter", "records",
    "Replies that were dropped, because no ask of this process waited for them any more.",
    (),
)  # fmt: skip
SCHEDULE_RUNS = MetricFamily(
    "sharegroup_worker_schedule_runs_total", "counter", "records",
    "Runs of a schedule that this process has written.", ("schedule",),
)  # fmt: skip
SCHEDULE_MISSED = MetricFamily(
    "sharegroup_worker_schedule_missed_total", "counter", "",
    "How often this process has passed over runs that were missed, by the policy of the schedule.",
    ("schedule",),
)  # fmt: skip
SCHEDULE_OVERDUE = MetricFamily(
    "sharegroup_worker_schedule_overdue_seconds", "gauge", "seconds",
    "Time since a run of a schedule is due that was not made yet (only in the process that owns "
    "the schedule; mostly 0).",
    ("schedule",),
)  # fmt: skip

FAMILIES = (
    IN_FLIGHT, WAITING, HANDLED, FAILED, HANDLING, QUEUED, RETRIES, RETRIES_WAITING, HELD_BYTES,
    DEAD_LETTERED, WRITES_BLOCKED, UNROUTED, UNREADABLE, SKIPPED, TIMED_OUT, LOCKS_LOST, LAG,
    BREAKER, BREAKER_OPENED, PARKED, RATE_ASSUMED, JOINED, PHASE, UNWRITTEN, ASKS, UNAWAITED,
    SCHEDULE_RUNS, SCHEDULE_MISSED, SCHEDULE_OVERDUE,
)  # fmt: skip
"""All metric families, in the order of ``docs/metrics.md``."""


PROCESSES = MetricFamily(
    "sharegroup_worker_processes", "gauge", "",
    "Processes of a supervisor (`-n`): those `wanted`, and those `ready`.", ("which",),
)  # fmt: skip
REPLACED = MetricFamily(
    "sharegroup_worker_processes_replaced_total", "counter", "",
    "Processes that a supervisor has replaced, by reason: `ended` by an error, `hangs`, `memory`, "
    "`reload`.",
    ("reason",),
)  # fmt: skip

SUPERVISOR_FAMILIES = (PROCESSES, REPLACED)
"""Those of a supervisor, beside the families of its processes with the label ``process``."""


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
        yield WAITING, name, group.waiting
        yield RETRIES_WAITING, (*name, "held"), group.held
        yield HELD_BYTES, name, group.held_bytes
        yield WRITES_BLOCKED, name, group.blocked_writes
        for outcome, count in group.unrouted.items():
            yield UNROUTED, (*name, outcome), count
        yield JOINED, name, float(group.joined)
    for phase in Phase:
        yield PHASE, (str(phase),), float(state.phase is phase)
    if state.asks is not None:
        yield ASKS, (), state.asks.waiting
        yield UNAWAITED, (), state.asks.unawaited
    for schedule, runs, missed, overdue_seconds in state.schedules:
        yield SCHEDULE_RUNS, (schedule,), runs
        yield SCHEDULE_MISSED, (schedule,), missed
        if overdue_seconds is not None:
            yield SCHEDULE_OVERDUE, (schedule,), overdue_seconds
    if waiting is not None:
        for (of_group, topic), lag in waiting.lag.items():
            yield LAG, (of_group, topic), lag
        for of_group, count in waiting.in_tiers.items():
            yield RETRIES_WAITING, (of_group, "tiers"), count


def _handler_values(counts: HandlerCounts) -> Iterator[Value]:
    labels = (counts.group, counts.handler)
    yield IN_FLIGHT, labels, counts.running
    for outcome, count in (
        ("succeeded", counts.succeeded),
        ("failed", sum(counts.failed.values())),
        ("rejected", counts.rejected),
        ("released", counts.released),
    ):
        yield HANDLED, (*labels, outcome), count
    for error, count in counts.failed.items():
        yield FAILED, (*labels, error), count
    yield HANDLING, labels, counts.handling
    yield QUEUED, labels, counts.queued
    yield RETRIES, (*labels, "held"), counts.held
    yield RETRIES, (*labels, "postponed"), counts.postponed
    yield DEAD_LETTERED, labels, counts.dead_lettered
    yield UNREADABLE, labels, counts.unreadable
    yield SKIPPED, (*labels, "filtered"), counts.filtered
    yield SKIPPED, (*labels, "expired"), counts.expired
    if counts.circuit is not None:
        yield BREAKER, labels, CIRCUITS[counts.circuit]
        yield BREAKER_OPENED, labels, counts.opened
        yield PARKED, labels, counts.parked
    if counts.rate_is_assumed is not None:
        yield RATE_ASSUMED, labels, float(counts.rate_is_assumed)
    yield TIMED_OUT, labels, counts.timed_out
    yield LOCKS_LOST, labels, counts.lock_lost
    for what, count in counts.unwritten.items():
        yield UNWRITTEN, (*labels, what), count
