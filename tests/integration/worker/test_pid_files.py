"""Which workers run here, with processes that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.worker.lifecycle import pid_files
from sharegroup.worker.lifecycle.pid_files import PidFile, worker_of, workers

WORKER = """
import signal, sys
from sharegroup.worker.lifecycle.pid_files import PidFile
file = PidFile.of(sys.argv[1])
file.write({"app": sys.argv[1], "phase": "running"})
signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
print("ready", flush=True)
while (line := sys.stdin.readline()) not in ("", "end\\n"):
    pass
if line:
    file.close()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "sharegroup"


@pytest.fixture
def process(own_folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, "orders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
        started.kill()


def test_a_running_worker_is_found_and_can_be_signalled(process: subprocess.Popen[str]) -> None:
    found = workers("orders")
    assert [(worker.pid, worker.facts) for worker in found] == [
        (process.pid, {"app": "orders", "phase": "running"})
    ]
    assert found[0].send(signal.SIGUSR1)
    assert process.stdout is not None
    assert process.stdout.readline() == "usr1\n"


def test_workers_of_another_application_are_not_found(process: subprocess.Popen[str]) -> None:
    assert workers("order") == []
    assert workers("orders.x") == []


def test_a_worker_that_ended_well_leaves_no_file(
    process: subprocess.Popen[str], own_folder: Path
) -> None:
    process.communicate("end\n")
    assert list(own_folder.iterdir()) == []


def test_pid_file_of_a_killed_worker_is_removed_and_gets_no_signal(
    process: subprocess.Popen[str], own_folder: Path
) -> None:
    [found] = workers("orders")
    process.kill()
    process.wait()
    # The file names this process, as if the system had reused the process id.
    found.path.write_text(f"{os.getpid()}\n{{}}\n")
    stranger = pid_files.WorkerProcess(os.getpid(), found.path)
    assert not stranger.send(signal.SIGKILL)
    assert workers("orders") == []
    assert list(own_folder.iterdir()) == []


def test_ended_process_is_not_signalled(process: subprocess.Popen[str]) -> None:
    [found] = workers("orders")
    process.kill()
    process.wait()
    assert not found.send(signal.SIGUSR1)


def test_a_file_begins_with_the_number_alone_and_follows_the_workers_life(tmp_path: Path) -> None:
    path = tmp_path / "worker.pid"
    file = PidFile(path)
    file.write({"phase": "running", "text": "long " * 50})
    file.write({"phase": "quiet"})
    first, second = path.read_text().splitlines()
    assert first == str(os.getpid())
    assert json.loads(second) == {"phase": "quiet"}
    file.close()
    assert not path.exists()


def test_one_file_is_for_one_worker(process: subprocess.Popen[str]) -> None:
    [found] = workers("orders")
    with pytest.raises(FileExistsError, match="another worker runs with this pid file"):
        PidFile(found.path)


def test_a_file_that_is_no_pid_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(FileExistsError, match="the file is not a pid file"):
        PidFile(path)
    assert worker_of(path) is None
    assert path.read_text() == "dear diary\n"


def test_a_left_over_file_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "worker.pid"
    path.write_text("4711\n{}\n")
    file = PidFile(path)
    file.write({})
    assert path.read_text() == f"{os.getpid()}\n{{}}\n"
    file.close()


def test_a_folder_that_others_may_write_to_is_refused(own_folder: Path) -> None:
    own_folder.mkdir()
    own_folder.chmod(0o777)
    with pytest.raises(PermissionError, match="only this user can write to"):
        workers("orders")


def test_pid_file_name_escapes_the_application_name(
    process: subprocess.Popen[str], own_folder: Path
) -> None:
    file = PidFile.of("a/b c")
    assert file.path == own_folder / f"a_b_c.{os.getpid()}"
    file.close()


def test_error_for_an_impossible_folder_names_the_variable_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"pid files; set XDG_RUNTIME_DIR to one of your own: .*file"):
        pid_files.folder()
