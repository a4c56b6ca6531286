"""The workers' ledgers put together: for every flight, what was done to it.

One `Account` for each flight that any worker ever wrote of.  Lines of different ledgers are read
in no particular order, so nothing here depends on the order in which they come in, only on
the times that they carry.

How a flight ends, from the ledgers alone:

    done       a handler returned it
    dead       a worker wrote it to the dead letters
    open       neither: more is to come, or something is wrong

A ledger knows what was decided, not what reached the broker.  So a flight that was done may come
once more, if its worker or the broker died just then: `interrupted` tells those from flights that
should not have come back.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sharegroup.cli.flights.ledger import Begun, Ended, What

Where = tuple[int, int]
"""Partition and offset in the topic of flights."""

NEVER = -1
ON_ITS_WAY_US = 2_000_000
"""What a worker decided leaves with its next request, and that waits half a second at most; the
rest is for a machine that has other things to do."""


class End(StrEnum):
    """How a flight ended."""

    DONE = "done"
    DEAD = "dead"
    OPEN = "open"


@dataclass(slots=True)
class Account:
    """What is known of one flight."""

    runs: int = 0
    last_begun_us: int = NEVER
    done: int = 0
    """How often a handler returned it: once, or something was interrupted."""
    done_us: int = NEVER
    """When that was so for the first time, and by whom."""
    done_by: str = ""
    buried: int = 0
    """How often a worker said that it is with the dead letters."""
    reason: str = ""

    @property
    def end(self) -> End:
        """How it ended."""
        if self.done:
            return End.DONE
        return End.DEAD if self.buried else End.OPEN

    @property
    def came_back(self) -> bool:
        """Whether it was handled again after it was done."""
        return self.done > 1 or (self.done == 1 and self.last_begun_us > self.done_us)


class Accounts:
    """All accounts; fed with the lines of the ledgers."""

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
        """The workers that can be given records."""
        self.settled = 0
        """Flights that came to an end; what the progress bar shows."""
        self.latencies_ms = array("q")
        """From produce to the end of the handler that returned it."""
        self.counters: Counter[str] = Counter()
        """Calls of the handler by what they were, in records."""

    def __len__(self) -> int:
        return len(self._by_record)

    def items(self) -> Iterator[tuple[Where, Account]]:
        """Every flight that any worker wrote of, with its account."""
        yield from self._by_record.items()

    def held_by(self, worker: str) -> int:
        """How many records a worker has in its handlers."""
        return sum(len(batch) for (name, _), batch in self._batches.items() if name == worker)

    def worker_killed(self, worker: str, at_us: int) -> None:
        """What it had decided just before may not have reached the broker."""
        self._deaths.append((worker, at_us, at_us))

    def broker_killed(self, at_us: int, back_us: int) -> None:
        """The same of all workers; and what they held until it was back was not theirs."""
        self._deaths.append(("", at_us, back_us))

    def ends(self) -> Counter[End]:
        """How many flights ended in which way."""
        return Counter(account.end for account in self._by_record.values())

    def interrupted(self, account: Account) -> bool:
        """Whether the word that it was done may have got lost with its worker, or the broker."""
        return any(
            who in {"", account.done_by}
            and at_us - ON_ITS_WAY_US <= account.done_us <= back_us + ON_ITS_WAY_US
            for who, at_us, back_us in self._deaths
        )

    def feed(self, worker: str, line: Mapping[str, Any]) -> None:
        """Take one line of a worker's ledger; a worker's own lines come in their order."""
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
        """Count a flight once, however often it came to its end."""
        self.settled += account.end is End.OPEN
