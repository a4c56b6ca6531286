"""The examples of examples/testing run as a reader runs them: with pytest, without our settings.

Those for FastStream and Celery are run by `make frameworks`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chosen_broker import LONG_WITH_A_JVM

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "testing"
LINES_MAX = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("test_confluent_consumer.py", 2),
        pytest.param("test_spark_job.py", 1, marks=LONG_WITH_A_JVM),
    ],
)
def test_example_passes(name: str, passed: int, tmp_path: Path) -> None:
    options = ["-q", "-c", os.devnull, "--rootdir", str(EXAMPLES), "-p", "no:cacheprovider"]
    # As in an activated environment: Spark starts the first Python of the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(EXAMPLES / name)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


def test_examples_are_short() -> None:
    lengths = {path.name: path.read_text().count("\n") for path in EXAMPLES.glob("*.py")}
    assert len(lengths) == 4
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}
