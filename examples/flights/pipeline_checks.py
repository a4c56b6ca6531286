"""The checks of the second half: the counts of the query, and its figures against a batch job.

The checks compare four sources: the data, the query's ledgers, the tables that it wrote, and the
broker. Spark itself compares the figures, see `query`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from examples.flights.accounts import Where
from examples.flights.checks import Check, equal, lagging, none, within
from examples.flights.departures import Kind
from examples.flights.query_account import QueryAccount

GIB_MAX = 3


@dataclass(frozen=True, slots=True)
class PipelineEvidence:
    """The facts that the checks use, apart from the query's own account."""

    rows: int
    kinds: Mapping[Kind, int]
    """The number of flights of each kind that the producer made of the data."""
    end_offsets: Mapping[int, int]
    """The end offsets of the topic of flights, by partition."""
    dead_letters: frozenset[Where]
    """The original records of the query's dead letters, from their headers."""
    killed_in: Mapping[int, int]
    """The number of records of the batch that the query was killed in, by its number."""
    lag: Mapping[int, int | None]
    """The lag of the query's group by partition, as the broker reports it."""
    dispatch_lag: Mapping[int, int | None]
    """The lag by partition of the other group of the same topic."""
    peak_pss_bytes: int


def pipeline_checks(account: QueryAccount, evidence: PipelineEvidence) -> tuple[Check, ...]:
    """Return all checks of the demo's second half."""
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
        equal(
            "every week, joined with the weather, equals that of the batch job",
            len(result.weeks),
            len(result.weeks) - result.weeks_differing,
        ),
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
