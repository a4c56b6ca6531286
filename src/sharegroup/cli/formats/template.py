r"""The language of ``--format``: literal text with verbs for the parts of a record.

    %t topic        %T its length        %p partition            %o offset
    %k key          %K its length        %d timestamp            %i number of the record
    %v value        %V its length        %c delivery count
    %h{...} headers %H how many          %l lock's deadline      %L milliseconds until then

    %v{hex} %v{base64} %v{string} %v{json}       bytes: k, v, and both inside of %h{...}
    %o{hex} %o{big32} %o{little16} ...           numbers, as 8, 16, 32 or 64 bits
    %d{rfc3339} %d{%Y-%m-%d}                     times, also as numbers: milliseconds since 1970

    \n \t \r \0 \\ \xHH  %% %{ %}                characters

``string`` is a JSON string, ``json`` a JSON document on one line.  Lengths before what they
measure make a format that carries any bytes: ``%K{big32}%k%V{big32}%v``; null has length -1.

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
"""Modifiers for numbers as bytes: how many, in which order."""
NUMBER_MODIFIERS = ("", "hex", *SIZES)
TIME_MODIFIERS = ("rfc3339", *NUMBER_MODIFIERS)

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX_BYTE = re.compile(r"[0-9a-fA-F]{2}")


class FormatError(ValueError):
    """A template that means nothing; the text says where and why."""


class RecordFormatError(Exception):
    """A record that can't be written, or input that can't be read, in the way that was asked."""


class Verb(NamedTuple):
    """``%name{modifier}``; ``inner`` is what stands in the braces of ``%h{...}``."""

    name: str
    modifier: str = ""
    inner: tuple[bytes | Verb, ...] = ()


Template = tuple[bytes | Verb, ...]
"""Literal bytes and verbs, in order."""


def parse_template(text: str) -> Template:
    """The pieces of a ``--format``; raises FormatError."""
    pieces, end = _pieces(text, 0, allowed=VERBS)
    if end < len(text):
        raise FormatError(_at(text, end, "a '}' that closes nothing; write %} for the character"))
    return pieces


def unescape(text: str) -> bytes:
    r"""The bytes of a separator as it is typed: ``\t`` is a tab."""
    content, position = bytearray(), 0
    while position < len(text):
        if text[position] == "\\":
            some, position = _escape(text, position)
            content += some
        else:
            content += os.fsencode(text[position])
            position += 1
    return bytes(content)


def _pieces(text: str, position: int, *, allowed: str) -> tuple[Template, int]:
    """The pieces from ``position`` to the end, or to the brace that closes them."""
    pieces: list[bytes | Verb] = []
    literal = bytearray()
    while position < len(text) and text[position] != "}":
        if text[position] == "\\":
            some, position = _escape(text, position)
            literal += some
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
        known = " ".join(f"%{one}" for one in allowed)
        raise FormatError(_at(text, start, f"%{name} is none of {known}"))
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
        raise FormatError(_at(text, position, "a '{' that is not closed"))
    modifier = "" if name == HEADERS else text[position + 1 : end]
    _check_modifier(text, start, name, modifier)
    return Verb(name, modifier, inner), end + 1


def _check_modifier(text: str, start: int, name: str, modifier: str) -> None:
    known: tuple[str, ...] = ("",)
    if name in BYTES:
        known = BYTES_MODIFIERS
    elif name in NUMBERS:
        known = NUMBER_MODIFIERS
    elif name in TIMES and not modifier.startswith("%"):
        known = TIME_MODIFIERS
    elif name in TIMES:
        return
    if modifier not in known:
        choice = ", ".join(one for one in known if one) or "none"
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
