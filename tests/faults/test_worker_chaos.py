"""A worker application while its processes and its broker die: the short trial.

2,000 records, three workers, one ``kill -9`` of a worker and one of the broker; handlers that
fail, hang, and end the interpreter they run in.  See `tests.faults.worker_chaos` for what is
looked at afterwards, and for the long trial.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.worker_chaos.trial import SHORT, run

HALF_LATE_MS_MAX = 1_000
"""Usually 3: a retry that is not taken when it is due waits for the next of its tier, seconds."""


@pytest.mark.slow
def test_every_record_is_settled_while_processes_are_killed(tmp_path: Path) -> None:
    report = run(SHORT, 1, tmp_path)
    assert report.verdict.problems == []
    assert (report.worker_deaths, report.broker_deaths) == (1, 1)
    assert sum(report.verdict.ends.values()) == SHORT.records
    delays = report.verdict.delays
    assert delays.measured > 0
    assert delays.quantile(0.5) < HALF_LATE_MS_MAX
