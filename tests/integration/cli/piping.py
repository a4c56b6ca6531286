"""Running a verb that reads and writes pipes: its real descriptors, in the test's own process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import IO, Any

import pytest

from sharegroup.cli.main import main
from tests.support.limits import HANGING_SECONDS

PATIENT = "--timeout-ms 20000"
"""For `consume` with ``--max-messages``: a slow machine may take its time to deliver them."""


@dataclass(frozen=True)
class Piped:
    """What a verb left behind in its standard output and error."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()

    @property
    def documents(self) -> list[Any]:
        """Each line as JSON."""
        return [json.loads(line) for line in self.lines]


def sharegroup(*words: str, stdin: bytes = b"") -> Piped:
    """``sharegroup WORDS...`` with these bytes as standard input, a file."""
    with tempfile.TemporaryFile("w+") as given:
        os.write(given.fileno(), stdin)
        os.lseek(given.fileno(), 0, os.SEEK_SET)
        return reading(given, *words)


def reading(given: IO[str], *words: str) -> Piped:
    """``sharegroup WORDS...`` with this as standard input."""
    with ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "stdin", given)
        with pytest.raises(SystemExit) as end:
            main(words)
        return Piped(int(end.value.code or 0), _content(out), _content(err).decode())


def at(bootstrap: str, words: str) -> Sequence[str]:
    """The words of a command, and where the cluster is."""
    return (*words.split(), "--bootstrap", bootstrap)


async def watched(*words: str, lines: int) -> list[dict[str, Any]]:
    """The first lines of JSON of a verb that ends only with a signal, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sharegroup", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANGING_SECONDS):
            return [json.loads(await process.stdout.readline()) for _ in range(lines)]
    finally:
        process.kill()
        await process.wait()


def _content(file: Any) -> bytes:
    file.flush()
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    parts = []
    while some := os.read(file.fileno(), 1 << 20):
        parts.append(some)
    return b"".join(parts)
