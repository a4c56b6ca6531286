"""A Java virtual machine that runs one main class after the other.

Starting one costs one or two seconds of CPU, which is more than most runs of a tool take, so a
test session shares one; see `tests/interop/java/ToolShell.java`, which is its main class.  It is
compiled on first use, into the cache that Kafka's jars are in, so this needs a JDK.

    shell = JavaShell(folder_of_jars)
    code, printed, complained = shell.run("org.apache.kafka.tools.TopicCommand", "--version")
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.kafka_peer import KafkaPeerError, cache_libs, java
from tests.support.processes import readable

SOURCES = Path(__file__).resolve().parents[1] / "interop" / "java"
RUN_SECONDS_MAX = 60.0
COMPILE_SECONDS_MAX = 120.0
PROGRAM_SECONDS_MAX = 120.0
NO_COMPILER = "no javac, beside java or on the PATH: a JDK is needed, a JRE is not enough"
JAVA_RELEASE = "17"
"""The oldest that Kafka's tools run on; the compiler may be newer than the java."""
# Short runs: no time for the optimizing compiler, nothing to collect.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def javac() -> str | None:
    """The compiler beside the java that is run, or the one on the PATH, or None."""
    executable = java()
    if executable is None:
        return None
    compiler = Path(executable).resolve().parent / "javac"
    return str(compiler) if compiler.is_file() else shutil.which("javac")


class JavaShell:
    """One virtual machine over the jars of a folder; starts with its first run, one at a time."""

    def __init__(self, libs: Path) -> None:
        self.libs = libs
        self._one_run = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, main_class: str, *arguments: str, stdin: bytes = b"") -> Printed:
        """What a run of this class printed, and the code with which it ended."""
        call = [main_class.encode(), *(argument.encode() for argument in arguments), stdin]
        parts = [struct.pack(">i", len(argument)) + argument for argument in call]
        parts.insert(1, struct.pack(">i", len(arguments)))
        with self._one_run:
            process = self._running()
            assert process.stdin is not None
            process.stdin.write(b"".join(parts))
            process.stdin.flush()
            try:
                answer = _Answer(process, time.monotonic() + RUN_SECONDS_MAX)
                code = answer.integer()
                return Printed(code, answer.text(), answer.text())
            except KafkaPeerError as error:
                self._end(force=True)
                raise KafkaPeerError(f"{main_class} {' '.join(arguments)}: {error}") from error

    def close(self) -> None:
        """End the virtual machine; another run starts a new one."""
        with self._one_run:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                java_command(self.libs, "ToolShell"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            atexit.register(self.close)
        return self._process

    def _end(self, *, force: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.close)
        assert process.stdin is not None
        assert process.stdout is not None
        if force:
            process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait(RUN_SECONDS_MAX)


class _Answer:
    """Reads what the machine answers, up to a point in time."""

    def __init__(self, process: subprocess.Popen[bytes], limit: float) -> None:
        self._process = process
        self._limit = limit

    def integer(self) -> int:
        number: int
        (number,) = struct.unpack(">i", self._bytes(4))
        return number

    def text(self) -> str:
        return self._bytes(self.integer()).decode(errors="backslashreplace")

    def _bytes(self, count: int) -> bytes:
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        read = b""
        while len(read) < count:
            left = max(0.0, self._limit - time.monotonic())
            if not readable([stream], left):
                raise KafkaPeerError(f"not finished within {RUN_SECONDS_MAX} s")
            some = os.read(stream, count - len(read))
            if not some:
                raise KafkaPeerError(f"Java ended with {self._process.wait()}")
            read += some
        return read


def compiled(libs: Path, name: str) -> Path:
    """The folder with the classes of one of our Java sources, compiled against these jars once."""
    source = SOURCES / f"{name}.java"
    # The jars have their versions in their names.
    key = hashlib.sha256(" ".join(sorted(path.name for path in libs.glob("*.jar"))).encode())
    key.update(source.read_bytes())
    folder = cache_libs().parent.parent / f"java-{name}-{key.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    compiler = javac()
    if compiler is None:
        raise KafkaPeerError(NO_COMPILER)
    with tempfile.TemporaryDirectory(dir=folder.parent) as empty:
        command = [compiler, "--release", JAVA_RELEASE, "-d", f"{empty}/classes"]
        command += ["-cp", f"{libs}/*", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX)
        if done.returncode:
            raise KafkaPeerError(f"javac failed: {done.stdout}{done.stderr}")
        try:
            (Path(empty) / "classes").rename(folder)
        except OSError:  # Another test run was faster; the same source makes the same classes.
            if not folder.is_dir():
                raise
    return folder


def java_command(libs: Path, name: str, *arguments: str) -> list[str]:
    """How to run one of our Java programs over the jars of a folder."""
    executable = java()
    assert executable is not None, "no Java"
    path = os.pathsep.join(map(str, (compiled(libs, name), libs / "*")))
    return [executable, *QUICK, "-cp", path, name, *arguments]


def printed_by(libs: Path, name: str, lines: Iterable[str] = ()) -> list[str]:
    """Run one of our Java programs with these lines as its input; return those that it prints."""
    done = subprocess.run(
        java_command(libs, name),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
