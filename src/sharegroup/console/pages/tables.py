"""Tables that sort, filter and page on the server, so that each state has an address.

    ?sort=-lag&find=billing&page=2

A table that is not the only one of its page has a prefix before these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sharegroup.console.parameters import BadQuery

ROWS_PER_PAGE = 50
FIND_CHARACTERS_MAX = 200
TEXTS = ("text", "long", "id", "state")
"""The kinds of cells that are searched as texts."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in rows, its heading, and how its cells look."""

    key: str
    heading: str
    kind: str = "text"
    """``text``, ``long`` for a sentence, ``number``, ``age``, ``time``, ``spark``, ``state``,
    ``list`` or ``id``."""
    link: Callable[[Row], str] | None = None
    """Returns the address that a cell leads to."""
    narrow: bool = True
    """Whether a phone shows it."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and the address that sorts by it."""

    column: Column
    address: str
    order: str
    """``ascending``, ``descending`` or ``none``, as in ``aria-sort``."""


@dataclass(frozen=True, slots=True)
class TableView:
    """One page of a table, for the template."""

    name: str
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    total: int
    """The number of rows that match."""
    all_rows: int
    page: int
    page_count: int
    find: str
    find_name: str
    kept: tuple[tuple[str, str], ...]
    """The other parameters of the page, which a form for ``find`` keeps."""
    previous: str | None
    next: str | None
    empty: str


def table(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Row],
    query: Mapping[str, str],
    *,
    sort: str,
    empty: str,
) -> TableView:
    """Return the page of the table that a query asks for; ``sort`` is the default order."""
    sort_name, find_name, page_name = f"{name}-sort", f"{name}-find", f"{name}-page"
    order = query.get(sort_name, sort)
    key, is_down = order.removeprefix("-"), order.startswith("-")
    if key not in {column.key for column in columns}:
        raise BadQuery(f"{sort_name}: there is no column {key[:40]!r}")
    find = query.get(find_name, "")[:FIND_CHARACTERS_MAX]
    every = list(rows)
    found = [row for row in every if not find or _has(row, columns, find.casefold())]
    found.sort(key=lambda row: _order(row.get(key)), reverse=is_down)
    page_count = max(1, -(-len(found) // ROWS_PER_PAGE))
    text = query.get(page_name, "1")
    is_page = text.isascii() and text.isdecimal() and len(text) < len("1000000")
    page = min(max(1, int(text)), page_count) if is_page else 1
    first = (page - 1) * ROWS_PER_PAGE

    def address(**changes: str | int | None) -> str:
        changed = {f"{name}-{part}": value for part, value in changes.items()}
        merged = {**query, **changed}
        return "?" + urlencode({part: value for part, value in merged.items() if value})

    return TableView(
        name=name,
        headings=tuple(_heading(column, key, is_down, address) for column in columns),
        rows=tuple(found[first : first + ROWS_PER_PAGE]),
        total=len(found),
        all_rows=len(every),
        page=page,
        page_count=page_count,
        find=find,
        find_name=find_name,
        kept=tuple(
            (part, value) for part, value in query.items() if part not in (find_name, page_name)
        ),
        previous=address(page=page - 1) if page > 1 else None,
        next=address(page=page + 1) if page < page_count else None,
        empty=empty,
    )


def _heading(column: Column, key: str, is_down: bool, address: Callable[..., str]) -> Heading:
    is_key = column.key == key
    order = ("descending" if is_down else "ascending") if is_key else "none"
    # Numbers begin with the largest, texts with the first.
    starts_down = column.kind in ("number", "age", "time", "spark")
    next_down = not is_down if is_key else starts_down
    return Heading(
        column, address(sort=f"{'-' if next_down else ''}{column.key}", page=None), order
    )


def _has(row: Row, columns: Sequence[Column], find: str) -> bool:
    return any(
        find in str(text).casefold()
        for column in columns
        for text in _texts(column, row.get(column.key))
    )


def _texts(column: Column, value: Any) -> Iterable[object]:
    """Return the texts of a cell that can be searched."""
    if column.kind == "list":
        return value or ()
    return () if value is None or column.kind not in TEXTS else (value,)


def _order(value: object) -> tuple[int, Any]:
    """Sort unknown values before all others, and lists by their length."""
    if value is None:
        return (0, 0)
    if isinstance(value, (int, float)):
        return (1, value)
    return (1, len(value)) if isinstance(value, (list, tuple)) else (2, str(value))
