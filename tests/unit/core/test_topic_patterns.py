"""Regular expressions for topic names: the syntax, its equality to ``re``, and its limits."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from sharegroup.core.patterns import NODES_MAX, Pattern
from sharegroup.errors import InvalidRegularExpression

ATOMS = st.sampled_from(
    [*"ab01-_", "\\.", ".", "[ab]", "[^a]", "[a-c]", "[b-]", "\\d", "\\w", "\\W", "^", "$", "\\-"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "{0}", "*?", "+?"])


def grouped(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(parts, min_size=1, max_size=3).map("".join),
        st.tuples(parts, parts).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(parts, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(ATOMS, grouped, max_leaves=8)
NAMES = st.text(alphabet="ab01.-_", max_size=6)


@given(pattern=PATTERNS, name=NAMES)
def test_matches_what_pythons_regular_expressions_match(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders2"),
        ("(?i)Orders", "oRDERS", "order"),
        ("a(?i:b)c", "aBc", "aBC"),
        ("a(?i)b|c", "C", "A"),
        ("[[:alpha:]]+", "abC", "ab1"),
        ("[[:^digit:]]", "a", "1"),
        ("\\Qa.b\\E+", "a.bb", "aXb"),
        ("\\Qa.b", "a.b", "a_b"),
        ("\\Aorders\\z", "orders", "xorders"),
        ("(?P<region>eu|us)-.*", "eu-a", "asia-a"),
        ("(?<region>eu|us)", "us", "uss"),
        ("[]a]", "a", "b"),
        ("[^]a]", "b", "a"),
        ("[\\d_]+", "1_2", "a"),
        ("x{,3}", "", "xx"),
        ("(|a)b", "b", "c"),
        ("(?-i)a", "a", "A"),
        # Transactional ids may have line breaks.
        (".[^x]", "a\n", "\na"),
        ("(?s).a", "\na", "\nA"),
        ("(?is).a", "\nA", "\nb"),
        ("(?s:.)(a.)", "\nab", "\na\n"),
        ("((?s)a.)|.", "a\n", "\n"),
        ("(?s)(?-s:.)|b.", "b\n", "\n"),
        ("(?s)a(?:.{2})", "a\n\n", "a\n"),
        ("(?mU)^a$", "a", "a\n"),
    ],
)
def test_syntax_of_re2(pattern: str, matching: str, other: str) -> None:
    compiled = Pattern(pattern)
    assert compiled.matches(matching) == (pattern != "x{,3}"), "RE2 takes {,3} literally"
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a**", "a repetition is repeated"),
        ("*a", "there is nothing to repeat"),
        ("(a", r"a \) is missing"),
        ("a)", "no group"),
        ("[a", "a ] is missing"),
        ("[", "a ] is missing"),
        ("[c-a]", "the range is not valid"),
        ("[\\d-z]", "the range is not valid"),
        ("[[:none:]]", "no such named class"),
        ("\\", "ends with a"),
        ("[\\", "ends with a"),
        ("(?=a)", "kind of group"),
        ("(?<=a)", "kind of group"),
        ("(?P<1>a)", "kind of group"),
        ("(a)\\1", "is not supported"),
        ("\\bword", "is not supported"),
        ("a{1001}", "larger than 1000"),
        ("a{3,2}", "at least 3 and at most 2"),
        ("(" * 60 + ")" * 60, "nested more than 50"),
        ("((a{50}){50}){50}", f"more than {NODES_MAX} nodes"),
        ("a" * 1_001, "at most 1000 characters, not 1001"),
    ],
)
def test_invalid_patterns_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=text):
        Pattern(pattern)


def test_pattern_that_makes_others_backtrack_takes_few_steps() -> None:
    compiled = Pattern("(a+)+(a+)+b")
    assert not compiled.matches("a" * 249)
    assert compiled.steps_taken < 1_000


@given(st.text(max_size=30))
def test_any_text_is_compiled_or_refused(pattern: str) -> None:
    with suppress(InvalidRegularExpression):
        assert Pattern(pattern).matches("orders") in (True, False)
