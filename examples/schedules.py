"""Reports on a schedule: each is made once, however many workers run.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.schedules:app
    sharegroup schedules list reports

A report is for the period that ends at its due time, not for the time at which it is made.  So a
report that is late, or that is made again after a failure, is about the same period.  The file has
one report for each run: the run's id is its name.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from sharegroup.worker import App, Retry, ScheduledRun

FOLDER = Path(os.environ.get("REPORTS", "reports"))
PERIOD = timedelta(seconds=float(os.environ.get("PERIOD_SECONDS", "60")))
app = App("reports")


@app.every(PERIOD, name="periodic", missed="all")
@app.cron("0 6 * * 1-5", timezone="Europe/Berlin", name="daily")
@app.share_group(
    "reports",
    topics="reports",
    retry=Retry(max_attempts=5, initial_delay="1s", retry_on=(OSError,)),
)
def report(run: ScheduledRun) -> None:
    """Writes a report about the period before the run was due."""
    FOLDER.mkdir(exist_ok=True)
    since = run.due - PERIOD
    text = f"from {since.isoformat()} to {run.due.isoformat()}\n"
    # Written as a whole or not at all, and to the same file if the run is handled twice.
    draft = FOLDER / f"{run.id}.draft"
    draft.write_text(text)
    draft.rename(FOLDER / f"{run.id}.txt")
