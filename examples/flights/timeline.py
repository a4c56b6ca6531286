"""Counts the events of the dispatch over time, for the picture of its rates.

The lines of the ledgers may come in any order: each line has its own time, and an event is counted
in the bin of its time.

    line       counted as
    produced   produced      the records that the broker has confirmed since the last line
    begun      retried       records of a later attempt
               redelivered   records that were delivered before, and whose worker or broker died
    ended      done          records that the handler returned
    buried     unreadable    dead letters, by their reason
               given_up
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from examples.flights.ledger import Begun, Ended, What
from sharegroup.worker import DeadLetterReason

BIN_US = 250_000
"""The width of a bin. It is longer than the work on a batch, so that the rates are smooth."""
BINS_PER_SECOND = 1_000_000 // BIN_US


@dataclass(frozen=True, slots=True)
class Rates:
    """Events per second, one value for each bin."""

    edges: tuple[float, ...]
    """The bounds of the bins in seconds since the first record, one more than there are bins."""
    produced: tuple[int, ...]
    done: tuple[int, ...]
    retried: tuple[int, ...]
    redelivered: tuple[int, ...]
    unreadable: tuple[int, ...]
    given_up: tuple[int, ...]


class Timeline:
    """The number of events in each bin of the machine's monotonic clock."""

    __slots__ = (
        "_done",
        "_given_up",
        "_produced",
        "_produced_total",
        "_redelivered",
        "_retried",
        "_unreadable",
    )

    def __init__(self) -> None:
        self._produced: Counter[int] = Counter()
        self._done: Counter[int] = Counter()
        self._retried: Counter[int] = Counter()
        self._redelivered: Counter[int] = Counter()
        self._unreadable: Counter[int] = Counter()
        self._given_up: Counter[int] = Counter()
        self._produced_total = 0

    def produced(self, line: Mapping[str, Any]) -> None:
        """Count a line of the producer's ledger; its lines have to be in order."""
        self._produced[_bin(line)] += line["produced"] - self._produced_total
        self._produced_total = line["produced"]

    def handled(self, line: Mapping[str, Any]) -> None:
        """Count a line of a worker's ledger."""
        number = _bin(line)
        match What(line["what"]):
            case What.BEGUN:
                begun = [Begun(*record) for record in line["records"]]
                self._retried[number] += sum(record.attempt > 1 for record in begun)
                self._redelivered[number] += sum(record.delivery_count > 1 for record in begun)
            case What.ENDED:
                self._done[number] += sum(Ended(*end).done for end in line["ends"])
            case What.BURIED if line["reason"] == DeadLetterReason.UNREADABLE:
                self._unreadable[number] += 1
            case What.BURIED:
                self._given_up[number] += 1
            case What.STARTED:
                pass  # It is not an event of a record.

    def rates(self, first: float, last: float) -> Rates:
        """Return the rates from ``first`` to ``last``, in seconds of the monotonic clock."""
        bins = range(_bin_of(round(first * 1e6)), _bin_of(round(last * 1e6)) + 1)

        def per_second(counter: Counter[int]) -> tuple[int, ...]:
            return tuple(counter[number] * BINS_PER_SECOND for number in bins)

        return Rates(
            edges=tuple(number / BINS_PER_SECOND - first for number in (*bins, bins.stop)),
            produced=per_second(self._produced),
            done=per_second(self._done),
            retried=per_second(self._retried),
            redelivered=per_second(self._redelivered),
            unreadable=per_second(self._unreadable),
            given_up=per_second(self._given_up),
        )


def _bin(line: Mapping[str, Any]) -> int:
    return _bin_of(line["at_us"])


def _bin_of(at_us: int) -> int:
    return at_us // BIN_US
