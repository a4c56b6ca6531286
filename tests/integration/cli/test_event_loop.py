"""Without uvloop: broker, verbs and worker run on asyncio's own loop; those that stay say so.

A test takes uvloop away from a process of its own, as on a machine for which there is no wheel.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.limits import HANGING_SECONDS

WITHOUT = "import sys; sys.modules['uvloop'] = None; from sharegroup.cli.main import main; main()"
WORKER = """
from sharegroup.worker import App

app = App("names")


@app.share_group("greeters", topics="names")
async def greet(name: str) -> None:
    print("Hello", name, flush=True)
"""


def words(*arguments: str) -> list[str]:
    return [sys.executable, "-c", WITHOUT, *arguments]


def first_line(process: subprocess.Popen[str], begins: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(begins):
            return line
    raise AssertionError(f"no line begins with {begins!r}")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_everything_runs_without_uvloop(tmp_path: Path, stop: signal.Signals) -> None:
    log = tmp_path / "log"
    (tmp_path / "greetings.py").write_text(WORKER)
    with log.open("w") as errors:
        serve = subprocess.Popen(
            words("serve", "--port", "0", "--data", str(tmp_path / "data")),
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        ready = re.match(r"ready bootstrap=(\S+)", first_line(serve, "ready"))
        assert ready is not None
        address = ["--bootstrap-server", ready[1]]
        worker = subprocess.Popen(
            words("worker", "greetings:app", *address),
            stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path,
        )  # fmt: skip
        try:
            first_line(worker, "ready")
            subprocess.run(
                words("produce", "names", *address), input="Ada\n", text=True, check=True
            )
            assert first_line(worker, "Hello") == "Hello Ada\n"
        finally:
            for process in (worker, serve):
                process.send_signal(stop)
                process.communicate(timeout=HANGING_SECONDS)
    assert serve.returncode == 0
    said = re.findall(r"event=event_loop loop=asyncio reason='.*uvloop.*' action=", log.read_text())
    assert len(said) == 2, "the broker and the worker say it, and no verb does"
