"""The checks of the second half: they hold for a run that went as it should, and each can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.flights.departures import Kind
from examples.flights.pipeline_checks import PipelineEvidence, pipeline_checks
from examples.flights.query_account import QueryAccount

EVIDENCE = PipelineEvidence(
    rows=40,
    kinds={Kind.GOOD: 37, Kind.CANCELLED: 2, Kind.POISON: 1},
    end_offsets={0: 30, 1: 10},
    dead_letters=frozenset({(0, 7)}),
    killed_in={1: 20},
    lag={0: 0, 1: 0},
    dispatch_lag={0: 0, 1: 0},
    peak_pss_bytes=3 * 2**30,
)
RESULT: dict[str, Any] = {
    "what": "result",
    "rows": 40,
    "records": 40,
    "redelivered": 0,
    "accepted": 39,
    "rejected": [[0, 7]],
    "groups": 5,
    "groups_differing": 0,
    "delays": [],
    "weeks_differing": 0,
    "weeks": [["2013-01-03", True, 7, 6, 60], ["2013-01-03", None, 1, 0, 0]],
}
RUNS = [(0, 20, 111), (1, 20, 222), (1, 20, 222)]
"""Batch, records, fingerprint: the second batch was run twice."""


def failed(
    evidence: PipelineEvidence = EVIDENCE,
    runs: list[tuple[int, int, int]] = RUNS,
    **result: Any,
) -> list[tuple[str, str, str]]:
    """The claims that do not hold, with what was expected and found."""
    account = QueryAccount()
    for number, records, fingerprint in runs:
        line = {"batch": number, "records": records, "fingerprint": fingerprint}
        account.feed(1, {"what": "batch", **line})
    account.feed(1, {**RESULT, **result})
    return [
        (check.claim, check.expected, check.found)
        for check in pipeline_checks(account, evidence)
        if not check.holds
    ]


def test_all_checks_pass_for_a_correct_run() -> None:
    assert failed() == []


@pytest.mark.parametrize(
    ("false", "problem"),
    [
        ({"records": 39, "rows": 39}, ("every flight is in the table", "40", "39")),
        ({"rows": 41}, ("no flight is in the table twice", "40", "41")),
        ({"accepted": 38}, ("accepted = the good and the cancelled ones", "39", "38")),
        (
            {"groups_differing": 2},
            ("every figure equals that of a batch job over the CSV", "5", "3"),
        ),
        (
            {"weeks_differing": 1},
            ("every week, joined with the weather, equals that of the batch job", "2", "1"),
        ),
    ],
)
def test_the_tables_can_contradict(false: dict[str, Any], problem: tuple[str, str, str]) -> None:
    assert failed(**false) == [problem]


def test_one_rejected_too_many_contradicts_data_and_dead_letters() -> None:
    assert failed(rejected=[[0, 7], [1, 3]]) == [
        ("rejected = the poison ones", "1", "2"),
        ("every rejected record is a dead letter", "none", "1: partition 1 offset 3"),
    ]


@pytest.mark.parametrize(
    ("false", "claim", "found"),
    [
        (
            {"dead_letters": frozenset({(0, 7), (1, 2)})},
            "every dead letter was rejected",
            "1: partition 1 offset 2",
        ),
        ({"lag": {0: 0, 1: 3}}, "the broker's lag is 0", "1: partition 1 lag 3"),
        ({"lag": {0: 0}}, "the broker's lag is 0", "1: partition 1 lag unknown"),
        (
            {"dispatch_lag": {0: 1, 1: 0}},
            "group dispatch was not disturbed",
            "1: partition 0 lag 1",
        ),
        (
            {"peak_pss_bytes": 3 * 2**30 + 1},
            "memory of all processes, the JVM included, stays within 3 GiB",
            "3,072 MiB",
        ),
        (
            {"killed_in": {}},
            "the batch that the kill hit was run again, and no other",
            "batch 1",
        ),
    ],
)
def test_each_other_source_can_contradict(false: dict[str, Any], claim: str, found: str) -> None:
    assert [(check[0], check[2]) for check in failed(replace(EVIDENCE, **false))] == [
        (claim, found)
    ]


def test_batch_that_was_not_run_again_after_the_kill_is_noticed() -> None:
    assert failed(runs=RUNS[:2]) == [
        ("the batch that the kill hit was run again, and no other", "batch 1", "none")
    ]


def test_batch_that_was_run_again_with_other_records_is_noticed() -> None:
    assert failed(runs=[(0, 20, 111), (1, 20, 222), (1, 20, 333)]) == [
        ("a batch that was run again had the same records", "none", "1: batch 1")
    ]


def test_query_that_was_not_killed_is_noticed() -> None:
    assert failed(replace(EVIDENCE, killed_in={}), runs=RUNS[:2]) == [
        ("the batch that the kill hit was run again, and no other", "a batch", "none")
    ]
