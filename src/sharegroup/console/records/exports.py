"""An export: documents of records as lines of a file, within a budget of bytes and time.

    jsonl    a document a line, as ``consume --json`` and ``dlq export`` write it
    csv      its fields as columns; lists and objects as JSON

A file that was cut ends with a line that says so and where to go on.  Spreadsheets run cells that
begin with some characters as formulas, so such a text has an apostrophe before it.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sharegroup.console.parameters import BadQuery
from sharegroup.errors import KafkaError
from sharegroup.record_documents import json_bytes, json_line

EXPORT_BYTES_MAX = 64 * 1024 * 1024
EXPORT_SECONDS = 120.0
"""Time for reading and sending a file; one that takes longer is cut."""
PROBLEMS_MAX = 10
CHUNK_BYTES = 64 * 1024
"""Bytes that are sent at once."""

Document = Mapping[str, Any]
FORMULA = re.compile(
    r"[\s\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]"
)
"""The beginning of a text that a spreadsheet may take for a formula."""
CONTENT = ("key", "key_base64", "value", "value_base64", "headers")
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", *CONTENT)
LETTER_COLUMNS = (
    *RECORD_COLUMNS, "reason", "error_class", "error_message", "group", "handler", "member",
    "delivery_count", "failures", "attempts", "redrives", "redriven", "redrive_id", "origin",
    "by_broker", "claimed", "record_missing", "traceback",
)  # fmt: skip
CUT = "the export is not complete"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of file."""

    name: str
    media_type: str
    head: bytes
    line: Callable[[Document], bytes]
    last: Callable[[str], bytes]
    """Returns the line that says why the file was cut."""


@dataclass(slots=True)
class Rows:
    """The documents of an export; a file is made of them once."""

    parts: AsyncGenerator[Sequence[Document], None]
    """Some documents at a time, maybe none: between them the time is looked at."""
    go_on: Callable[[], str]
    """Returns how to get the documents that were not reached."""
    problems: list[str]
    """What could not be read so far; the file ends with it."""


def note_problem(problems: list[str], text: str) -> None:
    """Keep a problem, up to `PROBLEMS_MAX` of them."""
    if len(problems) < PROBLEMS_MAX:
        problems.append(text)


def form_of(name: str, columns: Sequence[str]) -> Form:
    """Return the form of a parameter; BadQuery for another one."""
    if name == "jsonl":
        return Form(
            name, "application/x-ndjson", b"", json_line, lambda text: json_line({"cut": text})
        )
    if name == "csv":
        return Form(
            name,
            "text/csv; charset=utf-8",
            csv_line(columns),
            lambda document: csv_line(_cells(document, columns)),
            lambda text: csv_line([f"# cut: {text}"]),
        )
    raise BadQuery(f"format: expected csv or jsonl, found {name[:40]!r}")


def _cells(document: Document, columns: Sequence[str]) -> list[Any]:
    fields = {**document, **document.get("dead", {})}
    return [fields.get(column) for column in columns]


def csv_line(cells: Sequence[Any]) -> bytes:
    """Return a line of CSV: texts in quotes, null as nothing, lists and objects as JSON."""
    return ",".join(map(_cell, cells)).encode("utf-8", "backslashreplace") + b"\r\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, int)):
        return str(value).lower()
    text = value if isinstance(value, str) else json_bytes(value).decode()
    if FORMULA.match(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"'


def without_content(document: Document) -> Document:
    """Return a record's document for somebody who may not see its content."""
    return {name: value for name, value in document.items() if name not in CONTENT}


@dataclass(slots=True)
class Written:
    """What an export has written."""

    rows: int = 0
    bytes: int = 0
    outcome: str = "cut"
    """``complete``; ``cut``, also if the reader went away; or ``failed``."""


async def written(
    rows: Rows, form: Form, told: Written, *, monotonic: Callable[[], float] = time.monotonic
) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a file; ``told`` is kept current."""
    waiting = bytearray(form.head)
    reason = ""
    try:
        async with aclosing(_lines(rows, form, told, monotonic)) as lines:
            async for line in lines:
                waiting += line
                if len(waiting) >= CHUNK_BYTES:
                    yield bytes(waiting)
                    waiting.clear()
        told.outcome = "complete"
    except _Spent as spent:
        reason = f"{spent}. {rows.go_on()}"
    except KafkaError as error:
        # The answer has begun, so only its last line can say it.
        told.outcome, reason = "failed", f"the cluster did not give the rest: {error}"
    if rows.problems:
        told.outcome = "failed"
        reason = "; ".join(
            [*filter(None, [reason]), *(f"unreadable: {problem}" for problem in rows.problems)]
        )
    if reason:
        waiting += form.last(f"{CUT}: {reason}")
    yield bytes(waiting)


class _Spent(Exception):
    """The budget of an export is spent."""


async def _lines(
    rows: Rows, form: Form, told: Written, monotonic: Callable[[], float]
) -> AsyncGenerator[bytes, None]:
    """Yield lines; the bounds are checked before each, so only the last one may exceed them."""
    end_at = monotonic() + EXPORT_SECONDS
    async with aclosing(rows.parts) as parts:
        async for documents in parts:
            for document in documents:
                if told.bytes >= EXPORT_BYTES_MAX:
                    raise _Spent(f"it has reached {EXPORT_BYTES_MAX >> 20} MiB")
                line = form.line(document)
                told.rows += 1
                told.bytes += len(line)
                yield line
            if monotonic() >= end_at:
                raise _Spent(f"it has taken {EXPORT_SECONDS:.0f} s")
