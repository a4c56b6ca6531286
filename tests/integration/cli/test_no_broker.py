"""Commands at a terminal without a broker: they say so, and Ctrl-C ends them at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.piping import sharegroup
from tests.integration.cli.terminal import CTRL_C, terminal
from tests.support.kafka_peer import free_ports

NOWHERE = "127.0.0.1:1"
STOP_SECONDS_MAX = 3.0
"""Limit for a loaded machine; without a limit of its own, a command takes its timeout of 10 s."""

APP = """
from sharegroup.worker import App
app = App("waits")
@app.share_group("g", topics="t")
async def handle(value: bytes) -> None: ...
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("topics list", 130),
        ("groups list --watch 1", 130),
        ("consume t", 0),
        ("produce t FILE", 130),
        ("perf produce --topic t --num-records 1000000 --record-size 10", 130),
        ("perf consume --topic t --num-records 10", 130),
        ("perf consume --topic t --num-records 10 --threads 2", 130),
        ("dlq list t.dead", 130),
        ("dlq redrive t.dead", 130),
        ("worker plan waits:app", 130),
    ],
)
def test_terminal_shows_that_it_waits_and_ctrl_c_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int
) -> None:
    (tmp_path / "FILE").write_text("line\n" * 10_000)
    (tmp_path / "waits.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    with terminal(*words.split(), "--bootstrap", NOWHERE) as shown:
        shown.expect(f"sharegroup: waiting for {NOWHERE}")
        shown.type(CTRL_C)
        ended, seconds = shown.end()
    assert ended == code
    assert seconds < STOP_SECONDS_MAX
    assert shown.text.count("waiting for") == 1
    assert "Traceback" not in shown.text


def test_pipe_gets_no_waiting_line() -> None:
    done = sharegroup("topics", "list", "--bootstrap", NOWHERE, "--timeout", "1500")
    assert done.code == 1
    assert done.err.startswith(f"Error: no response from {NOWHERE}: ")
    assert "waiting" not in done.err


def test_address_of_the_environment_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", NOWHERE)
    done = sharegroup("topics", "list", "--timeout", "100")
    assert done.code == 1
    assert done.err.startswith(f"Error: no response from {NOWHERE} (SHAREGROUP_BOOTSTRAP): ")


@pytest.mark.slow
def test_command_waits_for_a_broker_that_starts_later(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    where = f"127.0.0.1:{port}"
    serve = (sys.executable, "-m", "sharegroup", "serve", "--port", str(port))
    with terminal("topics", "list", "--bootstrap", where, "--timeout", "60000") as shown:
        shown.expect(f"sharegroup: waiting for {where}")
        with subprocess.Popen(
            (*serve, "--data", str(tmp_path)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as broker:
            try:
                code, _ = shown.end()
            finally:
                broker.send_signal(signal.SIGINT)
    assert code == 0
    assert shown.text.endswith("There are no topics.\r\n")
