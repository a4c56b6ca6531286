"""The figures of the first half: as a mapping for ``summary.json`` and as rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.flights.accounts import Accounts, End
from examples.flights.checks import Check, Evidence
from examples.flights.table import told
from sharegroup.worker import DeadLetterReason


@dataclass(frozen=True, slots=True)
class Course:
    """The times of the kills, in seconds since the first record, and of the whole run."""

    seconds: float
    """The time from the first record produced to the last one settled."""
    worker_killed_at: float
    worker_held: int
    """The number of records that the killed worker held."""
    broker_killed_at: float
    broker_down_seconds: float
    """The time from ``kill -9`` until the broker accepted connections again."""


def summary(
    accounts: Accounts, evidence: Evidence, course: Course, checked: Sequence[Check]
) -> dict[str, Any]:
    """Return all figures for ``summary.json``; their names stay the same."""
    ends = accounts.ends()
    latencies = sorted(accounts.latencies_ms)
    reasons = Counter(evidence.dead_letters.values())
    done_again = [account for _, account in accounts.items() if account.came_back]
    return {
        "ok": all(check.holds for check in checked),
        "rows": evidence.rows,
        "produced": sum(evidence.end_offsets.values()),
        "handled": accounts.counters["handled"],
        "retries": accounts.counters["retries"],
        "redelivered": accounts.counters["redelivered"],
        "done": ends[End.DONE],
        "done_again": len(done_again),
        "unreadable": reasons[DeadLetterReason.UNREADABLE],
        "given_up": len(evidence.dead_letters) - reasons[DeadLetterReason.UNREADABLE],
        "dead_letters": len(evidence.dead_letters),
        "records_per_second": round(evidence.rows / course.seconds),
        "latency_p50_ms": percentile(latencies, 50),
        "latency_p99_ms": percentile(latencies, 99),
        "seconds": round(course.seconds, 2),
        "worker_killed_at_seconds": round(course.worker_killed_at, 2),
        "worker_held": course.worker_held,
        "broker_killed_at_seconds": round(course.broker_killed_at, 2),
        "broker_down_seconds": round(course.broker_down_seconds, 2),
        "flights_by_runs": _by_runs(accounts),
        "lag": {str(partition): lag for partition, lag in evidence.lag.items()},
        "peak_pss_mib": round(evidence.peak_pss_bytes / 2**20),
        "checks": told(checked),
    }


def percentile(ascending: Sequence[int], percent: int) -> int | None:
    """Return the value that ``percent`` of the values do not exceed; None without values."""
    if not ascending:
        return None
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]


def rows(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of the table: name, value and explanation of each figure."""
    numbers = {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
    return [
        ("produced", numbers["produced"], "departures from New York, 2013"),
        ("handled", numbers["handled"], "records given to handlers"),
        ("tried again", numbers["retries"], "of these: cancelled, each time a little later"),
        ("redelivered", numbers["redelivered"], "of these: their worker or the broker was killed"),
        ("done", numbers["done"], ""),
        ("done again", numbers["done_again"], "the word that it was done got lost in a crash"),
        ("unreadable", numbers["unreadable"], "in flights.dead, byte for byte"),
        ("given up", numbers["given_up"], "after 5 attempts; in flights.dead with their history"),
        ("records/s", numbers["records_per_second"], f"over {figures['seconds']} s, paced"),
        (
            "produce to done",
            f"{figures['latency_p50_ms']} ms",
            f"p50; p99 {figures['latency_p99_ms']:,} ms, the crash included",
        ),
        (
            "worker killed",
            f"{figures['worker_killed_at_seconds']} s",
            f"with {numbers['worker_held']} records in hand",
        ),
        (
            "broker killed",
            f"{figures['broker_killed_at_seconds']} s",
            f"back after {figures['broker_down_seconds']} s",
        ),
        ("memory", f"{numbers['peak_pss_mib']} MiB", "peak of all processes (PSS)"),
    ]


def _by_runs(accounts: Accounts) -> dict[str, int]:
    """Return the number of flights by their number of attempts; 0 for unreadable flights."""
    counts = Counter(account.runs for _, account in accounts.items())
    return {str(count): counts[count] for count in sorted(counts)}
