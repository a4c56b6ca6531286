"""The Spark benchmarks without Spark: their arithmetic, and the process they talk to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.failure import BenchError
from tests.bench.peers.workloads.spark import against_ceiling, with_rows
from tests.bench.spark_process import SparkProcess, tree_cpu_seconds

# What `spark_job` says to the outside, without a Spark inside.
OBEDIENT = """\
echo ready
while read line; do echo '{"seconds": 2.5, "batches": []}'; done
echo the end >&2
"""
FAILING = """\
echo ready
read line
echo 'StreamingQueryException: no such topic' >&2
exit 1
"""


def interpreter(folder: Path, script: str) -> Path:
    path = folder / "python"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path


def batch(second: float, milliseconds: int, rows: int) -> dict[str, Any]:
    return {
        "started": f"2026-11-21T12:00:{second:06.3f}Z",
        "milliseconds": milliseconds,
        "rows": rows,
    }


def test_full_batches_one_upon_the_other_reach_the_ceiling() -> None:
    batches = [batch(0, 200, 8_000), batch(0.2, 200, 8_000), batch(0.4, 200, 8_000)]
    assert against_ceiling(batches, 8_000) == (40_000.0, 40_000.0)


def test_a_pause_between_batches_is_lost_to_the_ceiling() -> None:
    batches = [batch(0, 200, 8_000), batch(0.3, 200, 8_000), batch(0.6, 200, 8_000)]
    assert against_ceiling(batches, 8_000) == (30_000.0, 40_000.0)


def test_a_batch_that_is_not_full_is_lost_to_the_ceiling() -> None:
    batches = [batch(0, 200, 8_000), batch(0.2, 200, 2_000), batch(0.4, 200, 8_000)]
    assert against_ceiling(batches, 8_000) == (30_000.0, 40_000.0)


def test_triggers_without_rows_are_no_batches() -> None:
    full = batch(0, 200, 8_000)
    assert with_rows({"batches": [full, batch(0.2, 300, 0)]}) == [full]


def test_a_session_answers_each_query_and_ends_when_closed(tmp_path: Path) -> None:
    session = SparkProcess(tmp_path / "spark", interpreter(tmp_path, OBEDIENT), {})
    for _ in range(2):
        result = session.run("kafka", {"subscribe": "orders"})
        assert (result["seconds"], result["batches"]) == (2.5, [])
        assert result["client_cpu_s"] >= 0
    session.close()
    assert (tmp_path / "spark" / "spark.log").read_text() == "the end\n"
    assert [path.name for path in (tmp_path / "spark").iterdir()] == ["spark.log"]


def test_error_of_a_failed_query_includes_sparks_log(tmp_path: Path) -> None:
    session = SparkProcess(tmp_path / "spark", interpreter(tmp_path, FAILING), {})
    with pytest.raises(BenchError, match="Spark ended: StreamingQueryException: no such topic"):
        session.run("kafka", {})
    session.close()


def test_cpu_time_includes_running_and_ended_children() -> None:
    """A child burns 0.2 s and is awaited; then another burns 0.2 s and stays."""
    burn = "import time, sys\nwhile time.process_time() < 0.2: pass\n"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"stay = {burn!r} + 'print(flush=True); sys.stdin.read()'\n"
        "subprocess.run([sys.executable, '-c', stay])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert tree_cpu_seconds(process.pid) >= 0.38  # The kernel counts in ticks of 10 ms.
