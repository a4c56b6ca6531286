"""What `.ci/run` makes of failed tests: only those that pass the second time are forgiven."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import flaky_tests
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).parents[2]
PYTEST = f"{shlex.quote(sys.executable)} -m pytest -q -p no:randomly -p no:cacheprovider"
NAME = "test_some.py::test_flaky"
FLAKY = """
from pathlib import Path

def test_flaky():
    first = not Path("ran").exists()
    Path("ran").touch()
    assert not first, "only the first time"
"""


def run(
    folder: Path, text: str, *, options: str = "-n 2", after: str = "exit $code"
) -> tuple[int, list[str]]:
    """The exit code of a run of these tests, with its second try, and the lines it printed."""
    (folder / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    (folder / "test_some.py").write_text(f"{text}\ndef test_good():\n    pass\n")
    shell = f"{PYTEST} {options}; code=$?; {after}"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.flaky_tests", "sh", "-c", shell],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANGING_SECONDS,
        check=False,
    )
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "-n 2"])
def test_a_test_that_passes_alone_is_printed_and_forgiven(tmp_path: Path, options: str):
    code, lines = run(tmp_path, FLAKY, options=options)
    assert code == 0
    assert "flaky: test_some.py::test_flaky" in lines
    assert any("only the first time" in line for line in lines[lines.index(f"flaky: {NAME}") :])
    assert lines[-1].startswith("2 passed, 1 rerun in ")


@pytest.mark.slow
def test_fixtures_that_fail_once_are_forgiven_too(tmp_path: Path):
    text = FLAKY.replace(
        "def test_flaky():", "import pytest\n@pytest.fixture\ndef ended():\n    yield"
    )
    code, lines = run(tmp_path, f"{text}\ndef test_flaky(ended):\n    pass\n")
    assert code == 0
    assert f"flaky: {NAME}" in lines
    assert lines[-1].startswith("2 passed, 1 rerun in ")


@pytest.mark.slow
def test_a_test_that_fails_twice_is_red_beside_a_flaky_one(tmp_path: Path):
    code, lines = run(tmp_path, f"{FLAKY}\ndef test_bad():\n    assert False\n")
    assert code == 1
    assert f"flaky: {NAME}" in lines
    assert "flaky: test_some.py::test_bad" not in lines
    assert lines[-1].startswith("1 failed, 2 passed, 2 rerun in ")


@pytest.mark.slow
def test_a_test_that_is_skipped_the_second_time_is_red(tmp_path: Path):
    skips = "import pytest\n    if not first: pytest.skip()\n    assert not first"
    code, lines = run(tmp_path, FLAKY.replace("assert not first", skips))
    assert code == 1
    assert lines[-1].startswith("1 failed, 1 passed, 1 rerun in ")


@pytest.mark.slow
def test_a_process_that_dies_the_second_time_is_red(tmp_path: Path):
    dies = "import os\n    if not first: os._exit(0)\n    assert not first"
    code, lines = run(tmp_path, FLAKY.replace("assert not first", dies))
    assert code == 1
    assert lines[-1].startswith("1 failed, 1 passed, 1 rerun in ")


FINAL: dict[str, tuple[str, dict[str, str], str]] = {
    "a process of tests dies": (
        "import os\ndef test_dies():\n    os._exit(1)\n",
        {},
        "1 failed, 1 passed in ",
    ),
    "a file cannot be imported": ("import no_such_module\n", {}, "1 error in "),
    "pytest itself dies": (
        "import os\ndef test_dies():\n    os._exit(1)\n",
        {"options": ""},
        "1 error in ",
    ),
    "an error of pytest": (
        "",
        {"options": "-p broken_plugin"},
        "1 error in ",
    ),
    "no test failed": ("", {"after": "exit 1"}, "1 passed in "),
    "a crash beside a failure": (
        f"{FLAKY}import os\ndef test_dies():\n    os._exit(1)\n",
        {},
        "2 failed, 1 passed in ",
    ),
    "too many fail": (
        "import pytest\n@pytest.mark.parametrize('n', range(21))\ndef test_many(n): assert False\n",
        {},
        "21 failed, 1 passed in ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FINAL)
def test_nothing_runs_once_more_when(tmp_path: Path, case: str):
    text, how, closing = FINAL[case]
    (tmp_path / "broken_plugin.py").write_text("def pytest_runtestloop():\n    raise ValueError\n")
    code, lines = run(tmp_path, text, **how)
    assert code != 0
    assert any(line.startswith("no test runs once more: ") for line in lines)
    assert not any(line.startswith("flaky: ") for line in lines)
    assert closing in next(line for line in reversed(lines) if " in " in line)


def test_a_run_without_failures_is_left_alone(tmp_path: Path):
    code, lines = run(tmp_path, "")
    assert code == 0
    assert lines[-1].startswith("1 passed in ")


@pytest.mark.slow
def test_the_runs_of_pytest_in_tests_have_no_part_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(flaky_tests.VARIABLE, raising=False)
    nested = "import os\ndef test_variable():\n    assert 'TEST_RUN_REPORT' not in os.environ\n"
    code, _ = run(tmp_path, nested)
    assert code == 0
