r"""The language of ``--format``: literal text with verbs for the parts of a record.

    %t topic        %T its length        %p partition            %o offset
    %k key          %K its length        %d timestamp            %i number of the record
    %v value        %V its length        %c delivery count
    %h{...} headers %H their number      %l lock deadline        %L milliseconds until then

    %v{hex} %v{base64} %v{string} %v{json}       bytes: k, v, and both inside of %h{...}
    %o{hex} %o{big32} %o{little16} ...           numbers, as 8, 16, 32 or 64 bits
    %d{rfc3339} %d{%Y-%m-%d}                     times; as numbers: milliseconds since 1970

    \n \t \r \0 \\ \xHH  %% %{ %}                characters

``string`` is a JSON string, ``json`` a JSON document on one line. A format with the length of
each part before it can carry any bytes: ``%K{big32}%k%V{big32}%v``. Null has length -1.

The same template writes records (`writing`) and reads them (`reading`).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

BYTES = "kv"
LENGTHS = "TKVH"
NUMBERS = "poicL" + LENGTHS
TIMES = "dl"
TEXT = "t"
HEADERS = "h"
VERBS = TEXT + BYTES + NUMBERS + TIMES + HEADERS
IN_HEADERS = "kvKV"

BYTES_MODIFIERS = ("", "hex", "base64", "string", "json")
SIZES = {
    f"{order}{bits}": (bits // 8, order)
    for order in ("big", "little")
    for bits in (8, 16, 32, 64)
}  # fmt: skip
"""Modifiers for numbers as bytes, with the number of bytes and the byte order."""
NUMBER_MODIFIERS = ("", "hex", *SIZES)
TIME_MODIFIERS = ("rfc3339", *NUMBER_MODIFIERS)

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX_BYTE = re.compile(r"[0-9a-fA-F]{2}")


class FormatError(ValueError):
    """A template or an option of a format is invalid; the message says where and why."""


class RecordFormatError(Exception):
    """A record cannot be written in the chosen format, or input cannot be read in it."""


class Verb(NamedTuple):
    """A verb ``%name{modifier}``; ``inner`` is the template in the braces of ``%h{...}``."""

    name: str
    modifier: str = ""
    inner: tuple[bytes | Verb, ...] = ()


Template = tuple[bytes | Verb, ...]
"""The pieces of a format in order: literal bytes and verbs."""


def parse_template(text: str) -> Template:
    """Parse the text of a ``--format``; FormatError if it is invalid."""
    pieces, end = _pieces(text, 0, allowed=VERBS)
    if end < len(text):
        raise FormatError(_at(text, end, "a '}' without a '{'; write %} for the character"))
    return pieces


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes: ``\t`` is a tab. Raises FormatError."""
    content, position = bytearray(), 0
    while position < len(text):
        if text[position] == "\\":
            character, position = _escape(text, position)
            content += character
        else:
            content += os.fsencode(text[position])
            position += 1
    return bytes(content)


def _pieces(text: str, position: int, *, allowed: str) -> tuple[Template, int]:
    """Parse pieces from ``position`` to the end or a closing brace; return them and the end."""
    pieces: list[bytes | Verb] = []
    literal = bytearray()
    while position < len(text) and text[position] != "}":
        if text[position] == "\\":
            character, position = _escape(text, position)
            literal += character
        elif text[position] != "%":
            literal += os.fsencode(text[position])
            position += 1
        elif text[position + 1 : position + 2] in ("%", "{", "}"):
            literal += text[position + 1].encode()
            position += 2
        else:
            verb, position = _verb(text, position, allowed=allowed)
            pieces += [bytes(literal), verb] if literal else [verb]
            literal.clear()
    return (*pieces, bytes(literal)) if literal else tuple(pieces), position


def _verb(text: str, start: int, *, allowed: str) -> tuple[Verb, int]:
    name = text[start + 1 : start + 2]
    if not name or name not in allowed:
        known_verbs = " ".join(f"%{verb_name}" for verb_name in allowed)
        raise FormatError(_at(text, start, f"%{name} is not one of {known_verbs}"))
    position = start + 2
    if text[position : position + 1] != "{":
        if name == HEADERS:
            raise FormatError(_at(text, start, "%h needs a format for each header: %h{%k=%v }"))
        return Verb(name), position
    inner: Template = ()
    if name == HEADERS:
        inner, end = _pieces(text, position + 1, allowed=IN_HEADERS)
    else:
        end = text.find("}", position)
    if text[end : end + 1] != "}" or end < 0:
        raise FormatError(_at(text, position, "a '{' without a '}'"))
    modifier = "" if name == HEADERS else text[position + 1 : end]
    _check_modifier(text, start, name, modifier)
    return Verb(name, modifier, inner), end + 1


def _check_modifier(text: str, start: int, name: str, modifier: str) -> None:
    known_modifiers: tuple[str, ...] = ("",)
    if name in BYTES:
        known_modifiers = BYTES_MODIFIERS
    elif name in NUMBERS:
        known_modifiers = NUMBER_MODIFIERS
    elif name in TIMES and not modifier.startswith("%"):
        known_modifiers = TIME_MODIFIERS
    elif name in TIMES:
        return
    if modifier not in known_modifiers:
        choice = (
            ", ".join(known_modifier for known_modifier in known_modifiers if known_modifier)
            or "none"
        )
        raise FormatError(_at(text, start, f"%{name}{{{modifier}}}: expected {choice}"))


def _escape(text: str, position: int) -> tuple[bytes, int]:
    name = text[position + 1 : position + 2]
    if name in _ESCAPES:
        return _ESCAPES[name], position + 2
    digits = _HEX_BYTE.match(text, position + 2)
    if name == "x" and digits is not None:
        return bytes.fromhex(digits[0]), position + 4
    raise FormatError(_at(text, position, r"expected \n, \t, \r, \0, \\ or \xHH"))


def _at(text: str, position: int, problem: str) -> str:
    return f"{text!r}, character {position + 1}: {problem}"
