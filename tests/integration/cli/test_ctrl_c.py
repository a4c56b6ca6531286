"""Ctrl-C at a terminal ends every long verb at once, while other programs use all processors.

`test_no_broker` has the verbs that nobody answers. Here a broker answers, or somebody accepts the
connection and says nothing. A verb has a second (`STOP_SECONDS_MAX` of `running`); the limit of the
test is larger, because the end of a process waits for a processor, too.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.testing import run_broker
from tests.integration.cli.piping import at, sharegroup
from tests.integration.cli.terminal import CTRL_C, terminal
from tests.integration.cli.test_no_broker import APP, STOP_SECONDS_MAX

pytestmark = pytest.mark.slow
STOPS = "Ctrl-C stops"
PROGRESS = "--show-detailed-stats --reporting-interval 100"
ENDLESS = "--num-records 1000000000"

ANSWERED = [
    ("groups list --watch 1", STOPS, 130),
    ("groups describe g --watch 1", STOPS, 130),
    ("groups inspect g --watch 1", STOPS, 130),
    ("dlq list t --watch 1", STOPS, 130),
    ("consume t --group g", "first", 0),
    ("consume t --group gc --group-type consumer --from-beginning", "first", 0),
    ("tail t --follow", "first", 0),
    (f"perf produce --topic perf {ENDLESS} --record-size 100", "records sent", 130),
    (
        f"perf produce --topic perf {ENDLESS} --record-size 100 --throughput 100",
        "records sent",
        130,
    ),
    (f"perf consume --topic t {ENDLESS} --group p1 --from-beginning", "start.time", 130),
    (
        f"perf consume --topic t {ENDLESS} --group p2 --from-beginning --threads 2 {PROGRESS}",
        "start.time",
        130,
    ),
    ("worker run waits:app", "ready app=waits", 0),
]
"""Commands, a text that they print when they run, and their exit codes."""

MUTE = [
    ("groups list --timeout 60000", 130),
    ("groups list --watch 1 --timeout 60000", 130),
    ("topics create x --timeout 60000", 130),
    ("ping --timeout 60000", 130),
    ("consume t", 0),
    ("consume t --group-type consumer", 0),
    ("tail t --follow", 0),
    ("dlq redrive t", 130),
    (f"perf produce --topic t {ENDLESS} --record-size 100", 130),
    (f"perf consume --topic t {ENDLESS} --threads 2", 130),
    ("worker plan waits:app", 130),
]


@pytest.fixture(scope="module", autouse=True)
def busy() -> Iterator[None]:
    """Two programs that use as much time of the processors as the verbs get."""
    loop = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(loop) for _ in range(2)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with run_broker() as running:
        where = running.bootstrap_servers
        for words in (
            "topics create t --partitions 1",
            "topics create perf --partitions 1",
            "groups reset-offsets g --topic t --to-earliest --execute",
        ):
            assert sharegroup(*at(where, words)).code == 0
        assert sharegroup(*at(where, "produce t"), stdin=b"first\nsecond\n").code == 0
        yield where


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """The address of somebody who accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits.py").write_text(APP)
    monkeypatch.chdir(tmp_path)


def ended(words: str, where: str, shows: str) -> tuple[int, float, str]:
    """Run a verb until it shows a text; return how Ctrl-C ended it, and all that it has shown."""
    with terminal(*words.split(), "--bootstrap", where) as shown:
        shown.expect(shows)
        shown.type(CTRL_C)
        code, seconds = shown.end()
        return code, seconds, shown.text


@pytest.mark.parametrize(("words", "shows", "code"), ANSWERED)
def test_ctrl_c_ends_a_verb_that_runs(words: str, shows: str, code: int, broker: str) -> None:
    found, seconds, text = ended(words, broker, shows)
    assert found == code, text[-2000:]
    assert seconds < STOP_SECONDS_MAX
    assert "Traceback" not in text


@pytest.mark.parametrize(("words", "code"), MUTE)
def test_ctrl_c_ends_a_verb_that_gets_no_answer(words: str, code: int, mute: str) -> None:
    found, seconds, text = ended(words, mute, f"waiting for {mute}")
    assert found == code, text[-2000:]
    assert seconds < STOP_SECONDS_MAX
    assert "Traceback" not in text


@pytest.mark.parametrize("answers", [True, False])
def test_ctrl_c_ends_produce_from_a_terminal(answers: bool, broker: str, mute: str) -> None:
    """A line that a person typed is acknowledged, or reported as lost."""
    with terminal("produce", "t", "--bootstrap", broker if answers else mute) as shown:
        shown.type(b"typed\n")
        if answers:
            words = "consume t --group typed --from-beginning --max-messages 3 --timeout-ms 20000"
            assert b"typed" in sharegroup(*at(broker, words)).lines
        else:
            shown.expect(f"waiting for {mute}")
        shown.type(CTRL_C)
        code, seconds = shown.end()
    assert code == 130
    assert seconds < STOP_SECONDS_MAX
    assert f"acknowledged {int(answers)} of 1 record" in shown.text


def test_ctrl_c_ends_the_watched_state_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with terminal("worker", "status", "--watch", "1") as shown:
        shown.expect(STOPS)
        shown.type(CTRL_C)
        code, seconds = shown.end()
    assert (code, seconds < STOP_SECONDS_MAX) == (130, True)
