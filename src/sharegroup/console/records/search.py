"""Looks through a topic for records, without touching any group, within a budget.

    newest first   windows of offsets backwards from the ends
    oldest first   forwards from offsets or a time

A search ends when it has found enough, or has used its time or bytes.  It returns where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.console.records.contents import Contents
from sharegroup.console.records.turns import Turns
from sharegroup.dead_letters.expression import Expression
from sharegroup.errors import KafkaError
from sharegroup.wire.batches.records import DecodedRecord

LATE_SECONDS = 1.0
"""How much longer than its time a search looks at what it has read."""
FOUND_MAX = 50
"""Records on a page."""
SEARCH_SECONDS = 4.0
SEARCH_BYTES_MAX = 16 * 1024 * 1024
WINDOW_OFFSETS = 500
"""Offsets that are read at once, newest first."""
READ_MS = 5_000
TEXT_BYTES_MAX = 1_000
"""Length of a text that is searched for."""

Positions = dict[int, int]
"""An offset for each partition."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The conditions of a search, all of which must hold."""

    key: bytes = b""
    value: bytes = b""
    header: str = ""
    """A name, or a name and a part of its content: ``name=content``."""
    where: Expression | None = None
    until_ms: int | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every record is found."""
        return not (self.key or self.value or self.header or self.where or self.until_ms)

    def matches(self, record: DecodedRecord) -> bool:
        """Whether the record meets the conditions; the cheap ones first."""
        if self.until_ms is not None and (record.timestamp or 0) >= self.until_ms:
            return False
        if self.key and self.key not in (record.key or b""):
            return False
        if self.value and self.value not in (record.value or b""):
            return False
        if self.header and not _has_header(record, self.header):
            return False
        return self.where is None or self.where.holds(record.value)


def _has_header(record: DecodedRecord, wanted: str) -> bool:
    name, separator, content = wanted.partition("=")
    part = content.encode()
    return any(
        own_name == name and (not separator or part in (own_content or b""))
        for own_name, own_content in record.headers
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """What one search may use."""

    found_max: int = FOUND_MAX
    seconds: float = SEARCH_SECONDS
    bytes_max: int = SEARCH_BYTES_MAX


PAGE = Budget()


@dataclass(frozen=True, slots=True)
class Found:
    """A record with its partition."""

    partition: int
    record: DecodedRecord


@dataclass(slots=True)
class SearchResult:
    """What a search found, and where it stopped."""

    found: list[Found] = field(default_factory=list)
    looked_at: int = 0
    """Records that were compared."""
    looked_at_bytes: int = 0
    positions: Positions = field(default_factory=dict)
    """Where to go on: the next offset of each partition, or the end of the next window."""
    is_complete: bool = False
    """Whether there is nothing left to look through."""
    unreadable: list[str] = field(default_factory=list)
    """Batches that cannot be decoded, and partitions that cannot be read."""


class Search:
    """One search in one topic."""

    def __init__(
        self,
        reading: Cluster,
        ranges: Iterable[PartitionRange],
        wanted: Wanted,
        contents: Contents,
        *,
        budget: Budget = PAGE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a search; ``contents`` is what the user may see of a record.

        A search for a masked content would tell that content, so only what is seen is compared.
        """
        self._reading, self._contents = reading, contents
        self._ranges = {log_range.where.partition: log_range for log_range in ranges}
        self._wanted = wanted
        self._monotonic = monotonic
        self._budget, self._turns = budget, Turns()
        self._end_at = monotonic() + budget.seconds
        self.result = SearchResult()

    @property
    def _is_spent(self) -> bool:
        result = self.result
        return (
            len(result.found) >= self._budget.found_max
            or result.looked_at_bytes >= self._budget.bytes_max
            or self._monotonic() >= self._end_at
        )

    async def newest(self, positions: Mapping[int, int]) -> SearchResult:
        """Look backwards from these ends; partitions without one begin at the end of the log."""
        ends = {
            number: min(positions.get(number, whole.end), whole.end)
            for number, whole in self._ranges.items()
        }
        share = max(1, -(-self._budget.found_max // max(1, len(ends))))
        size = share if self._wanted.is_everything else WINDOW_OFFSETS
        while not self._is_spent:
            open_partitions = [p for p, end in ends.items() if end > self._ranges[p].first]
            if not open_partitions:
                break
            for number in sorted(open_partitions, key=lambda p: -ends[p]):
                whole = self._ranges[number]
                first = max(whole.first, ends[number] - size)
                window = whole._replace(first=first, end=ends[number])
                records, end = await self._read(window)
                if end < window.end:
                    self.result.unreadable.append(
                        f"partition {number}, offsets {end} to {window.end - 1}: too large, or "
                        f"too slow, to look at together; look oldest first, from offset {end}"
                    )
                self.result.found += [
                    Found(number, record) for record in records if self._wanted.matches(record)
                ]
                ends[number] = first
                if self._is_spent and not self._wanted.is_everything:
                    break
            if self._wanted.is_everything:
                break
        self.result.found.sort(
            key=lambda found: (found.record.timestamp or 0, found.record.offset), reverse=True
        )
        self.result.positions = ends
        self.result.is_complete = all(end <= self._ranges[p].first for p, end in ends.items())
        return self.result

    async def oldest(self, positions: Mapping[int, int]) -> SearchResult:
        """Look forwards from these offsets; partitions without one begin at the log's start."""
        at = {
            number: max(positions.get(number, whole.first), whole.first)
            for number, whole in self._ranges.items()
        }
        while not self._is_spent:
            open_partitions = [p for p, offset in at.items() if offset < self._ranges[p].end]
            if not open_partitions:
                break
            for number in open_partitions:
                whole = self._ranges[number]
                end = min(whole.end, at[number] + WINDOW_OFFSETS)
                records, at[number] = await self._read(whole._replace(first=at[number], end=end))
                for record in records:
                    if self._wanted.matches(record):
                        self.result.found.append(Found(number, record))
                        if len(self.result.found) >= self._budget.found_max:
                            at[number] = record.offset + 1
                            break
                if self._is_spent:
                    break
        self.result.positions = at
        self.result.is_complete = all(offset >= self._ranges[p].end for p, offset in at.items())
        return self.result

    async def _read(self, window: PartitionRange) -> tuple[list[DecodedRecord], int]:
        """Return records of a window, and the offset up to which it was read.

        What cannot be read is noted, and passed over.
        """
        result = self.result
        records: list[DecodedRecord] = []
        bytes_max = result.looked_at_bytes + self._budget.bytes_max
        end = window.end
        try:
            async for batch in read_records(
                self._reading, window, unreadable=self._note, timeout_ms=READ_MS
            ):
                await self._contents.prepare(record.value for record in batch)
                for record in batch:
                    records.append(self._contents.record(record))
                    result.looked_at_bytes += len(record.key or b"") + len(record.value or b"")
                    await self._turns.give()
                    is_late = self._monotonic() >= self._end_at + LATE_SECONDS
                    if is_late or result.looked_at_bytes >= bytes_max:
                        end = record.offset + 1
                        break
                if end < window.end:
                    break
        except KafkaError as error:
            where = f"{window.where.topic} {window.where.partition}"
            result.unreadable.append(f"{where} from {window.first}: {error}")
        result.looked_at += len(records)
        return records, end

    def _note(self, batch: PartitionRange, error: KafkaError) -> None:
        where = batch.where
        self.result.unreadable.append(
            f"{where.topic} {where.partition}, offsets {batch.first} to {batch.end - 1}: {error}"
        )


def positions_text(positions: Mapping[int, int]) -> str:
    """Return positions for an address: ``0:120,1:88``."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))


def parsed_positions(text: str) -> Positions:
    """Read positions of an address; BadQuery for another text."""
    positions: Positions = {}
    for part in filter(None, text.split(",")):
        number, _, offset = part.partition(":")
        if not (is_number(number) and is_number(offset)):
            raise BadQuery(f"at: expected PARTITION:OFFSET,…, found {text[:60]!r}")
        positions[int(number)] = int(offset)
    return positions
