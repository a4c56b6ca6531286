"""Tasks as in Celery, on a broker: blocking calls from threads and forked processes, revoke.

The worker is one process for all tests of the module.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.worker.tasks import TaskApp, TaskFailed, TaskRevokedError
from tests.support.limits import HANGING_SECONDS

PROJECT = """
from sharegroup.worker.tasks import TaskApp

app = TaskApp("project", broker={broker!r}, backend={backend!r})
app.conf.worker_enable_remote_control = True


@app.task(name="add")
def add(x, y):
    return x + y


@app.task(name="boom")
def boom():
    raise ValueError("bad")
"""


@pytest.fixture(scope="module")
def project(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskApp]:
    """The application as a web process has it; a worker runs beside it."""
    folder = tmp_path_factory.mktemp("project")
    backend = f"sqlite:///{folder}/results.db"
    text = PROJECT.format(broker=bootstrap, backend=backend)
    (folder / "project_tasks.py").write_text(text)
    command = [sys.executable, "-m", "sharegroup", "worker", "project_tasks:app"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline().startswith(b"ready app=project")
            names: dict[str, TaskApp] = {"__name__": "project_tasks"}  # type: ignore[dict-item]
            exec(compile(text, "project_tasks.py", "exec"), names)
            yield names["app"]
            names["app"].close()
        finally:
            worker.terminate()


@pytest.mark.slow
def test_threads_and_forked_processes_send_and_read_results(project: TaskApp) -> None:
    add, boom = project.tasks["add"], project.tasks["boom"]
    sums: list[int] = []
    threads = [
        threading.Thread(
            target=lambda by=by: sums.append(add.delay(by, 1).get(timeout=HANGING_SECONDS))
        )
        for by in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == [1, 2, 3, 4]
    failed = boom.delay()
    with pytest.raises(TaskFailed, match=r"builtins\.ValueError: bad"):
        failed.get(timeout=HANGING_SECONDS)
    assert 'raise ValueError("bad")' in str(failed.traceback)
    assert (failed.ready(), failed.failed(), failed.successful()) == (True, True, False)

    child = os.fork()  # As gunicorn with --preload, after a request in the parent.
    if child == 0:
        returned = None
        try:
            returned = add.delay(20, 22).get(timeout=HANGING_SECONDS)
            project.close()
        finally:
            os._exit(0 if returned == 42 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    again = add.delay(2, 2)
    assert again.get(timeout=HANGING_SECONDS) == 4
    again.forget()
    deadline = time.monotonic() + HANGING_SECONDS
    while again.state != "PENDING" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert again.state == "PENDING"


@pytest.mark.slow
def test_task_that_waits_is_revoked_and_one_that_ran_is_not(project: TaskApp) -> None:
    add = project.tasks["add"]
    waiting = add.apply_async((1, 1), countdown=600)
    assert waiting.revoke() is True
    with pytest.raises(TaskRevokedError, match="cancelled"):
        waiting.get(timeout=HANGING_SECONDS)
    assert waiting.state == "REVOKED"
    done = add.delay(1, 1)
    assert done.get(timeout=HANGING_SECONDS) == 2
    assert done.revoke() is False


def test_broker_that_is_away_ends_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sharegroup.worker.tasks.task_app.CALL_SECONDS", 0.3)
    away = TaskApp("away", broker="127.0.0.1:1", backend=f"sqlite:///{tmp_path}/results.db")

    @away.task(name="add")
    def add(x: int) -> int:
        return x

    with pytest.raises(TimeoutError, match=r"from .*127\.0\.0\.1:1.*may have been written"):
        add.delay(1)
    away.close()


def test_client_that_cannot_be_made_is_made_anew_by_the_next_call(tmp_path: Path) -> None:
    wrong = TaskApp("wrong", broker="127.0.0.1:1", client={"request_timeout_ms": "soon"})

    @wrong.task(name="add")
    def add(x: int) -> int:
        return x

    for _ in range(2):
        with pytest.raises(Exception, match="request_timeout_ms"):
            add.delay(1)
    wrong.close()


@pytest.mark.slow
def test_example_of_the_page_runs_as_a_program(tmp_path: Path) -> None:
    """As a program its tasks have the names by which a worker imports them."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "tasks.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    program = tmp_path / "celery_app.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("done after two retries\n", "")
