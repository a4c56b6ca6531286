"""The figures: what is computed from the accounts, and how they are shown."""

from __future__ import annotations

import io

from rich.console import Console

from examples.flights.accounts import Accounts
from examples.flights.checks import Check, Evidence
from examples.flights.departures import Kind
from examples.flights.summary import Course, percentile, rows, summary
from examples.flights.table import show

COURSE = Course(
    seconds=4.0,
    worker_killed_at=1.0,
    worker_held=7,
    broker_killed_at=2.0,
    broker_down_seconds=0.5,
)
EVIDENCE = Evidence(
    rows=2,
    kinds={Kind.GOOD: 2},
    confirmed=2,
    end_offsets={0: 2},
    dead_letters={(0, 2): "unreadable", (0, 3): "attempts-exhausted"},
    lag={0: 0},
    peak_pss_bytes=300 * 2**20,
)


def told(*lines: dict[str, object]) -> Accounts:
    """Accounts after these lines of one worker; a line's time is its place."""
    accounts = Accounts()
    for at_us, line in enumerate(lines):
        accounts.feed("a", {"batch": 1, "at_us": at_us, **line})
    return accounts


DONE_TWICE = (
    {"what": "begun", "records": [[0, 0, 1, 1, 10], [0, 1, 1, 1, 10]]},
    {"what": "ended", "ends": [[0, 0, True], [0, 1, True]], "wall_ms": 12},
    {"what": "begun", "records": [[0, 1, 1, 2, 10], [0, 3, 2, 1, 10]]},
    {"what": "ended", "ends": [[0, 1, True], [0, 3, False]], "wall_ms": 35},
)


def test_figures_count_runs_ends_and_latency() -> None:
    figures = summary(told(*DONE_TWICE), EVIDENCE, COURSE, ())
    assert (figures["handled"], figures["retries"], figures["redelivered"]) == (4, 1, 1)
    assert (figures["done"], figures["done_again"]) == (2, 1)
    assert (figures["unreadable"], figures["given_up"]) == (1, 1)
    assert (figures["latency_p50_ms"], figures["latency_p99_ms"]) == (2, 25)
    assert figures["flights_by_runs"] == {"1": 2, "2": 1}
    assert figures["ok"] is True


def test_failed_check_makes_the_summary_not_ok() -> None:
    checked = (Check("water is wet", "wet", "wet"), Check("fire is cold", "cold", "hot"))
    figures = summary(told(*DONE_TWICE), EVIDENCE, COURSE, checked)
    assert figures["ok"] is False
    assert [check["ok"] for check in figures["checks"]] == [True, False]


def test_failed_check_is_shown_with_expected_and_found_values() -> None:
    text = io.StringIO()
    checked = (Check("fire is cold", "cold", "hot"),)
    figures = summary(told(*DONE_TWICE), EVIDENCE, COURSE, checked)
    show(rows(figures), figures["checks"], Console(file=text, width=120))
    assert "FAILED  fire is cold: expected cold, found hot" in text.getvalue()


def test_percentile_is_a_value_that_occurred() -> None:
    values = list(range(1, 101))
    assert (percentile(values, 50), percentile(values, 99)) == (50, 99)
    assert (percentile([7], 50), percentile([7], 99), percentile([], 50)) == (7, 7, None)
