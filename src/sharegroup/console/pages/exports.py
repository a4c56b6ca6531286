"""Downloads: the letters of a selection, and the records of a search, as CSV or lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sharegroup.client.fetch.record_reading import PartitionRange
from sharegroup.console.access.roles import User
from sharegroup.console.pages import letters as letter_pages, records as record_pages
from sharegroup.console.pages.page import NotThere, Visit
from sharegroup.console.records.contents import Contents, undecoded
from sharegroup.console.records.exports import (
    LETTER_COLUMNS,
    RECORD_COLUMNS,
    Document,
    Form,
    Rows,
    form_of,
    note_problem,
    without_content,
)
from sharegroup.console.records.search import Budget, Found, positions_text
from sharegroup.dead_letters.letter_documents import exported_document
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.selection import Selection
from sharegroup.dead_letters.topics import is_topic_name
from sharegroup.errors import KafkaError
from sharegroup.record_documents import Row, as_json

LAP = Budget(found_max=1_000)
"""What is read at once of a search."""


@dataclass(frozen=True, slots=True)
class Export:
    """A file that is about to be sent."""

    user: User
    contents: Contents
    form: Form
    rows: Rows
    kind: str
    """``letters`` or ``records``."""

    @property
    def file_name(self) -> str:
        """The name under which a browser keeps it."""
        topic = self.contents.topic
        return f"{topic if is_topic_name(topic) else 'topic'}.{self.kind}.{self.form.name}"


async def letters(visit: Visit) -> Export:
    """Return the dead letters of a selection as a file, as `sharegroup dlq export` writes them."""
    form = form_of(visit.query.get("format", "jsonl"), LETTER_COLUMNS)
    contents, selection = letter_pages.asked(visit)
    described = (await visit.admin.describe_topics([contents.topic]))[contents.topic]
    if isinstance(described, KafkaError):
        raise NotThere(f"Topic {contents.topic!r}: {described}")
    problems: list[str] = []
    rows = Rows(
        _letters(visit, contents, selection, problems),
        lambda: "Narrow the selection, for example by since and until",
        problems,
    )
    return Export(visit.user, contents, form, rows, "letters")


async def _letters(
    visit: Visit, contents: Contents, selection: Selection, problems: list[str]
) -> AsyncGenerator[Sequence[Document], None]:
    def note(batch: PartitionRange, error: KafkaError) -> None:
        place = f"partition {batch.where.partition}, offsets {batch.first} to {batch.end - 1}"
        note_problem(problems, f"{place}: {error}")

    raw = replace(contents, registry=None)  # A file has what can be produced again.
    async with DeadLetterQueue(contents.topic, **visit.options) as queue:
        async for chunk in queue.chunks(selection, complete=True, empty=True, unreadable=note):
            shown = letter_pages.shown_letters(raw, selection, chunk)
            yield [
                _seen(contents, exported_document(letter, redriven=is_redriven, content=content))
                for letter, content, is_redriven in shown
            ]


async def records(visit: Visit) -> Export:
    """Return the records that a search finds as a file, as `sharegroup consume --json` writes."""
    form = form_of(visit.query.get("format", "jsonl"), RECORD_COLUMNS)
    search = await record_pages.asked(visit)
    reading = _Records(visit, search)
    rows = Rows(reading.parts(), reading.go_on, reading.problems)
    return Export(visit.user, search.contents, form, rows, "records")


class _Records:
    """The records of a search, lap by lap."""

    def __init__(self, visit: Visit, search: record_pages.Asked) -> None:
        self._visit, self._search = visit, search
        self._positions: Mapping[int, int] = search.positions
        self.problems: list[str] = []

    async def parts(self) -> AsyncGenerator[Sequence[Document], None]:
        """Yield the records of each lap."""
        is_complete = False
        while not is_complete:
            result = await self._search.look(self._visit, self._positions, LAP)
            for problem in result.unreadable:
                note_problem(self.problems, problem)
            yield [self._document(found) for found in result.found]
            # Only now are they written: before, an export that is cut would go on behind them.
            self._positions, is_complete = result.positions, result.is_complete

    def go_on(self) -> str:
        """Return the parameters with which another export begins at the lap that was cut."""
        if not self._positions:
            return "Narrow the search, for example by time"
        at = positions_text(self._positions)
        return f"Another export goes on with order={self._search.order}&at={at}"

    def _document(self, found: Found) -> Document:
        record = found.record
        row = Row(
            self._search.contents.topic, found.partition, record.offset,
            -1 if record.timestamp is None else record.timestamp,
            record.key, undecoded(record), record.headers,
        )  # fmt: skip
        return _seen(self._search.contents, as_json(row))


def _seen(contents: Contents, document: dict[str, Any]) -> Document:
    return document if contents.is_shown else without_content(document)


ExportFunction = Callable[[Visit], Awaitable[Export]]
