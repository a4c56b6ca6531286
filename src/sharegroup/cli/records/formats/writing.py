"""Formats records as bytes: by a ``--format``, as ``--json``, or escaped for a terminal.

A record that the format cannot express (such as bytes that are not JSON, for a JSON format)
raises `RecordFormatError`. The caller decides what to do with the record.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from sharegroup.cli.records.formats.template import (
    BYTES,
    HEADERS,
    NUMBERS,
    SIZES,
    TEXT,
    TIMES,
    RecordFormatError,
    Template,
    Verb,
)
from sharegroup.escaping import escaped
from sharegroup.record_documents import Row, as_json, json_bytes, json_line, moment, rfc3339
from sharegroup.wire.batches.header_names import name_bytes

Part = Callable[[Any], bytes]
"""A function that returns one piece of a record or of a header as bytes."""

NULL_LENGTH = -1
SIGNED = "dlL"
"""Verbs of numbers that can be negative.  The others are unsigned; all bits set mean -1."""


class _HeaderRow(NamedTuple):
    key: bytes
    value: bytes | None


RowWriter = Callable[[Row], bytes]

_NUMBER_OF: dict[str, Callable[[Any], int]] = {
    "p": attrgetter("partition"),
    "o": attrgetter("offset"),
    "i": attrgetter("number"),
    "c": attrgetter("delivery_count"),
    "L": attrgetter("left_ms"),
    "d": attrgetter("timestamp_ms"),
    "l": attrgetter("deadline_ms"),
    "T": lambda row: len(row.topic.encode()),
    "K": lambda row: NULL_LENGTH if row.key is None else len(row.key),
    "V": lambda row: NULL_LENGTH if row.value is None else len(row.value),
    "H": lambda row: len(row.headers),
}
_BYTES_OF = {"k": attrgetter("key"), "v": attrgetter("value")}


def template_writer(template: Template, *, null: bytes = b"") -> RowWriter:
    """Return a function that formats rows by a template; ``null`` is written for null."""
    parts = [_part(piece, null) for piece in template]
    return lambda row: b"".join([part(row) for part in parts])


def json_writer() -> RowWriter:
    """Return a function that formats each row as a line of JSON; see `as_json`."""
    return lambda row: json_line(as_json(row))


def _part(piece: bytes | Verb, null: bytes) -> Part:
    if isinstance(piece, bytes):
        return partial(_literal, piece)
    name, modifier = piece.name, piece.modifier
    if name in BYTES:
        return partial(_content, _BYTES_OF[name], modifier, null)
    if name in TIMES and (modifier == "rfc3339" or modifier.startswith("%")):
        return partial(_time, _NUMBER_OF[name], modifier)
    if name in NUMBERS or name in TIMES:
        return partial(_number, _NUMBER_OF[name], modifier, name in SIGNED)
    if name == HEADERS:
        return partial(_headers, template_writer(piece.inner, null=null))
    assert name == TEXT
    return lambda row: row.topic.encode()


def _literal(text: bytes, _: Any) -> bytes:
    return text


def _content(get: Callable[[Any], bytes | None], modifier: str, null: bytes, row: Any) -> bytes:
    content = get(row)
    if content is None:
        return b"null" if modifier in ("string", "json") else null
    match modifier:
        case "":
            return content
        case "hex":
            return content.hex().encode()
        case "base64":
            return base64.b64encode(content)
    if modifier == "json":
        return compact_json(content)
    try:
        return json_bytes(content.decode())
    except ValueError as error:
        raise RecordFormatError(f"not UTF-8 text: {error}") from error


def compact_json(content: bytes) -> bytes:
    """Return a JSON document on one line; RecordFormatError if ``content`` is not JSON."""
    try:
        return json_bytes(json.loads(content, parse_constant=refuse_constant))
    except (ValueError, RecursionError) as error:
        raise RecordFormatError(f"not a JSON document: {error}") from error


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity in `json.loads`, because JSON does not have them."""
    raise ValueError(f"{name} is not allowed in JSON")


def _number(get: Callable[[Any], int], modifier: str, signed: bool, row: Any) -> bytes:
    number = get(row)
    if modifier == "":
        return b"%d" % number
    if modifier == "hex":
        return b"%x" % number
    size, order = SIZES[modifier]
    try:
        if not signed and number == 2 ** (8 * size) - 1:
            raise OverflowError  # noqa: TRY301  These bytes mean -1.
        return number.to_bytes(
            size, "big" if order == "big" else "little", signed=signed or number == NULL_LENGTH
        )
    except OverflowError as error:
        raise RecordFormatError(f"{number} does not fit into {modifier}") from error


def _time(get: Callable[[Any], int], modifier: str, row: Any) -> bytes:
    try:
        if modifier == "rfc3339":
            return rfc3339(get(row)).encode()
        return moment(get(row)).strftime(modifier).encode()
    except OverflowError as error:
        raise RecordFormatError(f"{get(row)} ms since 1970 is not a valid date") from error


def with_escaped_names(write: RowWriter) -> RowWriter:
    """Return a writer for a terminal: it escapes keys, and names and contents of headers."""

    def write_escaped(row: Row) -> bytes:
        headers = tuple(
            (escaped(name), None if content is None else _escaped_bytes(content))
            for name, content in row.headers
        )
        key = None if row.key is None else _escaped_bytes(row.key)
        return write(row._replace(key=key, headers=headers))

    return write_escaped


def _escaped_bytes(content: bytes) -> bytes:
    return escaped(content.decode(errors="backslashreplace")).encode()


def _headers(write: Callable[[Any], bytes], row: Row) -> bytes:
    return b"".join([write(_HeaderRow(name_bytes(name), content)) for name, content in row.headers])
