r"""Reads Java properties files, the configuration files of Kafka's tools and brokers.

A line has one pair: ``key=value``, ``key: value`` or ``key value``. Lines that begin with ``#``
or ``!`` are comments. A backslash at the end of a line continues it in the next line. ``\t``,
``\n``, ``\uXXXX`` and a backslash before any other character stand for one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PAIR = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> list[tuple[str, str]]:
    """Return the keys and values of a properties file, in their order."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # The encoding that Java expects of properties files.
    return list(parse_properties(text))


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the keys and values of a text, in their order.

    >>> list(parse_properties("a=1\nb: 2, \\\n   3"))
    [('a', '1'), ('b', '2, 3')]
    """
    for line in _logical_lines(text):
        pair = PAIR.fullmatch(line)
        assert pair is not None, "the pattern takes every text"
        yield _plain(pair[1]), _plain(pair[2])


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for line in text.splitlines():
        line = line.lstrip()
        if not parts and (not line or line.startswith(("#", "!"))):
            continue
        # With an odd number of backslashes, the last one is not part of an escape.
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if goes_on else line.rstrip())
        if not goes_on:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _plain(text: str) -> str:
    return ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else CONTROLS.get(code, code)
