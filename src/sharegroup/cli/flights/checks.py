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

PSS_BYTES_MAX = 2 * 1024**3
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
        _equal("every flight was produced, once", evidence.rows, produced),
        _equal("every produce was confirmed", evidence.rows, evidence.confirmed),
        _equal("produced = accepted + rejected + archived", produced, ended),
        _equal("accepted = the good ones", kinds[Kind.GOOD], ends[End.ACCEPTED]),
        _equal("rejected = the poison ones", kinds[Kind.POISON], ends[End.REJECTED]),
        _equal("archived = the cancelled ones", kinds[Kind.CANCELLED], ends[End.ARCHIVED]),
        _none("no record left open", _open(accounts, evidence)),
        _none("nothing whose end was confirmed came back", _came_back(accounts)),
        _none("every archived record was seen at the delivery limit", _below_limit(accounts)),
        _none(
            "every rejected record is a dead letter", _rejected(accounts) - evidence.dead_letters
        ),
        _none("every dead letter was rejected", evidence.dead_letters - _rejected(accounts)),
        _none("the broker's lag is 0", _lagging(evidence)),
        Check(
            "memory of all processes stays within 2 GiB",
            "within",
            "within"
            if evidence.peak_pss_bytes <= PSS_BYTES_MAX
            else f"{evidence.peak_pss_bytes / 2**20:,.0f} MiB",
        ),
    )


def _equal(claim: str, expected: int, found: int) -> Check:
    return Check(claim, f"{expected:,}", f"{found:,}")


def _none(claim: str, offenders: AbstractSet[Where] | AbstractSet[str]) -> Check:
    names = sorted(
        one if isinstance(one, str) else f"partition {one[0]} offset {one[1]}" for one in offenders
    )
    found = f"{len(names)}: " + ", ".join(names[:NAMED_MAX]) if names else "none"
    return Check(claim, "none", found + (", ..." if len(names) > NAMED_MAX else ""))


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


def _lagging(evidence: Evidence) -> set[str]:
    return {
        f"partition {partition} lag {'unknown' if lag is None else lag}"
        for partition in evidence.end_offsets
        if (lag := evidence.lag.get(partition)) != 0
    }
