"""Programs around the Java client and franz-go that take commands as lines on standard input.

Their sources are in `java` and `go`; a program's name in Go is that in Java without capitals.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.java_shell import NO_COMPILER, java_command, javac
from tests.support.kafka_peer import cache_libs, java, kafka_libs, why_missing as why_no_kafka

GO = Path(__file__).with_name("go")
GO_BUILD_SECONDS_MAX = 300


@contextmanager
def line_program(client: str, name: str, bootstrap: str) -> Iterator[subprocess.Popen[str]]:
    """A running program of a client, ``java`` or ``franz-go``; it is killed at the end."""
    if client == "java":
        command = java_command(kafka_libs(), name, bootstrap)
    else:
        assert client == "franz-go", client
        command = [str(_built_go(name.lower())), bootstrap]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def why_no_java() -> str | None:
    """Why the Java client can't run here, or None when it can."""
    if java() is None:
        return why_no_kafka()
    return why_no_kafka() or (None if javac() else NO_COMPILER)


def why_no_go() -> str | None:
    """Why franz-go can't run here, or None when it can."""
    built = all(_go_program(source.parent.name).exists() for source in GO.glob("*/*.go"))
    if shutil.which("go") is None and not built:
        return "no go on the PATH"
    return None


def _built_go(name: str) -> Path:
    """The program of this name in `go`; the first call fetches franz-go and builds the program."""
    program = _go_program(name)
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        built = Path(folder) / program.name
        done = subprocess.run(
            ["go", "build", "-o", str(built), f"./{name}"],
            cwd=GO,
            capture_output=True,
            text=True,
            timeout=GO_BUILD_SECONDS_MAX,
        )
        assert done.returncode == 0, f"go build failed: {done.stderr}"
        os.replace(built, program)
    return program


def _go_program(name: str) -> Path:
    key = hashlib.sha256()
    for path in ("go.mod", "go.sum", f"{name}/{name}.go"):
        key.update((GO / path).read_bytes())
    return cache_libs().parent.parent / "go" / f"{name}-{key.hexdigest()[:16]}"
