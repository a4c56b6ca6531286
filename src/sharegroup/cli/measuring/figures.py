"""Measured figures, and their lines in the format of Kafka's perf tools.

Scripts parse these lines by position, so the format is exactly Kafka's. Figures that Kafka does
not have (redelivered records, percentiles of a consumer) follow at the end, or in ``--json``.
As in Kafka, MB is 1,048,576 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sharegroup.cli.measuring.date_format import DATE_FORMAT_DEFAULT, clock

MIB = 1024 * 1024
CONSUMER_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
    "fetch.time.ms, redelivered.nMsg, latency.p50.ms, latency.p99.ms"
)
"""The header line of a consumer: Kafka's columns, then ours."""


class Latencies:
    """Counts of durations in whole milliseconds, with one entry for each distinct duration."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, ms: int) -> None:
        """Count one duration, in milliseconds."""
        self._counts[ms] += 1

    def update(self, other: Latencies) -> None:
        """Add the counts of another object."""
        self._counts.update(other._counts)

    def percentile(self, part: float) -> int:
        """Return the smallest duration such that more than ``part`` of all are at or below it.

        Returns 0 if there are no durations.
        """
        rank, passed = int(part * len(self)), 0
        for ms in sorted(self._counts):
            passed += self._counts[ms]
            if passed > rank:
                return ms
        return max(self._counts, default=0)

    @property
    def average(self) -> float:
        """The average duration in milliseconds; 0.0 if there are no durations."""
        total = sum(ms * count for ms, count in self._counts.items())
        return total / len(self) if self._counts else 0.0

    @property
    def longest(self) -> int:
        """The longest duration in milliseconds; 0 if there are no durations."""
        return max(self._counts, default=0)


@dataclass(slots=True)
class Flow:
    """Counts and latencies of the records of one client, or of several together."""

    records: int = 0
    bytes: int = 0
    redelivered: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, other: Flow) -> None:
        """Add the counts and latencies of another client."""
        self.records += other.records
        self.bytes += other.bytes
        self.redelivered += other.redelivered
        self.latencies.update(other.latencies)


def produced_line(flow: Flow, elapsed_ms: int, *, steady: bool = False) -> str:
    """Return the producer's last line, about the whole run or its steady state."""
    seconds, latencies = _seconds(elapsed_ms), flow.latencies
    p50, p95, p99, p999 = (latencies.percentile(part) for part in (0.5, 0.95, 0.99, 0.999))
    kind = " steady state" if steady else ""
    return (
        f"{flow.records}{kind} records sent, {flow.records / seconds:f} records/sec "
        f"({flow.bytes / seconds / MIB:.2f} MB/sec), {latencies.average:.2f} ms avg latency, "
        f"{latencies.longest:.2f} ms max latency, {p50} ms 50th, {p95} ms 95th, {p99} ms 99th, "
        f"{p999} ms 99.9th."
    )


def producing_line(flow: Flow, elapsed_ms: int) -> str:
    """Return the producer's line about one reporting interval."""
    seconds = _seconds(elapsed_ms)
    return (
        f"{flow.records} records sent, {flow.records / seconds:.1f} records/sec "
        f"({flow.bytes / seconds / MIB:.2f} MB/sec), {flow.latencies.average:.1f} ms avg latency, "
        f"{flow.latencies.longest:.1f} ms max latency."
    )


def consumed_columns(
    flow: Flow, start_ms: int, end_ms: int, date_format: str = DATE_FORMAT_DEFAULT
) -> str:
    """Return Kafka's columns for a consumer or a group."""
    seconds = _seconds(end_ms - start_ms)
    return (
        f"{clock(start_ms, date_format)}, {clock(end_ms, date_format)}, {flow.bytes / MIB:.4f}, "
        f"{flow.bytes / MIB / seconds:.4f}, {flow.records / seconds:.4f}, {flow.records}, "
        f"{end_ms - start_ms}"
    )


def consumed_line(
    flow: Flow, start_ms: int, end_ms: int, date_format: str = DATE_FORMAT_DEFAULT
) -> str:
    """Return the last line of a consumer's run, with the columns of `CONSUMER_HEADER`."""
    latencies = flow.latencies
    return (
        f"{consumed_columns(flow, start_ms, end_ms, date_format)}, {flow.redelivered}, "
        f"{latencies.percentile(0.5)}, {latencies.percentile(0.99)}"
    )


def consuming_line(
    total: Flow,
    recent: Flow,
    start_ms: int,
    end_ms: int,
    index: int,
    date_format: str = DATE_FORMAT_DEFAULT,
) -> str:
    """Return a consumer's line about one reporting interval."""
    seconds = _seconds(end_ms - start_ms)
    return (
        f"{clock(start_ms, date_format)}, {clock(end_ms, date_format)}, {total.bytes / MIB:.4f}, "
        f"{recent.bytes / MIB / seconds:.4f}, {recent.records / seconds:.4f}, {total.records}, "
        f"{end_ms - start_ms} for share consumer {index}"
    )


def as_json(flow: Flow, elapsed_ms: int) -> dict[str, Any]:
    """Return the figures of a flow as a JSON document; latencies are in ms."""
    seconds, latencies = _seconds(elapsed_ms), flow.latencies
    return {
        "records": flow.records,
        "bytes": flow.bytes,
        "elapsed_ms": elapsed_ms,
        "records_per_second": round(flow.records / seconds, 1),
        "mib_per_second": round(flow.bytes / MIB / seconds, 3),
        "latency_ms": {
            "average": round(latencies.average, 2),
            "p50": latencies.percentile(0.5),
            "p95": latencies.percentile(0.95),
            "p99": latencies.percentile(0.99),
            "p99.9": latencies.percentile(0.999),
            "max": latencies.longest,
        },
    }


def metric_lines(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a client's metrics as aligned lines, in the format of Kafka's tools."""
    values_by_name = {
        f"{group}:{name}": value
        for group, values in metrics.items()
        for name, value in values.items()
    }
    width = max(map(len, values_by_name), default=0)
    return [f"{name:{width}} : {value:.3f}" for name, value in sorted(values_by_name.items())]


def _seconds(elapsed_ms: int) -> float:
    return max(elapsed_ms, 1) / 1000
