"""The records of one poll as bytes, with those that the format of the output cannot express."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from sharegroup.cli.records.formats.template import RecordFormatError
from sharegroup.cli.records.formats.writing import RowWriter
from sharegroup.record_documents import Row


class Positioned(Protocol):
    """A record at an offset of a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


R = TypeVar("R", bound=Positioned)


class FormattedRecords(NamedTuple, Generic[R]):
    """The bytes of records, and the records that have none."""

    content: bytes
    written: Sequence[R]
    unwritable: Sequence[tuple[R, RecordFormatError]]
    """The records that the format cannot express, which others follow."""
    failure: RecordFormatError | None
    """The error of the record at which the formatting ended; None if it ended with the last."""


def format_records(
    records: Iterable[R], row_of: Callable[[int, R], Row], write: RowWriter, *, continues: bool
) -> FormattedRecords[R]:
    """Format records in order, up to the first that cannot be, or all others if ``continues``.

    ``row_of`` gets the number of the record, from 0, and the record.
    """
    content: list[bytes] = []
    written: list[R] = []
    unwritable: list[tuple[R, RecordFormatError]] = []
    failure: RecordFormatError | None = None
    for number, record in enumerate(records):
        try:
            content.append(write(row_of(number, record)))
        except RecordFormatError as error:
            where = f"topic {record.topic!r} partition {record.partition} offset {record.offset}"
            located = RecordFormatError(f"{where}: {error}")
            if not continues:
                failure = located
                break
            unwritable.append((record, located))
        else:
            written.append(record)
    return FormattedRecords(b"".join(content), written, unwritable, failure)
