"""Do the counts add up?  What the demo claims, each claim with what was expected and found.

Three sources that know nothing of each other are compared: the data (what was produced, by
kind), the workers' ledgers, and the broker (end offsets, dead letters, lag).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sharegroup.cli.flights.accounts import Accounts, End, Where
from sharegroup.cli.flights.departures import Kind

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
    dead_letters: frozenset[Where]
    """Where the dead letters came from, by their headers."""
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
    ended = ends[End.ACCEPTED] + ends[End.REJECTED] + ends[End.ARCHIVED]
    kinds = Counter(evidence.kinds)
    return (
        equal("every flight was produced, once", evidence.rows, produced),
        equal("every produce was confirmed", evidence.rows, evidence.confirmed),
        equal("produced = accepted + rejected + archived", produced, ended),
        equal("accepted = the good ones", kinds[Kind.GOOD], ends[End.ACCEPTED]),
        equal("rejected = the poison ones", kinds[Kind.POISON], ends[End.REJECTED]),
        equal("archived = the cancelled ones", kinds[Kind.CANCELLED], ends[End.ARCHIVED]),
        none("no record left open", _open(accounts, evidence)),
        none("nothing whose end was confirmed came back", _came_back(accounts)),
        none("every archived record was seen at the delivery limit", _below_limit(accounts)),
        none("every rejected record is a dead letter", _rejected(accounts) - evidence.dead_letters),
        none("every dead letter was rejected", evidence.dead_letters - _rejected(accounts)),
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
    """Records without an end: never seen by a worker, or seen and not settled."""
    seen = dict(accounts.items())
    never = {
        (partition, offset)
        for partition, end in evidence.end_offsets.items()
        for offset in range(end)
        if (partition, offset) not in seen
    }
    return never | set(_ended(accounts, End.OPEN))


def _came_back(accounts: Accounts) -> set[Where]:
    return {where for where, account in accounts.items() if account.came_back}


def _below_limit(accounts: Accounts) -> set[Where]:
    """Archived, last seen below the limit, and not to be explained by the worker's death."""
    seen = dict(accounts.items())
    return {
        where
        for where in _ended(accounts, End.ARCHIVED)
        if seen[where].last_delivery_count != accounts.delivery_limit
        and not accounts.is_unseen(seen[where])
    }


def _rejected(accounts: Accounts) -> set[Where]:
    return set(_ended(accounts, End.REJECTED))


def _ended(accounts: Accounts, end: End) -> Iterator[Where]:
    return (where for where, account in accounts.items() if accounts.end_of(account) is end)
