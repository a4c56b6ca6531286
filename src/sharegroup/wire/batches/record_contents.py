"""The contents of records as bytes, from which a batch is made without their objects.

    record   |length|attributes|time|offset|key|value|headers|
                                            '--- content ---'

The content does not depend on the batch and the place of the record in it.  So a program that makes
thousands of records can encode each at once and keep one object of it, in place of a dozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sharegroup.wire.batches.header_names import name_bytes
from sharegroup.wire.batches.odd_records import LONG_BITS, signed
from sharegroup.wire.varints import zigzag

EncodedRecord = tuple[bytes, int]
"""Content of a record, and its timestamp in milliseconds since 1970."""

_NO_SIZE = b"\x01"
"""The number -1: no key or value."""

_NO_HEADERS = b"\0"
_NO_NAMES = (b"", b"")

_SIZES = tuple(map(zigzag, range(4096)))
"""Sizes of most fields, and places of most records of a batch."""


def record_content(names: Sequence[bytes], parts: Sequence[bytes | None]) -> bytes:
    """Return key, value and headers as a record has them.

    ``names`` come from `encoded_names`; ``parts`` are key, value, and the contents of the headers.
    A hot loop of a redrive.
    """
    try:
        sizes = [_SIZES[len(part)] for part in parts]  # type: ignore[arg-type]
    except (IndexError, TypeError):  # A larger part, or None.
        sizes = [_NO_SIZE if part is None else _number(len(part)) for part in parts]
        parts = [part or b"" for part in parts]
    fields: list[Any] = [_NO_HEADERS] * (3 * len(parts) + (len(parts) == len(_NO_NAMES)))
    fields[: 3 * len(parts) : 3] = names
    fields[1 : 3 * len(parts) : 3] = sizes
    fields[2 : 3 * len(parts) : 3] = parts
    return b"".join(fields)


def encoded_names(names: Sequence[str]) -> tuple[bytes, ...]:
    """Return what is before the key, the value, and the content of each header of a record.

    That is nothing, nothing, and the names with their original bytes, the first behind the number
    of headers.
    """
    raw_names = map(name_bytes, names)
    first, *others = [_number(len(raw)) + raw for raw in raw_names] or [b""]
    return (*_NO_NAMES, _number(len(names)) + first, *others) if names else _NO_NAMES


def batch_body(records: Iterable[EncodedRecord], first_timestamp: int) -> bytes:
    """Return the records of a batch, uncompressed, from the attributes of the first one on."""
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
