"""``sharegroup serve --console-port``: the console is a child that lives as long as the broker."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest

from sharegroup.cli.main import main
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS


class Serve:
    """A broker with a console; ``url`` is the console's address."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "serve.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sharegroup", "serve", "--port", "0", "--data",
                 str(folder / "data"), "--console-port", *options],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self.line().startswith("ready bootstrap=")

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def console(self) -> psutil.Process:
        """The process of the console."""
        (child,) = psutil.Process(self.process.pid).children()
        return child


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Serve]:
    serve = Serve(folder, *options)
    try:
        yield serve
    finally:
        serve.process.kill()
        serve.process.wait()
        assert serve.process.stdout is not None
        serve.process.stdout.close()


def url_of(line: str) -> str:
    assert line.startswith("console http://127.0.0.1:"), line
    return line.split()[1]


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGING_SECONDS
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urlopen(url) as page:
            return b"Overview" in page.read()
    except URLError:
        return False


def test_console_shows_the_broker_and_ends_with_it(tmp_path: Path) -> None:
    with served(tmp_path, "0") as serve:
        url = url_of(serve.line())
        assert answers(url)
        console = serve.console()
        serve.process.send_signal(signal.SIGTERM)
        assert serve.process.wait(HANGING_SECONDS) == 0
        assert not console.is_running()
        assert "console.ended" not in serve.log.read_text()


@pytest.mark.slow
def test_console_is_no_orphan_after_kill_9_of_the_broker(tmp_path: Path) -> None:
    with served(tmp_path, "0") as serve:
        url_of(serve.line())
        console = serve.console()
        serve.process.kill()
        gone, _ = psutil.wait_procs([console], timeout=HANGING_SECONDS)
        assert gone == [console]


@pytest.mark.slow
def test_console_that_dies_comes_back_at_its_address(tmp_path: Path) -> None:
    with served(tmp_path, "0") as serve:
        url = url_of(serve.line())
        first = serve.console().pid
        serve.console().kill()
        assert url_of(serve.line()) == url
        assert serve.console().pid != first
        assert answers(url)
        assert "event=console.ended code=-9" in serve.log.read_text()


@pytest.mark.slow
def test_broker_goes_on_if_the_port_of_the_console_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with served(tmp_path, str(port)) as serve:
            wait_until(lambda: "console.ended code=1" in serve.log.read_text())
            assert f"cannot listen on 127.0.0.1:{port}" in serve.log.read_text()
            assert serve.process.poll() is None
            other.close()
            assert answers(url_of(serve.line()))


def test_console_gets_the_metrics_port(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with served(tmp_path, "0", "--metrics-port", str(port)) as serve:
        url_of(serve.line())
        assert f"--metrics http://127.0.0.1:{port}" in " ".join(serve.console().cmdline())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--console-config", __file__), "there is no console without --console-port"),
        (
            ("--console-port", "0", "--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"),
            "--console-config",
        ),
    ],
)
def test_misuse_is_told(
    options: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--data", str(tmp_path / "data"), *options])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
