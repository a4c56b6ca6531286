"""Reads odd batches with our decoders and compares each record with what Java reads.

The readers here need no broker: those of `Consumer`, `ShareConsumer` and `tail`, of columns, of
columns and records in pieces, and the broker's check of large batches.  `differences` names what
does not agree.  Readers are told apart by their functions' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.wire.batches.batches import NO_TIMESTAMP, BatchHeader, parse_header
from sharegroup.wire.batches.columns import record_columns
from sharegroup.wire.batches.header_columns import headers_of
from sharegroup.wire.batches.header_names import Header, UndecodedName, name_bytes
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.record_walk import check_batch, finish
from sharegroup.wire.batches.records import DecodedRecord, encode_batch
from tests.support.java_batches import JavaReading, digest_of, line_of, read_by_java
from tests.support.odd_batches import OddBatch, odd_batches

BYTES_MAX = 64 * 1024 * 1024
LITTLE_BYTES = 4_000
"""A limit at which many batches are read as a stream, and some records are too large."""


class Reading(NamedTuple):
    """What one of our readers made of a batch: its records, and the ranges it cannot read."""

    records: list[str]
    unreadable: list[tuple[int, int]]


def records_in_pieces(batch: OddBatch, bytes_max: int) -> Reading:
    """Read as `Consumer`, `ShareConsumer`, the worker, ``tail`` and ``consume`` do."""
    header = parse_header(batch.data)
    records: list[str] = []
    unreadable: list[tuple[int, int]] = []
    if header.is_control:
        return Reading([], [])
    for piece in read_pieces(
        batch.data, 0, header, list[DecodedRecord], decompressed_bytes_max=bytes_max, check_crc=True
    ):
        if isinstance(piece, UnreadableRange):
            unreadable.append(piece[:2])
        else:
            records += [_line(record, header) for record in piece]
    return Reading(records, unreadable)


def columns_in_groups(batch: OddBatch, bytes_max: int) -> Reading:
    """Read as ``poll_arrow`` and Spark do."""
    records: list[str] = []
    unreadable: list[tuple[int, int]] = []

    def report(first: int, end: int, error: Exception) -> None:
        unreadable.append((first, end))

    for group in record_columns(
        batch.data, headers=True, decompressed_bytes_max=bytes_max, unreadable=report
    ):
        rows = zip(
            group.offsets.tolist(),
            group.timestamps.tolist(),
            group.timestamp_types.tolist(),
            group.keys.to_pylist(),
            group.values.to_pylist(),
            map(headers_of, group.headers.to_pylist()),
            strict=True,
        )
        records += [line_of(*row) for row in rows]
    return Reading(records, unreadable)


READERS: tuple[Callable[[OddBatch, int], Reading], ...] = (records_in_pieces, columns_in_groups)


def _line(record: DecodedRecord, header: BatchHeader) -> str:
    time = NO_TIMESTAMP if record.timestamp is None else record.timestamp
    kind = int(header.has_log_append_time)
    return line_of(record.offset, time, kind, record.key, record.value, record.headers)


def differences(batches: Iterable[OddBatch], java: Iterable[JavaReading]) -> Iterator[str]:
    """Yield a line for each reader that read something else from a batch than Java did."""
    for number, (batch, expected) in enumerate(zip(batches, java, strict=True)):
        for read in READERS:
            found = read(batch, BYTES_MAX)
            if problem := _problem(batch, expected, found):
                yield f"batch {number} ({batch.fault}), {read.__name__}: {problem}"
            for problem in _in_pieces(batch, found, read(batch, LITTLE_BYTES)):
                yield f"batch {number} ({batch.fault}), {read.__name__} in pieces: {problem}"
        for problem in (*_of_check(batch, expected), *_of_copy(batch)):
            yield f"batch {number} ({batch.fault}): {problem}"


def _problem(batch: OddBatch, expected: JavaReading, found: Reading) -> str | None:
    """Return how a reader differs from Java; a batch that Java ends early is one range for us."""
    if expected.error != "-":
        if found.records or found.unreadable != [(batch.base_offset, batch.end_offset)]:
            return f"Java ends with {expected.error}, we read {len(found.records)} records"
        return None
    if found.unreadable:
        return f"Java reads {expected.count} records, we cannot read {found.unreadable}"
    if (len(found.records), digest_of(found.records)) != (expected.count, expected.digest):
        return f"Java reads {expected}, we read {len(found.records)}: {found.records[:2]}"
    return None


def _in_pieces(batch: OddBatch, whole: Reading, pieces: Reading) -> Iterator[str]:
    """Check that a small limit changes nothing but records that are larger than it."""
    known = set(whole.records)
    if whole.unreadable:
        first = pieces.unreadable[0][0] if pieces.unreadable else batch.end_offset
        if not pieces.unreadable or first > batch.end_offset:
            yield f"unreadable as a whole, {len(pieces.records)} records in pieces"
        return
    if not known.issuperset(pieces.records):
        yield f"other records: {pieces.records[:2]}"
    missing = {offset_of(line) for line in whole.records} - {
        offset_of(line) for line in pieces.records
    }
    reported = {offset for first, end in pieces.unreadable for offset in range(first, end)}
    if missing - reported:
        yield f"offsets {sorted(missing - reported)[:5]} are missing and not reported"
    lines = {offset_of(line): line for line in whole.records}
    small = [offset for offset in missing if len(lines[offset]) < LITTLE_BYTES]
    if small:
        yield f"offsets {small[:5]} of a few bytes are missing"


def offset_of(line: str) -> int:
    """The offset of a record by its line."""
    return int(line.split(" ", 1)[0])


def _of_check(batch: OddBatch, expected: JavaReading) -> Iterator[str]:
    """Check that the broker archives no batch that Java reads."""
    header = parse_header(batch.data)
    if header.is_control or expected.error != "-":
        return
    for bytes_max in (BYTES_MAX, LITTLE_BYTES):
        try:
            finish(check_batch(batch.data, header, bytes_max=bytes_max))
        except (CorruptMessage, KafkaError) as error:
            yield f"the broker calls it unreadable: {error}"


def _of_copy(batch: OddBatch) -> Iterator[str]:
    """Check that records written again have the original bytes of all names."""
    header = parse_header(batch.data)
    pieces = read_pieces(
        batch.data, 0, header, list[DecodedRecord], decompressed_bytes_max=BYTES_MAX, check_crc=True
    )
    for piece in pieces:
        if isinstance(piece, UnreadableRange) or not piece:
            continue
        names = [name_bytes(name) for record in piece for name, _ in record.headers]
        copied = encode_batch(
            [
                (record.key, record.value, record.timestamp or 0, _text_names(record.headers))
                for record in piece
            ]
        )
        (again,) = read_pieces(
            copied, 0, parse_header(copied), list[DecodedRecord], decompressed_bytes_max=BYTES_MAX
        )
        assert not isinstance(again, UnreadableRange)
        if names != [name_bytes(name) for record in again for name, _ in record.headers]:
            yield "a copy has other names"
        if [(r.key, r.value) for r in piece] != [(r.key, r.value) for r in again]:
            yield "a copy has other contents"


def _text_names(headers: list[Header]) -> list[Header]:
    assert all(type(name) in (str, UndecodedName) for name, _ in headers)
    return headers


GOLDEN = Path(__file__).with_name("odd_batches.golden.txt")
GOLDEN_SEED = 4
GOLDEN_COUNT = 150
ROUND_COUNT = 500


def golden(text: str) -> list[JavaReading]:
    """Java's answers in a golden file."""
    return [JavaReading(int(count), digest, error) for count, digest, error in _words(text)]


def _words(text: str) -> Iterator[list[str]]:
    return (line.split() for line in text.splitlines() if not line.startswith("#"))


def write_golden() -> None:
    """Write what Java reads from the first batches of the seed."""
    batches = odd_batches(GOLDEN_SEED, count=GOLDEN_COUNT)
    lines = [f"# What Java reads from odd_batches({GOLDEN_SEED}): {__name__} --golden writes this."]
    for reading in read_by_java(batch.data for batch in batches):
        # The records before an error depend on how much a codec gives at a time.
        known = reading if reading.error == "-" else JavaReading(0, "-", reading.error)
        lines.append(" ".join(map(str, known)))
    GOLDEN.write_text("\n".join(lines) + "\n")


def main(words: Sequence[str]) -> int:
    """Compare batches in rounds; return the number of differences, or write the golden file."""
    if list(words) == ["--golden"]:
        write_golden()
        return 0
    seed, count = (int(word) for word in words)
    found = done = 0
    while done < count:
        batches = list(odd_batches(seed, count=min(ROUND_COUNT, count - done)))
        for line in differences(batches, read_by_java(batch.data for batch in batches)):
            found += 1
            print(f"seed {seed}, {line}")
        done, seed = done + len(batches), seed + 1
        print(f"{done} of {count} batches, {found} differences", flush=True)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
