"""Letters with equal names of headers share a layout; what is read of each stays its own."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from sharegroup.dead_letters.letter import letter_of
from sharegroup.dead_letters.letter_headers import (
    KEPT_HEADERS_MAX,
    KEPT_LAYOUTS_MAX,
    KEPT_NAME_CHARACTERS_MAX,
    TOLD,
    LetterLayout,
    LetterLayouts,
)
from sharegroup.wire.batches.header_names import UndecodedName, name_bytes
from sharegroup.worker.ports import Header
from tests.support.sent_back import sent_back_headers
from tests.unit.dead_letters.test_letter import Read, read

NAMES = [*sorted(TOLD)[::3], "tag", "trace", "__sharegroup.strange", "__dlq.errors.strange"]
GROUP = "__sharegroup.dead.group"


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=6), max_size=12))
def test_layout_is_the_same_whatever_was_read_before(letters: list[list[str]]) -> None:
    layouts = LetterLayouts()
    for names in letters:
        kept, alone = layouts.of([(name, b"") for name in names]), LetterLayout(names)
        assert (kept.places, kept.own, kept.own_end) == (alone.places, alone.own, alone.own_end)
        assert sorted(kept.own) == list(kept.own)
        assert not set(kept.own).intersection(kept.places.values())
        assert all(names[place] == name for name, place in kept.places.items())


def test_contents_are_those_of_each_letter() -> None:
    letters = [read([("tag", tag), (GROUP, group)]) for tag, group in ((b"1", b"a"), (b"2", b"b"))]
    assert [letter.group for letter in letters] == ["a", "b"]
    assert [letter.headers for letter in letters] == [(("tag", b"1"),), (("tag", b"2"),)]
    assert [letter.told for letter in letters] == [{GROUP: b"a"}, {GROUP: b"b"}]


def test_copy_keeps_a_name_that_is_shown_like_that_of_the_letter_before() -> None:
    story: list[Header] = [
        ("__sharegroup.origin.topic", b"orders"),
        ("__sharegroup.origin.partition", b"0"),
        ("__sharegroup.origin.offset", b"7"),
        ("__sharegroup.origin.timestamp", b"8"),
        ("__sharegroup.dead.reason", b"rejected"),
    ]
    for raw in (b"\xff", b"\xfe"):
        letter = read([(UndecodedName(raw), b"x"), *story])
        assert letter.tells_story
        assert name_bytes(sent_back_headers(letter, "id")[0][0]) == raw


def test_names_that_a_producer_invents_for_each_letter_fill_no_memory() -> None:
    layouts = LetterLayouts()
    for number in range(3 * KEPT_LAYOUTS_MAX):
        layouts.of([(f"tag-{number}", b"")])
        assert len(layouts) <= KEPT_LAYOUTS_MAX
    kept = len(layouts)
    layouts.of([("x" * (KEPT_NAME_CHARACTERS_MAX + 1), b"")])
    layouts.of([("", b"")] * (KEPT_HEADERS_MAX + 1))
    assert len(layouts) == kept, "neither long names nor many are kept"


def test_letter_without_headers_is_read() -> None:
    letter = letter_of("dead", 0, Read([]))  # type: ignore[arg-type]
    assert (letter.headers, letter.told, letter.tells_story) == ((), {}, False)
