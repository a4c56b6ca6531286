"""Files of records: cells that spreadsheets do not run, and the line that says why a file ends."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator, Iterator, Sequence

import pytest

from sharegroup.console.parameters import BadQuery
from sharegroup.console.records.exports import (
    EXPORT_BYTES_MAX,
    RECORD_COLUMNS,
    Document,
    Rows,
    Written,
    csv_line,
    form_of,
    note_problem,
    written,
)
from sharegroup.errors import NotLeaderOrFollower

CSV, JSONL = form_of("csv", RECORD_COLUMNS), form_of("jsonl", RECORD_COLUMNS)


def record(offset: int, value: str = "x") -> Document:
    return {"topic": "t", "partition": 0, "offset": offset, "timestamp": 5, "key": None,
            "value": value, "headers": []}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\ufeff=1", "\uff1d1",
     "\u200b@x", "\tx", "\rx"],
)  # fmt: skip
def test_text_that_may_be_a_formula_has_an_apostrophe(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([text, "a"]).decode(), newline=""))
    assert row == [f"'{text}", "a"]


def test_cells_are_what_they_were() -> None:
    line = csv_line(
        ["a,b", 'say "no"', "two\nlines", "", None, -7, True, [{"name": "=x"}], "\ud800"]
    )
    assert line == (
        b'"a,b","say ""no""","two\nlines","",,-7,true,"[{""name"":""=x""}]","\\ud800"\r\n'
    )


def test_form_that_there_is_not() -> None:
    with pytest.raises(BadQuery, match="expected csv or jsonl, found 'xls'"):
        form_of("xls", RECORD_COLUMNS)


async def parts_of(
    parts: Sequence[Sequence[Document]], error: Exception | None = None
) -> AsyncGenerator[Sequence[Document], None]:
    for part in parts:
        yield part
    if error is not None:
        raise error


def file_of(
    rows: Rows, form: object = JSONL, times: Iterator[float] | None = None
) -> tuple[bytes, Written]:
    told = Written()

    async def run() -> bytes:
        now = (lambda: 0.0) if times is None else (lambda: next(times))
        return b"".join([part async for part in written(rows, form, told, monotonic=now)])  # type: ignore[arg-type]

    return asyncio.run(run()), told


def rows_of(
    parts: Sequence[Sequence[Document]],
    problems: Sequence[str] = (),
    error: Exception | None = None,
) -> Rows:
    return Rows(parts_of(parts, error), lambda: "go on at 7", list(problems))


def test_whole_file_has_nothing_but_its_records() -> None:
    content, told = file_of(rows_of([[record(0)], [], [record(1)]]))
    assert [json.loads(line)["offset"] for line in content.splitlines()] == [0, 1]
    assert (told.rows, told.outcome) == (2, "complete")
    content, _ = file_of(rows_of([[record(0)]]), CSV)
    assert content.decode() == (
        '"topic","partition","offset","timestamp","key","key_base64","value","value_base64",'
        '"headers"\r\n"t",0,0,5,,,"x",,"[]"\r\n'
    )


def test_file_that_is_too_large_says_where_to_go_on() -> None:
    large = record(0, "x" * (EXPORT_BYTES_MAX // 4))
    content, told = file_of(rows_of([[large] * 9]))
    assert (told.rows, told.outcome) == (4, "cut")
    last = json.loads(content.splitlines()[-1])
    assert last == {"cut": "the export is not complete: it has reached 64 MiB. go on at 7"}


def test_file_that_takes_too_long_says_so_even_if_nothing_matches() -> None:
    content, told = file_of(rows_of([[], [], []]), CSV, iter([0.0, 60.0, 120.0]))
    assert content.decode().splitlines()[-1] == (
        '"# cut: the export is not complete: it has taken 120 s. go on at 7"'
    )
    assert told.outcome == "cut"


def test_file_says_what_could_not_be_read() -> None:
    content, told = file_of(rows_of([[record(0)]], error=NotLeaderOrFollower("it moves")))
    assert "did not give the rest: it moves" in json.loads(content.splitlines()[-1])["cut"]
    assert (told.rows, told.outcome) == (1, "failed")
    problems: list[str] = []
    for number in range(100):
        note_problem(problems, f"offset {number}: broken")
    content, told = file_of(rows_of([[record(0)]], problems))
    assert "offset 9: broken" in (cut := json.loads(content.splitlines()[-1])["cut"])
    assert ("offset 10:" in cut, told.outcome) == (False, "failed")
