"""A worker as a process: it ends although a handler does not, and is not started twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.limits import HANGING_SECONDS

STUBBORN = """
import asyncio, signal, sys
from sharegroup.worker.lifecycle.program import run
from sharegroup.worker.telemetry.state import Phase, WorkerState

class Worker:
    state = WorkerState(Phase.RUNNING)

    async def wait_failed(self):
        await asyncio.Event().wait()

class App:
    name, route_list, worker = "orders", (), None

    async def start(self):
        self.worker = Worker()
        self.handler = asyncio.create_task(self.handle(), name="bill")
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)

    async def handle(self):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def stop(self, grace=None):
        return "interrupted=1"

sys.exit(run(App()))
"""


def test_handler_that_ignores_its_cancellation_does_not_block_the_exit(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", STUBBORN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1:] == ["stopped app=orders interrupted=1"]
    assert "event=exit_forced app=orders tasks=bill reason='the tasks did not end" in ended.stderr


UNGUARDED = """
import multiprocessing
from sharegroup.worker import App

def work(): ...

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
App("orders").run()
"""


def test_process_that_only_imports_the_program_starts_no_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "orders.py").write_text(UNGUARDED)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "orders.py")],
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert "expected `if __name__ == '__main__':` above app.run()" in ended.stderr
