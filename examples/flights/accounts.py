"""Combines the ledgers of all workers into one `Account` for each flight.

Lines of different ledgers are read in no particular order, so the results depend only on the
times in the lines, not on their order.

The end of a flight, according to the ledgers alone:

    done       a handler returned it
    dead       a worker wrote it to the dead letters
    open       neither: the flight is still in progress, or something is wrong

A ledger records decisions, not whether they reached the broker. So a done flight may be delivered
again if its worker or the broker was killed at that moment. `interrupted` distinguishes such
flights from those that should not have been delivered again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from examples.flights.ledger import Begun, Ended, What

Where = tuple[int, int]
"""The partition and the offset of a flight in the topic of flights."""

NEVER = -1
ON_ITS_WAY_US = 2_000_000
"""The longest time, in us, until a worker's decision reaches the broker.

A decision is sent with the next request, which waits at most half a second; the rest of the time
is for a busy machine.
"""


class End(StrEnum):
    """The end of a flight, according to the ledgers."""

    DONE = "done"
    DEAD = "dead"
    OPEN = "open"


@dataclass(slots=True)
class Account:
    """The facts that the ledgers have of one flight."""

    runs: int = 0
    last_begun_us: int = NEVER
    done: int = 0
    """The number of runs that returned the flight; more than one only after an interruption."""
    done_us: int = NEVER
    """The time of the first return; `done_by` is the worker."""
    done_by: str = ""
    buried: int = 0
    """The number of times that a worker recorded a write of the flight to the dead letters."""
    reason: str = ""

    @property
    def end(self) -> End:
        """The end of the flight; a flight with both ends is done."""
        if self.done:
            return End.DONE
        return End.DEAD if self.buried else End.OPEN

    @property
    def came_back(self) -> bool:
        """Whether the flight was handled again after it was done."""
        return self.done > 1 or (self.done == 1 and self.last_begun_us > self.done_us)


class Accounts:
    """The accounts of all flights, built from the lines of the ledgers."""

    __slots__ = (
        "_batches",
        "_by_record",
        "_deaths",
        "counters",
        "latencies_ms",
        "settled",
        "started",
    )

    def __init__(self) -> None:
        self._by_record: dict[Where, Account] = {}
        self._batches: dict[tuple[str, int], list[Begun]] = {}
        self._deaths: list[tuple[str, int, int]] = []
        self.started: set[str] = set()
        """The names of the workers that have started."""
        self.settled = 0
        """The number of flights that have an end; the progress bar shows it."""
        self.latencies_ms = array("q")
        """The times from producing a flight to the end of the handler that returned it."""
        self.counters: Counter[str] = Counter()
        """Numbers of records handled, and of retries and redelivered records among them."""

    def __len__(self) -> int:
        return len(self._by_record)

    def items(self) -> Iterator[tuple[Where, Account]]:
        """Yield every flight that a ledger mentions, with its account."""
        yield from self._by_record.items()

    def held_by(self, worker: str) -> int:
        """Return the number of records that a worker has in its handlers."""
        return sum(len(batch) for (name, _), batch in self._batches.items() if name == worker)

    def worker_killed(self, worker: str, at_us: int) -> None:
        """Note a kill: the worker's last decisions may not have reached the broker."""
        self._deaths.append((worker, at_us, at_us))

    def broker_killed(self, at_us: int, back_us: int) -> None:
        """Note a kill of the broker: the last decisions of all workers may not have reached it.

        The workers also did not own the records that they held until it was back at ``back_us``.
        """
        self._deaths.append(("", at_us, back_us))

    def ends(self) -> Counter[End]:
        """Return the number of flights by their end."""
        return Counter(account.end for account in self._by_record.values())

    def interrupted(self, account: Account) -> bool:
        """Return whether a kill of the worker or the broker may have lost the acknowledgement."""
        return any(
            killed in {"", account.done_by}
            and at_us - ON_ITS_WAY_US <= account.done_us <= back_us + ON_ITS_WAY_US
            for killed, at_us, back_us in self._deaths
        )

    def feed(self, worker: str, line: Mapping[str, Any]) -> None:
        """Process one line of a worker's ledger; the lines of one worker have to be in order."""
        at_us: int = line["at_us"]
        match What(line["what"]):
            case What.STARTED:
                self.started.add(worker)
            case What.BEGUN:
                records = [Begun(*record) for record in line["records"]]
                self._batches[worker, line["batch"]] = records
                self._begun(records, at_us)
            case What.ENDED:
                begun = self._batches.pop((worker, line["batch"]))
                ends = [Ended(*end) for end in line["ends"]]
                self._ended(begun, ends, worker, at_us, line["wall_ms"])
            case What.BURIED:
                partition, offset = line["record"]
                self._buried(self._account(partition, offset), line["reason"])

    def _account(self, partition: int, offset: int) -> Account:
        return self._by_record.setdefault((partition, offset), Account())

    def _begun(self, records: Sequence[Begun], at_us: int) -> None:
        self.counters["handled"] += len(records)
        for record in records:
            account = self._account(record.partition, record.offset)
            account.runs += 1
            account.last_begun_us = max(at_us, account.last_begun_us)
            self.counters["retries"] += record.attempt > 1
            self.counters["redelivered"] += record.delivery_count > 1

    def _ended(
        self,
        begun: Sequence[Begun],
        ends: Sequence[Ended],
        worker: str,
        at_us: int,
        wall_ms: int,
    ) -> None:
        for record, end in zip(begun, ends, strict=True):
            if not end.done:
                continue
            account = self._account(end.partition, end.offset)
            self._settle(account)
            account.done += 1
            self.latencies_ms.append(wall_ms - record.produced_ms)
            if account.done_us == NEVER or at_us < account.done_us:
                account.done_us, account.done_by = at_us, worker

    def _buried(self, account: Account, reason: str) -> None:
        self._settle(account)
        account.buried += 1
        account.reason = reason

    def _settle(self, account: Account) -> None:
        """Count a flight as settled, unless it has an end already."""
        self.settled += account.end is End.OPEN
