"""The figures of a query from its progress reports, and what is published of them."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming import python_streaming_source_runner
from rich.console import Console

from sharegroup.spark.listener import log_figures
from sharegroup.spark.query_figures import Progress, QueryFigures
from sharegroup.spark.query_metrics import QueryMetrics
from sharegroup.spark.query_table import QueryTable

QUERY, RUN = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def source(**figures: Any) -> dict[str, Any]:
    reported = {
        "group": "billing",
        "lag": 70,
        "held": 20,
        "carried": 0,
        "acquired": 30,
        "redelivered": 0,
        "accepted": 10,
        "released": 0,
        "rejected": 0,
        "gone": 0,
        "recognised": 0,
        "lostAcknowledgements": 0,
    }
    return {"latestOffset": json.dumps(reported | figures)}


def report(*sources: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "id": QUERY,
        "runId": RUN,
        "name": "orders",
        "batchId": 3,
        "numInputRows": 20,
        "timestamp": "2026-01-01T12:00:00.000Z",
        "durationMs": {"triggerExecution": 500},
        "sources": list(sources),
    } | changed


def figures(progress: Progress, *sources: dict[str, Any], **changed: Any) -> QueryFigures:
    found = progress.figures(report(*sources, **changed))
    assert found is not None
    return found


def test_spark_has_no_call_for_metrics_of_a_python_source() -> None:
    """If this fails, ``sources[].metrics`` of a progress report can be filled."""
    calls = {name for name in vars(python_streaming_source_runner) if name.endswith("_FUNC_ID")}
    assert calls == {
        "INITIAL_OFFSET_FUNC_ID",
        "LATEST_OFFSET_FUNC_ID",
        "LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID",
        "REPORT_LATEST_OFFSET_FUNC_ID",
        "GET_DEFAULT_READ_LIMIT_FUNC_ID",
        "PREPARE_FOR_TRIGGER_AVAILABLE_NOW_FUNC_ID",
        "PARTITIONS_FUNC_ID",
        "COMMIT_FUNC_ID",
    }


def test_rates_are_of_the_time_between_two_reports() -> None:
    progress = Progress()
    first = figures(progress, source())
    assert (first.rows, first.rows_per_second, first.batch_ms) == (20, 40.0, 500)
    assert first.groups[0].added["accepted"] == 10, "since the reader started"
    assert first.groups[0].per_second["accepted"] == 0.0

    later = figures(
        progress, source(accepted=30, rejected=4, lag=50), timestamp="2026-01-01T12:00:04.000Z"
    )
    (group,) = later.groups
    assert (group.lag, group.held, group.counts["accepted"]) == (50, 20, 30)
    assert (group.added["accepted"], group.added["rejected"]) == (20, 4)
    assert (group.per_second["accepted"], group.per_second["rejected"]) == (5.0, 1.0)


def test_counts_of_another_run_begin_anew() -> None:
    progress = Progress()
    figures(progress, source(accepted=100))
    other = figures(progress, source(accepted=7), runId="33333333-3333-3333-3333-333333333333")
    assert other.groups[0].added["accepted"] == 7
    progress.forget(RUN)
    assert figures(progress, source(accepted=110)).groups[0].added["accepted"] == 110


def test_idle_report_has_no_rows_of_the_batch_before() -> None:
    idle = Progress().figures(report(source()), is_idle=True)
    assert idle is not None
    assert (idle.rows, idle.rows_per_second, idle.is_idle) == (0, 0.0, True)


@pytest.mark.parametrize(
    "latest", [None, "null", '{"topic":{"0":5}}', "17", '{"held": 1}', "{no JSON"], ids=str
)
def test_query_without_a_share_group_has_no_figures(latest: str | None) -> None:
    assert Progress().figures(report({"latestOffset": latest})) is None


def test_report_that_comes_after_a_newer_one_adds_nothing() -> None:
    """An idle call reads the newest report, and the call for an earlier batch may follow it."""
    registry, progress = CollectorRegistry(), Progress()
    metrics = QueryMetrics(registry)
    for accepted, second in ((10, 0), (30, 4), (20, 2), (30, 4), (35, 5)):
        at = f"2026-01-01T12:00:{second:02}.000Z"
        metrics.publish(figures(progress, source(accepted=accepted), timestamp=at))
    labels = {"query": "orders", "group": "billing", "event": "accepted"}
    assert registry.get_sample_value("sharegroup_spark_records_total", labels) == 35


@pytest.mark.parametrize("is_terminal", [False, True])
def test_names_of_any_text_are_shown_as_they_are(is_terminal: bool) -> None:
    """Neither markup of rich, nor a terminal's control characters, nor a line of the log."""
    out = io.StringIO()
    table = QueryTable(Console(file=out, force_terminal=is_terminal, width=200))
    table.publish(figures(Progress(), source(group="[/]\x1b]0;x\x07"), name="[red]a\n"))
    table.end(QUERY, RUN)
    assert "[red]a\\n" in out.getvalue()
    assert "[/]\\x1b]0;x\\x07" in out.getvalue()


def test_log_line_of_a_hostile_name_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sharegroup.spark.query"):
        log_figures(figures(Progress(), source(group="g\nevent=x"), name="q\r"))
    assert "query=q\\r group=g\\nevent=x batch" in caplog.text


def test_both_sources_of_a_join_have_figures() -> None:
    other = {"latestOffset": '{"orders":{"0":5}}'}
    joined = figures(Progress(), source(), other, source(group="payments", held=3))
    assert [(group.group, group.held) for group in joined.groups] == [
        ("billing", 20),
        ("payments", 3),
    ]


def test_metrics_count_rows_and_outcomes_and_lose_the_gauges_of_an_ended_run() -> None:
    registry = CollectorRegistry()
    metrics, progress = QueryMetrics(registry), Progress()
    labels = {"query": "orders", "group": "billing"}
    metrics.publish(figures(progress, source()))
    metrics.publish(figures(progress, source(accepted=25, lostAcknowledgements=2, lag=None)))

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"sharegroup_spark_{name}", {**labels, **more})

    assert (value("lag"), value("held"), value("carried")) == (70, 20, 0)
    assert value("records_total", event="accepted") == 25
    assert value("records_total", event="lost_acknowledgements") == 2
    of_query = {"query": "orders"}
    assert registry.get_sample_value("sharegroup_spark_rows_total", of_query) == 40
    assert registry.get_sample_value("sharegroup_spark_batch_seconds_sum", of_query) == 1.0

    idle = progress.figures(report(source(accepted=25, lostAcknowledgements=2)), is_idle=True)
    assert idle is not None
    metrics.publish(idle)
    assert registry.get_sample_value("sharegroup_spark_batch_seconds_count", of_query) == 2

    metrics.end(QUERY, RUN)
    assert value("held") is None
    assert value("records_total", event="accepted") == 25


def test_states_of_the_group_are_gauges_and_in_the_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = CollectorRegistry()
    metrics, progress = QueryMetrics(registry), Progress()
    states = {"available": 40, "acquired": 20, "delayed": 10, "archiving": 0}
    counted = figures(progress, source(states=states, statesCause=None))
    metrics.publish(counted)
    # An unknown number keeps the last one.
    unknown = figures(progress, source(states=None, statesCause="no broker"))
    assert (unknown.groups[0].states, unknown.groups[0].states_cause) == ({}, "no broker")
    metrics.publish(unknown)

    def value(state: str) -> float | None:
        labels = {"query": "orders", "group": "billing", "state": state}
        return registry.get_sample_value("sharegroup_spark_unsettled", labels)

    assert {state: value(state) for state in states} == states
    metrics.end(QUERY, RUN)
    assert {value(state) for state in states} == {None}
    with caplog.at_level(logging.INFO, logger="sharegroup.spark.query"):
        log_figures(counted)
    assert caplog.text.endswith(" rejected=0 available=40 acquired=20 delayed=10 archiving=0\n")


def test_gauges_stay_while_another_run_of_the_query_has_them() -> None:
    registry = CollectorRegistry()
    metrics, progress = QueryMetrics(registry), Progress()
    metrics.publish(figures(progress, source()))
    metrics.publish(figures(progress, source(), runId="33333333-3333-3333-3333-333333333333"))
    metrics.end(QUERY, RUN)
    labels = {"query": "orders", "group": "billing"}
    assert registry.get_sample_value("sharegroup_spark_held", labels) == 20


def test_log_has_a_line_for_each_group(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sharegroup.spark.query"):
        log_figures(figures(Progress(), source(lag=None, rejected=2)))
    assert caplog.messages == [
        (
            "event=query.progress query=orders group=billing batch=3 rows=20 rows_per_second=40 "
            "batch_ms=500 lag=unknown held=20 carried=0 accepted=10 released=0 rejected=2"
        )
    ]


def test_idle_member_is_a_warning_a_gauge_and_a_text_beside_the_lag(
    caplog: pytest.LogCaptureFixture,
) -> None:
    idle = figures(Progress(), source(idleSeconds=21, idleCause="assigned=0 action='check'"))
    with caplog.at_level(logging.WARNING, logger="sharegroup.spark.query"):
        log_figures(idle)
    assert caplog.messages == [
        "event=query.idle query=orders group=billing idle_seconds=21 assigned=0 action='check'"
    ]
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    labels = {"query": "orders", "group": "billing"}
    metrics.publish(idle)
    assert registry.get_sample_value("sharegroup_spark_idle_seconds", labels) == 21
    metrics.publish(figures(Progress(), source(idleSeconds=0, idleCause=None)))
    assert registry.get_sample_value("sharegroup_spark_idle_seconds", labels) == 0
    output = io.StringIO()
    QueryTable(Console(file=output, width=200)).publish(idle)
    assert output.getvalue().count("lag 70, idle 21 s  held 20") == 1


def test_output_that_is_no_terminal_gets_a_line_for_each_report() -> None:
    output = io.StringIO()
    table = QueryTable(Console(file=output, width=200))
    table.publish(figures(Progress(), source()))
    assert output.getvalue() == (
        "query orders  group billing  batch 3  rows 20  rows/s 40  batch ms 500  lag 70  held 20  "
        "carried 0  accepted/s 0  released/s 0  rejected/s 0\n"
    )


def test_terminal_gets_a_table_that_ends_with_the_last_query() -> None:
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True)
    table, progress = QueryTable(console), Progress()
    table.publish(figures(progress, source()))
    table.publish(figures(progress, source(lag=12345)))
    table.end(QUERY, RUN)
    text = output.getvalue()
    assert "12,345" in text
    assert "rejected/s" in text
    # The cursor is hidden while the table is renewed, and shown again at its end.
    assert text.rindex("\x1b[?25h") > text.rindex("12,345")
