"""Reads lines as Kafka's console producer does: headers, key and value with separators.

    h1:v1,h2:v2 <tab> key <tab> value
    '-headers-'      '-key-'
    '- only with parse.headers and parse.key -'

The names of the properties, their defaults and the refused combinations are those of Kafka's
``LineMessageReader``. Unlike there, keys and values may be any bytes, which are not decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.cli.records.formats.reading import NewRecord
from sharegroup.cli.records.formats.template import FormatError, RecordFormatError, unescape
from sharegroup.client.records import Header
from sharegroup.wire.batches.header_names import header_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """The parts of a line and the separators between them, as Kafka's reader properties say.

    Raises FormatError if a separator is empty or equal to another one or to the null marker.
    """

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None

    def __post_init__(self) -> None:
        separators = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, separator in {**separators, "key.separator": self.key_separator}.items():
            if not separator:
                raise FormatError(f"{name} must not be empty")
            if separator == self.null_marker:
                raise FormatError(f"{name} and null.marker must differ; both are {separator!r}")
        if len(set(separators.values())) < len(separators):
            raise FormatError(f"{', '.join(separators)} must differ")

    def parse(self, line: bytes) -> NewRecord:
        """Return the record of one line; RecordFormatError if a separator is missing."""
        unparsed, headers, key = line, None, None
        if self.parse_headers:
            headers, unparsed = self._split(unparsed, self.headers_delimiter, "headers.delimiter")
        if self.parse_key:
            key, unparsed = self._split(unparsed, self.key_separator, "key.separator")
        return NewRecord(self._or_null(key), self._or_null(unparsed), self._headers(headers))

    def _split(self, text: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        head, separator_found, tail = text.partition(separator)
        if separator_found:
            return head, tail
        if self.ignore_error:
            return None, text
        raise RecordFormatError(f"no {name} {separator!r} in {_shortened(text)}")

    def _headers(self, text: bytes | None) -> tuple[Header, ...]:
        if not text or text == self.null_marker:
            return ()
        return tuple(self._header(pair) for pair in text.split(self.headers_separator))

    def _header(self, pair: bytes) -> Header:
        name, value = self._split(pair, self.headers_key_separator, "headers.key.separator")
        if name is None:
            name, content = pair, None
        else:
            content = self._or_null(value)
        if name == self.null_marker:
            raise RecordFormatError(f"a header's name can't be null: {_shortened(pair)}")
        return header_name(name), content

    def _or_null(self, content: bytes | None) -> bytes | None:
        return None if content == self.null_marker else content


def line_form(properties: Mapping[str, str]) -> LineForm:
    """Return the form that Kafka's reader properties describe; FormatError if one is unknown."""
    values: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in PROPERTIES:
            raise FormatError(f"there is no reader property {name}; known: {', '.join(PROPERTIES)}")
        field = name.replace(".", "_")
        is_flag = name in ("parse.key", "parse.headers", "ignore.error")
        values[field] = text.strip().lower() == "true" if is_flag else unescape(text)
    return LineForm(**values)


PROPERTIES = (
    "parse.key",
    "key.separator",
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "ignore.error",
    "null.marker",
)


def _shortened(text: bytes) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
