"""The end of a batch is one end for each of its records."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.worker import Reject, SomeFailed
from sharegroup.worker.decisions.batches import ends_of_raised, ends_of_returned

BAD, WORSE = ValueError("bad"), Reject("worse")


@pytest.mark.parametrize("returned", [None, 3, [1, 2, 3], (0, 0, 0), "text"])
def test_batch_that_returns_is_done(returned: object) -> None:
    assert ends_of_returned(returned, 3) == (None, None, None)


@pytest.mark.parametrize("returned", [[], ("a",), [0] * 4, {"0": BAD}, {}, {1, 2, 3}, iter("abc")])
def test_batch_that_returns_another_collection_fails_all(returned: object) -> None:
    ends = ends_of_returned(returned, 3)
    assert len(ends) == 3
    assert all("a batch handler of 3 records returned a " in str(end) for end in ends)


def test_exceptions_in_a_returned_list_belong_to_the_records_at_their_index() -> None:
    assert ends_of_returned([None, BAD, 7], 3) == (None, BAD, None)
    assert ends_of_returned((WORSE, BAD), 2) == (WORSE, BAD)


def test_list_with_exceptions_and_too_few_entries_fails_all() -> None:
    ends = ends_of_returned([BAD], 2)
    assert [type(end) for end in ends] == [ValueError, ValueError]
    assert "a batch handler of 2 records returned a list of 1" in str(ends[0])


def test_some_failed_gives_the_failed_records_their_errors() -> None:
    assert ends_of_raised(SomeFailed({1: BAD, 2: WORSE}), 4) == (None, BAD, WORSE, None)


def test_some_failed_beyond_the_batch_fails_all() -> None:
    ends = ends_of_raised(SomeFailed({4: BAD}), 4)
    assert [type(end) for end in ends] == [IndexError] * 4
    assert "index 4; expected 0 to 3" in str(ends[0])


@pytest.mark.parametrize(
    "errors", [{"0": BAD}, {True: BAD}, {0.5: BAD}, {0: "bad"}, {0: ValueError}]
)
def test_some_failed_with_other_indexes_or_values_fails_all(errors: Any) -> None:
    ends = ends_of_raised(SomeFailed(errors), 2)
    assert all("SomeFailed: index" in str(end) for end in ends)


def test_other_exception_is_that_of_every_record() -> None:
    assert ends_of_raised(BAD, 2) == (BAD, BAD)


def test_text_of_some_failed_lists_indexes_and_errors() -> None:
    assert str(SomeFailed({2: WORSE, 1: BAD})) == "1: ValueError('bad'), 2: Reject('worse')"
