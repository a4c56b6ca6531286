"""Tables for people: columns under headings, fitted to the width of a terminal.

Pipes and files get every column in full. On a terminal a table that is too wide becomes narrower
in these steps, and the first that is enough is the last one:

    short headings        START in place of START-OFFSET
    short cells           "12s ago" in place of a time, the beginning of a member id
    fewer columns         those that the verb can do without, the least important first
    several lines         a cell is broken at blanks and commas, never inside a word
    shortened words       the middle of a long name becomes two dots

A line below the table says what is missing. Names with wide characters, such as Chinese ones, are
measured as a terminal draws them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from unicodedata import combining, east_asian_width

import click

from sharegroup.cli.common.options import Verb

HEADINGS = {
    "coordinator": "COORDINATOR (ID)",
    "members": "#MEMBERS",
    "partitions": "#PARTITIONS",
    "settled_per_second": "SETTLED/S",
}
"""Headings of Kafka's tools that are not the key in capitals."""

SHORT_HEADINGS = {
    "assignment_epoch": "ASSIGNED",
    "base_offset": "BASE",
    "before_offset": "BEFORE",
    "coordinator": "COORDINATOR",
    "current_offset": "CURRENT",
    "delivery_count": "COUNT",
    "end_offset": "END",
    "error_class": "ERROR",
    "first_offset": "FIRST",
    "group_epoch": "EPOCH",
    "last_offset": "LAST",
    "leader_epoch": "EPOCH",
    "log_end_offset": "LOG-END",
    "low_watermark": "LOW",
    "member_epoch": "EPOCH",
    "new_offset": "NEW",
    "partition": "PART",
    "partitions": "#PART",
    "settled_per_second": "/S",
    "start_offset": "START",
}
"""Headings of tables that do not fit otherwise."""

COLOURS = {
    "Dead": "red",
    "Empty": "yellow",
    "Stable": "green",
}
"""The colours of cells that a reader should notice."""

GAP = "  "
DOTS = ".."
ID_CHARACTERS = 8
"""The number of characters of a member id that are enough to tell members apart."""
TEXT_COLUMNS_MIN = 24
"""The width from which on a cell with several words is broken into lines."""
WORD_COLUMNS_MIN = 8
"""The width down to which columns are narrowed before the columns of names are."""
UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
WORDS = re.compile(r"[^ ,;]*[ ,;]|[^ ,;]+")
"""A word with the blank, comma or semicolon behind it, after which a cell may be broken."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, with the key of its cells in the rows."""

    key: str
    heading: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        """The width at which no cell is broken or shortened."""
        return max(map(text_width, (self.heading, *self.cells)))

    @property
    def width_min(self) -> int:
        """The width at which no word is shortened, and texts are still readable."""
        words = (word.rstrip(" ") for cell in self.cells for word in WORDS.findall(cell))
        longest = max(map(text_width, (self.heading, *words)))
        return max(longest, min(self.width, TEXT_COLUMNS_MIN))


def heading(key: str) -> str:
    """Return the heading of the column with this key."""
    return HEADINGS.get(key, key.upper().replace("_", "-"))


def table(
    cells: Sequence[Sequence[str]],
    keys: Sequence[str],
    *,
    coloured: bool = False,
    width: int | None = None,
    spare: Sequence[str] = (),
) -> str:
    """Return left-aligned columns under their headings, two blanks apart.

    ``width`` is that of the terminal; None: as wide as the cells are. ``spare`` are the keys of
    the columns that may be left out, the least important first.
    """
    columns = [
        Column(key, heading(key), [line[index] for line in cells]) for index, key in enumerate(keys)
    ]
    if width is None:
        return _drawn(columns, [column.width for column in columns], coloured)
    shown = _reduced(columns, width, spare)
    widths = _widths(shown, width)
    text = _drawn(shown, widths, coloured)
    left_out = [column.heading for column in columns if column.key not in _keys(shown)]
    shortened = [
        heading(column.key)
        for column, whole, room in zip(shown, _of_keys(columns, shown), widths, strict=True)
        if column.cells != whole.cells or column.width_min > max(room, text_width(column.heading))
    ]
    remark = _remark(left_out, shortened, width)
    return f"{text}\n{remark}" if remark else text


def leaves_out(spare: Iterable[str]) -> Callable[[Verb], Verb]:
    """Return a decorator that adds to the help of a verb which columns a terminal may lack."""

    def decorate(verb: Verb) -> Verb:
        names = ", ".join(map(heading, spare))
        text = f"A terminal that is too narrow lacks these columns, the first one first: {names}."
        verb.__doc__ = f"{inspect.cleandoc(verb.__doc__ or '')}\n\n{text}"
        return verb

    return decorate


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that a text without control characters takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def wrapped(text: str, width: int) -> list[str]:
    """Break a text after blanks, commas and semicolons; shorten words that are longer."""
    lines = [""]
    for word in WORDS.findall(text):
        if text_width(lines[-1] + word.rstrip(" ")) > width and lines[-1]:
            lines.append("")
        lines[-1] += word
    return [shortened(line.rstrip(" "), width) for line in lines]


def shortened(text: str, width: int) -> str:
    """Return a text in this width, with dots in place of its middle if it is longer.

    >>> shortened("orders.eu-west-1.dead", 12)
    'order...dead'
    """
    if text_width(text) <= width:
        return text
    if width <= len(DOTS):
        return DOTS[:width]
    end = _beginning(text[::-1], (width - len(DOTS)) // 2)[::-1]
    return f"{_beginning(text, width - len(DOTS) - text_width(end))}{DOTS}{end}"


def _beginning(text: str, width: int) -> str:
    """Return as many characters of a text as have room."""
    room = width
    for index, character in enumerate(text):
        room -= _columns_of(character)
        if room < 0:
            return text[:index]
    return text


def _columns_of(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _keys(columns: Sequence[Column]) -> set[str]:
    return {column.key for column in columns}


def _of_keys(columns: Sequence[Column], shown: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.key in _keys(shown)]


def _reduced(columns: Sequence[Column], width: int, spare: Sequence[str]) -> list[Column]:
    """Return the columns as they fit, or as near to it as the steps before shortening get."""
    shown = list(columns)
    if _too_wide(shown, width):
        shown = [
            replace(column, heading=SHORT_HEADINGS.get(column.key, column.heading))
            for column in shown
        ]
    for key, short in SHORT_CELLS.items():
        if _too_wide(shown, width):
            shown = [
                replace(column, cells=[short(cell) for cell in column.cells])
                if column.key == key
                else column
                for column in shown
            ]
    for key in spare:
        if _too_wide(shown, width):
            shown = [column for column in shown if column.key != key]
    return shown


def _too_wide(columns: Sequence[Column], width: int) -> bool:
    return _total([column.width_min for column in columns]) > width


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Return the widths of the columns, of which the widest are narrowed until they fit."""
    widths = [min(column.width, width) for column in columns]
    texts = [min(column.width_min, width) for column in columns]
    words = [min(least, WORD_COLUMNS_MIN) for least in texts]
    for minima in (texts, words, [1] * len(widths)):
        while _total(widths) > width:
            index = max(range(len(widths)), key=lambda i: (widths[i] > minima[i], widths[i]))
            if widths[index] <= minima[index]:
                break
            widths[index] -= 1
    return widths


def _drawn(columns: Sequence[Column], widths: Sequence[int], coloured: bool) -> str:
    heads = [shortened(column.heading, room) for column, room in zip(columns, widths, strict=True)]
    padded = [_padded(head, room) for head, room in zip(heads, widths, strict=True)]
    padded[-1] = heads[-1]  # The last column needs no padding.
    lines = [[click.style(head, bold=True) for head in padded] if coloured else padded]
    for row in zip(*(column.cells for column in columns), strict=True):
        pieces = [
            [cell] if text_width(cell) <= room else wrapped(cell, room)
            for cell, room in zip(row, widths, strict=True)
        ]
        for line in zip_longest(*pieces, fillvalue=""):
            texts = [_padded(cell, room) for cell, room in zip(line, widths, strict=True)]
            texts[-1] = line[-1]
            lines.append(_tinted(texts) if coloured else texts)
    return "\n".join(GAP.join(line).rstrip() for line in lines)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def _tinted(line: Sequence[str]) -> list[str]:
    colours = [COLOURS.get(cell.rstrip()) for cell in line]
    return [
        click.style(cell, fg=colour) if colour else cell
        for cell, colour in zip(line, colours, strict=True)
    ]


def _remark(left_out: Sequence[str], shortened_keys: Sequence[str], width: int) -> str:
    """Return the line about what a fitted table lacks; empty if it lacks nothing."""
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (("left out", left_out), ("shortened", shortened_keys))
        if names
    ]
    if not parts:
        return ""
    text = f"({'; '.join(parts)}: --json has all)"
    return "\n".join(
        textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    )


def _ago(text: str) -> str:
    """Return how long ago a time in ISO format was; another text as it is.

    >>> _ago("-")
    '-'
    """
    with suppress(ValueError, OverflowError):
        return f"{lasting(time.time() - datetime.fromisoformat(text).timestamp())} ago"
    return text


def lasting(seconds: float) -> str:
    """Return a time in whole units of the largest kind that it has.

    >>> lasting(90), lasting(-1)
    ('1m', '0s')
    """
    whole = max(0, int(seconds))
    unit, size = next((unit, size) for unit, size in UNITS if whole >= size or size == 1)
    return f"{whole // size}{unit}"


def _short_id(text: str) -> str:
    return text if len(text) <= ID_CHARACTERS + len(DOTS) else f"{text[:ID_CHARACTERS]}{DOTS}"


SHORT_CELLS: Mapping[str, Callable[[str], str]] = {
    "since": _ago,
    "heard": _ago,
    "last_letter": _ago,
    "consumer_id": _short_id,
    "member_id": _short_id,
}
"""The short forms of cells, by the keys of their columns, in the order in which they are used."""
