r"""Reads Java properties files, the configuration files of Kafka's tools and brokers.

A line has one pair: ``key=value``, ``key: value`` or ``key value``. Lines that begin with ``#``
or ``!`` are comments. A backslash at the end of a line continues it in the next line. ``\t``,
``\n``, ``\uXXXX`` and a backslash before any other character stand for one character.

A file is read as UTF-8, with or without a byte order mark, and as Latin-1, Java's encoding of
such files, if it is not UTF-8. Everything else is as in `java.util.Properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from sharegroup.escaping import escaped

BLANKS = " \t\f"
LINE_END = re.compile(r"\r\n|\r|\n")
PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
TRIMMED = "".join(map(chr, range(33)))
"""What Kafka removes from both ends of a value (`String.trim`)."""


def read_properties(path: Path) -> list[tuple[str, str]]:
    """Return the keys and values of a properties file, in their order; Kafka trims values."""
    return [(key, value) for _, key, value in read_numbered(path)]


def read_numbered(path: Path) -> list[tuple[int, str, str]]:
    """Return the line numbers, keys and trimmed values of a properties file."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise click.UsageError(f"{escaped(str(path))} is UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # It decodes any bytes, so an old file of Java never fails here.
        text = content.decode("latin-1")
    found = []
    for number, line in _logical_lines(text):
        try:
            key, value = _pair(line)
        except ValueError as error:
            raise click.UsageError(f"{escaped(str(path))}, line {number}: {error}") from error
        found.append((number, key, value.strip(TRIMMED)))
    return found


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the keys and values of a text, in their order; ValueError for a ``\u`` without code.

    >>> list(parse_properties("a=1\nb: 2, \\\n   3"))
    [('a', '1'), ('b', '2, 3')]
    """
    return (_pair(line) for _, line in _logical_lines(text))


def origin_of(text: str, origins: Mapping[str, str]) -> str:
    """Return where the key comes from that an error's text names first; empty if unknown.

    ``origins`` are the lines and variables that have set keys.
    """
    places = _places(text, origins)
    return origins[min(places)[1]] if places else ""


def _places(text: str, keys: Iterable[str]) -> list[tuple[int, str]]:
    found = ((re.search(rf"(?<![\w.-]){re.escape(key)}(?![\w-]|\.\w)", text), key) for key in keys)
    return [(match.start(), key) for match, key in found if match is not None]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line and the text of each pair, continuations joined."""
    joined, first = "", 0
    for number, physical in enumerate(LINE_END.split(text), 1):
        line = physical.lstrip(BLANKS)
        if not joined:
            first = number
            if not line or line.startswith(("#", "!")):
                continue
        # With an odd number of backslashes, the last one is not part of an escape.
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if goes_on else line
        if not goes_on:
            yield first, joined
            joined = ""
    if joined:
        yield first, joined


def _pair(line: str) -> tuple[str, str]:
    pair = PAIR.fullmatch(line)
    assert pair is not None, "the pattern takes every text"
    return _plain(pair[1]), _plain(pair[2])


def _plain(text: str) -> str:
    plain = ESCAPE.sub(_character, text)
    if plain.isascii():
        return plain
    # Two escapes may be the halves of one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code == "u":
        raise ValueError(r"expected four hexadecimal digits after \u; a backslash is written \\")
    return chr(int(code[1:], 16)) if len(code) > 1 else CONTROLS.get(code, code)
