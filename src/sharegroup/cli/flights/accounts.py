"""The workers' ledgers put together: for every record, what was done to it and what is known.

One `Account` for each record that any worker ever saw.  Lines of different ledgers are read
in no particular order, so nothing here depends on the order in which they come in, only on
the times that they carry.

How a record ends, from the ledgers alone:

    accepted, rejected   the broker confirmed it; or its answer was lost in a crash and the
                         record never came again, so it must have been done
    archived             given back after the last delivery that the limit allows, or held by a
                         worker when it was killed, which gives back all that it holds
    open                 none of these: more is to come, or something is wrong

One thing no ledger can tell: a record that lay in the killed worker's buffers and was not
handed to it yet.  That delivery counts for the broker too.  Such a record, given back before
by someone else, may have been archived without its last delivery being seen: `unseen`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sharegroup.cli.flights.ledger import IN_DOUBT, Delivered, Sent, What
from sharegroup.client import AcknowledgeType

Where = tuple[int, int]
"""Partition and offset in the topic of flights."""

NEVER = -1


class End(StrEnum):
    """How a record's life ended."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    ARCHIVED = "archived"
    OPEN = "open"


_ENDS = {AcknowledgeType.ACCEPT: End.ACCEPTED, AcknowledgeType.REJECT: End.REJECTED}


@dataclass(slots=True)
class Account:
    """What is known of one record."""

    deliveries: int = 0
    last_delivery_count: int = 0
    last_delivered_us: int = NEVER
    final_outcome: int = 0
    """The accept or reject that the broker confirmed; 0: none."""
    final_us: int = NEVER
    """When that accept or reject was sent: whoever gets the record later gets it wrongly."""
    confirmations: int = 0
    """How many accepts and rejects the broker confirmed: one, or something is wrong."""
    doubtful_outcome: int = 0
    doubtful_us: int = NEVER
    released_us: int = NEVER
    """When it was last given back: confirmed by the broker, or by its worker's death."""
    is_counted: bool = False
    """Whether it is among the settled ones of the progress bar."""

    @property
    def came_back(self) -> bool:
        """Whether it was delivered although the broker had confirmed its end."""
        return self.confirmations > 1 or (
            self.confirmations == 1 and self.last_delivered_us > self.final_us
        )

    @property
    def in_doubt(self) -> bool:
        """Whether the last that was done to it got no answer."""
        return self.confirmations == 0 and self.doubtful_us > self.last_delivered_us

    def end(self, *, delivery_limit: int) -> End:
        """How its life ended, as far as the ledgers tell."""
        if self.confirmations:
            return _ENDS[AcknowledgeType(self.final_outcome)]
        if self.in_doubt and self.doubtful_outcome in _ENDS:
            return _ENDS[AcknowledgeType(self.doubtful_outcome)]
        if self.given_back and self.last_delivery_count >= delivery_limit:
            return End.ARCHIVED
        return End.OPEN

    @property
    def given_back(self) -> bool:
        """Whether nobody holds it and its last holder did not end its life."""
        return self.confirmations == 0 and (
            self.in_doubt or self.released_us > self.last_delivered_us
        )

    def unseen(self, *, delivery_limit: int, killed_us: int) -> bool:
        """Whether its last delivery may have been to a worker that died before it looked."""
        return (
            self.given_back
            and self.last_delivery_count == delivery_limit - 1
            and self.last_delivered_us < killed_us
        )


@dataclass(slots=True)
class _Batch:
    """A batch of one worker that got no answer yet."""

    delivered: list[Delivered]
    sent: list[Sent]
    sent_us: int = NEVER


class Accounts:
    """All accounts; fed with the lines of the ledgers."""

    __slots__ = (
        "_batches",
        "_by_record",
        "counters",
        "delivery_limit",
        "killed_us",
        "latencies_ms",
        "settled",
        "started",
    )

    def __init__(self, *, delivery_limit: int) -> None:
        self.delivery_limit = delivery_limit
        self._by_record: dict[Where, Account] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        self.killed_us = NEVER
        self.started: set[str] = set()
        """The workers that can be given records."""
        self.settled = 0
        """Records that came to an end, as far as confirmed; what the progress bar shows."""
        self.latencies_ms = array("q")
        """From produce to the confirmation of the accept."""
        self.counters: Counter[str] = Counter()
        """Acknowledgements by what became of them, in records."""

    def __len__(self) -> int:
        return len(self._by_record)

    def items(self) -> Iterator[tuple[Where, Account]]:
        """Every record that any worker saw, with its account."""
        yield from self._by_record.items()

    def held_by(self, worker: str) -> int:
        """How many records a worker was given that it has not acknowledged yet."""
        return sum(
            len(batch.delivered)
            for (name, _), batch in self._batches.items()
            if name == worker and not batch.sent
        )

    def killed(self, worker: str, at_us: int) -> None:
        """A worker was killed: what it held comes back."""
        held = [batch for (name, _), batch in self._batches.items() if name == worker]
        self.counters["in doubt"] += sum(len(batch.sent) for batch in held)
        for record in (record for batch in held for record in batch.delivered):
            account = self._by_record[record.partition, record.offset]
            account.released_us = max(at_us, account.released_us)
        self.killed_us = at_us

    def ends(self) -> Counter[End]:
        """How many records ended in which way."""
        return Counter(self.end_of(account) for account in self._by_record.values())

    def end_of(self, account: Account) -> End:
        """How a record's life ended, the unseen ones included."""
        end = account.end(delivery_limit=self.delivery_limit)
        if end is End.OPEN and self.is_unseen(account):
            return End.ARCHIVED
        return end

    def is_unseen(self, account: Account) -> bool:
        """Whether its last delivery may have gone to the killed worker and not been seen."""
        return account.unseen(delivery_limit=self.delivery_limit, killed_us=self.killed_us)

    def feed(self, worker: str, line: Mapping[str, Any]) -> None:
        """Take one line of a worker's ledger; a worker's own lines come in their order."""
        at_us: int = line["at_us"]
        match What(line["what"]):
            case What.STARTED:
                self.started.add(worker)
            case What.DELIVERED:
                records = [Delivered(*record) for record in line["records"]]
                self._batches[worker, line["batch"]] = _Batch(records, [])
                self._delivered(records, at_us)
            case What.SENT:
                batch = self._batches[worker, line["batch"]]
                batch.sent = [Sent(*outcome) for outcome in line["outcomes"]]
                batch.sent_us = at_us
                self._in_doubt(batch.sent, at_us)
            case What.ANSWERED:
                batch = self._batches.pop((worker, line["batch"]))
                self._answered(batch, line["errors"])
                self._measure(batch, line["errors"], line["wall_ms"])

    def _delivered(self, records: Sequence[Delivered], at_us: int) -> None:
        self.counters["delivered"] += len(records)
        for record in records:
            account = self._by_record.setdefault((record.partition, record.offset), Account())
            account.deliveries += 1
            if at_us > account.last_delivered_us:
                account.last_delivered_us = at_us
                account.last_delivery_count = record.delivery_count

    def _in_doubt(self, outcomes: Sequence[Sent], sent_us: int) -> None:
        """An acknowledgement is in doubt from the moment it is sent."""
        for partition, offset, outcome in outcomes:
            account = self._by_record[partition, offset]
            if sent_us > account.doubtful_us:
                account.doubtful_us, account.doubtful_outcome = sent_us, outcome

    def _answered(self, batch: _Batch, errors: Mapping[str, str | None]) -> None:
        for partition, offset, outcome in batch.sent:
            error = errors[str(partition)]
            if error is not None and error.startswith(IN_DOUBT):
                self.counters["in doubt"] += 1
                continue
            account = self._by_record[partition, offset]
            if account.doubtful_us == batch.sent_us:
                account.doubtful_us, account.doubtful_outcome = NEVER, 0
            if error is not None:
                self.counters["refused"] += 1
            else:
                self._confirmed(account, outcome, batch.sent_us)

    def _confirmed(self, account: Account, outcome: int, sent_us: int) -> None:
        self.counters["confirmed"] += 1
        if outcome == AcknowledgeType.RELEASE:
            account.released_us = max(sent_us, account.released_us)
            if account.last_delivery_count >= self.delivery_limit:
                self._count_settled(account)
            return
        self._count_settled(account)
        account.confirmations += 1
        account.final_outcome = outcome
        account.final_us = sent_us if account.final_us == NEVER else min(sent_us, account.final_us)

    def _count_settled(self, account: Account) -> None:
        """Count a record once, however many answers say that it came to its end."""
        self.settled += not account.is_counted
        account.is_counted = True

    def _measure(
        self, batch: _Batch, errors: Mapping[str, str | None], answered_wall_ms: int
    ) -> None:
        produced = {(record.partition, record.offset): record for record in batch.delivered}
        self.latencies_ms.extend(
            answered_wall_ms - produced[partition, offset].produced_ms
            for partition, offset, outcome in batch.sent
            if outcome == AcknowledgeType.ACCEPT and errors[str(partition)] is None
        )
