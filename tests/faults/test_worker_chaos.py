"""A fleet of workers while its processes and its broker die: the short trial.

6,000 records in three groups, schedules and commands; three workers, one of which is killed, one
frozen, and two of which end themselves in the middle of a transaction; the broker is killed, too.
See `tests.faults.worker_chaos` for what is looked at afterwards, and for the long trial.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.worker_chaos.trial import SHORT, run

HALF_LATE_MS_MAX = 1_000
"""Usually 3: a retry that is not taken when it is due waits for the next of its tier, seconds."""


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_every_record_is_settled_while_processes_are_killed(tmp_path: Path) -> None:
    report = run(SHORT, 1, tmp_path)
    assert report.verdict.problems == []
    assert SHORT.worker_kills < report.worker_deaths <= SHORT.worker_kills + SHORT.cuts
    assert report.broker_deaths == SHORT.broker_kills
    assert sum(report.verdict.ends.values()) == SHORT.records
    delays = report.verdict.delays
    assert delays.measured > 0, "in the last third"
    assert delays.quantile(0.5) < HALF_LATE_MS_MAX
