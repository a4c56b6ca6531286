"""``sharegroup logs``: prints segments, batches and records of a data directory, without a broker.

It writes nothing and takes no lock. So the directory may belong to a running broker, or to one
that no longer starts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.broker.inspecting.data_directory import FoundLog, find_logs
from sharegroup.cli.broker.inspecting.segment_file import Damage, FoundBatch
from sharegroup.cli.broker.inspecting.survey import (
    LogSelection,
    Segment,
    batch_row,
    damage_text,
    opened_segments,
    record_document,
    segment_row,
    state_of,
)
from sharegroup.cli.common.log_positions import parse_offsets
from sharegroup.cli.common.output import Listing, complain, shown_text
from sharegroup.cli.common.tables import leaves_out
from sharegroup.record_documents import json_line, rfc3339
from sharegroup.wire.batches.record_pieces import UnreadableRange
from sharegroup.wire.batches.records import DecodedRecord

SEGMENT_COLUMNS = (
    "topic", "partition", "segment", "bytes", "batches", "records", "codec", "first_offset",
    "end_offset", "first_time", "last_time", "state",
)  # fmt: skip
BATCH_COLUMNS = (
    "topic", "partition", "segment", "position", "bytes", "base_offset", "last_offset", "records",
    "codec", "time", "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip

SEGMENT_SPARE = ("first_time", "codec", "segment", "last_time", "batches")
BATCH_SPARE = (
    "producer_epoch", "base_sequence", "producer_id", "segment", "time", "codec", "bytes",
    "position",
)  # fmt: skip


@click.command("logs")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--batches", "content", flag_value="batches", help="Print a line for each batch.")
@click.option(
    "--records", "content", flag_value="records", help="Print a line of JSON for each record."
)
@click.option("--topic", "topics", multiple=True, help="Name or id of a topic; can be repeated.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True)
@click.option(
    "--offsets",
    metavar="FIRST:END",
    help="Offsets from FIRST up to, but not including, END; each can be omitted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@leaves_out(SEGMENT_SPARE)
def command(
    *,
    directory: str,
    content: str | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    offsets: str | None,
    as_json: bool,
) -> int:
    """Print the segments, the batches or the records of a data directory, without a broker.

    DIR can be the data directory of a running broker, of Apache Kafka, or a damaged one, or the
    folder of one partition; nothing is changed.  Records of __share_group_state, __consumer_offsets
    and __transaction_state are printed as Kafka's formatters print them.

    Exit code 1: a segment is damaged; the position is printed on standard error.
    """
    selection = LogSelection(frozenset(topics), frozenset(partitions), *parse_offsets(offsets))
    survey = _Survey(selection)
    logs = selection.logs(find_logs(Path(directory), warn=complain))
    if content == "records":
        for log in logs:
            for document in survey.records(log):
                sys.stdout.buffer.write(json_line(document))
        sys.stdout.buffer.flush()
    else:
        rows = survey.batches if content == "batches" else survey.segments
        columns = BATCH_COLUMNS if content == "batches" else SEGMENT_COLUMNS
        spare = BATCH_SPARE if content == "batches" else SEGMENT_SPARE
        rows_found = [row for log in logs for row in rows(log)]
        if as_json:
            click.echo(Listing(rows_found, columns, "").json())
        else:
            shown = [_with_times(row) for row in rows_found]
            empty = f"There are no such logs in {directory}."
            click.echo(shown_text(Listing(shown, columns, empty, spare=spare)))
    return 1 if survey.damaged else 0


class _Survey:
    """Reads logs, yields rows for their contents, and reports damage on standard error."""

    def __init__(self, selection: LogSelection) -> None:
        self._selection = selection
        self.damaged = False

    def segments(self, log: FoundLog) -> Iterator[dict[str, Any]]:
        for segment, file in opened_segments(log, self._selection):
            with closing(file):
                pieces = self._telling(segment, file.walk())
                yield segment_row(segment, pieces, file.size, self._selection)

    def batches(self, log: FoundLog) -> Iterator[dict[str, Any]]:
        for segment, file in opened_segments(log, self._selection):
            with closing(file):
                for piece in self._telling(segment, file.walk()):
                    if isinstance(piece, FoundBatch) and self._is_selected(piece):
                        yield batch_row(segment, piece)

    def records(self, log: FoundLog) -> Iterator[dict[str, Any]]:
        for segment, file in opened_segments(log, self._selection):
            with closing(file):
                for piece in self._telling(segment, file.walk()):
                    if isinstance(piece, Damage) or not self._is_selected(piece):
                        continue
                    yield from self._documents(segment, piece, file.records(piece))

    def _documents(
        self,
        segment: Segment,
        batch: FoundBatch,
        pieces: Iterable[list[DecodedRecord] | UnreadableRange],
    ) -> Iterator[dict[str, Any]]:
        for piece in pieces:
            if isinstance(piece, UnreadableRange):
                self._unreadable(segment, batch, piece)
                continue
            for record in piece:
                if self._selection.first <= record.offset < self._selection.end:
                    yield record_document(segment.log, batch.header, record)

    def _is_selected(self, batch: FoundBatch) -> bool:
        return self._selection.overlaps(batch.header.base_offset, batch.header.end_offset)

    def _telling(
        self, segment: Segment, pieces: Iterator[FoundBatch | Damage]
    ) -> Iterator[FoundBatch | Damage]:
        """Yield the pieces unchanged, and report each damage on standard error."""
        for piece in pieces:
            if isinstance(piece, Damage):
                complain(damage_text(segment, piece))
                self.damaged = self.damaged or state_of(segment, piece) == "damaged"
            yield piece

    def _unreadable(self, segment: Segment, batch: FoundBatch, found: UnreadableRange) -> None:
        self.damaged = True
        complain(
            f"topic {segment.log.topic!r} partition {segment.log.partition} offsets {found.first} "
            f"to {found.end - 1} cannot be read and are omitted; {segment.path.name} at byte "
            f"{batch.position}: the checksum is correct, but: {found.error}"
        )


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with a readable time for each of its timestamps."""
    times = {
        name.replace("timestamp", "time"): _time(row[name])
        for name in ("timestamp", "first_timestamp", "last_timestamp")
        if name in row
    }
    return {**row, **times}


def _time(timestamp: int | None) -> str | None:
    if timestamp is None or timestamp < 0:
        return None
    try:
        return rfc3339(timestamp)
    except OverflowError:
        return str(timestamp)  # The number in the batch is outside the range of dates.
