"""Kafka Streams, Kafka Connect and MirrorMaker, as processes that a test may kill.

The jars come by Maven into the cache of `tests.support.kafka_peer`.  Release 4.3.1 is the newest
that is published of Streams and Connect.  They run on the client of their release: 4.4.0 has moved
internal classes that Streams 4.3.1 uses (NoClassDefFoundError for LogContext).
"""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java_shell import NO_COMPILER, QUICK, java_command, javac
from tests.support.kafka_peer import KafkaPeerError, cache_libs, fetch_jars, java

APPLICATIONS_VERSION = "4.3.1"
LINE_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sharegroup.tests</groupId><artifactId>kafka-applications</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{APPLICATIONS_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId>
      <version>{APPLICATIONS_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId>
      <version>{APPLICATIONS_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId>
      <version>{APPLICATIONS_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""


def why_missing() -> str | None:
    """Why neither Streams nor Connect can run here, or None when they can."""
    if java() is None:
        return "no Java: neither JAVA_HOME nor a java on the PATH"
    if not _libs().is_dir() and shutil.which("mvn") is None:
        return "no Maven on the PATH to fetch Kafka Streams and Kafka Connect"
    return None if javac() else NO_COMPILER


def application_libs() -> Path:
    """The folder of jars; the first call on a machine fetches them by Maven."""
    return fetch_jars(_libs(), POM)


def _libs() -> Path:
    # The key is the list of jars: another list is fetched into another folder.
    key = hashlib.sha256(POM.encode()).hexdigest()[:8]
    return cache_libs().parent.parent / f"kafka-applications-{key}" / "libs"


def streams_command(program: str, *arguments: str) -> list[str]:
    """How to run one of the Java programs in ``tests/interop/java`` that use Kafka Streams."""
    return java_command(application_libs(), program, *arguments)


def connect_command(settings: Path) -> list[str]:
    """How to run a distributed worker of Kafka Connect."""
    return _command("org.apache.kafka.connect.cli.ConnectDistributed", settings)


def mirror_command(settings: Path) -> list[str]:
    """How to run MirrorMaker, which is a worker of Connect for each pair of clusters."""
    return _command("org.apache.kafka.connect.mirror.MirrorMaker", settings)


def _command(main_class: str, settings: Path) -> list[str]:
    executable = java()
    assert executable is not None, "no Java"
    return [executable, *QUICK, "-cp", f"{application_libs()}/*", main_class, str(settings)]


class Application:
    """A Java process whose lines are read while it runs; its errors go to ``log``.

    The libraries that it unpacks are in the folder of ``log``: a kill would leave them in /tmp.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={log.parent}"},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, is_wanted: Callable[[str], bool], what: str) -> str:
        """The first line that is wanted; the end of the process or of the time is an error."""
        limit = time.monotonic() + LINE_SECONDS_MAX
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise KafkaPeerError(
                    f"no {what} within {LINE_SECONDS_MAX} s: {self.log_tail()}"
                ) from None
            if line is None:
                raise KafkaPeerError(
                    f"ended with {self._process.wait()} before {what}: {self.log_tail()}"
                )
            if is_wanted(line):
                return line

    def stop(self) -> None:
        """End it as Ctrl-C does, and wait until it has left its groups."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
