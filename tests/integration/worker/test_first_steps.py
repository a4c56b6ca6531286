"""docs/worker.md, «First steps», word for word: its file, its commands, what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.chosen_broker import chosen, running

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "worker.md").read_text()
STEPS = PAGE[PAGE.index("## First steps") : PAGE.index("## Handlers")]
(CODE,) = re.findall(r"```python\n(.*?)```", STEPS, re.DOTALL)
START, SEND, SHOW = re.findall(r"```console\n(.*?)```\n", STEPS.partition(CODE)[2][4:], re.DOTALL)
PROMPT = "$ "
ANYTHING = "..."
"""What the page writes for what is different each time."""
SECONDS_MAX = 60.0


def commands(block: str) -> list[str]:
    return [line.removeprefix(PROMPT) for line in block.splitlines() if line.startswith(PROMPT)]


def printed(command: str, folder: Path, bootstrap: str) -> str:
    """What a command of the page writes, with the address of this test's broker behind it."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} --bootstrap-server {bootstrap}"],
        cwd=folder,
        env=surroundings(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def surroundings(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(folder)}


def wait_until(condition: Callable[[], bool], log: Path) -> None:
    limit = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.05)


def test_first_steps_work_as_documented(tmp_path: Path) -> None:
    (worker,) = [line.removesuffix(" &") for line in commands(START) if " worker " in line]
    (tmp_path / "orders.py").write_text(CODE)
    log = tmp_path / "worker.log"
    with running(chosen(), tmp_path, {}) as broker, log.open("ab") as written:
        process = subprocess.Popen(
            [*worker.split(), "--bootstrap-server", broker.bootstrap_servers],
            cwd=tmp_path, env=surroundings(tmp_path), stdout=written, stderr=written,
        )  # fmt: skip
        try:
            wait_until(lambda: "\nready app=orders-service" in log.read_text(), log)
            for command in commands(SEND):
                printed(command, tmp_path, broker.bootstrap_servers)
            wait_until(lambda: "event=record.dead_lettered" in log.read_text(), log)
            wait_until(lambda: log.read_text().count("billed ") == 2, log)
            (show,) = commands(SHOW)
            shown = printed(show, tmp_path, broker.bootstrap_servers)
            subprocess.run(
                ["sharegroup", "worker", "stop", "orders-service"],
                env=surroundings(tmp_path), check=True, timeout=SECONDS_MAX, capture_output=True,
            )  # fmt: skip
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
            process.wait()
    lines = [line for line in log.read_text().splitlines() if line.startswith("billed ")]
    assert lines == [line for line in SEND.splitlines() if line.startswith("billed ")]
    expected = [line for line in SHOW.splitlines() if not line.startswith(PROMPT)]
    pattern = "\n".join(".*".join(map(re.escape, line.split(ANYTHING))) for line in expected)
    assert re.match(pattern, shown), shown
