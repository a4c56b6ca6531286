"""Ports that another program has by now: no traceback, and what was found is said."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sharegroup.cli.groups.inspect_group import base_url
from sharegroup.cli.main import main
from sharegroup.worker.lifecycle.pid_files import worker_of
from tests.support.limits import HANGING_SECONDS

HEAD = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def http(document: object, status: int = 200) -> bytes:
    body = json.dumps(document).encode()
    return HEAD % (status, len(body)) + body


RUN = {
    "first_offset": 0,
    "last_offset": 4,
    "state": "available",
    "delivery_count": 1,
    "member_id": None,
    "lock_ms_left": None,
}
ENTRY = {
    "topic": "orders",
    "partition": 0,
    "start_offset": 0,
    "end_offset": 5,
    "high_watermark": 5,
    "run_count": 1,
    "next_offset": None,
    "runs": [RUN],
}


def page(**changes: object) -> bytes:
    return http({"left_out": 0, "share_partitions": [{**ENTRY, **changes}]})


@contextmanager
def port(*answers: bytes) -> Iterator[str]:
    """A port that answers each connection with the next bytes, the last ones for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            number = 0
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(HANGING_SECONDS)
                    connection.recv(65_536)
                    with suppress(OSError):  # The reader has seen enough.
                        connection.sendall(answers[min(number, len(answers) - 1)])
                number += 1

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(HANGING_SECONDS)


FOREIGN = {
    "nothing": b"",
    "another protocol": b"220 mail.example ESMTP\r\n",
    "no header": b"HTTP/1.1 200 OK\r\n",
    "half a body": HEAD % (200, 500) + b"{",
    "HTML": HEAD % (200, 6) + b"<html>",
    "no UTF-8": HEAD % (200, 2) + b"\xff\xff",
    "a list": http([1, 2]),
    "a number": http(7),
    "deep": HEAD % (200, 200_000) + b"[" * 200_000,
    "a long line": b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "another document": http({"status": "ok"}),
}


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(words)
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.mark.parametrize("answer", FOREIGN.values(), ids=FOREIGN)
def test_live_runs_of_another_program_are_one_line(
    answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with port(answer) as url:
        code, out, err = ended(capsys, "groups", "inspect", "g", "--metrics", url, "--json")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert url in err
    assert "check that" in err


@pytest.mark.parametrize(
    "answer",
    [
        page(topic=7),
        page(runs=None),
        page(partition="0"),
        page(runs=[{**RUN, "state": "\x1b[2J"}]),
        page(runs=[{**RUN, "first_offset": 9}]),
        page(runs=[{**RUN, "delivery_count": None}]),
        page(runs=["run"]),
        http({"left_out": 0, "share_partitions": {"a": 1}}),
        http({"left_out": 0, "share_partitions": ["orders"]}),
        page(next_offset=5, runs=[]),  # It never gets any further.
    ],
)
def test_runs_with_other_fields_are_not_those_of_a_broker(
    answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with port(answer) as url:
        code, out, err = ended(capsys, "groups", "inspect", "g", "--metrics", url)
    assert (code, out) == (1, "")
    assert "no answer of /share-partitions: " in err
    assert "sharegroup serve of the same version" in err
    assert "\x1b" not in err


def test_fields_of_a_newer_broker_are_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with port(page(leader=3, runs=[{**RUN, "age_ms": 1}])) as url:
        code, out, _ = ended(capsys, "groups", "inspect", "g", "--metrics", url, "--json")
    (row,) = json.loads(out)
    assert (code, row["runs"]) == (0, [RUN])


def test_error_of_a_broker_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with port(http({"error": "there is no share group 'g'"}, 404)) as url:
        code, _, err = ended(capsys, "groups", "inspect", "g", "--metrics", url)
    assert (code, err) == (1, f"Error: {url}: there is no share group 'g'\n")


@pytest.mark.parametrize("text", ["http://[::1", "h:99999", "h:0", "http://h:port", "ftp://h"])
def test_url_that_cannot_be_one_is_a_misuse(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ended(capsys, "groups", "inspect", "g", "--metrics", text)
    assert (code, "expected the URL of the broker's metrics port" in err) == (2, True), err


def test_url_of_the_metrics_is_accepted() -> None:
    assert base_url("h:9464/metrics") == base_url("http://h:9464/") == "http://h:9464"


HOLDER = """
import os, sys
from pathlib import Path
from sharegroup.worker.lifecycle.pid_files import PidFile
file = PidFile(Path(sys.argv[1]))
os.pwrite(file._fd, sys.argv[2].replace("PID", str(os.getpid())).encode(), 0)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path, content: str) -> Iterator[int]:
    """A process holds the lock of a pid file with this content; its process id."""
    command = [sys.executable, "-c", HOLDER, str(path), content]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        try:
            yield holder.pid
        finally:
            holder.stdin.close()


def status(
    folder: Path, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    path = folder / "worker.pid"
    with locked(path, f"PID\n{json.dumps(facts)}\n") as pid:
        code, out, err = ended(capsys, "worker", "status", "--pid-file", str(path), "--json")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)
    assert row["pid"] == pid
    return {name: row[name] for name in ("running", "waiting", "held", "since")}


UNKNOWN = {"running": None, "waiting": None, "held": None, "since": None}
GROUP = {"running": 1, "waiting": 2, "held": 3}


@pytest.mark.parametrize(
    "answer",
    [
        *FOREIGN.values(),
        http({"groups": 7}),
        http({"groups": ["a"]}),
        http({"groups": [{"running": 1}]}),
        http({"groups": [{**GROUP, "held": "many"}]}),
    ],
)
def test_status_of_a_worker_whose_port_another_program_has(
    answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with port(answer) as url:
        assert status(tmp_path, {"app": "a", "health": url}, capsys) == UNKNOWN


def test_status_has_the_sums_of_all_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with port(http({"groups": [GROUP, GROUP]})) as url:
        found = status(tmp_path, {"health": url, "since_ms": 1_000}, capsys)
    assert found == {"running": 2, "waiting": 4, "held": 6, "since": "1970-01-01T00:00:01+00:00"}


@pytest.mark.parametrize(
    "facts",
    [{"since_ms": "now"}, {"since_ms": 10**30}, {"health": 7}, {"health": "file:///etc"}, {}],
)
def test_status_from_a_pid_file_with_other_facts(
    facts: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(tmp_path, facts, capsys) == UNKNOWN


@pytest.mark.parametrize("content", ["-1\n{}\n", "0\n{}\n", "PID\n[]\n", "PID\n" + "[" * 100_000])
def test_pid_file_of_another_program_names_no_worker(content: str, tmp_path: Path) -> None:
    """A pid of -1 stands for all processes of the user."""
    with locked(tmp_path / "worker.pid", content):
        assert worker_of(tmp_path / "worker.pid") is None
