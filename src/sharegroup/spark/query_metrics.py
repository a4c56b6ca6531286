"""Metrics of streaming queries for Prometheus (extra ``metrics``)."""

from __future__ import annotations

import threading

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install
from sharegroup.spark.query_figures import QueryFigures

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise MissingExtra(
        f"the metrics of a query need prometheus-client: {pip_install('metrics')}"
    ) from error

LABELS = ("query", "group")
BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of batch times; a lock lasts 30 s by default."""


class QueryMetrics:
    """Metrics with the labels ``query``, its name or id, and ``group``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._labels: dict[str, set[tuple[str, str]]] = {}
        """By run, the labels that it has set."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"sharegroup_spark_{name}", text, LABELS, registry=registry)

        self._lag = gauge("lag", "Records of the share group that are not settled.")
        self._held = gauge("held", "Records that the query has locked.")
        self._carried = gauge("carried", "Records that are processed, but not confirmed.")
        self._idle_seconds = gauge("idle_seconds", "Time without an answer of a broker, or 0.")
        self._gauges = (self._lag, self._held, self._carried, self._idle_seconds)
        self._states = Gauge(
            "sharegroup_spark_unsettled",
            "Records of the share group by state, with the option reportStates.",
            (*LABELS, "state"),
            registry=registry,
        )
        self._state_names: set[str] = set()
        self._records = Counter(
            "sharegroup_spark_records",
            "Records by what happened to them; accepted, released and rejected are outcomes.",
            (*LABELS, "event"),
            registry=registry,
        )
        self._rows = Counter(
            "sharegroup_spark_rows", "Rows of the batches.", ("query",), registry=registry
        )
        self._batch_seconds = Histogram(
            "sharegroup_spark_batch_seconds",
            "Duration of the batches, from the trigger to the commit.",
            ("query",),
            registry=registry,
            buckets=BATCH_SECONDS,
        )

    def publish(self, figures: QueryFigures) -> None:
        """Set the gauges and increase the counters."""
        if not figures.is_idle:
            self._rows.labels(figures.name).inc(figures.rows)
            self._batch_seconds.labels(figures.name).observe(figures.batch_ms / 1000)
        for group in figures.groups:
            labels = (figures.name, group.group)
            with self._lock:
                self._labels.setdefault(figures.run_id, set()).add(labels)
            # An unknown lag keeps the last one: 0 would look like a group that has caught up.
            if group.lag is not None:
                self._lag.labels(*labels).set(group.lag)
            self._held.labels(*labels).set(group.held)
            self._carried.labels(*labels).set(group.carried)
            self._idle_seconds.labels(*labels).set(group.idle_seconds)
            for state, count in group.states.items():
                self._state_names.add(state)
                self._states.labels(*labels, state).set(count)
            for event, added in group.added.items():
                self._records.labels(*labels, _metric_name(event)).inc(added)

    def end(self, query_id: str, run_id: str) -> None:  # noqa: ARG002  Of all publishers.
        """Remove the gauges of a run that has ended; the counters stay."""
        with self._lock:
            ended = self._labels.pop(run_id, set())
            # A query that was started again has the same labels in another run.
            ended -= set().union(*self._labels.values())
        for labels in ended:
            # Otherwise a query that has ended would show its last lag for ever.
            for gauge in self._gauges:
                gauge.remove(*labels)
            for state in self._state_names:
                self._states.remove(*labels, state)


def _metric_name(name: str) -> str:
    return "lost_acknowledgements" if name == "lostAcknowledgements" else name
