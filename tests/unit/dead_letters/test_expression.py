"""``--where``: what holds of which value, and what is no expression."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from sharegroup.dead_letters.expression import Expression, ExpressionError

ORDER = {
    "total": -3.5,
    "count": 2,
    "paid": True,
    "note": None,
    "customer": {"id": 7, "country": "DE", "odd name": "x"},
    "items": [{"sku": "apple"}, {"sku": "pear"}],
    "tags": ["new", "urgent"],
}

TRUE = [
    "total < 0",
    "total == -3.5",
    "0 < count <= 2",
    "paid",
    "paid == true and note == null",
    "note is None",
    "not note",
    "customer.id == 7",
    'customer["odd name"] == "x"',
    'items[0].sku == "apple" and items[-1].sku == "pear"',
    '"urgent" in tags',
    '"rge" in tags[1]',
    '"id" in customer',
    'customer.country in ["DE", "FR"]',
    'customer.country not in ("FR", "IT")',
    "_.count == 2",
    "count > 1 or nothing.at.all",
    "  count == 2  ",
]
FALSE = [
    "total > 0",
    "nothing",
    "nothing.at.all == 7",
    "items[5].sku == 'apple'",
    "items.sku == 'apple'",
    "customer < 3",
    "nothing < 3",
    "count < 'three'",
    "3 in count",
    "3 in note",
    "total in 'text'",
    "not paid",
    "count == 2 and total > 0",
]


@pytest.mark.parametrize("text", TRUE)
def test_holds(text: str) -> None:
    assert Expression(text).holds(json.dumps(ORDER).encode())


@pytest.mark.parametrize("text", FALSE)
def test_expression_does_not_match(text: str) -> None:
    assert not Expression(text).holds(json.dumps(ORDER).encode())


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"{", b"[" * 100_000])
def test_value_that_is_no_json_never_matches(value: bytes | None) -> None:
    assert not Expression("not nothing").holds(value)


@pytest.mark.parametrize("value", [b"3", b"null", b'"text"', b"[1, 2]"])
def test_value_need_not_be_an_object(value: bytes) -> None:
    assert Expression("not total").holds(value)


def test_whole_value_has_a_name() -> None:
    assert Expression("_ == 3").holds(b"3")
    assert Expression("2 in _").holds(b"[1, 2]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "total <",
        "total; count",
        "print(1)",
        "total.__class__()",
        "total + 1 == 2",
        "9 ** 9 ** 9",
        "[x for x in items]",
        "lambda: 1",
        "f'{total}'",
        "x := 3",
        "items[0:1]",
        "b'x' == note",
        "{1: 2}",
        "items[count]",
        "~count",
        "...",
        "1j == total",
        "total and (yield)",
        "not " * 5_000 + "x",
        "(" * 900 + "x" + ")" * 900,
    ],
)
def test_unsupported_expression_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


def test_error_names_the_unsupported_part_of_the_expression() -> None:
    with pytest.raises(ExpressionError, match=r"'total \+ 1' is not supported: only fields"):
        Expression("total + 1 > 3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["total", "items", "customer", "tags"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(JSON, st.sampled_from(TRUE + FALSE))
def test_no_json_is_too_odd(document: object, text: str) -> None:
    assert Expression(text).holds(json.dumps(document).encode()) in (True, False)


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    with suppress(ExpressionError):
        Expression(text).holds(b"{}")


@pytest.fixture
def _usual_recursion_limit() -> Iterator[None]:
    """Python's limit; a test that calls mypy leaves a higher one."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("_usual_recursion_limit")
def test_evaluation_that_nests_too_deeply_does_not_end_a_run() -> None:
    expression = Expression("not " * 400 + "total")

    def deep(frames: int) -> bool:
        return deep(frames - 1) if frames else expression.holds(b'{"total": 1}')

    assert deep(0)
    assert not deep(600)


def test_what_is_no_expression_is_told_with_an_example() -> None:
    with pytest.raises(ExpressionError, match=r"is no expression .*; expected one like amount > 1"):
        Expression('city = "Oslo"')
