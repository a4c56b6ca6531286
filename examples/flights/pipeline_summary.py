"""The figures of the second half: as a mapping for ``summary.json`` and as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from examples.flights.checks import Check
from examples.flights.pipeline_checks import PipelineEvidence
from examples.flights.pipeline_run import PipelineCourse
from examples.flights.query_account import QueryAccount
from examples.flights.table import told


def pipeline_summary(
    account: QueryAccount,
    evidence: PipelineEvidence,
    course: PipelineCourse,
    checked: Sequence[Check],
) -> dict[str, Any]:
    """Return all figures for ``summary.json``; their names stay the same."""
    result = account.result
    seconds = (course.last or course.end) - course.first
    return {
        "ok": all(check.holds for check in checked),
        "rows": evidence.rows,
        "produced": sum(evidence.end_offsets.values()),
        "delivered": account.handed,
        "run_again": account.handed_again,
        "redelivered": account.counted("redelivered"),
        "recognised": account.counted("recognised"),
        "accepted": result.accepted,
        "rejected": len(result.rejected),
        "dead_letters": len(evidence.dead_letters),
        "lost_acknowledgements": account.counted("lostAcknowledgements"),
        "batches": account.batches,
        "groups": result.groups,
        "groups_differing": result.groups_differing,
        "weeks": len(result.weeks),
        "weeks_differing": result.weeks_differing,
        "records_per_second": round(evidence.rows / seconds),
        "seconds": round(seconds, 2),
        "seconds_in_all": round(course.end - course.begin, 2),
        "first_records_after_seconds": round(course.first - course.begin, 2),
        "killed_in_batch": min(evidence.killed_in, default=None),
        "killed_with_records": sum(evidence.killed_in.values()),
        "killed_at_seconds": round(course.killed - course.first, 2),
        "back_after_seconds": round(course.back - course.killed, 2),
        "lag": {str(partition): lag for partition, lag in evidence.lag.items()},
        "peak_pss_mib": round(evidence.peak_pss_bytes / 2**20),
        "checks": told(checked),
    }


def pipeline_rows(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of the table: name, value and explanation of each figure."""
    numbers = {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
    return [
        ("produced", numbers["produced"], "the same flights, for group pipeline"),
        ("delivered", numbers["delivered"], f"in {numbers['batches']} batches of the query"),
        ("run again", numbers["run_again"], "of these, in the batch that the kill hit"),
        ("accepted", numbers["accepted"], "counted by carrier and hour, in Parquet"),
        ("rejected", numbers["rejected"], "unreadable; copied to flights.dead first"),
        ("redelivered", numbers["redelivered"], "not acknowledged when the query was killed"),
        ("recognised", numbers["recognised"], "of these: done already, not counted again"),
        (
            "records/s",
            numbers["records_per_second"],
            f"over {figures['seconds']} s, the kill included",
        ),
        (
            "query killed",
            f"{figures['killed_at_seconds']} s",
            f"in batch {figures['killed_in_batch']}, written and not committed",
        ),
        ("query back", f"{figures['back_after_seconds']} s", "later, with the same records"),
        ("figures", numbers["groups"], "pairs of carrier and hour"),
        ("weeks", numbers["weeks"], "joined with the weather of the airport, dry and wet"),
        ("memory", f"{numbers['peak_pss_mib']} MiB", "peak of all processes, the JVM included"),
    ]
