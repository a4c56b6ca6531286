"""Readers that parse records from chunks of bytes: by a template, as JSON lines, as Kafka's lines.

`Reader.feed` takes the next chunk and yields the records that are complete by then.
`Reader.finish` tells the reader that the input has ended. All readers accept any bytes: they
decode only parts that the format says to decode, and only ``\\n`` ends a line.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sharegroup.cli.records.formats.template import (
    BYTES,
    HEADERS,
    LENGTHS,
    SIZES,
    FormatError,
    RecordFormatError,
    Template,
    Verb,
)
from sharegroup.cli.records.formats.writing import (
    NULL_LENGTH,
    SIGNED,
    compact_json,
    refuse_constant,
)
from sharegroup.client.records import Header
from sharegroup.record_documents import json_bytes
from sharegroup.wire.batches.header_names import header_name

RECORD_BYTES_MAX = 128 * 1024 * 1024
"""A longer record is an error, because no broker accepts such a record."""

PARTITION_MAX = 2**31 - 1
TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1


class NewRecord(NamedTuple):
    """A record that was read; the producer chooses a partition or timestamp that is None."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Reader(Protocol):
    """Parses records from chunks of bytes."""

    def feed(self, chunk: bytes) -> Iterator[NewRecord]:
        """Take the next chunk and yield the records that are complete now."""
        ...

    def finish(self) -> Iterator[NewRecord]:
        """Yield the records left at the end of the input; RecordFormatError for a part of one."""
        ...


class LineReader:
    """Reads one record per line with ``parse``; the last line may lack its newline."""

    __slots__ = ("_number", "_parse", "_rest")

    def __init__(self, parse: Callable[[bytes], NewRecord]) -> None:
        self._parse = parse
        self._rest = bytearray()
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[NewRecord]:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            self._rest += head
            # Not `splitlines`, which also ends a line at a carriage return: that is part of the
            # value.
            lines = bytes(self._rest).split(b"\n")
            self._rest = bytearray(tail)
            for line in lines:
                yield self._record(line)
            return
        self._rest += tail
        if len(self._rest) > RECORD_BYTES_MAX:
            raise RecordFormatError(
                f"line {self._number + 1}: longer than {RECORD_BYTES_MAX} bytes"
            )

    def finish(self) -> Iterator[NewRecord]:
        if self._rest:
            yield self._record(bytes(self._rest))
        self._rest.clear()

    def _record(self, line: bytes) -> NewRecord:
        self._number += 1
        try:
            return self._parse(line)
        except RecordFormatError as error:
            raise RecordFormatError(f"line {self._number}: {error}") from error


def json_record(line: bytes) -> NewRecord:
    """Parse a record in the format of `writing.as_json`, ignoring its topic and offset.

    ``key`` and ``value`` may be any JSON. Values that are not strings are kept as JSON.
    """
    try:
        document = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordFormatError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RecordFormatError(f"expected a JSON object, found {_kind(document)}")
    headers = document.get("headers", ())
    if not isinstance(headers, list | tuple):
        raise RecordFormatError(f"headers: expected an array, found {_kind(headers)}")
    return NewRecord(
        _taken(document, "key"),
        _taken(document, "value"),
        tuple(_json_header(header) for header in headers),
        _number(document, "partition", 0, PARTITION_MAX),
        _number(document, "timestamp", TIMESTAMP_MIN, TIMESTAMP_MAX),
    )


def _json_header(header: Any) -> Header:
    if not isinstance(header, dict) or not isinstance(header.get("name"), str):
        raise RecordFormatError(
            f'headers: expected objects like {{"name":"n","value":"v"}}, found {header!r}'
        )
    try:
        name = _taken(header, "name")
    except RecordFormatError as error:
        raise RecordFormatError(f"headers: name {header['name']!r}: {error}") from error
    assert name is not None, "the name is text"
    return header_name(name), _taken(header, "value")


def _taken(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    try:
        if isinstance(encoded, str):
            return base64.b64decode(encoded, validate=True)
        content = document.get(name)
        if isinstance(content, str):
            return content.encode()
        return None if content is None else json_bytes(content)
    except (ValueError, binascii.Error) as error:
        raise RecordFormatError(f"{name}: {error}") from error


def _number(found: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise RecordFormatError(
            f"{name}: expected a number from {least} to {most}, found {number!r}"
        )
    return number


def _kind(document: object) -> str:
    return "null" if document is None else f"a {type(document).__name__}"


class TemplateReader:
    """Reads consecutive records in the format of a template, without separators between them.

    A part without a length before it ends at the literal text after it.
    """

    __slots__ = ("_count", "_null", "_rest", "_template")

    def __init__(self, template: Template, *, null: bytes | None = None) -> None:
        """Create a reader; FormatError for a template that can only write records."""
        check_readable(template)
        self._template = template
        self._null = null
        self._rest = bytearray()
        self._count = 0

    def feed(self, chunk: bytes) -> Iterator[NewRecord]:
        self._rest += chunk
        yield from self._records(at_end=False)
        if len(self._rest) > RECORD_BYTES_MAX:
            raise RecordFormatError(
                f"record {self._count + 1}: longer than {RECORD_BYTES_MAX} bytes"
            )

    def finish(self) -> Iterator[NewRecord]:
        yield from self._records(at_end=True)
        last = self._template[-1]
        if self._rest and isinstance(last, bytes) and last.endswith(b"\n"):
            self._rest += b"\n"  # The last line of a file may lack its newline.
            yield from self._records(at_end=True)
        if self._rest:
            raise RecordFormatError(
                f"record {self._count + 1}: the input ends before the end of the record"
            )

    def _records(self, *, at_end: bool) -> Iterator[NewRecord]:
        position = 0
        try:
            while position < len(self._rest):
                attempt = _Attempt(self._rest, position, self._null, at_end=at_end)
                try:
                    record = attempt.record(self._template)
                except RecordFormatError as error:
                    raise RecordFormatError(f"record {self._count + 1}: {error}") from error
                if record is None:
                    return
                assert attempt.position > position, "a template that reads nothing was let through"
                position = attempt.position
                self._count += 1
                yield record
        finally:
            del self._rest[:position]


def check_readable(template: Template) -> None:
    """Raise FormatError unless the end of each part of the template can be found in the input."""
    if not any(isinstance(piece, Verb) for piece in template):
        raise FormatError("a format to read records needs a verb such as %v")
    _check_ends(template, at_end=True)


def _check_ends(template: Template, *, at_end: bool) -> None:
    sized = ""
    for index, piece in enumerate(template):
        if isinstance(piece, bytes):
            continue
        following = template[index + 1] if index + 1 < len(template) else None
        if piece.name in LENGTHS:
            sized += piece.name
        elif piece.name == HEADERS:
            if "H" not in sized:
                raise FormatError("%h can only be read after the number of headers, %H")
            _check_ends(piece.inner, at_end=False)
            if not any(isinstance(part, Verb) and part.name == "k" for part in piece.inner):
                raise FormatError("to read %h, its format must contain %k, the name of the header")
        elif piece.name in BYTES:
            if piece.name.upper() not in sized and isinstance(following, Verb):
                raise FormatError(
                    f"%{piece.name} needs its length before it, %{piece.name.upper()}, or text "
                    "after it"
                )
            if piece.name.upper() not in sized and following is None and not at_end:
                raise FormatError(
                    f"%{piece.name} needs text after it, up to the '}}', or its length before it"
                )
        elif piece.name not in "pd" or piece.modifier not in ("", "hex", *SIZES):
            braces = f"{{{piece.modifier}}}" if piece.modifier else ""
            raise FormatError(f"%{piece.name}{braces} can be written, but not read")


class _MoreNeeded(Exception):
    """The input so far ends inside of a record."""


class _Attempt:
    """One attempt to read one record from ``position`` on; it advances ``position``."""

    __slots__ = ("_at_end", "_input", "_null", "position")

    def __init__(
        self, source: bytearray, position: int, null: bytes | None, *, at_end: bool
    ) -> None:
        self._input = source
        self._null = null
        self._at_end = at_end
        self.position = position

    def record(self, template: Template) -> NewRecord | None:
        """Return the record, or None if its end has not arrived yet."""
        try:
            parts = self._parts(template)
        except _MoreNeeded:
            return None
        return NewRecord(
            parts.get("k"),
            parts.get("v"),
            tuple(parts.get("h", ())),
            _number(parts, "p", 0, PARTITION_MAX),
            _number(parts, "d", TIMESTAMP_MIN, TIMESTAMP_MAX),
        )

    def _parts(self, template: Template) -> dict[str, Any]:
        """Return the parts of the record by the names of their verbs."""
        parts: dict[str, Any] = {}
        for index, piece in enumerate(template):
            if isinstance(piece, bytes):
                self._literal(piece)
            elif piece.name in BYTES:
                following = template[index + 1] if index + 1 < len(template) else None
                raw = self._raw(parts.get(piece.name.upper()), following)
                parts[piece.name] = self._decoded(raw, piece)
            elif piece.name == HEADERS:
                parts["h"] = self._headers(piece.inner, parts["H"])
            else:
                parts[piece.name] = self._number(piece)
        return parts

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._input):
            raise _MoreNeeded
        content = bytes(self._input[self.position : end])
        self.position = end
        return content

    def _literal(self, expected: bytes) -> None:
        content = self._take(len(expected))
        if content != expected:
            raise RecordFormatError(f"expected {expected!r}, found {content!r}")

    def _raw(self, length: int | None, following: bytes | Verb | None) -> bytes | None:
        if length is not None:
            if length > RECORD_BYTES_MAX or length < NULL_LENGTH:
                raise RecordFormatError(f"a length of {length} bytes")
            return None if length == NULL_LENGTH else self._take(length)
        if following is None:
            if not self._at_end:
                raise _MoreNeeded
            return self._take(len(self._input) - self.position)
        assert isinstance(following, bytes), "check_readable lets nothing else through"
        end = self._input.find(following, self.position)
        if end < 0:
            raise _MoreNeeded
        return self._take(end - self.position)

    def _decoded(self, raw: bytes | None, verb: Verb) -> bytes | None:
        if raw is None or raw == self._null:
            return None
        try:
            match verb.modifier:
                case "hex":
                    return bytes.fromhex(raw.decode())
                case "base64":
                    return base64.b64decode(raw, validate=True)
                case "string":
                    return _json_text(raw)
                case "json":
                    return compact_json(raw)
        except (ValueError, binascii.Error, RecursionError) as error:
            raise RecordFormatError(f"%{verb.name}{{{verb.modifier}}}: {error}") from error
        return raw

    def _number(self, verb: Verb) -> int:
        if verb.modifier in SIZES:
            size, order = SIZES[verb.modifier]
            raw = self._take(size)
            # All bits set is the length of null (`NULL_LENGTH`), also in a format without a sign.
            signed = verb.name in SIGNED or raw == b"\xff" * size
            return int.from_bytes(raw, "big" if order == "big" else "little", signed=signed)
        end = self.position
        digits = b"0123456789abcdefABCDEF-" if verb.modifier == "hex" else b"0123456789-"
        while end < len(self._input) and self._input[end] in digits:
            end += 1
        if end == len(self._input) and not self._at_end:
            raise _MoreNeeded
        text = self._take(end - self.position).decode()
        try:
            return int(text, 16 if verb.modifier == "hex" else 10)
        except ValueError as error:
            raise RecordFormatError(f"%{verb.name}: expected a number, found {text!r}") from error

    def _headers(self, inner: Template, count: int) -> Sequence[Header]:
        if count < 0:
            raise RecordFormatError(f"a number of {count} headers")
        headers = []
        for _ in range(count):
            parts = self._parts(inner)
            headers.append((header_name(parts.get("k") or b""), parts.get("v")))
        return headers


def _json_text(raw: bytes) -> bytes:
    text = json.loads(raw)
    if not isinstance(text, str):
        raise RecordFormatError(f"expected a JSON string, found {_kind(text)}")
    return text.encode()
