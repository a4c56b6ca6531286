"""The checks of the demo: claims about its counts, each with the expected and the found value.

The checks compare three independent sources: the data (the produced flights, by kind), the
workers' ledgers, and the broker (end offsets, dead letters, lag).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass

from examples.flights.accounts import Accounts, End, Where
from examples.flights.departures import Kind
from examples.flights.names import ATTEMPTS
from sharegroup.worker import DeadLetterReason

GIB_MAX = 2
NAMED_MAX = 5
"""Maximum number of records that a failed check names."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts that the checks use, apart from the ledgers."""

    rows: int
    kinds: Mapping[Kind, int]
    """The number of flights of each kind that the producer made of the data."""
    confirmed: int
    """The number of records whose produce was confirmed."""
    end_offsets: Mapping[int, int]
    """The end offsets of the topic of flights, by partition."""
    dead_letters: Mapping[Where, str]
    """The original records of the dead letters, with the reasons, from their headers."""
    lag: Mapping[int, int | None]
    """The lag of the group by partition, as the broker reports it; None means unknown."""
    peak_pss_bytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """One claim with its expected and its found value, as text."""

    claim: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether the found value is the expected one."""
        return self.expected == self.found


def checks(accounts: Accounts, evidence: Evidence) -> tuple[Check, ...]:
    """Return all checks of the demo's first half."""
    ends = accounts.ends()
    produced = sum(evidence.end_offsets.values())
    reasons = Counter(evidence.dead_letters.values())
    kinds = Counter(evidence.kinds)
    done = _ended(accounts, End.DONE)
    buried = {flight for flight, account in accounts.items() if account.buried}
    return (
        equal("every flight was produced, once", evidence.rows, produced),
        equal("every produce was confirmed", evidence.rows, evidence.confirmed),
        equal("produced = done + dead letters", produced, ends[End.DONE] + len(buried)),
        equal("done = the good ones", kinds[Kind.GOOD], ends[End.DONE]),
        equal(
            "unreadable dead letters = the poison ones",
            kinds[Kind.POISON],
            reasons[DeadLetterReason.UNREADABLE],
        ),
        equal(
            "dead letters out of attempts = the cancelled ones",
            kinds[Kind.CANCELLED],
            reasons[DeadLetterReason.ATTEMPTS_EXHAUSTED]
            + reasons[DeadLetterReason.DELIVERIES_EXHAUSTED],
        ),
        none("no flight is left open", _open(accounts, evidence)),
        none("no flight is both done and a dead letter", done & evidence.dead_letters.keys()),
        none("every dead letter is known to its worker", evidence.dead_letters.keys() - buried),
        none("every worker's dead letter is there", buried - evidence.dead_letters.keys()),
        none("nothing came back but what a crash interrupted", _came_back(accounts)),
        none("every cancelled flight was tried often enough", _hardly_tried(accounts)),
        none("the broker's lag is 0", lagging(evidence.end_offsets, evidence.lag)),
        within("memory of all processes", GIB_MAX, evidence.peak_pss_bytes),
    )


def equal(claim: str, expected: int, found: int) -> Check:
    """Check that two numbers are the same."""
    return Check(claim, f"{expected:,}", f"{found:,}")


def none(claim: str, offenders: AbstractSet[Where] | AbstractSet[str]) -> Check:
    """Check that there are no offenders; a failed check names the first few."""
    names = sorted(
        offender if isinstance(offender, str) else f"partition {offender[0]} offset {offender[1]}"
        for offender in offenders
    )
    found_text = f"{len(names)}: " + ", ".join(names[:NAMED_MAX]) if names else "none"
    return Check(claim, "none", found_text + (", ..." if len(names) > NAMED_MAX else ""))


def within(claim: str, gib_max: int, found_bytes: int) -> Check:
    """Check that an amount of memory is not exceeded."""
    holds = found_bytes <= gib_max * 1024**3
    found_text = "within" if holds else f"{found_bytes / 2**20:,.0f} MiB"
    return Check(f"{claim} stays within {gib_max} GiB", "within", found_text)


def lagging(end_offsets: Mapping[int, int], lag: Mapping[int, int | None]) -> set[str]:
    """Return the partitions whose lag is unknown or not 0, with their lag."""
    return {
        f"partition {partition} lag {'unknown' if partition_lag is None else partition_lag}"
        for partition in end_offsets
        if (partition_lag := lag.get(partition)) != 0
    }


def _open(accounts: Accounts, evidence: Evidence) -> set[Where]:
    """Return the flights without an end, including those that no ledger mentions."""
    known_flights = dict(accounts.items())
    unknown_flights = {
        (partition, offset)
        for partition, end in evidence.end_offsets.items()
        for offset in range(end)
        if (partition, offset) not in known_flights
    }
    return unknown_flights | _ended(accounts, End.OPEN)


def _came_back(accounts: Accounts) -> set[Where]:
    return {
        flight
        for flight, account in accounts.items()
        if account.came_back and not accounts.interrupted(account)
    }


def _hardly_tried(accounts: Accounts) -> set[Where]:
    return {
        flight
        for flight, account in accounts.items()
        if account.reason == DeadLetterReason.ATTEMPTS_EXHAUSTED and account.runs < ATTEMPTS
    }


def _ended(accounts: Accounts, end: End) -> set[Where]:
    return {flight for flight, account in accounts.items() if account.end is end}
