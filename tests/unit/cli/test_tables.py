"""Tables that fit the width of a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.cli.common.output import Listing
from sharegroup.cli.common.tables import leaves_out, shortened, table, text_width, wrapped

KEYS = ("topic", "partition", "start_offset", "member_id", "why")
CELLS = [
    ["orders", "0", "5120", "Hf-8mUPmQ3CGlc3cJ_Zw9Q", "no member has fetched from it"],
    ["orders.retry", "11", "7", "-", "-"],
]


def fitted(width: int | None, spare: tuple[str, ...] = ()) -> list[str]:
    return table(CELLS, KEYS, width=width, spare=spare).splitlines()


def test_without_a_width_the_table_has_everything() -> None:
    assert fitted(None) == [
        "TOPIC         PARTITION  START-OFFSET  MEMBER-ID               WHY",
        f"orders        0          5120          {CELLS[0][3]}  no member has fetched from it",
        "orders.retry  11         7             -                       -",
    ]


def test_terminal_with_room_shows_what_a_pipe_gets() -> None:
    assert fitted(100, ("why",)) == fitted(None)


def test_short_headings_and_broken_texts_come_before_anything_is_lost() -> None:
    assert fitted(76) == [
        "TOPIC         PART  START  MEMBER-ID               WHY",
        "orders        0     5120   Hf-8mUPmQ3CGlc3cJ_Zw9Q  no member has fetched",
        "                                                   from it",
        "orders.retry  11    7      -                       -",
    ]


def test_short_ids_come_before_columns_are_left_out() -> None:
    assert fitted(70, ("why",)) == [
        "TOPIC         PART  START  MEMBER-ID   WHY",
        "orders        0     5120   Hf-8mUPm..  no member has fetched from it",
        "orders.retry  11    7      -           -",
        "(shortened MEMBER-ID: --json has all)",
    ]


def test_columns_are_left_out_in_order_and_named() -> None:
    assert fitted(40, ("why", "start_offset", "topic")) == [
        "TOPIC         PART  START  MEMBER-ID",
        "orders        0     5120   Hf-8mUPm..",
        "orders.retry  11    7      -",
        "(left out WHY; shortened MEMBER-ID:",
        "--json has all)",
    ]


def test_last_resort_is_dots_inside_the_widest_names() -> None:
    name = "a-topic-whose-name-is-longer-than-the-terminal.dead"
    assert table([[name, "3"]], ("topic", "lag"), width=30).splitlines() == [
        "TOPIC                      LAG",
        "a-topic-whos..rminal.dead  3",
        "(shortened TOPIC: --json has",
        "all)",
    ]


def test_lists_are_broken_behind_commas_and_never_inside_a_name() -> None:
    assert wrapped("orders:0,1,2;payments:0", 12) == ["orders:0,1,", "2;payments:0"]
    assert wrapped("one two", 3) == ["one", "two"]
    assert wrapped("", 3) == [""]


def test_wide_characters_are_measured_as_terminals_draw_them() -> None:
    assert text_width("注文a") == 5
    assert text_width("e\u0301") == 1
    assert text_width(shortened("注文注文注文", 7)) <= 7
    lines = table([["注文", "1"], ["ab", "2"]], ("group", "lag"), width=80).splitlines()
    assert lines == ["GROUP  LAG", "注文   1", "ab     2"]


@given(
    cells=st.lists(
        st.tuples(*(st.text(st.characters(min_codepoint=32, max_codepoint=126)) for _ in range(4))),
        max_size=4,
    ),
    width=st.integers(12, 90),
    spare=st.permutations(("b", "partition")),
)
def test_no_line_is_wider_than_the_terminal(
    cells: list[tuple[str, ...]], width: int, spare: list[str]
) -> None:
    text = table(cells, ("topic", "b", "partition", "since"), width=width, spare=spare)
    assert all(text_width(line) <= max(width, len("PARTITION;")) for line in text.split("\n"))


@pytest.mark.parametrize(
    ("ago_s", "text"), [(0, "0s"), (3_599, "59m"), (7_200, "2h"), (1e6, "11d")]
)
def test_times_are_told_as_how_long_ago_if_they_do_not_fit(
    ago_s: float, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000 + ago_s)
    line = table([["2023-11-14T22:13:20+00:00"]], ("since",), width=10).splitlines()[1]
    assert line == f"{text} ago"


def test_help_names_the_columns_in_their_order() -> None:
    @leaves_out(("topic_id", "lag"))
    def verb() -> None:
        """List topics.

        More.
        """

    assert verb.__doc__ is not None
    assert verb.__doc__.splitlines()[-1].endswith("the first one first: TOPIC-ID, LAG.")


def test_listing_without_rows_is_a_sentence_at_any_width() -> None:
    assert Listing([], ("topic",), "There are no topics.").text(width=40) == "There are no topics."
