"""What the query's ledgers say, put together over two starts."""

from __future__ import annotations

from typing import Any

import pytest

from examples.flights.query_account import Delays, Figures, QueryAccount, Week

RESULT = {
    "rows": 30,
    "records": 30,
    "redelivered": 0,
    "accepted": 29,
    "rejected": [[0, 7]],
    "groups": 1,
    "groups_differing": 0,
    "delays": [["UA", 5, 29, 28, 100, 3, 60]],
    "weeks_differing": 0,
    "weeks": [["2013-01-03", True, 7, 6, 60], ["2013-01-03", None, 1, 0, 0]],
}


def told(*lines: tuple[int, dict[str, Any]]) -> QueryAccount:
    """An account after these lines, each with the start that wrote it."""
    account = QueryAccount()
    for start, line in lines:
        account.feed(start, line)
    return account


def batch(number: int, records: int, fingerprint: int = 1) -> dict[str, Any]:
    return {"what": "batch", "batch": number, "records": records, "fingerprint": fingerprint}


def written(number: int) -> dict[str, Any]:
    return {"what": "written", "batch": number}


def done(number: int) -> dict[str, Any]:
    return {"what": "done", "batch": number}


def test_batch_is_in_written_only_until_it_is_done() -> None:
    account = told((1, batch(0, 10)), (1, written(0)), (1, done(0)), (1, batch(1, 20)))
    assert (account.written, account.written_only) == (10, {})
    account.feed(1, written(1))
    assert (account.written, account.written_only) == (30, {1: 20})
    account.feed(1, done(1))
    assert (account.written, account.written_only) == (30, {})


def test_batch_without_records_is_not_counted() -> None:
    assert told((1, batch(0, 0)), (1, written(0)), (1, done(0))).batches == 0


def test_repeated_batch_counts_once_as_written_and_twice_as_handed() -> None:
    account = told((1, batch(0, 10)), (2, batch(0, 10)), (2, written(0)), (2, batch(1, 5)))
    assert (account.written, account.handed, account.handed_again) == (10, 25, 10)
    assert account.batches == 2
    assert account.run_again == {0}
    assert account.changed == frozenset()


@pytest.mark.parametrize("again", [batch(0, 11), batch(0, 10, fingerprint=2)])
def test_batch_with_other_records_than_before_is_noticed(again: dict[str, Any]) -> None:
    assert told((1, batch(0, 10)), (2, again)).changed == {0}


def test_reports_of_the_source_add_up_over_the_starts() -> None:
    first = {"what": "progress", "group": {"recognised": 1, "lag": None}}
    later = {"what": "progress", "group": {"recognised": 2, "lag": 5}}
    other = {"what": "progress", "group": {"recognised": 40, "lag": 0}}
    account = told((1, first), (1, later), (2, other))
    assert account.counted("recognised") == 42
    assert account.counted("lag") == 5


def test_starts_are_recorded_when_their_session_is_ready() -> None:
    assert told((2, {"what": "started"})).started == {2}


def test_result_survives_a_round_trip() -> None:
    result = told((1, {"what": "result", "at_us": 1, **RESULT})).result
    assert result.rejected == [(0, 7)]
    assert result.delays == [Delays("UA", 5, 29, 28, 100, 3, 60)]
    assert result.weeks[0] == Week("2013-01-03", True, 7, 6, 60)
    assert result.weeks[1].wet is None
    assert result.accepted == 29


def test_figures_of_the_listener_have_the_time_of_their_line() -> None:
    line = {
        "what": "figures",
        "at_us": 2_500_000,
        "rows": 10,
        "batch_ms": 400,
        "lag": None,
        "held": 10,
        "carried": 0,
        "recognised": 3,
    }
    assert told((1, line)).figures == [Figures(2.5, 10, 400, None, 10, 0, 3)]


def test_missing_result_is_an_error() -> None:
    with pytest.raises(AssertionError, match="left no result in its ledger"):
        _ = QueryAccount().result
