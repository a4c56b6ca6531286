"""Tables, JSON and colour."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from sharegroup.cli.output import Listing

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


def test_colour_marks_heads_and_states_and_nothing_else() -> None:
    head, stable, empty = LISTING.text(coloured=True).splitlines()
    assert head.startswith("\x1b[1mGROUP")
    assert stable == "billing  \x1b[32mStable\x1b[0m  2"
    assert empty == "b        \x1b[33mEmpty \x1b[0m  0"


def test_nothing_is_a_sentence_for_people_and_an_array_for_programs() -> None:
    nothing = Listing([], ("group",), "There are no groups.")
    assert (nothing.text(), nothing.json()) == ("There are no groups.", "[]")


def test_unknown_is_a_dash_and_partitions_are_written_as_kafka_writes_them() -> None:
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


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_terminal_gets_colour_unless_its_user_wants_none(
    environment: dict[str, str], coloured: bool
) -> None:
    program = "from sharegroup.cli.output import in_colour; print(in_colour())"
    variables = {**os.environ, "TERM": "xterm", **environment}
    if "NO_COLOR" not in environment:
        variables.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "wb") as stdout:
        subprocess.run([sys.executable, "-c", program], stdout=stdout, env=variables, check=True)
        assert terminal.read(100).decode().strip() == str(coloured)
