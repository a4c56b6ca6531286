"""Requests for jobs that run or cancel waiting records: their filters, as JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sharegroup.dead_letters.expression import Expression
from sharegroup.errors import InvalidConfig
from sharegroup.jobs import KINDS, steering_request
from sharegroup.jobs.filters import WAITING
from sharegroup.waiting.control_records import Intent, Place
from sharegroup.waiting.waiting_filter import WaitingFilter, WaitingRecord

texts = st.none() | st.text(min_size=1, max_size=30)
numbers = st.none() | st.integers(0, 2**53)
filters = st.builds(
    WaitingFilter,
    ids=st.frozensets(st.text("abc0123", min_size=1), max_size=3),
    error_class=texts, topic=texts, due_after_ms=numbers, due_before_ms=numbers,
    failures_min=numbers, key=st.none() | st.binary(max_size=20),
)  # fmt: skip


@given(filters.filter(lambda selection: not selection.is_everything))
def test_filter_survives_its_way_through_the_topic_of_jobs(selection: WaitingFilter) -> None:
    request = steering_request("billing", Intent.CANCEL, selection)
    assert WAITING.parsed(json.loads(json.dumps(request.filter))) == selection


def test_expression_survives_too() -> None:
    selection = WaitingFilter(where=Expression("total > 3"))
    request = steering_request("billing", Intent.RUN, selection)
    assert (request.kind, request.topic, request.filter) == (
        "run-waiting", "billing.retry", {"where": "total > 3"},
    )  # fmt: skip
    again = WAITING.parsed(request.filter).where
    assert again is not None
    assert again.text == "total > 3"


def test_empty_filter_is_refused_unless_everything_is_meant() -> None:
    with pytest.raises(InvalidConfig, match="for all waiting records of the group"):
        steering_request("billing", Intent.CANCEL, WaitingFilter())
    request = steering_request("billing", Intent.CANCEL, WaitingFilter(), everything=True)
    assert WAITING.parsed(request.filter).is_everything


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"reason": "rejected"},
        {"key": "%"},
        {"where": "("},
        {"ids": 7},
        {"topic": 7},
        {"failures_min": True},
    ],
)
def test_filter_of_another_program_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="filter"):
        WAITING.parsed(document)


@pytest.mark.parametrize("options", [{}, {"group": "other"}, {"group": 7}])
def test_request_names_the_group_of_its_topic(options: dict[str, Any]) -> None:
    request = steering_request("billing", Intent.RUN, WaitingFilter(topic="orders"))
    KINDS[request.kind].check(request)
    with pytest.raises(InvalidConfig, match=r"expected the group of topic 'billing.retry'"):
        KINDS[request.kind].check(replace(request, options=options))


def record(**headers: bytes) -> WaitingRecord:
    named = [(f"__sharegroup.{name.replace('_', '.')}", value) for name, value in headers.items()]
    return WaitingRecord(Place("g.retry.1h", 0, 5), 1_000, b"k", b'{"total": 4}', named)


FAILED = record(
    id=b"f00",
    failures=b"2",
    due=b"5000",
    attempts=b'[[2,1,"builtins.TimeoutError","slow","m"]]',
    origin_topic=b"orders",
    origin_partition=b"0",
    origin_offset=b"7",
    origin_timestamp=b"1",
)


@pytest.mark.parametrize(
    ("selection", "matches"),
    [
        (WaitingFilter(), True),
        (WaitingFilter(ids=frozenset({"f00", "f01"})), True),
        (WaitingFilter(ids=frozenset({"f01"})), False),
        (WaitingFilter(error_class="TimeoutError"), True),
        (WaitingFilter(error_class="builtins.*"), True),
        (WaitingFilter(error_class="ValueError"), False),
        (WaitingFilter(topic="orders"), True),
        (WaitingFilter(topic="order"), False),
        (WaitingFilter(failures_min=2), True),
        (WaitingFilter(failures_min=3), False),
        (WaitingFilter(due_after_ms=5_000), True),
        (WaitingFilter(due_before_ms=5_000), False),
        (WaitingFilter(key=b"k"), True),
        (WaitingFilter(key=b""), False),
        (WaitingFilter(where=Expression("total > 3")), True),
        (WaitingFilter(where=Expression("total > 3"), topic="other"), False),
    ],
)
def test_all_conditions_hold(selection: WaitingFilter, matches: bool) -> None:
    assert selection.matches(FAILED) is matches


def test_record_of_another_program_has_no_id_and_no_failures() -> None:
    foreign = record()
    assert (foreign.id, foreign.error_class, foreign.origin_topic) == (None, "", "")
    assert WaitingFilter().matches(foreign)
    assert not WaitingFilter(error_class="*Error").matches(foreign)
