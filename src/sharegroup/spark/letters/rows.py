"""The columns of ``kafka-share-letters``, and the rows of a task, which an executor reads.

The letters of a topic are read as `sharegroup dlq` reads them: with the ledger that says which of
them were redriven, and completed with their records if a broker's letter lacks them.

Position, key, value and headers are those of the letter's record; the other columns say why and
when it failed.  A column that a letter does not have is null: a broker's letter has a reason, a
group, an origin and a delivery count only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sharegroup.dead_letters.letter import NO_TIME, Letter
from sharegroup.dead_letters.queue import Chunk, DeadLetterQueue
from sharegroup.spark.decoded_read import choice_of, from_async, ranges_of
from sharegroup.spark.executor_fetch import this_process
from sharegroup.spark.options import LettersOptions
from sharegroup.spark.plan import PartitionRuns, RunsPartition
from sharegroup.wire.batches.header_columns import HEADERS
from sharegroup.wire.batches.header_names import with_names

TIME = pa.timestamp("us", tz="UTC")
MILLISECONDS_MAX = (2**63 - 1) // 1000
ATTEMPT = pa.struct(
    [
        ("number", pa.int64()),
        ("time", TIME),
        ("errorClass", pa.string()),
        ("message", pa.string()),
        ("member", pa.string()),
    ]
)
ORIGIN = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
    ]
)


class Column(NamedTuple):
    """A column: its type, and its value for a letter that was redriven before or not."""

    kind: pa.DataType
    value: Callable[[Letter, bool], Any]


def _text(text: str) -> str | None:
    return text or None


def _micros(milliseconds: int | None) -> int | None:
    """Convert a time to Spark's microseconds; None for a time that is unknown."""
    if milliseconds is None or milliseconds == NO_TIME:
        return None
    return max(-MILLISECONDS_MAX, min(milliseconds, MILLISECONDS_MAX)) * 1000


def _attempts(letter: Letter) -> list[dict[str, Any]]:
    return [
        {
            "number": attempt.number,
            "time": _micros(attempt.at_ms),
            "errorClass": attempt.error,
            "message": attempt.message,
            "member": attempt.member,
        }
        for attempt in letter.story.attempts
    ]


def _origin(letter: Letter) -> dict[str, Any] | None:
    origin = letter.story.origin
    if origin is None:
        return None
    return {
        "topic": origin.topic,
        # Another producer may write any number into the headers of a letter.
        "partition": origin.partition if origin.partition < 2**31 else None,
        "offset": origin.offset,
        "timestamp": _micros(origin.timestamp_ms),
    }


COLUMNS: Mapping[str, Column] = {
    "key": Column(pa.binary(), lambda letter, _: letter.key),
    "value": Column(pa.binary(), lambda letter, _: letter.value),
    "topic": Column(pa.string(), lambda letter, _: letter.topic),
    "partition": Column(pa.int32(), lambda letter, _: letter.partition),
    "offset": Column(pa.int64(), lambda letter, _: letter.offset),
    "timestamp": Column(TIME, lambda letter, _: _micros(letter.timestamp_ms)),
    "headers": Column(
        HEADERS,
        lambda letter, _: (
            [{"key": name, "value": content} for name, content in with_names(letter.headers)]
            or None
        ),
    ),
    "reason": Column(pa.string(), lambda letter, _: str(letter.death.reason)),
    "errorClass": Column(pa.string(), lambda letter, _: _text(letter.death.error_class)),
    "message": Column(
        pa.string(), lambda letter, _: _text(letter.death.error_message or letter.death.message)
    ),
    "traceback": Column(pa.string(), lambda letter, _: _text(letter.death.traceback)),
    "attempts": Column(pa.list_(ATTEMPT), lambda letter, _: _attempts(letter)),
    "failures": Column(pa.int64(), lambda letter, _: letter.story.failures),
    "deliveryCount": Column(pa.int64(), lambda letter, _: letter.death.delivery_count),
    "origin": Column(ORIGIN, lambda letter, _: _origin(letter)),
    "firstFailure": Column(TIME, lambda letter, _: _micros(letter.death.first_failure_ms)),
    "lastFailure": Column(TIME, lambda letter, _: _micros(letter.death.last_failure_ms)),
    "group": Column(pa.string(), lambda letter, _: _text(letter.death.group)),
    "handler": Column(pa.string(), lambda letter, _: _text(letter.death.handler)),
    "member": Column(pa.string(), lambda letter, _: _text(letter.death.member)),
    "byBroker": Column(pa.bool_(), lambda letter, _: letter.death.by_broker),
    "claimed": Column(pa.bool_(), lambda letter, _: letter.is_origin_claimed),
    "redrives": Column(pa.int64(), lambda letter, _: letter.redrives),
    "redriven": Column(pa.bool_(), lambda _, redriven: redriven),
    "recordMissing": Column(
        pa.bool_(), lambda letter, _: letter.lacks_its_record and not letter.has_payload
    ),
}

ARROW_SCHEMA = pa.schema([(name, column.kind) for name, column in COLUMNS.items()])


def spark_schema() -> StructType:
    """Return the Spark schema; every column is nullable."""
    return from_arrow_schema(ARROW_SCHEMA)


def letter_rows(chunk: Chunk[Letter]) -> pa.RecordBatch:
    """Return the rows of the letters of a chunk."""
    letters = [(letter, letter.offset in chunk.redriven) for letter in chunk.letters]
    arrays = []
    for column in COLUMNS.values():
        values = [column.value(letter, redriven) for letter, redriven in letters]
        arrays.append(_array(values, column.kind))
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # JSON of an attempt's message can contain lone surrogates.
        return pa.array(_encodable(values), kind)


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which UTF-8 cannot encode, in all texts of a value."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case list():
            return [_encodable(element) for element in value]
        case dict():
            return {name: _encodable(element) for name, element in value.items()}
    return value


def read(options: LettersOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the order of offsets within each topic partition."""
    if not isinstance(partition, RunsPartition):
        return  # For a batch read without partitions Spark passes an empty one of its own.
    for chunk in from_async(this_process().thread, _chunks(options, partition.parts)):
        yield letter_rows(chunk)


async def _chunks(
    options: LettersOptions, parts: Iterable[PartitionRuns]
) -> AsyncIterator[Chunk[Letter]]:
    # `plan` orders the parts by topic, so each topic is one group.
    for topic, of_topic in groupby(parts, attrgetter("topic")):
        async with DeadLetterQueue(topic, **options.client) as queue:
            queue.ranges = ranges_of(of_topic)
            chunks = queue.chunks(complete=options.complete_records, unreadable=choice_of(options))
            async for chunk in chunks:
                yield chunk
