"""Run a test command, and the tests that failed once more: what `.ci/run` does with `make test`.

    python -m tests.support.flaky_tests make test

A test that fails once in thousands is not a reason to hold up a change that has nothing to do with
it.  So the tests that failed run again, alone and in one process.  If all pass, the run passes,
and each is printed as ``flaky: NAME`` with the text of its first failure.

Everything else stays red: a process of tests that crashed, a file that cannot be collected, an
error of pytest, a failure that no test reported, more than `RERUN_TESTS_MAX` failures, and a test
that is skipped the second time.

The last line is pytest's closing line of both runs together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

RERUN_TESTS_MAX = 20
"""More failures than these have a common cause, which is not chance."""

RERUN_SECONDS_MAX = 20 * 60
FAILURE_CHARACTERS_MAX = 20_000

VARIABLE = "TEST_RUN_REPORT"
"""Names the file into which `tests/conftest.py` lets a run of pytest write its `Run`."""

OTHER_OUTCOMES = ("skipped", "xfailed", "xpassed")
PHASES = ("setup", "call", "teardown")
PYTEST = (sys.executable, "-m", "pytest", "-q", "--timeout=200")


@dataclass
class Run:
    """What a run of pytest reported."""

    exit_status: int | None = None
    """None: it did not come to its end."""

    failures: dict[str, str] = field(default_factory=dict)
    """The text of its first failure, by the id of each test that failed."""

    broken: list[str] = field(default_factory=list)
    """Failures that are not those of a test: of a process, or of a file's collection."""

    passed: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """The tests with one of `OTHER_OUTCOMES`."""


class RunReport:
    """The plugin that writes a `Run`; with xdist, in the process that hands out the tests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = Run()
        self._called: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test, or the death of a process of xdist, which has no phase."""
        if report.passed and report.when == "call":
            self._called.add(report.nodeid)
        elif report.failed and report.when in PHASES:
            text = f"{report.when}: {report.longreprtext}"[-FAILURE_CHARACTERS_MAX:]
            self._run.failures.setdefault(report.nodeid, text)
        elif report.failed:
            self._run.broken.append(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be imported."""
        if report.failed:
            self._run.broken.append(f"collection of {report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Write the report.  Pytest does not call this after an error of its own."""
        self._run.exit_status = int(exitstatus)
        self._run.passed = sorted(self._called - self._run.failures.keys())
        stats = terminalreporter.stats
        self._run.counts = {outcome: len(stats.get(outcome, ())) for outcome in OTHER_OUTCOMES}
        self._path.write_text(json.dumps(asdict(self._run)))


def run_with_second_try(command: Sequence[str]) -> int:
    """The exit code of a command that runs pytest, whose failed tests may pass the second time."""
    began = time.monotonic()
    code, first = _run(command)
    if code == 0:
        return 0
    if reason := why_final(first):
        print(f"no test runs once more: {reason}")
        if first.exit_status is None:  # Else pytest printed its closing line itself.
            print(f"1 error in {time.monotonic() - began:.2f}s", flush=True)
        return code
    print(f"{len(first.failures)} tests failed; they run once more, alone", flush=True)
    code, second = _run((*PYTEST, *first.failures), seconds_max=RERUN_SECONDS_MAX)
    for name in second.passed:
        print(f"flaky: {name}\n{first.failures[name]}\n")
    passed = code == 0 and second.passed == sorted(first.failures)
    print(f"{_outcomes(first, second, passed)} in {time.monotonic() - began:.2f}s", flush=True)
    return 0 if passed else 1


def why_final(run: Run) -> str | None:
    """Why the tests of a failed run are not repeated; None: its failures may be chance."""
    if run.exit_status is None:
        return "pytest did not come to its end"
    if run.broken:
        return f"not the failure of a test: {run.broken[0].splitlines()[-1]}"
    if run.exit_status != pytest.ExitCode.TESTS_FAILED:
        return f"pytest ended with exit status {run.exit_status}"
    if not run.failures:
        return "no test reported a failure"
    if len(run.failures) > RERUN_TESTS_MAX:
        return f"{len(run.failures)} tests failed; at most {RERUN_TESTS_MAX} run once more"
    return None


def _outcomes(first: Run, second: Run, passed: bool) -> str:
    failed = len(first.failures) - len(second.passed)
    counts = {
        "failed": failed if passed else max(1, failed),
        "passed": len(first.passed) + len(second.passed),
        **first.counts,
        "rerun": len(first.failures),
    }
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _run(command: Sequence[str], *, seconds_max: float | None = None) -> tuple[int, Run]:
    """The exit code of a command, and what the run of pytest in it reported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        environment = {**os.environ, VARIABLE: str(path)}
        try:
            code = subprocess.run(
                command, env=environment, timeout=seconds_max, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return 1, Run()
        return code, Run(**json.loads(path.read_text())) if path.exists() else Run()


if __name__ == "__main__":
    sys.exit(run_with_second_try(sys.argv[1:]))
