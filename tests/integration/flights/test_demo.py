"""The demo as a user runs it: counts that add up through all crashes, and nothing left behind.

Both halves are run once, with few flights; a session of Spark takes longer to start than they
take to be counted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.flights.departures import Kind, departures
from tests.support.chosen_broker import LONG_WITH_A_JVM, sample
from tests.support.limits import HANGING_SECONDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def start(folder: Path, rows: int, *options: str) -> subprocess.Popen[str]:
    """Start the demo in ``folder``, which becomes a checkout with nothing but the demo."""
    copy = folder / "examples"
    if not copy.exists():
        shutil.copytree(EXAMPLES / "flights", copy / "flights")
        shutil.copy(EXAMPLES / "__init__.py", copy)
    return subprocess.Popen(
        [sys.executable, "-m", "examples.flights", "--rows", str(rows), *options],
        cwd=folder,
        # kio imports Hypothesis where there is one, and Hypothesis makes a folder.
        env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder.with_name("hypothesis"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_in(folder: Path) -> list[str]:
    """The command lines of all processes that work in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


@LONG_WITH_A_JVM
def test_counts_of_five_thousand_flights_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with blanks"
    folder.mkdir()
    output = folder / "build" / "demo"
    demo = start(folder, 5_000)
    printed, _ = demo.communicate(timeout=HANGING_SECONDS)
    assert demo.returncode == 0, printed
    figures = json.loads((output / "summary.json").read_text())
    assert [check["claim"] for check in figures["checks"] if not check["ok"]] == []
    kinds = [departure.kind for departure in departures(5_000)]
    assert (kinds.count(Kind.POISON), kinds.count(Kind.CANCELLED)) == (5, 31)
    assert (figures["produced"], figures["done"]) == (5_000, 4_964)
    assert (figures["unreadable"], figures["given_up"]) == (5, 31)
    assert figures["dead_letters"] == 36
    assert figures["broker_down_seconds"] > 0
    assert figures["worker_held"] > 0
    # Each cancelled flight is tried four times more, and what a crash interrupted once more.
    assert figures["retries"] >= 31 * 4
    assert figures["flights_by_runs"].keys() >= {"0", "1", "5"}
    assert_pipeline_adds_up(figures["pipeline"])
    assert processes_in(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == ["build", "examples"]
    assert sorted(path.name for path in output.iterdir()) == [
        "delays.png",
        "query.png",
        "summary.json",
        "timeline.png",
    ]


def assert_pipeline_adds_up(figures: dict[str, Any]) -> None:
    """The second half, of the same flights."""
    assert [check["claim"] for check in figures["checks"] if not check["ok"]] == []
    assert (figures["produced"], figures["accepted"], figures["rejected"]) == (5_000, 4_995, 5)
    assert (figures["groups"], figures["groups_differing"]) == (175, 0)
    assert figures["killed_with_records"] > 0
    assert figures["run_again"] == figures["killed_with_records"]
    assert figures["delivered"] == 5_000 + figures["run_again"]
    assert figures["recognised"] == figures["killed_with_records"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "exit_code"),
    sample([(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]),
    ids=["kill-9", "ctrl-c", "sigterm"],
)
def test_no_process_is_left_behind_by(
    number: signal.Signals, exit_code: int, tmp_path: Path
) -> None:
    demo = start(tmp_path, 300_000)
    try:
        ledgers = tmp_path / "build" / "demo"
        wait_until(
            lambda: any(path.stat().st_size for path in ledgers.glob("run-*/producer.ledger")),
            HANGING_SECONDS,
            "the producer to produce",
        )
        assert len(processes_in(tmp_path)) == 9  # The demo, a broker, a producer, six workers.
        demo.send_signal(number)
        printed, _ = demo.communicate(timeout=HANGING_SECONDS)
        assert demo.returncode == exit_code, printed
        wait_until(lambda: not processes_in(tmp_path), HANGING_SECONDS, "the children to end")
        if number != signal.SIGKILL:
            assert list(ledgers.iterdir()) == []
    finally:
        demo.kill()


@LONG_WITH_A_JVM
def test_nothing_of_spark_outlives_a_killed_demo(tmp_path: Path) -> None:
    """Neither the JVM, which cannot be bound to the demo's process, nor its Python processes."""
    demo = start(tmp_path, 1_000)
    try:
        wait_until(
            lambda: any("streaming_source_runner" in command for command in processes_in(tmp_path)),
            HANGING_SECONDS,
            "the query's reader to start",
        )
        demo.kill()
        demo.communicate(timeout=HANGING_SECONDS)
        wait_until(lambda: not processes_in(tmp_path), HANGING_SECONDS, "Spark to end")
    finally:
        demo.kill()


@pytest.mark.slow
def test_first_half_runs_alone_without_spark(tmp_path: Path) -> None:
    demo = start(tmp_path, 1_000, "--no-spark")
    printed, _ = demo.communicate(timeout=HANGING_SECONDS)
    assert demo.returncode == 0, printed
    output = tmp_path / "build" / "demo"
    assert sorted(path.name for path in output.iterdir()) == ["summary.json", "timeline.png"]
    assert "pipeline" not in json.loads((output / "summary.json").read_text())


def test_more_rows_than_exist_is_a_misuse(tmp_path: Path) -> None:
    demo = start(tmp_path, 336_777)
    printed, _ = demo.communicate(timeout=HANGING_SECONDS)
    assert demo.returncode == 2
    assert "336777 is not in the range 1000<=x<=336776" in printed
