"""Encoding of messages: a Python function is compiled from each message class.

The counterpart of `decoder`, built in the same way from the same metadata. kio's
writers take 16 to 40 us for a share fetch message, because they call a function for every number,
and they refuse unknown error codes. These functions take a fifth of that time and give the same
bytes, which a test checks for every message class.

Frames are lists of chunks: the size, the header and everything small are one piece; records stay
the objects that the caller gave. A message that cannot be written (a string in place of a number,
null where it is not allowed) raises EncodeError with the field's path, because that is a mistake in
our own program.

The source of an encoding function, from a message class.

For a struct of an int32, a string and an array of structs it looks like this::

    def write(m, parts, large):
        add = parts.append
        add(s0(m.index))                # neighbours of fixed size in one pack
        x = m.name.encode()
        k = len(x)
        add((ONE[k + 1] if k < 127 else uvarint(k + 1)) + x)
        x = m.topics
        k = len(x)
        add((ONE[k + 1] if k < 127 else uvarint(k + 1)))
        for i, x in enumerate(x):
            write_topics(x, parts, large)
        add(b"\\0")                      # no tagged fields

``parts`` are the pieces of the message in order; ``large`` are the indexes of those pieces that
are records: they are handed on as they are, never copied together with the rest.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from struct import Struct, pack
from typing import Any

from sharegroup.steps import STEP_MASK, Steps
from sharegroup.wire.codec.apis import response_header_version
from sharegroup.wire.codec.headers import encode_request_header
from sharegroup.wire.codec.schema import (
    EPOCH,
    FIXED_FORMATS,
    MILLISECOND,
    MessageField,
    SourceLines,
    failed_field,
    has_arrays,
    is_flexible_class,
    message_fields,
)
from sharegroup.wire.varints import ONE_BYTE, uvarint

STRING_BYTES_MAX = 2**15 - 1
"""Number of bytes of a string with the old two-byte length."""


class _EncoderSource:
    """The lines of the function ``write`` of one class, and the names that it needs.

    ``in_steps`` makes ``write`` a generator that yields between elements (`sharegroup.steps`).
    """

    def __init__(self, cls: type[Any], *, in_steps: bool) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.source = SourceLines()
        self.add = self.source.add
        self.names: dict[str, Any] = {
            "EPOCH": EPOCH,
            "MS": MILLISECOND,
            "ONE": ONE_BYTE,
            "ZERO_UUID": bytes(16),
            "array": array,
            "length_16": Struct(">h").pack,
            "length_32": Struct(">i").pack,
            "milliseconds": _milliseconds,
            "pack": pack,
            "short": _short,
            "uvarint": uvarint,
        }

    def build(self) -> None:
        fields = message_fields(self.cls)
        self.add(0, "def write(m, parts, large):")
        self.add(1, "add = parts.append")
        plain = [field for field in fields if field.tag is None]
        for fixed, group in groupby(plain, key=attrgetter("is_fixed")):
            if fixed:
                self.fixed_run(1, list(group))
            else:
                for field in group:
                    self.variable(1, field, nullable=field.nullable)
        if is_flexible_class(self.cls):
            self.tags([field for field in fields if field.tag is not None])
        if self.in_steps:
            self.add(1, "return", "yield")  # Makes it a generator even without arrays.

    def fixed_run(self, indent: int, fields: list[MessageField]) -> None:
        """Generate the writing of neighbours of fixed size in one call."""
        layout = Struct(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields))
        name = f"s{len(self.names)}"
        self.names[name] = layout.pack
        self.source.owner = ("+".join(field.name for field in fields), False)
        values = ", ".join(_value(field, f"m.{field.name}") for field in fields)
        self.add(indent, f"add({name}({values}))")

    def variable(self, indent: int, field: MessageField, *, nullable: bool) -> None:
        self.source.owner = (field.name, False)
        self.add(indent, f"x = m.{field.name}")
        if nullable:
            null = self.null(field)
            self.add(indent, "if x is None:", f"    add({null})", "else:")
            indent += 1
        if field.is_array:
            self.array(indent, field)
        elif field.entity is not None:
            if nullable:
                self.add(indent, r'add(b"\1")')
            self.entity(indent, field)
        else:
            self.text_or_bytes(indent, field)

    def entity(self, indent: int, field: MessageField) -> None:
        """Generate the writing of the struct x."""
        assert field.entity is not None
        steps = "yield from " if self.in_steps and has_arrays(field.entity) else ""
        self.add(indent, f"{steps}write_{field.name}(x, parts, large)")

    def null(self, field: MessageField) -> str:
        if field.entity is not None and not field.is_array:
            return r'b"\xff"'
        if field.compact:
            return r'b"\0"'
        is_short = field.kafka_type == "string" and not field.is_array
        return r'b"\xff\xff"' if is_short else r'b"\xff\xff\xff\xff"'

    def length(self, field: MessageField, count: str) -> str:
        """Return the expression for the bytes of a length or count."""
        if field.compact:
            return f"(ONE[{count} + 1] if {count} < 127 else uvarint({count} + 1))"
        if field.kafka_type == "string" and not field.is_array:
            return f"length_16(short({count}))"
        return f"length_32({count})"

    def text_or_bytes(self, indent: int, field: MessageField) -> None:
        """Generate the writing of a string, bytes or records x, which is not null."""
        if field.kafka_type == "string":
            self.add(indent, "x = x.encode()", "k = len(x)", f"add({self.length(field, 'k')} + x)")
            return
        self.add(indent, "k = len(x)", f"add({self.length(field, 'k')})")
        if field.kafka_type == "records":
            # Noted before `add`, so it is the index that the records will have.
            self.add(indent, "large.append(len(parts))")
        self.add(indent, "add(x)")

    def array(self, indent: int, field: MessageField) -> None:
        """Generate the writing of an array x, which is not null."""
        kind = field.kafka_type or ""
        self.add(indent, "k = len(x)", f"add({self.length(field, 'k')})")
        if kind == "int8":
            self.add(indent, "add(array('b', x).tobytes())")
            return
        if kind in FIXED_FORMATS and _value(field, "x") == "x":
            self.add(indent, f'add(pack(f">{{k}}{FIXED_FORMATS[kind]}", *x))')
            return
        self.add(indent, "for i, x in enumerate(x):")
        self.source.owner = (field.name, True)
        if field.entity is not None:
            self.entity(indent + 1, field)
        elif kind in FIXED_FORMATS:
            self.add(indent + 1, f'add(pack(">{FIXED_FORMATS[kind]}", {_value(field, "x")}))')
        else:
            self.element_text(indent + 1, field)
        if self.in_steps:
            self.add(indent + 1, f"if i & {STEP_MASK} == {STEP_MASK}: yield")
        self.source.owner = (field.name, False)

    def element_text(self, indent: int, field: MessageField) -> None:
        """Generate the writing of a string or bytes x as an element, with its own length format."""
        if field.kafka_type == "string":
            self.add(indent, "x = x.encode()")
        self.add(indent, "k = len(x)")
        length = self.length(field, "k")
        if not field.compact and field.kafka_type == "string":
            length = "length_16(short(k))"
        self.add(indent, f"add({length} + x)")

    def tags(self, fields: list[MessageField]) -> None:
        """Generate the writing of tagged fields that differ from their default, by tag."""
        if not fields:
            self.add(1, r'add(b"\0")')
            return
        self.add(1, "outer, tagged, count = parts, [], 0")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            self.names[f"d_{field.name}"] = field.default
            self.add(1, f"if m.{field.name} != d_{field.name}:")
            # In a list of its own, because the size of a tagged field stands before it.
            self.add(2, "parts = []", "add = parts.append")
            if field.is_fixed:
                self.fixed_run(2, [field])
            else:
                # A null needs no format here: it is the default of these fields, which is not
                # written.
                self.variable(2, field, nullable=False)
            self.add(2, "x = b''.join(parts)", "count += 1")
            self.add(2, f"tagged += (uvarint({field.tag}), uvarint(len(x)), x)")
        self.add(1, "outer.append(uvarint(count))", "outer += tagged")


def _value(field: MessageField, name: str) -> str:
    """Return the expression that converts a message's value to the one that struct packs."""
    match field.kafka_type:
        case "uuid":
            return f"ZERO_UUID if {name} is None else {name}.bytes"
        case "timedelta_i32" | "timedelta_i64":
            return f"{name} // MS"
        case "datetime_i64":
            return f"milliseconds({name})"
    return name


def _milliseconds(value: datetime | None) -> int:
    return -1 if value is None else (value - EPOCH) // MILLISECOND


def _short(length: int) -> int:
    if length > STRING_BYTES_MAX:
        raise ValueError(f"{length} bytes of text, {STRING_BYTES_MAX} are allowed")
    return length


Chunk = bytes | bytearray | memoryview

_pack_size = struct.Struct(">i").pack
_pack_response_0 = struct.Struct(">ii").pack
_pack_response_1 = struct.Struct(">iiB").pack


PARTS_MAX = 4_096
"""Number of pieces of a message that are joined at the next pause."""

ENCODING_ERRORS = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


class EncodeError(Exception):
    """The message does not fit its class; the text has the field and the problem."""


def encode(message: Any) -> bytes:
    """Return the message alone, without header and size."""
    parts, _ = _parts(message)
    return b"".join(parts)


def encode_response(correlation_id: int, message: Any) -> bytes:
    """Return a response frame as one piece: size, header, message."""
    return b"".join(encode_response_chunks(correlation_id, message))


def encode_response_chunks(correlation_id: int, message: Any) -> list[Chunk]:
    """Return a response frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    return _framed(correlation_id, message, parts, large)


def _framed(correlation_id: int, message: Any, parts: list[Chunk], large: list[int]) -> list[Chunk]:
    if large:
        return _joined(_head(correlation_id, message, sum(map(len, parts))), parts, large)
    body = b"".join(parts)
    return [_head(correlation_id, message, len(body)) + body]


def _head(correlation_id: int, message: Any, size: int) -> bytes:
    """Return the length and the header of a response frame for a message of ``size`` bytes."""
    if response_header_version(message.__api_key__, message.__version__) == 1:
        # Header version 1 ends with the number of its tagged fields.
        return _pack_response_1(size + 5, correlation_id, 0)
    return _pack_response_0(size + 4, correlation_id)


def encode_response_steps(correlation_id: int, message: Any) -> Steps[list[Chunk]]:
    """Do `encode_response_chunks` in steps."""
    parts: list[Chunk] = []
    large: list[int] = []
    cls = type(message)
    try:
        write = _step_writers.get(cls) or _compiled(cls, in_steps=True)
        for _ in write(message, parts, large):
            # Not behind records: ``large`` has indexes of pieces, which a join would make wrong.
            if len(parts) > PARTS_MAX and not large:
                parts[:] = (b"".join(parts),)  # In place, because the functions hold the list.
            yield
    except ENCODING_ERRORS as error:
        raise EncodeError(
            f"{cls.__name__}.{failed_field(error.__traceback__)[0]}: {error}"
        ) from error
    return _framed(correlation_id, message, parts, large)


def encode_request(correlation_id: int, client_id: str | None, message: Any) -> list[Chunk]:
    """Return a request frame for ``writelines``; records are not copied."""
    parts, large = _parts(message)
    key, version = message.__api_key__, message.__version__
    header = encode_request_header(key, version, correlation_id, client_id)
    size = len(header) + sum(map(len, parts))
    return _joined(_pack_size(size) + header, parts, large)


def prepare(cls: type[Any], *, in_steps: bool = False) -> None:
    """Compile the encoder now, so the first message of this class need not wait for it."""
    _compiled(cls)
    if in_steps:
        _compiled(cls, in_steps=True)


def _parts(message: Any) -> tuple[list[Chunk], list[int]]:
    cls = type(message)
    parts: list[Chunk] = []
    large: list[int] = []
    try:
        write = _writers.get(cls) or _compiled(cls)
        write(message, parts, large)
    except ENCODING_ERRORS as error:
        raise EncodeError(
            f"{cls.__name__}.{failed_field(error.__traceback__)[0]}: {error}"
        ) from error
    return parts, large


def _joined(head: bytes, parts: list[Chunk], large: list[int]) -> list[Chunk]:
    """Join the pieces between each two large ones; put ``head`` before the first."""
    chunks: list[Chunk] = []
    start = 0
    for index in large:
        chunks += (head + b"".join(parts[start:index]), parts[index])
        head = b""
        start = index + 1
    chunks.append(head + b"".join(parts[start:]))
    return chunks


Write = Callable[[Any, list[Chunk], list[int]], None]
"""A compiled function: (message, pieces, indexes of the large pieces)."""

_writers: dict[type[Any], Write] = {}

WriteSteps = Callable[[Any, list[Chunk], list[int]], Steps[None]]

_step_writers: dict[type[Any], WriteSteps] = {}


def _compiled(cls: type[Any], *, in_steps: bool = False) -> Any:
    """Return the function that writes ``cls``, or does it in steps; compile it on first use."""
    writers: dict[Any, Any] = _step_writers if in_steps else _writers
    known = writers.get(cls)
    if known is not None:
        return known
    function = _EncoderSource(cls, in_steps=in_steps)
    function.build()
    for field in message_fields(cls):
        if field.entity is not None:
            # A struct without arrays has a limited length, so a generator for each would only cost
            # time.
            function.names[f"write_{field.name}"] = _compiled(
                field.entity, in_steps=in_steps and has_arrays(field.entity)
            )
    title = f"encoder{' in steps' * in_steps} of {cls.__module__}.{cls.__qualname__}"
    write = function.source.compiled("write", title, function.names)
    writers[cls] = write
    return write
