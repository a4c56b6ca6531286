"""An honest client in a process of its own: one ApiVersions request every 100 ms.

The process has no GIL in common with the attack.  It uses only the standard library, so it
starts at once.  When its standard input ends it prints the latencies in seconds as a JSON list.
"""

from __future__ import annotations

import json
import math
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

if __name__ == "__main__":  # It runs without a search path of its own.
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.faults.login import Login, call

INTERVAL_SECONDS = 0.1
ANSWER_SECONDS_MAX = 30.0
API_VERSIONS = 18


class Probe:
    """The probe process; ``latencies`` are known after the ``with`` block."""

    def __init__(self, port: int, login: Login | None = None) -> None:
        self._port = port
        self._login = login or Login("", "")
        self.latencies: list[float] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._port), *self._login],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()  # It has had its first answer.
        assert ready == b"ready\n", f"the probe did not start: {ready!r}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        output, _ = self._process.communicate(timeout=2 * ANSWER_SECONDS_MAX)
        self.latencies = json.loads(output)

    @property
    def slowest(self) -> float:
        """The longest wait for an answer in seconds."""
        return max(self.latencies)

    @property
    def p99(self) -> float:
        """The 99th percentile of the waits in seconds."""
        return percentile(self.latencies, 0.99)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def probe(port: int, login: Login) -> list[float]:
    """Ask until standard input ends; a lost connection counts as the longest wait."""
    latencies = []
    connection = _connect(port, login)
    is_first = True
    while is_first or not select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]:
        began = time.monotonic()
        try:
            call(connection, API_VERSIONS, b"", version=0)
        except OSError:
            latencies.append(ANSWER_SECONDS_MAX)
            connection.close()
            connection = _connect(port, login)
        latencies.append(time.monotonic() - began)
        if is_first:
            print("ready", flush=True)
            latencies.clear()  # It includes what the broker loads for its first request.
            is_first = False
    return latencies or [0.0]


def _connect(port: int, login: Login) -> socket.socket:
    return login.enter(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX))


if __name__ == "__main__":
    port, *words = sys.argv[1:]
    print(json.dumps(probe(int(port), Login(*words))))
