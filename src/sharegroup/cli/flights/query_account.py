"""What the streaming query wrote down about its work, over both of its starts.

Each start has a ledger of its own, one JSON object a line:

    started                                the session is up
    batch     batch, records, fingerprint  Spark has the batch's records in its hands
    written   batch                        it is in the tables
    done      batch                        its dead letters are too; Spark commits it next
    progress  group                        what the source reports, counted from its start
    result                                 the tables read back, and the comparison; at the end

The fingerprint of a batch depends on which records it has, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple


class What(StrEnum):
    """What a line tells."""

    STARTED = "started"
    BATCH = "batch"
    WRITTEN = "written"
    DONE = "done"
    PROGRESS = "progress"
    RESULT = "result"


class Batch(NamedTuple):
    """The records that were run under a batch's number."""

    records: int
    fingerprint: int


class Delays(NamedTuple):
    """The figures of one carrier and scheduled hour of departure."""

    carrier: str
    hour: int
    flights: int
    departed: int
    """The others were cancelled."""
    minutes: int
    """Sum of the delays; who left before the time counts with less than 0."""
    late: int
    longest: int | None
    """None when none departed."""


class Result(NamedTuple):
    """What the tables say in the end."""

    rows: int
    """Of the table of records; one for each time that a batch counted a record."""
    records: int
    """Different ones among them."""
    redelivered: int
    accepted: int
    rejected: Sequence[tuple[int, int]]
    """Partition and offset."""
    groups: int
    """Of the batch job: carriers and hours that there are."""
    groups_differing: int
    delays: Sequence[Delays]


class QueryAccount:
    """Fed with the lines of the ledgers, start by start."""

    __slots__ = ("_done", "_groups", "_result", "_run", "_written", "started")

    def __init__(self) -> None:
        self.started: set[int] = set()
        """The starts whose session is up."""
        self._result: Result | None = None
        self._run: dict[int, list[Batch]] = {}
        self._written: set[int] = set()
        self._done: set[int] = set()
        self._groups: dict[int, Mapping[str, int | None]] = {}

    def feed(self, start: int, line: Mapping[str, Any]) -> None:
        """Take one line of the ledger of the first start, or of the second."""
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
            case What.RESULT:
                self._result = _result(line)

    @property
    def result(self) -> Result:
        """What the tables say; a query that ended well has written that down."""
        assert self._result is not None, "the query ended well and left no result in its ledger"
        return self._result

    @property
    def written(self) -> int:
        """Records of the batches that are in the tables."""
        return sum(self._run[batch][-1].records for batch in self._written)

    @property
    def written_only(self) -> dict[int, int]:
        """Records of the batches that are in the tables and not done, by the batch's number."""
        return {batch: self._run[batch][-1].records for batch in self._written - self._done}

    @property
    def handed(self) -> int:
        """Records that batches had, each time they were run."""
        return sum(run.records for runs in self._run.values() for run in runs)

    @property
    def handed_again(self) -> int:
        """Of these, the records of batches that were run again."""
        return sum(run.records for runs in self._run.values() for run in runs[1:])

    @property
    def batches(self) -> int:
        """How many batches had records."""
        return sum(runs[-1].records > 0 for runs in self._run.values())

    @property
    def run_again(self) -> frozenset[int]:
        """The batches that were run more than once."""
        return frozenset(batch for batch, runs in self._run.items() if len(runs) > 1)

    @property
    def changed(self) -> frozenset[int]:
        """The batches that had other records when they were run again: there must be none."""
        return frozenset(batch for batch, runs in self._run.items() if len(set(runs)) > 1)

    def counted(self, name: str) -> int:
        """A figure of the source's reports, over all starts as far as they reported."""
        return sum(group[name] or 0 for group in self._groups.values())


def _result(line: Mapping[str, Any]) -> Result:
    said = {name: line[name] for name in Result._fields}
    said["rejected"] = [(partition, offset) for partition, offset in said["rejected"]]
    said["delays"] = [Delays(*one) for one in said["delays"]]
    return Result(**said)
