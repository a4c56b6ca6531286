"""The fenced blocks of a page, and how a reader would run each of them.

An HTML comment on the line before a block says how it runs:

    <!-- run -->                    as it is; the default of `python`, `console` and `sh`
    <!-- run: OPTIONS -->           see `Block`
    <!-- run by tests/... -->       a test runs it, because it needs more than a reader's machine
    <!-- not run: REASON -->        it cannot run; the reason is written out
    <!-- not run here: REASON -->   before the first block of a page: so it is with all its others
    <!-- run here by tests/... -->  likewise
    <!-- output -->                 a block of text: the program before it prints these lines

Blocks of other languages (`text`, `json`, `properties`, ...) are drawings, output and files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("python", "console", "sh")
"""Languages of blocks that run: a script, commands after ``$ `` with output, commands alone."""
OPTIONS = ("file", "inside", "needs", "repeat", "until", "until_file", "with")
NEEDS = ("broker", "java")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?P<attributes>[^`]*)$")
_COMMENT = re.compile(r"^ *<!-- (?P<text>(?:not )?run(?! here)\b.*|output) -->$")
_WHOLE_PAGE = re.compile(r"^<!-- (not run|run) here(?:: | by )(.+) -->$", re.MULTILINE)


class Step(NamedTuple):
    """A command of a block, and the lines that the page shows below it."""

    command: str
    printed: tuple[str, ...]

    @property
    def is_background(self) -> bool:
        """Whether a program runs on after the command (``&``)."""
        return re.search(r"(?<![>&])&(?=\s|$)", self.command) is not None

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for its output before the next command: it runs on (``&``)."""
        return self.is_background and bool(self.printed)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """The number of the line with the opening fence."""
    language: str
    text: str
    how: str = "run"
    """``run``, ``run by``, ``not run``, ``output`` or ``text``."""
    reason: str = ""
    """Of ``not run`` the reason, of ``run by`` the test."""
    options: dict[str, str] = field(default_factory=dict)
    """``file=NAME``: the block is this file, which a later block uses, so it does not run itself.
    ``inside=async``: the block runs inside a coroutine, after the page's imports (``inside=file``).
    ``with=pytest``: the block is a file of tests.
    ``needs=broker``: a broker with the topic orders, and one new record in it.
    ``needs=java``: a Java that Spark can use.
    ``repeat=output``: the commands only read what another program writes; a reader repeats them
    until they print the lines of the page.
    ``until=TEXT`` and ``until_file=GLOB``: the program runs until it is stopped; wait for this.
    """

    @property
    def name(self) -> str:
        """The place of the block, as in the messages of compilers."""
        is_ours = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT) if is_ours else self.page.name}:{self.line}"

    def steps(self) -> list[Step]:
        """The commands of a block of shell, each with the lines that it prints."""
        if self.language == "sh":
            return [Step(self.text, ())]
        found: list[Step] = []
        is_continued = False
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], ()))
            elif is_continued:
                found[-1] = Step(f"{found[-1].command}\n{line}", ())
            elif line and found:
                found[-1] = Step(found[-1].command, (*found[-1].printed, line))
            is_continued = line.endswith("\\") and (line.startswith("$ ") or is_continued)
        return found


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order; ValueError names what is wrong with a comment."""
    text = page.read_text()
    whole_page = _WHOLE_PAGE.search(text)
    if whole_page is not None and "\n```" in text[: whole_page.start()]:
        raise ValueError(
            f"{page.name}: {whole_page[0]} is for all blocks, so it stands before the first; "
            "for the next block alone write run by or not run"
        )
    found = []
    for block in _fenced(page, text.splitlines()):
        if whole_page is not None and block.how == "run" and not block.options:
            how = "not run" if whole_page[1] == "not run" else "run by"
            block = replace(block, how=how, reason=whole_page[2])
        found.append(block)
    return found


def _fenced(page: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        first, indent = number, opened["indent"]
        while lines[number].rstrip() != f"{indent}```":
            number += 1
        content = "".join(f"{line.removeprefix(indent)}\n" for line in lines[first:number])
        comment = _COMMENT.match(lines[first - 2]) if first > 1 else None
        block = Block(page, first, opened["language"], content)
        yield _explained(block, comment["text"] if comment else "")
        number += 1


def _explained(block: Block, comment: str) -> Block:
    """The block with what its comment says."""
    if comment.startswith("not run: "):
        return replace(block, how="not run", reason=comment.removeprefix("not run: "))
    if comment.startswith("run by "):
        return replace(block, how="run by", reason=comment.removeprefix("run by "))
    if comment == "output":
        return replace(block, how="output")
    if comment not in ("", "run") and not comment.startswith("run: "):
        raise ValueError(f"{block.name}: the comment {comment!r} is none of page_blocks.py")
    options = dict(
        word.split("=", 1) for word in shlex.split(comment.removeprefix("run").lstrip(": "))
    )
    if unknown := options.keys() - set(OPTIONS):
        raise ValueError(f"{block.name}: unknown options {sorted(unknown)}; there are {OPTIONS}")
    if unknown := set(options.get("needs", NEEDS[0]).split(",")) - set(NEEDS):
        raise ValueError(f"{block.name}: needs {sorted(unknown)}; expected some of {NEEDS}")
    how = "run" if block.language in PROGRAMS or "file" in options else "text"
    return replace(block, how=how, options=options)
