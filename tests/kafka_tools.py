"""Apache Kafka's own command-line tools, run as they are against any broker or file.

They come by Maven into the cache of `tests.kafka_peer`, in a folder of their own: the newest
published release of the tools is older than the broker's, and the two don't mix in one process.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_peer import KafkaPeerError, cache_libs, fetch_jars, java

TOOLS_VERSION = "4.3.1"
TOOL_SECONDS_MAX = 60.0

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sharegroup.tests</groupId><artifactId>kafka-tools</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{TOOLS_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{TOOLS_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def why_missing() -> str | None:
    """Why there can be no tools here, or None when there can."""
    if java() is None:
        return "no Java: neither JAVA_HOME nor a java on the PATH"
    if not _libs().is_dir() and shutil.which("mvn") is None:
        return "no Maven on the PATH to fetch Kafka's tools"
    return None


def run_tool(main_class: str, *arguments: str) -> str:
    """What a tool printed; it must end with exit code 0."""
    done = subprocess.run(
        _command(main_class, *arguments),
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )
    if done.returncode:
        raise KafkaPeerError(
            f"{main_class} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout


class RunningTool:
    """A tool that prints while the test goes on."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self) -> bytes:
        """The next line that it prints."""
        return self._lines.get(timeout=TOOL_SECONDS_MAX)

    def wait(self) -> None:
        """It must end by itself, with exit code 0."""
        code = self._process.wait(TOOL_SECONDS_MAX)
        if code:
            raise KafkaPeerError(f"{self._process.args!r} ended with {code}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip(b"\n"))


@contextmanager
def tool_in_background(main_class: str, *arguments: str) -> Iterator[RunningTool]:
    """A tool that is killed at the end if it still runs."""
    with subprocess.Popen(
        _command(main_class, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield RunningTool(process)
        finally:
            process.kill()


def _command(main_class: str, *arguments: str) -> list[str]:
    executable = java()
    if executable is None:
        raise KafkaPeerError(str(why_missing()))
    return [
        executable,
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),  # Short runs.
        *("-cp", f"{fetch_jars(_libs(), POM)}/*"),
        main_class,
        *arguments,
    ]


def _libs() -> Path:
    return cache_libs().parent.parent / f"kafka-tools-{TOOLS_VERSION}" / "libs"
