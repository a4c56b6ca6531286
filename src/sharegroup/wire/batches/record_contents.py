"""The contents of records as bytes, from which a batch is made without their objects.

    record   |length|attributes|time|offset|key|value|headers|
                                            '--- content ---'

The content does not depend on the batch and the place of the record in it.  So a program that makes
thousands of records can encode each at once and keep one object of it, in place of a dozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sharegroup.wire.batches.header_names import Header, name_bytes
from sharegroup.wire.batches.odd_records import LONG_BITS, signed
from sharegroup.wire.varints import zigzag

EncodedRecord = tuple[bytes, int]
"""Content of a record, and its timestamp in milliseconds since 1970."""

_NO_SIZE = b"\x01"
"""The number -1: no key or value."""

_SIZES = tuple(map(zigzag, range(1024)))
"""Sizes of most fields, and places of most records of a batch."""

KEPT_NAMES_MAX = 1_000
KEPT_NAME_CHARACTERS_MAX = 100
_names: dict[str, bytes] = {}
"""Names of headers, encoded.  Only ASCII: names that are not UTF-8 may look alike."""


def record_content(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bytes:
    """Return key, value and headers as a record has them, with the original bytes of all names.

    A hot loop of a redrive.
    """
    fields = [_sized(key), _sized(value), _number(len(headers))]
    append = fields.append
    for name, content in headers:
        append(_names.get(name) or _sized_name(name))
        if content is None:
            append(_NO_SIZE)
        else:
            size = len(content)
            append(_SIZES[size] if size < len(_SIZES) else zigzag(size))
            append(content)
    return b"".join(fields)


def batch_body(records: Iterable[EncodedRecord], first_timestamp: int) -> bytes:
    parts: list[bytes] = []
    append = parts.append
    for index, (content, timestamp) in enumerate(records):
        # The difference of two timestamps of 64 bits may have 65; readers add modulo 2**64.
        delta = _number(signed(timestamp - first_timestamp, LONG_BITS))
        place = b"\0" + delta + _number(index)
        append(_number(len(place) + len(content)))
        append(place)
        append(content)
    return b"".join(parts)


def _number(value: int) -> bytes:
    return _SIZES[value] if 0 <= value < len(_SIZES) else zigzag(value)


def _sized(content: bytes | None) -> bytes:
    return _NO_SIZE if content is None else _number(len(content)) + content


def _sized_name(name: str) -> bytes:
    sized = _sized(name_bytes(name))
    if name.isascii() and len(name) <= KEPT_NAME_CHARACTERS_MAX:
        if len(_names) >= KEPT_NAMES_MAX:
            _names.clear()
        _names[name] = sized
    return sized
