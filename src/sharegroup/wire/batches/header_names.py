"""Names of record headers, which a producer may fill with any bytes.

A name is text in UTF-8.  Bytes that are not UTF-8 are shown as Java shows them, with U+FFFD in
place of what cannot be decoded, and the original bytes stay with the text (`UndecodedName`).  Code
that writes records takes the bytes of a name from `name_bytes`, so that a copy has the name of its
original.  ADR 0033 has the alternatives.

Formats whose names are plain text, such as Arrow columns, have the original bytes in a header of
their own, `NAMES`: the bytes of every name with U+FFFD in base64, in order, separated by commas.
`with_names` adds it and `without_names` takes it away again.  It can only give a header a name that
is shown as the same text, so it is worth nothing to a producer who forges it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

Header = tuple[str, bytes | None]

NAMES = "__sharegroup.header.names"

REPLACEMENT = "\ufffd"

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate in UTF-8: one character to replace for Java, but two or three for Python."""


class UndecodedName(str):
    """The name of a header as it is shown, with the bytes that are not UTF-8 in ``raw``."""

    __slots__ = ("raw",)

    raw: bytes

    def __new__(cls, raw: bytes) -> UndecodedName:
        """Create the name of these bytes."""
        text = _SURROGATE.sub(REPLACEMENT.encode(), raw).decode(errors="replace")
        name = super().__new__(cls, text)
        name.raw = raw
        return name

    def __getnewargs__(self) -> tuple[bytes]:  # type: ignore[override]  # As `__new__` takes them.
        return (self.raw,)


def header_name(raw: bytes) -> str:
    """Return the name that these bytes are."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return UndecodedName(raw)


def name_bytes(name: str) -> bytes:
    """Return the bytes of a name."""
    return name.raw if isinstance(name, UndecodedName) else name.encode()


def with_names(headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers with plain text as names, and `NAMES` if a name is not UTF-8."""
    if not any(isinstance(name, UndecodedName) for name, _ in headers):
        return headers
    # A name may be U+FFFD itself, which is shown like another that is not UTF-8.
    raw = [name_bytes(name) for name, _ in headers if REPLACEMENT in name]
    shown = [(str(name), content) for name, content in headers]
    return [*shown, (NAMES, b",".join(map(base64.b64encode, raw)))]


def without_names(headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers with their original names and without `NAMES`."""
    places = [place for place, (name, _) in enumerate(headers) if name == NAMES]
    if not places:
        return headers
    # `with_names` adds its header last, so an earlier one of that name is the producer's own.
    place = places[-1]
    names: dict[str, list[str]] = {}
    # Reversed, because the names are taken from the end of each list.
    for encoded in reversed((headers[place][1] or b"").split(b",")):
        try:
            name = header_name(base64.b64decode(encoded, validate=True))
        except binascii.Error:
            continue  # Another program wrote it.
        names.setdefault(name, []).append(name)
    return [
        (names[name].pop() if names.get(name) else name, content)
        for name, content in (*headers[:place], *headers[place + 1 :])
    ]
