"""Tables, JSON and colour."""

from __future__ import annotations

import json

from sharegroup.cli.common.output import Listing

LISTING = Listing(
    [
        {"group": "billing", "state": "Stable", "members": 2, "note": None},
        {"group": "b", "state": "Empty", "members": 0, "note": "x"},
    ],
    ("group", "state", "members"),
    "There are no groups.",
)


def test_table_has_its_columns_under_kafkas_headings() -> None:
    assert LISTING.text().splitlines() == [
        "GROUP    STATE   #MEMBERS",
        "billing  Stable  2",
        "b        Empty   0",
    ]


def test_json_has_every_key_of_a_row() -> None:
    assert json.loads(LISTING.json()) == [
        {"group": "billing", "state": "Stable", "members": 2, "note": None},
        {"group": "b", "state": "Empty", "members": 0, "note": "x"},
    ]


def test_only_heads_and_states_are_coloured() -> None:
    head, stable, empty = LISTING.text(coloured=True).splitlines()
    assert head.startswith("\x1b[1mGROUP")
    assert stable == "billing  \x1b[32mStable\x1b[0m  2"
    assert empty == "b        \x1b[33mEmpty \x1b[0m  0"


def test_nothing_is_a_sentence_for_people_and_an_array_for_programs() -> None:
    nothing = Listing([], ("group",), "There are no groups.")
    assert (nothing.text(), nothing.json()) == ("There are no groups.", "[]")


def test_none_is_a_dash_and_partitions_are_in_kafkas_form() -> None:
    listing = Listing(
        [{"lag": None, "assignment": {"a": [0], "b": [0, 1]}}], ("lag", "assignment"), ""
    )
    assert listing.text().splitlines()[1] == "-    a:0;b:0,1"


def test_names_can_neither_end_a_line_nor_command_a_terminal() -> None:
    name = "a\nb\x1b[2J\u202eé"
    assert Listing([{"group": name}], ("group",), "").text().splitlines() == [
        "GROUP",
        "a\\nb\\x1b[2J\\u202eé",
    ]
