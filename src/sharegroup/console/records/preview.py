"""A key, value or header as text that is safe and short enough to look at.

    JSON    indented, up to `DEPTH_MAX`
    text    UTF-8 without controls that change how it reads
    hex     everything else, sixteen bytes a line

What is longer than `SHOWN_BYTES_MAX` is cut, and says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sharegroup.escaping import escaped

SHOWN_BYTES_MAX = 64 * 1024
"""Bytes of a content that are looked at."""
SHORT_CHARACTERS = 120
"""Characters in a row of a table."""
DEPTH_MAX = 40
"""JSON that nests deeper is shown as it is: indenting it would make it many times longer."""
HEX_BYTES_MAX = 4_096
HEX_LINE = 16


@dataclass(frozen=True, slots=True)
class Preview:
    """A content for a page."""

    kind: str
    """``null``, ``empty``, ``json``, ``text`` or ``hex``."""
    text: str
    size: int | None
    """Bytes of the content; None for null."""
    is_cut: bool = False


NULL = Preview("null", "null", None)
HIDDEN = Preview("hidden", "hidden", None)
"""In place of a content that the user may not see."""


def preview(content: bytes | None) -> Preview:
    """Return a content for a page of its own: JSON over several lines."""
    if content is None:
        return NULL
    size = len(content)
    if not content:
        return Preview("empty", "", 0)
    is_cut = size > SHOWN_BYTES_MAX
    shown = content[:SHOWN_BYTES_MAX]
    document = None if is_cut else _document(shown)
    if document is not None:
        return Preview("json", document, size)
    try:
        # A cut may be within a character.
        text = shown.decode("utf-8", "ignore" if is_cut else "strict")
    except UnicodeDecodeError:
        return Preview("hex", hex_lines(shown[:HEX_BYTES_MAX]), size, size > HEX_BYTES_MAX)
    lines = "\n".join(map(escaped, text.split("\n")))
    return Preview("text", lines, size, is_cut)


def short(content: bytes | None) -> Preview:
    """Return a content for a row of a table: one line."""
    if content is None:
        return NULL
    size = len(content)
    if not content:
        return Preview("empty", "", 0)
    # Four bytes make a character at most.
    shown = content[: SHORT_CHARACTERS * 4]
    try:
        text = shown.decode("utf-8", "ignore" if size > len(shown) else "strict")
        kind = "text"
    except UnicodeDecodeError:
        text, kind = shown[: SHORT_CHARACTERS // 3].hex(" "), "hex"
    line = escaped(text[:SHORT_CHARACTERS])
    used = len(text.encode("utf-8", "replace")) if kind == "text" else SHORT_CHARACTERS // 3
    return Preview(kind, line, size, size > used or len(text) > SHORT_CHARACTERS)


def hex_lines(content: bytes) -> str:
    """Return sixteen bytes a line, as numbers and as ASCII."""
    lines = []
    for first in range(0, len(content), HEX_LINE):
        part = content[first : first + HEX_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{first:06x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def _document(content: bytes) -> str | None:
    """Return JSON with its lines indented; None if it is none, or nests too deeply."""
    if content[:1] not in (b"{", b"["):
        return None  # A number, a text or a word is shown as it is.
    if not _is_shallow(content):
        return None
    try:
        text = content.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "\n".join(map(escaped, "".join(_indented(text)).split("\n")))


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""The tokens of valid JSON; none of them can be matched in two ways."""


def _indented(text: str) -> Iterator[str]:
    """Yield valid JSON with line breaks, each number and name as it was written."""
    depth, before = 0, ""
    for part in _TOKENS.findall(text):
        is_end = part in "}]"
        depth -= is_end
        if before in ("{", "[", ","):
            if not (is_end and before != ","):
                yield "\n" + "  " * depth
        elif is_end:
            yield "\n" + "  " * depth
        yield part + " " if part == ":" else part
        depth += part in "{["
        before = part


def _is_shallow(content: bytes) -> bool:
    """Whether brackets nest no deeper than `DEPTH_MAX`; those in strings count, too."""
    depth = 0
    for byte in content:
        if byte in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                return False
        elif byte in b"]}":
            depth -= 1
    return True
