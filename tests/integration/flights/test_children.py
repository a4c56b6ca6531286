"""Processes with processes of their own: killed together, and nothing outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from examples.flights.children import ChildFailed, Children
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS_MAX = HANGING_SECONDS
SLEEPER = "import time; time.sleep(600)"
TREE = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
"""
"""Writes the child's process id to a file."""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    running = Children(tmp_path, end_seconds_max=0.2)
    yield running
    running.kill_all()


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().isdecimal(), f"{path} to be written")
    return int(path.read_text())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS_MAX} s for {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_kill_reaches_the_processes_below(children: Children, tmp_path: Path) -> None:
    children.start("tree", "-c", TREE + "time.sleep(600)", str(tmp_path / "pid"))
    below = pid_in(tmp_path / "pid")
    assert is_alive(below)
    children.kill9("tree")
    assert not is_alive(below)


def test_descendants_of_an_ended_child_are_killed(children: Children, tmp_path: Path) -> None:
    wait = f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists(): time.sleep(0.01)"
    children.start("tree", "-c", TREE + wait, str(tmp_path / "pid"))
    below = pid_in(tmp_path / "pid")
    children.weigh()
    (tmp_path / "end").touch()
    wait_until(lambda: children.finished("tree"), "the parent to end")
    assert not is_alive(below)


WEIGH = """
import pathlib, sys, time
from examples.flights.children import Children
folder = pathlib.Path(sys.argv[1])
children = Children(folder, end_seconds_max=0.2)
children.weigh()
alone = children.peak_pss_bytes
children.forget_peak()
children.start("tree", "-c", sys.argv[2], str(folder / "pid"))
deadline = time.monotonic() + float(sys.argv[3])
while children.peak_pss_bytes <= alone + 64 * 2**20 and time.monotonic() < deadline:
    time.sleep(0.01)
    children.weigh()
children.kill_all()
print(children.peak_pss_bytes - alone >> 20)
"""


def test_memory_of_descendants_is_counted(tmp_path: Path) -> None:
    """Measured in a separate process, because this one has children whose memory changes."""
    large = "block = bytearray(64 * 2**20); " + SLEEPER
    tree = TREE.replace(SLEEPER, large) + "time.sleep(600)"
    arguments = [str(tmp_path), tree, str(WAIT_SECONDS_MAX)]
    program = [sys.executable, "-c", WEIGH, *arguments]
    grown = subprocess.check_output(program, cwd=ROOT, text=True)
    assert int(grown) >= 64


def test_failure_names_the_log_and_its_last_lines(children: Children, tmp_path: Path) -> None:
    trace = "java.io.IOException: no disk\\n\\tat java.io.File.open(File.java)\\n\\t... 19 more"
    children.start("query", "-c", f"import sys; sys.exit('{trace}')")
    log = tmp_path / "query.log"
    with pytest.raises(ChildFailed) as caught:
        wait_until(lambda: children.finished("query"), "the child to end")
    assert str(caught.value) == (
        f"query ended with 1; its log is {log}, which ends with: java.io.IOException: no disk"
    )
