"""Each condition by itself and all together; what the ledger's ranges are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.ledger import Entry, parsed, runs_of
from sharegroup.dead_letters.letter import letter_of
from sharegroup.dead_letters.selection import EVERYTHING, Selection
from sharegroup.dead_letters.story import NEW
from sharegroup.worker.dead_letters import Buried, letter_headers
from sharegroup.worker.decisions.decide import Bury
from tests.integration.worker.dead import Given, NoAnswer
from tests.unit.dead_letters.test_letter import Read

HEADERS = letter_headers(
    Given("orders", headers=[("tag", b"one"), ("tag", b"two")]),
    Bury(NEW, "attempts-exhausted", NoAnswer("late")),
    Buried("billing", "bill", "m"), now_ms=1, shrunk=False,
)  # fmt: skip
LETTER = letter_of("dead", 1, Read(list(HEADERS), b"c-7", b'{"total": 3}', 5, 9_000))  # type: ignore[arg-type]

MATCHING = [
    Selection(error_class="NoAnswer"),
    Selection(error_class="tests.integration.worker.dead.NoAnswer"),
    Selection(error_class="tests.integration.worker.*"),
    Selection(error_class="No*"),
    Selection(reason="attempts-exhausted"),
    Selection(group="billing"),
    Selection(handler="bill"),
    Selection(handler="b*"),
    Selection(since_ms=9_000),
    Selection(until_ms=9_001),
    Selection(key=b"c-7"),
    Selection(headers=(("tag", None),)),
    Selection(headers=(("tag", b"one"), ("tag", b"two"))),
    Selection(where=Expression("total == 3")),
    Selection(places=frozenset({(1, 5), (2, 9)})),
    Selection(redriven=False),
]
OTHERS = [
    Selection(error_class="Answer"),
    Selection(error_class="noanswer"),
    Selection(error_class="tests.integration.worker"),
    Selection(reason="rejected"),
    Selection(group="bill"),
    Selection(handler="billing"),
    Selection(since_ms=9_001),
    Selection(until_ms=9_000),
    Selection(key=b"c-70"),
    Selection(headers=(("tags", None),)),
    Selection(headers=(("tag", b"one"), ("tag", b"three"))),
    Selection(headers=(("__sharegroup.dead.reason", None),)),
    Selection(where=Expression("total == 4")),
    Selection(places=frozenset({(5, 1)})),
    Selection(redriven=True),
]


@pytest.mark.parametrize("selection", MATCHING)
def test_condition_holds(selection: Selection) -> None:
    assert selection.matches(LETTER, redriven=False)
    assert not selection.is_everything


@pytest.mark.parametrize("selection", OTHERS)
def test_selection_does_not_match(selection: Selection) -> None:
    assert not selection.matches(LETTER, redriven=False)


def test_all_conditions_have_to_hold() -> None:
    assert not Selection(group="billing", reason="rejected").matches(LETTER, redriven=False)


def test_selection_without_conditions_matches_everything() -> None:
    assert EVERYTHING.is_everything
    assert EVERYTHING.matches(LETTER, redriven=True)


@given(st.sets(st.integers(0, 60)))
def test_ranges_are_the_offsets(offsets: set[int]) -> None:
    ranges = list(runs_of(sorted(offsets)))
    assert [number for first, end in ranges for number in range(first, end)] == sorted(offsets)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_entry_is_read() -> None:
    value = b'{"at_ms":1,"topic_id":"abc","partition":2,"ranges":[[0,3],[5,6]]}'
    assert parsed(value) == Entry("abc", 2, ((0, 3), (5, 6)))


def _with_ranges(ranges: str) -> bytes:
    return f'{{"topic_id":"abc","partition":0,"ranges":[{ranges}]}}'.encode()


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"\xff", b"[]", b'{"topic_id":1}', b"7", b"[" * 100_000),
        *map(_with_ranges, ("[0,Infinity]", "[5,1]", "[3,3]", "[-1,2]", "[0,9223372036854775809]")),
    ],
)
def test_invalid_ledger_entry_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="expected an entry of the redrive ledger"):
        parsed(value)
