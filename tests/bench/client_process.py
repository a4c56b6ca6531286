"""Run the measured client in a process of its own, and time exactly the part that counts.

    in_process(share_consume.client, bootstrap="127.0.0.1:9092", ...)

calls the function by its name in a new interpreter, with the arguments as JSON, and returns
what it returned.  Inside, a `Span` takes wall time and the CPU time of client and broker
between two moments: joining a group and closing are not part of it.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.bench.failure import BenchError
from tests.support.processes import cpu_seconds

CLIENT_SECONDS_MAX = 300.0


class Span:
    """Wall time and CPU time from its creation on."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self._broker_cpu_s = cpu_seconds(broker_pid)
        self._client_cpu_s = time.process_time()
        self._begin = time.perf_counter()

    def end(self) -> dict[str, float]:
        """Seconds since the creation, by the names that `Measured` has."""
        seconds = time.perf_counter() - self._begin
        return {
            "seconds": seconds,
            "client_cpu_s": time.process_time() - self._client_cpu_s,
            "broker_cpu_s": cpu_seconds(self._broker_pid) - self._broker_cpu_s,
        }


def in_process(function: Callable[..., dict[str, Any]], **arguments: object) -> dict[str, Any]:
    """Call a module's function in a new process and return its result."""
    name = f"{function.__module__}:{function.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.client_process", name, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
    )
    if done.returncode:
        raise BenchError(f"{name} failed with {done.returncode}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(name: str, arguments: str) -> None:
    module, _, function = name.partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
