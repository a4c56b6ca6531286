"""What is written about a job is read back; what is none is refused with a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.redriven import Redriven
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import InvalidConfig, MessageTooLarge
from sharegroup.jobs.filters import LETTERS, options_document, options_of
from sharegroup.jobs.job import (
    Job,
    JobProgress,
    JobRequest,
    JobState,
    Position,
    moved,
)
from sharegroup.jobs.job_records import (
    JOB_BYTES_MAX,
    AbortRequest,
    abort_key,
    encoded_abort,
    encoded_job,
    job_key,
    parsed_abort,
    parsed_job,
)
from sharegroup.jobs.redrive_results import redriven_document, redriven_of

LONG_MAX = 2**63 - 1
numbers = st.integers(0, LONG_MAX)
texts = st.text(max_size=20)
some_text = st.none() | texts
ids = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
documents = st.dictionaries(texts, some_text | numbers | st.booleans() | st.lists(numbers))
requests = st.builds(
    JobRequest, kind=texts, topic=texts, filter=documents, options=documents
)  # fmt: skip
jobs = st.builds(
    Job,
    id=ids,
    request=requests,
    started_by=texts,
    created_ms=numbers,
    state=st.sampled_from(JobState),
    updated_ms=numbers,
    ended_ms=st.none() | numbers,
    runner=some_text,
    progress=st.builds(JobProgress, st.none() | numbers, numbers),
    result=documents,
    error=some_text,
    resumes=numbers,
    topic_id=some_text,
    positions=st.lists(st.builds(Position, numbers, numbers, numbers), max_size=3).map(tuple),
)
ORDERS = JobRequest(kind="redrive", topic="orders.dead", filter={"group": "billing"})
WAITING = Job(id="5f0c2a91", request=ORDERS, started_by="anna", created_ms=1)


@given(jobs)
def test_job(job: Job) -> None:
    assert parsed_job(job_key(job.id), encoded_job(job)) == job


@given(st.builds(AbortRequest, ids, numbers, texts, numbers))
def test_abort_request(request: AbortRequest) -> None:
    assert parsed_abort(abort_key(request.job_id), encoded_abort(request)) == request


selections = st.builds(
    Selection,
    error_class=some_text,
    reason=some_text,
    group=some_text,
    handler=some_text,
    since_ms=st.none() | numbers,
    until_ms=st.none() | numbers,
    key=st.none() | st.binary(max_size=9),
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    places=st.frozensets(st.tuples(numbers, numbers), max_size=3),
    redriven=st.none() | st.booleans(),
)


@given(selections)
def test_filter_of_a_job(selection: Selection) -> None:
    assert LETTERS.parsed(LETTERS.document(selection, everything=True)) == selection


def test_expression_of_a_filter_is_compiled_again() -> None:
    selection = LETTERS.parsed(
        LETTERS.document(Selection(where=Expression("total < 0")), everything=False)
    )
    assert selection.where is not None
    assert (selection.where.text, selection.where.holds(b'{"total": -1}')) == ("total < 0", True)


options = st.builds(
    RedriveOptions,
    to=st.sampled_from(["own", "original"]),
    redrives_max=numbers,
    limit=st.none() | numbers,
    rate=st.none() | st.floats(0.001, 1e9),
    again=st.booleans(),
    confirmed=st.frozensets(texts, max_size=3),
)


@given(options)
def test_options_of_a_job(options: RedriveOptions) -> None:
    assert options_of(options.selection, options_document(options)) == options


@given(
    sent=st.dictionaries(texts, numbers), left=st.dictionaries(texts, numbers), headers=numbers,
    refused=st.lists(st.tuples(texts, texts, numbers, numbers), max_size=9),
)  # fmt: skip
def test_result_of_a_job(
    sent: dict[str, int], left: dict[str, int], headers: int,
    refused: list[tuple[str, str, int, int]],
) -> None:  # fmt: skip
    done = Redriven(Counter(sent), Counter(left), headers)
    for letter in refused:
        done.refused.add(*letter)
    again = redriven_of(redriven_document(done))
    assert redriven_document(again) == redriven_document(done)
    assert again.refused.letters == len(refused)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"everything": False},
        {"group": "a", "colour": "red"},
        {"key": 7},
        {"key": "%"},
        {"where": "1 +"},
        {"headers": [["a", "%"]]},
        {"since_ms": "yesterday"},
        {"redriven": 1},
    ],
)
def test_filter_that_is_empty_or_not_valid_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="filter"):
        LETTERS.parsed(document)


def test_record_with_another_key_or_format_is_no_job() -> None:
    value = encoded_job(WAITING)
    with pytest.raises(ValueError, match="with key"):
        parsed_job(b"other", value)
    with pytest.raises(ValueError, match="format 2, expected up to 1"):
        parsed_job(b"5f0c2a91", value.replace(b'"format":1', b'"format":2'))
    with pytest.raises(ValueError, match="with key"):
        parsed_abort(b"a/abort", encoded_abort(AbortRequest("b", 0, "anna", 1)))


def test_record_of_a_job_loses_places_of_refused_letters_before_it_is_too_large() -> None:
    runs = [[0, offset, offset + 1] for offset in range(0, 200_000, 2)]
    refused = {"target": "a", "reason": "b", "letters": len(runs), "runs": runs}
    value = encoded_job(replace(WAITING, result={"refused": [refused]}))
    assert len(value) < JOB_BYTES_MAX
    [shorter] = parsed_job(b"5f0c2a91", value).result["refused"]
    assert (shorter["letters"], len(shorter["runs"])) == (100_000, 5)
    places = [[0, offset] for offset in range(200_000)]
    large = replace(WAITING, request=replace(ORDERS, filter={"places": places}))
    with pytest.raises(MessageTooLarge, match="start a job with a shorter filter"):
        encoded_job(large)


def test_positions_move_forward_only() -> None:
    positions = (Position(0, 5, 9), Position(1, 0, 4))
    assert moved(positions, {0: 3, 1: 2}) == (Position(0, 5, 9), Position(1, 2, 4))
