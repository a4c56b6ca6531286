"""A Redis server as a process, for the tests that write to one.

It needs the server's program (Debian: ``apt-get install redis-server``) and redis-py.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

START_SECONDS_MAX = 30


def why_missing() -> str | None:
    """Return why no server can run here, or None if one can."""
    if shutil.which("redis-server") is None:
        return "no Redis server is installed (Debian: apt-get install redis-server)"
    if importlib.util.find_spec("redis") is None:
        return "redis-py is not installed (pip install redis)"
    return None


@contextmanager
def running(*, port: int | None = None) -> Iterator[str]:
    """Run a server, on a free port unless one is given, and yield its URL."""
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        port = port or _free_port()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder)
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            assert process.poll() is None, f"redis-server ended with {process.returncode}"
            assert time.monotonic() < until, f"redis-server: no answer in {START_SECONDS_MAX} s"
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
