"""The result of a purge as a table and as JSON, of `dlq purge` and of `jobs resume`."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.cli.common.output import Listing, complain, counted, print_listing
from sharegroup.dead_letters.purge import Purge
from sharegroup.jobs import Job, JobState
from sharegroup.jobs.purge_job import purges_of

COLUMNS = ("topic", "partition", "deleted", "before_offset", "behind")


def print_purges(topic: str, purges: Sequence[Purge], *, as_json: bool) -> None:
    """Print what a purge deleted, or would delete, by partition."""
    rows = [
        {
            "topic": topic,
            "partition": part.partition,
            "deleted": part.letters,
            "before_offset": part.before,
            "behind": part.behind,
        }
        for part in purges
    ]
    listing = Listing(rows, COLUMNS, "There are no partitions to delete from.")
    print_listing(listing, as_json=as_json)
    behind = sum(part.behind for part in purges)
    if behind and not as_json:
        complain(
            f"{counted(behind, 'matching dead letter')} not deleted, because of dead letters "
            "before that do not match"
        )


def print_purge_job(job: Job, *, as_json: bool) -> None:
    """Print what a job that purges has deleted, and why it has not deleted everything."""
    print_purges(job.request.topic, purges_of(job.result), as_json=as_json)
    if job.error is not None:
        complain(f"job {job.id} is {job.state}: {job.error}")
    if job.state is not JobState.DONE:
        complain(f"interrupted; sharegroup jobs resume {job.id} deletes the others")
