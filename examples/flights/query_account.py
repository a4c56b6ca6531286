"""Combines the ledgers of the streaming query's two starts.

Each start has its own ledger, with one JSON object per line:

    started                                the Spark session has started
    batch     batch, records, fingerprint  Spark has the records of the batch
    written   batch                        the batch is in the tables
    done      batch                        its dead letters are written; Spark commits it next
    progress  group                        the figures of the source, counted from the start
    figures   rows, batch_ms, lag, ...     what the listener of the query was told, for the picture
    result                                 the contents of the tables, and the comparison; the last

The fingerprint of a batch depends only on the records of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple


class What(StrEnum):
    """The event that a line records."""

    STARTED = "started"
    BATCH = "batch"
    WRITTEN = "written"
    DONE = "done"
    PROGRESS = "progress"
    FIGURES = "figures"
    RESULT = "result"


class Batch(NamedTuple):
    """One run of a batch: the number of its records and their fingerprint."""

    records: int
    fingerprint: int


class Delays(NamedTuple):
    """The figures of one carrier and scheduled hour of departure."""

    carrier: str
    hour: int
    flights: int
    departed: int
    """The number of flights that were not cancelled."""
    minutes: int
    """The sum of the delays; an early departure has a negative delay."""
    late: int
    longest: int | None
    """The longest delay in minutes; None if no flight departed."""


class Week(NamedTuple):
    """The figures of one week, of the hours with or without rain or snow."""

    start: str
    """The first day, as in 2013-01-31."""
    wet: bool | None
    """None if the table of weather has no row for the airport and the hour."""
    flights: int
    departed: int
    minutes: int


class Figures(NamedTuple):
    """What the listener of the query was told after a batch, or by an idle query."""

    at: float
    """When it was told, in seconds of the machine's monotonic clock."""
    rows: int
    batch_ms: int
    lag: int | None
    held: int
    carried: int
    recognised: int
    """Counted from the start of the query."""


class Result(NamedTuple):
    """The contents of the tables at the end, and the comparison with the batch job."""

    rows: int
    """The number of rows of the table of records; one each time a batch counted a record."""
    records: int
    """The number of distinct records in the table."""
    redelivered: int
    accepted: int
    rejected: Sequence[tuple[int, int]]
    """Partition and offset of the rejected records."""
    groups: int
    """The number of pairs of carrier and hour in the figures of the batch job."""
    groups_differing: int
    delays: Sequence[Delays]
    weeks_differing: int
    """The number of weeks, dry or wet, that differ from those of the batch job."""
    weeks: Sequence[Week]


class QueryAccount:
    """The state of the query over both starts, built from the lines of the ledgers."""

    __slots__ = ("_done", "_groups", "_result", "_run", "_written", "figures", "started")

    def __init__(self) -> None:
        self.started: set[int] = set()
        """The numbers of the starts whose Spark session has started."""
        self.figures: list[Figures] = []
        """Of both starts, in the order of their times."""
        self._result: Result | None = None
        self._run: dict[int, list[Batch]] = {}
        self._written: set[int] = set()
        self._done: set[int] = set()
        self._groups: dict[int, Mapping[str, int | None]] = {}

    def feed(self, start: int, line: Mapping[str, Any]) -> None:
        """Process one line of the ledger of a start, which is 1 or 2."""
        match What(line["what"]):
            case What.STARTED:
                self.started.add(start)
            case What.BATCH:
                batch = Batch(line["records"], line["fingerprint"])
                self._run.setdefault(line["batch"], []).append(batch)
            case What.WRITTEN:
                self._written.add(line["batch"])
            case What.DONE:
                self._done.add(line["batch"])
            case What.PROGRESS:
                self._groups[start] = line["group"]
            case What.FIGURES:
                told = {name: line[name] for name in Figures._fields[1:]}
                self.figures.append(Figures(line["at_us"] / 1_000_000, **told))
            case What.RESULT:
                self._result = _result(line)

    @property
    def result(self) -> Result:
        """The result in the ledger, which a query writes before it ends with code 0."""
        assert self._result is not None, "the query ended well and left no result in its ledger"
        return self._result

    @property
    def written(self) -> int:
        """The number of records in the batches that are in the tables."""
        return sum(self._run[batch][-1].records for batch in self._written)

    @property
    def written_only(self) -> dict[int, int]:
        """By batch, the number of records of batches that are in the tables but not done."""
        return {batch: self._run[batch][-1].records for batch in self._written - self._done}

    @property
    def handed(self) -> int:
        """The number of records in all runs of batches."""
        return sum(run.records for runs in self._run.values() for run in runs)

    @property
    def handed_again(self) -> int:
        """The number of records in the repeated runs of batches."""
        return sum(run.records for runs in self._run.values() for run in runs[1:])

    @property
    def batches(self) -> int:
        """The number of batches that had records."""
        return sum(runs[-1].records > 0 for runs in self._run.values())

    @property
    def run_again(self) -> frozenset[int]:
        """The batches that were run more than once."""
        return frozenset(batch for batch, runs in self._run.items() if len(runs) > 1)

    @property
    def changed(self) -> frozenset[int]:
        """The batches whose repeated run had other records; the set must be empty."""
        return frozenset(batch for batch, runs in self._run.items() if len(set(runs)) > 1)

    def counted(self, name: str) -> int:
        """Return the sum of a figure in the last reports of all starts."""
        return sum(group[name] or 0 for group in self._groups.values())


def _result(line: Mapping[str, Any]) -> Result:
    values = {name: line[name] for name in Result._fields}
    values["rejected"] = [(partition, offset) for partition, offset in values["rejected"]]
    values["delays"] = [Delays(*row) for row in values["delays"]]
    values["weeks"] = [Week(*row) for row in values["weeks"]]
    return Result(**values)
