"""Records from bytes that come in pieces: by a template, as JSON lines, or as Kafka's lines.

A reader is fed what comes and gives back the records that are whole by then; `finish` says
that nothing more comes.  All three are safe for any bytes: nothing is decoded that the form
does not ask to be decoded, and a line ends with its ``\\n`` alone.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sharegroup.cli.formats.template import (
    BYTES,
    HEADERS,
    LENGTHS,
    SIZES,
    FormatError,
    RecordFormatError,
    Template,
    Verb,
)
from sharegroup.cli.formats.writing import NULL_LENGTH, compact_json, json_bytes, refuse_constant

RECORD_BYTES_MAX = 128 * 1024 * 1024
"""Input without a record's end is given up after so much; no broker takes such a record."""

PARTITION_MAX = 2**31 - 1
TIMESTAMP_MAX = 2**63 - 1

Header = tuple[str, bytes | None]


class NewRecord(NamedTuple):
    """A record that was read; None for partition and time leaves them to the producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Reader(Protocol):
    """See the module's text."""

    def feed(self, some: bytes) -> Iterator[NewRecord]:
        """The records that are whole now that ``some`` has come."""
        ...

    def finish(self) -> Iterator[NewRecord]:
        """What is left when the input has ended; RecordFormatError if it is no record."""
        ...


class LineReader:
    """One record on each line, taken apart by ``parse``; the last may lack its line's end."""

    __slots__ = ("_number", "_parse", "_rest")

    def __init__(self, parse: Callable[[bytes], NewRecord]) -> None:
        self._parse = parse
        self._rest = bytearray()
        self._number = 0

    def feed(self, some: bytes) -> Iterator[NewRecord]:
        head, newline, tail = some.rpartition(b"\n")
        if newline:
            self._rest += head
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
    """A record as `writing.as_json` writes it; what says where it was is left aside.

    ``key`` and ``value`` may be any JSON: what is no text is kept as JSON.
    """
    try:
        document = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordFormatError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RecordFormatError(f"expected a JSON object, found {_kind(document)}")
    headers = document.get("headers", ())
    if not isinstance(headers, list | tuple):
        raise RecordFormatError(f"headers: expected an array, found {_kind(headers)}")
    return NewRecord(
        _taken(document, "key"),
        _taken(document, "value"),
        tuple(_json_header(one) for one in headers),
        _number_up_to(PARTITION_MAX, document, "partition"),
        _number_up_to(TIMESTAMP_MAX, document, "timestamp"),
    )


def _json_header(header: Any) -> Header:
    if not isinstance(header, dict) or not isinstance(header.get("name"), str):
        raise RecordFormatError(
            f'headers: expected objects like {{"name":"n","value":"v"}}, found {header!r}'
        )
    try:
        header["name"].encode()
    except UnicodeEncodeError as error:
        raise RecordFormatError(f"headers: name {header['name']!r}: {error}") from error
    return header["name"], _taken(header, "value")


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


def _number_up_to(limit: int, found: Mapping[str, Any], name: str) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= limit:
        raise RecordFormatError(f"{name}: expected a number from 0 to {limit}, found {number!r}")
    return number


def _kind(document: object) -> str:
    return "null" if document is None else f"a {type(document).__name__}"


class TemplateReader:
    """Records one after another in the form of a template, with nothing between them.

    A part without a length before it goes up to the literal text behind it.
    """

    __slots__ = ("_count", "_null", "_rest", "_template")

    def __init__(self, template: Template, *, null: bytes | None = None) -> None:
        """FormatError for a template that can be written and not read."""
        check_readable(template)
        self._template = template
        self._null = null
        self._rest = bytearray()
        self._count = 0

    def feed(self, some: bytes) -> Iterator[NewRecord]:
        self._rest += some
        yield from self._records(at_end=False)
        if len(self._rest) > RECORD_BYTES_MAX:
            raise RecordFormatError(
                f"record {self._count + 1}: no end after {RECORD_BYTES_MAX} bytes"
            )

    def finish(self) -> Iterator[NewRecord]:
        yield from self._records(at_end=True)
        last = self._template[-1]
        if self._rest and isinstance(last, bytes) and last.endswith(b"\n"):
            self._rest += b"\n"  # Which the last line of a file may lack.
            yield from self._records(at_end=True)
        if self._rest:
            raise RecordFormatError(f"record {self._count + 1}: the input ends in the middle of it")

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
    """FormatError unless each part of the template says where it ends."""
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
                raise FormatError("%h can be read only after their number: %H")
            _check_ends(piece.inner, at_end=False)
            if not any(isinstance(part, Verb) and part.name == "k" for part in piece.inner):
                raise FormatError("%h needs the header's name, %k, to be read")
        elif piece.name in BYTES:
            if piece.name.upper() not in sized and isinstance(following, Verb):
                raise FormatError(
                    f"%{piece.name} needs its length before it, %{piece.name.upper()}, "
                    "or text behind it"
                )
            if piece.name.upper() not in sized and following is None and not at_end:
                raise FormatError(
                    f"%{piece.name} needs text behind it, up to the '}}', or its length before it"
                )
        elif piece.name not in "pd" or piece.modifier not in ("", "hex", *SIZES):
            braces = f"{{{piece.modifier}}}" if piece.modifier else ""
            raise FormatError(f"%{piece.name}{braces} can be written and not read")


class _MoreNeeded(Exception):
    """The record goes on behind what has come so far."""


class _Attempt:
    """One try to read one record from ``position`` on."""

    __slots__ = ("_at_end", "_input", "_null", "position")

    def __init__(
        self, source: bytearray, position: int, null: bytes | None, *, at_end: bool
    ) -> None:
        self._input = source
        self._null = null
        self._at_end = at_end
        self.position = position

    def record(self, template: Template) -> NewRecord | None:
        """The record, or None when more must come first."""
        try:
            found = self._parts(template)
        except _MoreNeeded:
            return None
        return NewRecord(
            found.get("k"),
            found.get("v"),
            tuple(found.get("h", ())),
            _number_up_to(PARTITION_MAX, found, "p"),
            _number_up_to(TIMESTAMP_MAX, found, "d"),
        )

    def _parts(self, template: Template) -> dict[str, Any]:
        """What was read, by the names of the verbs."""
        found: dict[str, Any] = {}
        for index, piece in enumerate(template):
            if isinstance(piece, bytes):
                self._literal(piece)
            elif piece.name in BYTES:
                following = template[index + 1] if index + 1 < len(template) else None
                raw = self._raw(found.get(piece.name.upper()), following)
                found[piece.name] = self._decoded(raw, piece)
            elif piece.name == HEADERS:
                found["h"] = self._headers(piece.inner, found["H"])
            else:
                found[piece.name] = self._number(piece)
        return found

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._input):
            raise _MoreNeeded
        some = bytes(self._input[self.position : end])
        self.position = end
        return some

    def _literal(self, expected: bytes) -> None:
        some = self._take(len(expected))
        if some != expected:
            raise RecordFormatError(f"expected {expected!r}, found {some!r}")

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
            return int.from_bytes(
                self._take(size), "big" if order == "big" else "little", signed=True
            )
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
        headers = []
        for _ in range(count):
            found = self._parts(inner)
            try:
                headers.append(((found.get("k") or b"").decode(), found.get("v")))
            except UnicodeDecodeError as error:
                raise RecordFormatError(f"a header's name is no UTF-8: {error}") from error
        return headers


def _json_text(raw: bytes) -> bytes:
    text = json.loads(raw)
    if not isinstance(text, str):
        raise RecordFormatError(f"expected a JSON string, found {_kind(text)}")
    return text.encode()
