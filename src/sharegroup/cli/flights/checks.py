"""Do the counts add up?  What the demo claims, each claim with what was expected and found.

Three sources that know nothing of each other are compared: the data (what was produced, by
kind), the workers' ledgers, and the broker (end offsets, dead letters, lag).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sharegroup.cli.flights.accounts import Accounts, End, Where
from sharegroup.cli.flights.departures import Kind
from sharegroup.cli.flights.names import ATTEMPTS
from sharegroup.worker.decisions.reasons import (
    ATTEMPTS_EXHAUSTED,
    DELIVERIES_EXHAUSTED,
    UNREADABLE,
)

GIB_MAX = 2
NAMED_MAX = 5
"""How many records a failed check names."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the check is based on, apart from the ledgers."""

    rows: int
    kinds: Mapping[Kind, int]
    """What the producer made of the data."""
    confirmed: int
    """Records whose produce was confirmed."""
    end_offsets: Mapping[int, int]
    """Of the topic of flights, by partition."""
    dead_letters: Mapping[Where, str]
    """Where the dead letters came from, and their reason, by their headers."""
    lag: Mapping[int, int | None]
    """By partition, as the broker says."""
    peak_pss_bytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """One claim."""

    claim: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether what was found is what was expected."""
        return self.expected == self.found


def checks(accounts: Accounts, evidence: Evidence) -> tuple[Check, ...]:
    """Every claim of the demo."""
    ends = accounts.ends()
    produced = sum(evidence.end_offsets.values())
    reasons = Counter(evidence.dead_letters.values())
    kinds = Counter(evidence.kinds)
    done = _ended(accounts, End.DONE)
    told = {where for where, account in accounts.items() if account.buried}
    return (
        equal("every flight was produced, once", evidence.rows, produced),
        equal("every produce was confirmed", evidence.rows, evidence.confirmed),
        equal("produced = done + dead letters", produced, ends[End.DONE] + len(told)),
        equal("done = the good ones", kinds[Kind.GOOD], ends[End.DONE]),
        equal("unreadable dead letters = the poison ones", kinds[Kind.POISON], reasons[UNREADABLE]),
        equal(
            "dead letters out of attempts = the cancelled ones",
            kinds[Kind.CANCELLED],
            reasons[ATTEMPTS_EXHAUSTED] + reasons[DELIVERIES_EXHAUSTED],
        ),
        none("no flight is left open", _open(accounts, evidence)),
        none("no flight is both done and a dead letter", done & evidence.dead_letters.keys()),
        none("every dead letter is known to its worker", evidence.dead_letters.keys() - told),
        none("every worker's dead letter is there", told - evidence.dead_letters.keys()),
        none("nothing came back but what a crash interrupted", _came_back(accounts)),
        none("every cancelled flight was tried often enough", _hardly_tried(accounts)),
        none("the broker's lag is 0", lagging(evidence.end_offsets, evidence.lag)),
        within("memory of all processes", GIB_MAX, evidence.peak_pss_bytes),
    )


def equal(claim: str, expected: int, found: int) -> Check:
    """Two numbers that must be the same."""
    return Check(claim, f"{expected:,}", f"{found:,}")


def none(claim: str, offenders: AbstractSet[Where] | AbstractSet[str]) -> Check:
    """Records or whatever it is that there must be none of; the first few are named."""
    names = sorted(
        one if isinstance(one, str) else f"partition {one[0]} offset {one[1]}" for one in offenders
    )
    found = f"{len(names)}: " + ", ".join(names[:NAMED_MAX]) if names else "none"
    return Check(claim, "none", found + (", ..." if len(names) > NAMED_MAX else ""))


def within(claim: str, gib_max: int, found_bytes: int) -> Check:
    """An amount of memory that must not be exceeded."""
    holds = found_bytes <= gib_max * 1024**3
    found = "within" if holds else f"{found_bytes / 2**20:,.0f} MiB"
    return Check(f"{claim} stays within {gib_max} GiB", "within", found)


def lagging(end_offsets: Mapping[int, int], lag: Mapping[int, int | None]) -> set[str]:
    """The partitions that a group has not finished, as far as the broker knows."""
    return {
        f"partition {partition} lag {'unknown' if one is None else one}"
        for partition in end_offsets
        if (one := lag.get(partition)) != 0
    }


def _open(accounts: Accounts, evidence: Evidence) -> set[Where]:
    """Flights without an end: no worker wrote of them, or none of an end."""
    seen = dict(accounts.items())
    never = {
        (partition, offset)
        for partition, end in evidence.end_offsets.items()
        for offset in range(end)
        if (partition, offset) not in seen
    }
    return never | _ended(accounts, End.OPEN)


def _came_back(accounts: Accounts) -> set[Where]:
    return {
        where
        for where, account in accounts.items()
        if account.came_back and not accounts.interrupted(account)
    }


def _hardly_tried(accounts: Accounts) -> set[Where]:
    return {
        where
        for where, account in accounts.items()
        if account.reason == ATTEMPTS_EXHAUSTED and account.runs < ATTEMPTS
    }


def _ended(accounts: Accounts, end: End) -> set[Where]:
    return {where for where, account in accounts.items() if account.end is end}
