"""A broker's log of odd batches, and what each reader that needs a broker finds in it.

    topic        CreateTime or LogAppendTime: the broker stamps times of its own
    records      as Java reads them from the segment files, in our lines (`seen_line`)
    unreadable   the ranges of the batches that Java refuses

What a reader finds is compared record by record: offset, timestamp and its type, key, value, and
headers with the original bytes of their names.  Readers that do not tell a field get the line of
Java without it (`OddLog.lines`).

``ODD_SEED`` and ``ODD_LOG_BATCHES`` choose another log than that of ``make test``.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from sharegroup.cli.broker.inspecting.data_directory import find_logs
from sharegroup.testing import TestBroker, run_broker
from sharegroup.wire.batches.batches import NO_TIMESTAMP, parse_header, scan
from sharegroup.wire.batches.header_columns import headers_of
from sharegroup.wire.batches.header_names import name_bytes
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces
from sharegroup.wire.batches.records import DecodedRecord
from tests.interop.odd_readers import BYTES_MAX, differences
from tests.support.java_batches import read_by_java
from tests.support.java_shell import javac
from tests.support.kafka_peer import installed_libs
from tests.support.odd_batches import OddBatch, odd_batches
from tests.support.unreadable import produce_batches

LOG_BATCHES = int(os.environ.get("ODD_LOG_BATCHES", "60"))
SEED = int(os.environ.get("ODD_SEED", "4"))
TOPIC = "odd"
TIME_TYPES = ("CreateTime", "LogAppendTime")
SETTINGS = {"max.message.bytes": 10_000_000, "message.timestamp.after.max.ms": 2**63 - 1}
HAS_JAVA = javac() is not None and installed_libs() is not None
SECONDS_MAX = 60.0 + LOG_BATCHES
"""Only to end a test that hangs."""

_RANGE = re.compile(r"topic '(.+?)' partition (\d+) offsets (\d+) to (\d+)")

offset_of = attrgetter("offset")
Headers = Sequence[tuple[bytes, bytes | None]]
Ranges = list[tuple[int, int]]


class Seen(NamedTuple):
    """A record as a reader returned it; None for a time or type that the reader does not tell."""

    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class OddLog(NamedTuple):
    """A topic of odd batches in a broker, and what Java finds in it."""

    broker: TestBroker
    data: Path
    batches: Sequence[OddBatch]
    records: Sequence[Seen]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def unreadable(self) -> Ranges:
        """The ranges of batches that Java refuses."""
        return [(b.base_offset, b.end_offset) for b in self.batches if b.fault is not None]

    @property
    def unreadable_offsets(self) -> set[int]:
        return set(offsets_in(self.unreadable))

    def group(self, name: str) -> str:
        """Set a new share group to the beginning of the log; return its name."""
        self.broker.configure_group(name, {"share.auto.offset.reset": "earliest"})
        return name

    def without(self, *fields: str) -> list[Seen]:
        """The records with None in these fields."""
        return [record._replace(**dict.fromkeys(fields)) for record in self.records]


def offsets_in(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """The offsets of half-open ranges."""
    return (offset for first, end in ranges for offset in range(first, end))


@contextmanager
def odd_log(data: Path, time_type: str) -> Iterator[OddLog]:
    """Run a broker with the log; if Java is here, it reads the files of the segments, too."""
    with run_broker(data=str(data)) as broker:
        broker.create_topic(TOPIC, settings=SETTINGS | {"message.timestamp.type": time_type})
        made = list(odd_batches(SEED, count=LOG_BATCHES, by_producer=True))
        produce_batches(broker.bootstrap_servers, TOPIC, *(batch.data for batch in made))
        batches = [
            batch._replace(data=stored)
            for batch, stored in zip(made, stored_batches(data, TOPIC), strict=True)
        ]
        if HAS_JAVA:
            read = read_by_java(batch.data for batch in batches)
            assert list(differences(batches, read)) == []
        records = [record for batch in batches for record in _records_of(batch)]
        assert len(records) > 100
        assert any(b"\xff" in name for record in records for name, _ in record.headers)
        yield OddLog(broker, data, batches, records)


def stored_batches(data: Path, topic: str) -> list[bytes]:
    """The batches in the files of a topic's segments."""
    found: list[bytes] = []
    for log in find_logs(data, warn=print):
        for _, path in log.segments() if log.topic == topic else ():
            content = path.read_bytes()
            found += (content[at : at + header.size] for at, header in scan(content))
    return found


def _records_of(batch: OddBatch) -> Iterator[Seen]:
    header = parse_header(batch.data)
    for piece in read_pieces(
        batch.data, 0, header, list[DecodedRecord], decompressed_bytes_max=BYTES_MAX
    ):
        assert isinstance(piece, UnreadableRange) == (batch.fault is not None)
        if not isinstance(piece, UnreadableRange):
            for record in piece:
                yield seen(record, record.timestamp, int(header.has_log_append_time))


def seen(record: Any, timestamp: int | None, timestamp_type: int | None) -> Seen:
    """A record of any of our readers, with the bytes of its names."""
    time = NO_TIMESTAMP if timestamp is None and timestamp_type is not None else timestamp
    return Seen(record.offset, time, timestamp_type, record.key, record.value, raw(record.headers))


def raw(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Headers with the original bytes of their names."""
    return [(name_bytes(name), content) for name, content in headers]


def seen_row(row: dict[str, Any]) -> Seen:
    """A row of columns whose timestamp is a number of milliseconds, None for a missing one."""
    time = NO_TIMESTAMP if row["timestamp"] is None else row["timestamp"]
    kind = row.get("timestamp_type")
    return Seen(
        row["offset"], time, kind, row["key"], row["value"], raw(headers_of(row["headers"]))
    )


def seen_document(document: dict[str, Any]) -> Seen:
    """A line of JSON of the command line."""
    headers = [
        (_bytes(header, "name") or b"", _bytes(header, "value")) for header in document["headers"]
    ]
    key, value = _bytes(document, "key"), _bytes(document, "value")
    return Seen(document["offset"], document["timestamp"], None, key, value, headers)


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    content = document.get(name)
    return None if content is None else str(content).encode()


def ranges_told(text: str, topic: str = TOPIC) -> Ranges:
    """The ranges that messages name: ``topic 't' partition 0 offsets 3 to 5``."""
    found = _RANGE.findall(text)
    assert {(name, partition) for name, partition, *_ in found} <= {(topic, "0")}
    return sorted({(int(first), int(last) + 1) for *_, first, last in found})


def covers(ranges: Ranges, log: OddLog) -> bool:
    """Whether these ranges, in parts or whole, are those that Java refuses, and overlap nowhere.

    A share group may acquire a batch in parts.
    """
    offsets = sorted(offsets_in(ranges))
    return offsets == sorted(log.unreadable_offsets)


def first_difference(found: Iterable[Seen], expected: Iterable[Seen]) -> str | None:
    """Name the first record that differs, with all its fields; None if none does."""
    ours, theirs = sorted(found, key=offset_of), sorted(expected, key=offset_of)
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            return f"found {mine!r:.900}, Java has {other!r:.900}"
    if len(ours) != len(theirs):
        return f"found {len(ours)} records, Java has {len(theirs)}"
    return None
