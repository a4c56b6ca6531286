"""The result of a redrive as text and as JSON, of `dlq redrive` and of `jobs resume`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from sharegroup.cli.common.output import complain, counted, printable, terminal_width
from sharegroup.cli.common.tables import table
from sharegroup.dead_letters.redriven import WHY_LEFT, Redriven
from sharegroup.jobs import Job, JobState
from sharegroup.jobs.redrive_results import redriven_of

PLACES_SHOWN_MAX = 8
"""Maximum number of runs of letters that a table cell shows; ``--json`` shows more."""


def print_redriven(done: Redriven, *, dry_run: bool, as_json: bool) -> None:
    """Print the result of a redrive that is no job."""
    if as_json:
        click.echo(json.dumps(_facts(done, dry_run=dry_run, job_id=None)))
    else:
        click.echo(redriven_text(done, dry_run=dry_run))


def print_redrive_job(job: Job, *, as_json: bool) -> None:
    """Print the result of a job that redrives, and why it has not sent everything."""
    done = redriven_of(job.result)
    done.interrupted = job.state is not JobState.DONE
    if as_json:
        click.echo(json.dumps(_facts(done, dry_run=False, job_id=job.id)))
    else:
        goes_on = f"sharegroup jobs resume {job.id} sends the others"
        click.echo(redriven_text(done, dry_run=False, goes_on=goes_on))
    if job.error is not None:
        complain(f"job {job.id} is {job.state}: {job.error}")


def _facts(done: Redriven, *, dry_run: bool, job_id: str | None) -> dict[str, Any]:
    return {
        "job": job_id,
        "sent": done.sent,
        "left": done.left,
        "refused": [
            {
                "target": refused.target,
                "reason": refused.reason,
                "letters": refused.letters,
                "at": list(refused.places()),
                "at_complete": refused.all_told,
            }
            for refused in done.refused
        ],
        "without_headers": done.without_headers,
        "dry_run": dry_run,
        "interrupted": done.interrupted,
    }


def redriven_text(
    done: Redriven, *, dry_run: bool, goes_on: str = "run the same command again to continue"
) -> str:
    """Return the result of a redrive for people; ``goes_on`` says how to send the rest."""
    verb = "would send" if dry_run else "sent"
    lines = [
        f"{verb} {counted(count, 'record')} back to {target}"
        for target, count in sorted(done.sent.items())
    ] or [f"{verb} nothing back"]
    if done.without_headers:
        lines.append(f"{done.without_headers} of them without their headers, which no longer exist")
    lines += [f"left {count}: {WHY_LEFT[reason]}" for reason, count in sorted(done.left.items())]
    lines += _refused_lines(done)
    if done.interrupted:
        lines.append(f"interrupted; {goes_on}")
    return "\n".join(lines)


def _refused_lines(done: Redriven) -> Iterator[str]:
    """Yield the refused letters as a table by target, and each reason below it."""
    if not done.refused:
        return
    yield f"could not send {done.refused.letters}, which are kept:"
    rows = []
    reasons: dict[str, None] = {}
    for refused in done.refused:
        at = " ".join(islice(refused.places(), PLACES_SHOWN_MAX))
        shown_all = refused.all_told and len(refused.runs) <= PLACES_SHOWN_MAX
        rows.append(
            [printable(refused.target), str(refused.letters), at + ("" if shown_all else " ...")]
        )
        reasons[refused.reason] = None
    yield table(rows, ("target", "letters", "at"), width=terminal_width())
    yield from map(printable, reasons)
