"""The source of an encoding function, from a message class.

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

``parts`` are the pieces of the message in order; ``large`` are the indexes of those pieces
that are records: they are handed on as they are, never copied together with the rest.
"""

from __future__ import annotations

from array import array
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from struct import Struct, pack
from typing import Any

from sharegroup.steps import STEP_MASK
from sharegroup.wire.codec.schema import (
    EPOCH,
    FIXED_FORMATS,
    MILLISECOND,
    MessageField,
    Owner,
    SourceLines,
    has_arrays,
    is_flexible_class,
    message_fields,
)

STRING_BYTES_MAX = 2**15 - 1
"""Number of bytes of a string with the old two-byte length."""

_ONE = tuple(bytes([value]) for value in range(128))


def encoder_source(
    cls: type[Any], *, in_steps: bool = False
) -> tuple[str, dict[str, Any], list[Owner]]:
    """Return the source of ``write``, the names that it needs, and the owner of each line.

    ``in_steps`` makes ``write`` a generator that yields between elements (`sharegroup.steps`).
    """
    function = _Source(cls, in_steps=in_steps)
    function.build()
    return "\n".join(function.source.lines), function.names, function.source.owners


def uvarint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    if value <= 0x7F:
        return _ONE[value]
    if value <= 0x3FFF:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Source:
    """The lines of one encoding function while it is generated."""

    def __init__(self, cls: type[Any], *, in_steps: bool) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.source = SourceLines()
        self.add = self.source.add
        self.names: dict[str, Any] = {
            "EPOCH": EPOCH,
            "MS": MILLISECOND,
            "ONE": _ONE,
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
