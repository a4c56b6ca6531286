"""Sessions at a terminal with Kafka's tools: what is typed, and what must be seen.

    $ kafka-topics.sh --bootstrap-server localhost:9092 --create --topic orders
    Created topic orders.

A line that begins with ``$`` is a command, the lines below it are what it prints, standard
output first.  Stack traces are left out, and so are the widths of columns, which are the tools'
own.  In what is printed ``...`` stands for anything, and ``{one|other}`` for what our broker
prints and what Apache Kafka does.  A command may take its input from a pipe.  With ``&`` at its
end it runs beside the ones that follow, which then may have to be repeated until they print what
they should; ``kill %1`` ends it as the terminal would.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_tools import SCRIPTS, RunningTool, tool_in_background, tools
from tests.support.limits import HANGING_SECONDS

ADDRESS = "localhost:9092"
ANYTHING = "..."
_EITHER = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")
_NOISE = re.compile(r"SLF4J: |\s+at |Caused by: |\s+\.\.\. \d+ more")


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what it prints."""

    command: str
    printed: str


def steps(transcript: str) -> list[Step]:
    """The commands of a transcript, or of the code blocks of a page."""
    found: list[tuple[str, list[str]]] = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif line.startswith(("#", "```")):
            found.append(("", []))  # What follows belongs to no command.
        elif found:
            found[-1][1].append(line)
    return [Step(command, "\n".join(lines)) for command, lines in found if command]


class Terminal:
    """Runs commands against one broker; ``is_kafka`` chooses between what the two print.

    ``folder`` is where the commands work.
    """

    def __init__(self, bootstrap: str, folder: Path, *, is_kafka: bool) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._is_kafka = is_kafka
        self._ends = ExitStack()
        self._beside: list[RunningTool] = []

    def play(self, transcript: str) -> None:
        """Every command must print what the transcript says."""
        with self._ends:
            for step in steps(transcript):
                self._take(step)

    def _take(self, step: Step) -> None:
        if step.command.startswith("kill "):
            self._beside.pop().end()
        elif step.command.endswith("&"):
            script, *arguments = self._words(step.command.rstrip("& "))
            running = self._ends.enter_context(tool_in_background(main_class(script), *arguments))
            self._beside.append(running)
        else:
            self._compare(step)

    def _compare(self, step: Step) -> None:
        expected = _EITHER.sub(rf"\{2 if self._is_kafka else 1}", step.printed)
        limit = time.monotonic() + (HANGING_SECONDS if self._beside else 0.0)
        printed = self._run(step.command)
        while not is_as(expected, printed):
            # Without a tool beside, which may not be ready yet, the first answer counts.
            assert time.monotonic() < limit, difference(step.command, expected, printed)
            printed = self._run(step.command)

    def _run(self, command: str) -> str:
        """What a command prints, in the words of the page."""
        pipe, bar, tool = command.rpartition(" | ")
        if not tool.startswith("kafka-"):
            return self._shell(command).decode()
        stdin = self._shell(pipe) if bar else b""
        script, *arguments = self._words(tool)
        done = tools().run(main_class(script), *arguments, stdin=stdin)
        lines = [line for line in _lines(done.out, done.err) if not _NOISE.match(line)]
        return "\n".join(lines).replace(self._bootstrap, ADDRESS)

    def _shell(self, command: str) -> bytes:
        return subprocess.run(
            ["/bin/sh", "-c", command],
            capture_output=True,
            check=True,
            cwd=self._folder,
            timeout=HANGING_SECONDS,
        ).stdout

    def _words(self, command: str) -> list[str]:
        """A tool runs in another folder, so it is told files by their whole names."""
        words = shlex.split(command.replace(ADDRESS, self._bootstrap))
        files = {path.name: str(path) for path in self._folder.iterdir()}
        return [files.get(word, word) for word in words]


def main_class(script: str) -> str:
    """The class behind one of the scripts of Kafka's distribution."""
    return SCRIPTS[script.removesuffix(".sh")]


def is_as(expected: str, printed: str) -> bool:
    """Whether this was printed, up to blanks and to what ``...`` stands for."""
    parts = (re.escape(" ".join(part.split())) for part in expected.split(ANYTHING))
    pattern = r"\s?.*?\s?".join(parts)
    return re.fullmatch(pattern, " ".join(printed.split())) is not None


def difference(command: str, expected: str, printed: str) -> str:
    return f"$ {command}\n--- expected\n{expected}\n--- printed\n{printed}"


def _lines(*texts: str) -> Iterator[str]:
    for text in texts:
        yield from text.splitlines()
