"""The second table: its figures, and how they are shown."""

from __future__ import annotations

import io

from rich.console import Console

from examples.flights.checks import Check
from examples.flights.departures import Kind
from examples.flights.pipeline_checks import PipelineEvidence
from examples.flights.pipeline_run import PipelineCourse
from examples.flights.pipeline_summary import pipeline_rows, pipeline_summary
from examples.flights.query_account import QueryAccount
from examples.flights.table import show

EVIDENCE = PipelineEvidence(
    rows=3_000,
    kinds={Kind.GOOD: 2_999, Kind.POISON: 1},
    end_offsets={0: 3_000},
    dead_letters=frozenset({(0, 7)}),
    killed_in={1: 2_000},
    lag={0: 0},
    dispatch_lag={0: 0},
    peak_pss_bytes=1_234 * 2**20,
)
COURSE = PipelineCourse(
    begin=100.0, first=110.0, killed=112.0, back=117.5, last=120.0, end=125.0, killed_in={1: 2_000}
)
LINES = [
    {"what": "batch", "batch": 0, "records": 1_000, "fingerprint": 1},
    {"what": "written", "batch": 0},
    {"what": "batch", "batch": 1, "records": 2_000, "fingerprint": 2},
    {"what": "batch", "batch": 1, "records": 2_000, "fingerprint": 2},
    {
        "what": "progress",
        "group": {"redelivered": 2_000, "recognised": 1_999, "lostAcknowledgements": 2_000},
    },
    {
        "what": "result",
        "rows": 3_000,
        "records": 3_000,
        "redelivered": 0,
        "accepted": 2_999,
        "rejected": [[0, 7]],
        "groups": 207,
        "groups_differing": 0,
        "delays": [],
        "weeks_differing": 0,
        "weeks": [["2013-01-03", True, 7, 6, 60], ["2013-01-03", None, 1, 0, 0]],
    },
]


def account() -> QueryAccount:
    told = QueryAccount()
    for line in LINES:
        told.feed(1, line)
    return told


def test_figures_count_records_batches_and_seconds() -> None:
    figures = pipeline_summary(account(), EVIDENCE, COURSE, ())
    assert (figures["produced"], figures["delivered"], figures["run_again"]) == (
        3_000,
        5_000,
        2_000,
    )
    assert (figures["accepted"], figures["rejected"], figures["dead_letters"]) == (2_999, 1, 1)
    assert (figures["redelivered"], figures["recognised"]) == (2_000, 1_999)
    assert (figures["batches"], figures["groups"]) == (2, 207)
    assert (figures["seconds"], figures["records_per_second"]) == (10.0, 300)
    assert (figures["seconds_in_all"], figures["first_records_after_seconds"]) == (25.0, 10.0)
    assert (figures["killed_in_batch"], figures["killed_with_records"]) == (1, 2_000)
    assert (figures["killed_at_seconds"], figures["back_after_seconds"]) == (2.0, 5.5)
    assert figures["peak_pss_mib"] == 1_234
    assert figures["ok"] is True


def test_failed_check_makes_the_pipeline_summary_not_ok() -> None:
    figures = pipeline_summary(account(), EVIDENCE, COURSE, (Check("fire is cold", "cold", "hot"),))
    assert figures["ok"] is False
    assert figures["checks"] == [
        {"claim": "fire is cold", "expected": "cold", "found": "hot", "ok": False}
    ]


def test_table_is_aligned_with_that_of_the_first_half() -> None:
    text = io.StringIO()
    figures = pipeline_summary(account(), EVIDENCE, COURSE, ())
    show(pipeline_rows(figures), figures["checks"], Console(file=text, width=80))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[:3] == [
        "produced                   3,000  the same flights, for group pipeline",
        "delivered                  5,000  in 2 batches of the query",
        "run again                  2,000  of these, in the batch that the kill hit",
    ]
    assert "query killed               2.0 s  in batch 1, written and not committed" in lines
    assert "memory                 1,234 MiB  peak of all processes, the JVM included" in lines
    assert max(len(line) for line in lines) <= 80
