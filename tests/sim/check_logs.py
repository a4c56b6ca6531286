"""What must hold of logs (L1 to L4 of the promise), checked against what the broker has written.

L1  a record whose produce was confirmed is there, at its offset, with its value, until it is
    deleted; and so is a record that anybody was ever given
L2  offsets are unique and dense; high watermark and log start never go back
L3  a batch that an idempotent producer sends again has the offset of the first time, is in
    the log once, and nothing of the producer overtakes it
L4  who reads committed records only gets none of a transaction that was aborted or is open;
    the last stable offset never goes back
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from sharegroup.wire.batches.batches import parse_header, scan
from sharegroup.wire.batches.markers import decode_marker
from sharegroup.wire.batches.records import batch_records, decode_records
from tests.sim.messages import Partition

NO_PRODUCER_ID = -1

Report = Callable[[str], None]


class Outcome(Enum):
    """What its transaction came to, as far as somebody said."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Epoch(NamedTuple):
    """A producer in one of its epochs, each of which begins with sequence 0."""

    producer_id: int
    epoch: int


class Told(NamedTuple):
    """What anybody had been told of a log when a request arrived: its answer may not be older.

    It may be older than other answers written meanwhile: one that is decided, and waits to be
    written, is overtaken by those of other connections.
    """

    start_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(slots=True)
class LogView:
    """One partition as far as anybody was told of it."""

    records: dict[int, bytes] = field(default_factory=dict)
    """Confirmed to a producer or given to a consumer, by offset."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """The other way round; values are never used twice."""
    sent: dict[bytes, bool] = field(default_factory=dict)
    """Every value that arrived, and whether it may be in the log twice."""
    batches: dict[tuple[Epoch, int], int] = field(default_factory=dict)
    """Base offset of an idempotent producer's confirmed batch, by its epoch and sequence."""
    sequences: dict[bytes, tuple[Epoch, int]] = field(default_factory=dict)
    """Producer's epoch and sequence of a value."""
    confirmed: dict[int, bytes] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    """Keys of confirmed records, by offset."""
    outcomes: dict[bytes, Outcome] = field(default_factory=dict)
    """Of values that were written in transactions."""
    has_markers: bool = False
    """There are offsets without records."""
    high_watermark: int = 0
    last_stable_offset: int = 0
    start_offset: int = 0
    deletable_to: int = 0
    """Somebody asked for records below this offset to be deleted; -1 means: up to the end."""

    @property
    def told(self) -> Told:
        return Told(self.start_offset, self.high_watermark, self.last_stable_offset)

    def may_be_deleted(self, offset: int) -> bool:
        return offset < self.deletable_to

    def may_be_no_record(self, offset: int, *, reads_committed: bool) -> bool:
        """Whether it was deleted, is a marker, or for who reads committed records nothing."""
        if self.may_be_deleted(offset):
            return True
        value = self.records.get(offset)
        if value is None:
            return self.has_markers
        return reads_committed and self.outcomes.get(value) in (Outcome.OPEN, Outcome.ABORTED)


class LogChecks:
    """See the module's text."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.views: dict[Partition, LogView] = {}
        self.not_ours: set[UUID] = set()
        """Topics that the broker itself writes to."""

    def view(self, partition: Partition) -> LogView:
        return self.views.setdefault(partition, LogView())

    def produce_asked(self, partition: Partition, records: bytes) -> None:
        """These values may be in the log from now on."""
        view, header = self.view(partition), parse_header(records)
        idempotent = header.producer_id != NO_PRODUCER_ID
        for index, record in enumerate(decode_records(records)):
            value = bytes(record.value or b"")
            view.sent[value] = not idempotent and value in view.sent
            if idempotent:
                epoch = Epoch(header.producer_id, header.producer_epoch)
                view.sequences[value] = (epoch, header.base_sequence + index)

    def produce_confirmed(self, partition: Partition, records: bytes, base_offset: int) -> None:
        view, header = self.view(partition), parse_header(records)
        if header.producer_id != NO_PRODUCER_ID:
            epoch = Epoch(header.producer_id, header.producer_epoch)
            batch = (epoch, header.base_sequence)
            first = view.batches.setdefault(batch, base_offset)
            if first != base_offset:
                self._report(f"L3: {partition} batch {batch} was at {first}, now at {base_offset}")
        for index, record in enumerate(decode_records(records)):
            value = bytes(record.value or b"")
            view.confirmed[base_offset + index] = value
            if record.key is not None:
                view.keys[base_offset + index] = bytes(record.key)
            self._seen(partition, view, base_offset + index, value)

    def delivered(
        self, partition: Partition, records: bytes, *, is_dense: bool = True
    ) -> dict[int, bytes]:
        """Somebody was given these batches; the values by offset.

        They are not ``is_dense`` if batches between them may have been left out.
        """
        view = self.view(partition)
        values = {record.offset: bytes(record.value or b"") for record in decode_records(records)}
        previous = None
        for offset, value in values.items():
            is_gap = previous is not None and offset != previous + 1
            if is_gap and is_dense and not view.has_markers:
                self._report(f"L2: {partition} has no record between {previous} and {offset}")
            previous = offset
            if partition.topic_id in self.not_ours:
                view.sent[value] = True
            if value not in view.sent:
                self._report(
                    f"L1: {partition}-{offset} has {value[:20]!r}, which nobody sent there"
                )
            self._seen(partition, view, offset, value)
        return values

    def fetched(self, partition: Partition, answer: Any, fetch_offset: int, told: Told) -> None:
        """The answer to a plain Fetch; ``told`` is of when it arrived."""
        if int(answer.error_code) != 0:
            return
        view = self.view(partition)
        self._watermarks(partition, answer.log_start_offset, answer.high_watermark, told)
        values = self.delivered(partition, answer.records or b"")
        if answer.aborted_transactions is not None:
            self._fetched_committed(partition, answer, told)
            return
        for offset in values:
            if offset >= answer.high_watermark:
                self._report(f"L1: {partition}-{offset} is visible at or above the high watermark")
        if not values and not view.has_markers:
            for offset in range(fetch_offset, answer.high_watermark):
                if offset in view.records:
                    self._report(
                        f"L1: {partition}-{offset} is below the high watermark and missing"
                    )

    def _fetched_committed(self, partition: Partition, answer: Any, told: Told) -> None:
        """The answer to a Fetch by who reads committed records only."""
        view = self.view(partition)
        if answer.last_stable_offset < told.last_stable_offset:
            self._report(
                f"L4: {partition} last stable offset went from {told.last_stable_offset} to "
                f"{answer.last_stable_offset}"
            )
        view.last_stable_offset = max(view.last_stable_offset, answer.last_stable_offset)
        for offset, value in committed_values(answer):
            if offset >= answer.last_stable_offset:
                self._report(f"L4: {partition}-{offset} is behind the last stable offset")
            self.check_committed(partition, offset, value)

    def check_committed(self, partition: Partition, offset: int, value: bytes) -> None:
        """Somebody who reads committed records only was given this one."""
        outcome = self.view(partition).outcomes.get(value, Outcome.COMMITTED)
        if outcome is not Outcome.COMMITTED:
            self._report(f"L4: {partition}-{offset} is of a transaction that is {outcome.value}")

    def _watermarks(self, partition: Partition, start: int, end: int, told: Told) -> None:
        view = self.view(partition)
        if end < told.high_watermark:
            self._report(f"L2: {partition} high watermark went from {told.high_watermark} to {end}")
        if start < told.start_offset:
            self._report(f"L2: {partition} log start went from {told.start_offset} to {start}")
        if start > view.start_offset and not view.may_be_deleted(start - 1):
            self._report(f"L1: {partition} begins at {start}: nobody asked for that")
        view.high_watermark = max(end, view.high_watermark)
        view.start_offset = max(start, view.start_offset)

    def delete_asked(self, partition: Partition, offset: int) -> None:
        view = self.view(partition)
        below = 1 << 62 if offset < 0 else offset
        view.deletable_to = max(view.deletable_to, below)

    def complete(self, partition: Partition, values: Mapping[int, bytes], start: int) -> None:
        """All that is in the log, at the end: what was promised is there."""
        view = self.view(partition)
        for offset, value in view.records.items():
            if offset >= start and values.get(offset) != value:
                found = values.get(offset, b"nothing")[:20]
                self._report(f"L1: {partition}-{offset} was {value[:20]!r} and is {found!r}")
        if not view.has_markers and sorted(values) != list(range(start, start + len(values))):
            self._report(f"L2: {partition} has holes: {sorted(values)}")
        self._check_order(partition, view, values)

    def _check_order(
        self, partition: Partition, view: LogView, values: Mapping[int, bytes]
    ) -> None:
        last: dict[Epoch, int] = {}
        for offset in sorted(values):
            found = view.sequences.get(values[offset])
            if found is None:
                continue
            epoch, sequence = found
            if sequence != last.get(epoch, sequence - 1) + 1:
                self._report(
                    f"L3: {partition}-{offset} has sequence {sequence} of producer {epoch} "
                    f"after {last[epoch]}"
                )
            last[epoch] = sequence

    def _seen(self, partition: Partition, view: LogView, offset: int, value: bytes) -> None:
        known = view.records.setdefault(offset, value)
        if known != value:
            self._report(f"L1: {partition}-{offset} was {known[:20]!r} and is {value[:20]!r}")
        at = view.offsets.setdefault(value, offset)
        if at != offset and not view.sent.get(value, False):
            self._report(f"L3: {partition} has {value[:20]!r} at {at} and at {offset}")


def committed_values(answer: Any) -> Iterator[tuple[int, bytes]]:
    """What a client makes of batches and the list of aborted transactions."""
    aborted = sorted(
        (transaction.first_offset, transaction.producer_id)
        for transaction in answer.aborted_transactions
    )
    aborting: set[int] = set()
    data = answer.records or b""
    for position, header in scan(data):
        while aborted and aborted[0][0] <= header.last_offset:
            aborting.add(aborted.pop(0)[1])
        if header.is_control:
            marker = decode_marker(data[position : position + header.size])
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            for record in batch_records(data, position, header):
                yield record.offset, bytes(record.value or b"")
