"""Do the counts of the streaming query add up, and do its figures agree with a batch job?

Four sources are compared: the data, the query's ledgers, the tables that it wrote, and the
broker.  The figures themselves Spark compares, see `query`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sharegroup.cli.flights.accounts import Where
from sharegroup.cli.flights.checks import Check, equal, lagging, none, within
from sharegroup.cli.flights.departures import Kind
from sharegroup.cli.flights.query_account import QueryAccount

GIB_MAX = 3


@dataclass(frozen=True, slots=True)
class PipelineEvidence:
    """What the check is based on, apart from the query's own account."""

    rows: int
    kinds: Mapping[Kind, int]
    """What the producer made of the data."""
    end_offsets: Mapping[int, int]
    """Of the topic of flights, by partition."""
    dead_letters: frozenset[Where]
    """Where the query's dead letters came from, by their headers."""
    killed_in: Mapping[int, int]
    """The batch that the query was killed in, and its records."""
    lag: Mapping[int, int | None]
    """Of the query's group by partition, as the broker says."""
    dispatch_lag: Mapping[int, int | None]
    """Of the other group of the same topic."""
    peak_pss_bytes: int


def pipeline_checks(account: QueryAccount, evidence: PipelineEvidence) -> tuple[Check, ...]:
    """Every claim of the second half."""
    result = account.result
    kinds = Counter(evidence.kinds)
    rejected = frozenset(result.rejected)
    ends = evidence.end_offsets
    same = result.groups - result.groups_differing
    return (
        equal("every flight is in the table", evidence.rows, result.records),
        equal("no flight is in the table twice", result.records, result.rows),
        equal(
            "accepted = the good and the cancelled ones",
            kinds[Kind.GOOD] + kinds[Kind.CANCELLED],
            result.accepted,
        ),
        equal("rejected = the poison ones", kinds[Kind.POISON], len(rejected)),
        equal("every figure equals that of a batch job over the CSV", result.groups, same),
        none("every rejected record is a dead letter", rejected - evidence.dead_letters),
        none("every dead letter was rejected", evidence.dead_letters - rejected),
        Check(
            "the batch that the kill hit was run again, and no other",
            _batches(evidence.killed_in) or "a batch",
            _batches(account.run_again) or "none",
        ),
        none("a batch that was run again had the same records", _named(account.changed)),
        none("the broker's lag is 0", lagging(ends, evidence.lag)),
        none("group dispatch was not disturbed", lagging(ends, evidence.dispatch_lag)),
        within("memory of all processes, the JVM included,", GIB_MAX, evidence.peak_pss_bytes),
    )


def _named(batches: frozenset[int]) -> frozenset[str]:
    return frozenset(f"batch {batch}" for batch in batches)


def _batches(batches: Mapping[int, int] | frozenset[int]) -> str:
    return ", ".join(f"batch {batch}" for batch in sorted(batches))
