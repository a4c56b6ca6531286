"""Decoding of messages from a peer: a Python function is compiled from each message class.

kio writes messages, but its reader trusts them: a claimed array length of 2**32-1 aborts the
process. Here a message class is turned into the source of one function (below). The
function is compiled when it is first used, and it trusts nothing:

- a count is compared with the bytes left, each element taken at its smallest, before a loop starts;
  a length is compared with the bytes left before a slice is made;
- all elements of a message together are limited (``ELEMENTS_MAX``), so a large frame of one-byte
  elements cannot become gigabytes of objects;
- tags must ascend; unknown ones are skipped; known ones must fill the size they announce;
- unknown error codes stay plain ints, because a newer peer may have codes that kio lacks.

All errors are DecodeErrors. Bytes after the message are no error here: the position of the first
one is returned.

The path of an error is found only if one occurs: the compiled functions carry no path, and the
traceback's line numbers lead back to the fields (`failed_field`).

The source of a decoding function, from a message class.

For a struct of a string, two int32 and an array of int64 it looks like this::

    def read(b, p, n, left):
        k = b[p] - 1                    # compact length: one byte nearly always
        if k < 127:
            p += 1
        else:
            k, p = uvarint(b, p)
            k -= 1
        if k > 0:
            e = p + k
            if e > n:
                raise Malformed(...)
            v_name = str(b[p:e], "utf-8")
            p = e
        ...
        v_index, v_epoch = s0(b, p)     # neighbours of fixed size in one unpack
        p += 8
        ...
        m = new()
        m.name = v_name                 # see `mutable_twin`
        ...
        m.__class__ = Message
        return m, p

Names: ``b`` buffer, ``p`` position, ``n`` end, ``k`` a count, ``e`` the end of a slice, ``i`` the
element's index, ``left`` the elements that may still come.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from struct import Struct, unpack_from
from typing import Any, TypeVar
from uuid import UUID

from sharegroup.ids import interned_uuid
from sharegroup.steps import STEP_MASK, Steps
from sharegroup.wire.codec.schema import (
    EPOCH,
    ERROR_CODES,
    FIXED_FORMATS,
    MessageField,
    SourceLines,
    failed_field,
    has_arrays,
    is_flexible_class,
    message_fields,
)

INT8_COST_SHIFT = 5
"""An array of 2 to this power int8 (acknowledge types of records) costs as much as one element.

In a tuple they take a pointer each, and no time.
"""

_ZERO_UUID = bytes(16)
_VARINT_BYTES_MAX = 5


class Malformed(Exception):
    """The problem in a message, without its place; only this module and `decoder` see it."""


def smallest_bytes(cls: type[Any]) -> int:
    """Return the least number of bytes of a struct of this class on the wire."""
    plain = [field for field in message_fields(cls) if field.tag is None]
    return sum(_smallest(field) for field in plain) + int(is_flexible_class(cls))


def mutable_twin(cls: type[Any]) -> type[Any]:
    """Return a class with the same slots whose objects can be filled and then turned into ``cls``.

    A frozen dataclass of three fields takes 0.56 us to construct, because each field goes through
    ``object.__setattr__``; filling the twin's slots and assigning ``__class__`` takes 0.13 us.
    """
    namespace = {
        "__slots__": cls.__slots__,
        # A class that adds fields to those of another one would inherit that one's methods.
        "__init__": object.__init__,
        "__setattr__": object.__setattr__,
    }
    return type(f"{cls.__name__}Twin", cls.__bases__, namespace)


class _DecoderSource:
    """The lines of the function ``read`` of one class, and the names that it needs.

    ``in_steps`` makes ``read`` a generator that yields between elements (`sharegroup.steps`).
    """

    def __init__(self, cls: type[Any], *, in_steps: bool) -> None:
        self.cls = cls
        self.in_steps = in_steps
        self.flexible = is_flexible_class(cls)
        self.source = SourceLines()
        self.add = self.source.add
        self.names: dict[str, Any] = {
            "Malformed": Malformed,
            "Message": cls,
            "new": mutable_twin(cls),
            "EPOCH": EPOCH,
            "ZERO_UUID": UUID(int=0),
            "error_codes": ERROR_CODES.get,
            "milliseconds": _milliseconds,
            "skip_tags": skip_tags,
            "timedelta": timedelta,
            "topic_uuid": _uuid,
            "unpack_from": unpack_from,
            "uvarint": _uvarint,
        }

    def build(self) -> None:
        fields = message_fields(self.cls)
        self.add(0, "def read(b, p, n, left):")
        plain = [field for field in fields if field.tag is None]
        for fixed, group in groupby(plain, key=attrgetter("is_fixed")):
            if fixed:
                self.fixed_run(list(group))
            else:
                for field in group:
                    self.source.owner = (field.name, False)
                    self.variable(1, field)
        self.source.owner = ("tags", False)
        if self.flexible:
            self.tags([field for field in fields if field.tag is not None])
        self.add(1, "m = new()")
        self.add(1, *(f"m.{field.name} = v_{field.name}" for field in fields))
        self.add(1, "m.__class__ = Message", "return m, p")
        if self.in_steps:
            self.add(1, "yield")  # Makes it a generator even without arrays.

    def fixed_run(self, fields: list[MessageField]) -> None:
        """Generate the reading of neighbours of fixed size: one bounds check, one call."""
        layout = Struct(">" + "".join(FIXED_FORMATS[field.kafka_type or ""] for field in fields))
        unpack = f"s{len(self.names)}"
        self.names[unpack] = layout.unpack_from
        self.source.owner = (fields[0].name, False)
        targets = ", ".join(f"v_{field.name}" for field in fields)
        self.add(1, f"{targets}, = {unpack}(b, p)")
        for field in fields:
            self.source.owner = (field.name, False)
            self.add(1, *_converted(field))
        self.add(1, f"p += {layout.size}")

    def variable(self, indent: int, field: MessageField) -> None:
        if field.is_array:
            self.array(indent, field)
        elif field.entity is not None:
            self.entity(indent, field)
        else:
            self.text_or_bytes(indent, field, f"v_{field.name}", nullable=field.nullable)

    def entity(self, indent: int, field: MessageField) -> None:
        read = f"v_{field.name}, p = {self.call_of(field)}"
        # A null struct in a tag is absent. The byte that Kafka writes before one that is present is
        # a field of its class (`modern_group_records.ClassicMemberMetadata`).
        if not field.nullable or field.tag is not None:
            self.add(indent, read)
            return
        self.add(indent, f"v_{field.name} = None", "p += 1", "if b[p - 1] < 128:")
        self.add(indent + 1, read)

    def call_of(self, field: MessageField) -> str:
        """Return the call that reads the struct of a field, or of one of its elements."""
        assert field.entity is not None
        call = f"read_{field.name}(b, p, n, left)"
        return f"yield from {call}" if self.in_steps and has_arrays(field.entity) else call

    def length(self, indent: int, field: MessageField, *, is_short: bool) -> None:
        """Generate the reading of the length at p into k; -1 for null."""
        if field.compact:
            self.add(indent, "k = b[p] - 1", "if k < 127:", "    p += 1", "else:")
            self.add(indent + 1, "k, p = uvarint(b, p)", "k -= 1")
            return
        letter, size = ("h", 2) if is_short else ("i", 4)
        unpack = f"read_{letter}"
        self.names[unpack] = Struct(">" + letter).unpack_from
        self.add(indent, f"k, = {unpack}(b, p)", f"p += {size}")

    def nulls(self, indent: int, target: str, *, nullable: bool) -> None:
        """Generate the branches for null and invalid lengths, after ``if k > 0`` and ``k == 0``."""
        if nullable:
            self.add(indent, "elif k == -1:", f"    {target} = None", "else:")
        else:
            self.add(indent, "else:")
        self.add(indent + 1, 'raise Malformed(f"length {k}" if k < -1 else "null is not allowed")')

    def text_or_bytes(
        self, indent: int, field: MessageField, target: str, *, nullable: bool
    ) -> None:
        """Generate the reading of a string, bytes or records at p into ``target``."""
        is_text = field.kafka_type == "string"
        # Bytes are copied out of a view: its slice would keep the memory of the whole frame.
        wrap = {"string": 'str(b[p:e], "utf-8")', "bytes": "bytes(b[p:e])"}.get(
            field.kafka_type or "", "records_of(b[p:e])"
        )
        self.length(indent, field, is_short=is_text)
        self.add(indent, "if k > 0:", "    e = p + k", "    if e > n:")
        self.add(indent + 2, 'raise Malformed(f"length {k}, but {n - p} bytes are left")')
        self.add(indent + 1, f"{target} = {wrap}", "p = e")
        self.add(indent, "elif k == 0:", f'    {target} = {"" if is_text else "b"}""')
        self.nulls(indent, target, nullable=nullable)

    def array(self, indent: int, field: MessageField) -> None:
        """Generate the reading of an array; its count is compared with the bytes left first."""
        self.length(indent, field, is_short=False)
        smallest = _smallest_element(field)
        self.add(indent, "if k > 0:", f"    if k * {smallest} > n - p:")
        text = f"{{k}} elements of {smallest} bytes or more, but {{n - p}} bytes are left"
        self.add(indent + 2, f'raise Malformed(f"{text}")')
        cost = f"k >> {INT8_COST_SHIFT}" if field.kafka_type == "int8" else "k"
        # Counted before the elements are read, so a message beyond the limit creates none of them.
        self.add(indent + 1, f"left[0] -= {cost}", "if left[0] < 0:")
        self.add(indent + 2, 'raise Malformed("too many elements in one message")')
        self.elements(indent + 1, field)
        self.add(indent, "elif k == 0:", f"    v_{field.name} = ()")
        self.nulls(indent, f"v_{field.name}", nullable=field.nullable)

    def elements(self, indent: int, field: MessageField) -> None:
        """Generate the reading of k elements at p into a tuple."""
        kind = field.kafka_type or ""
        if kind == "int8":
            # Through a view: as fast as a copy, where unpack would build a format of k letters.
            view = "memoryview(b[p:p + k]).cast('b')"
            self.add(indent, f"v_{field.name} = tuple({view})", "p += k")
            return
        if kind in FIXED_FORMATS and not _conversion(kind, "x"):
            letter, size = FIXED_FORMATS[kind], Struct(">" + FIXED_FORMATS[kind]).size
            unpacked = f'unpack_from(f">{{k}}{letter}", b, p)'
            self.add(indent, f"v_{field.name} = {unpacked}", f"p += k * {size}")
            return
        self.add(indent, "a = []", "for i in range(k):")
        self.source.owner = (field.name, True)
        if field.entity is not None:
            self.add(indent + 1, f"x, p = {self.call_of(field)}")
        elif kind in FIXED_FORMATS:
            self.fixed_element(indent + 1, kind)
        else:
            self.text_or_bytes(indent + 1, field, "x", nullable=False)
        self.add(indent + 1, "a.append(x)")
        if self.in_steps:
            self.add(indent + 1, f"if i & {STEP_MASK} == {STEP_MASK}: yield")
        self.source.owner = (field.name, False)
        self.add(indent, f"v_{field.name} = tuple(a)")

    def fixed_element(self, indent: int, kind: str) -> None:
        layout = Struct(">" + FIXED_FORMATS[kind])
        unpack = f"s{len(self.names)}"
        self.names[unpack] = layout.unpack_from
        self.add(indent, f"x, = {unpack}(b, p)", f"p += {layout.size}")
        self.add(indent, *(f"x = {text}" for text in _conversion(kind, "x")))

    def tags(self, fields: list[MessageField]) -> None:
        """Generate the reading of tagged fields; tags must ascend, so there are no duplicates."""
        for field in fields:
            self.names[f"d_{field.name}"] = field.default
            self.add(1, f"v_{field.name} = d_{field.name}")
        self.add(1, "k = b[p]", "p += 1", "if k:")
        if not fields:
            self.add(2, "p = skip_tags(b, p - 1, n)")
            return
        # The count needs no check: a tag takes two bytes or more, so the loop ends with the bytes.
        self.add(2, "count, p = uvarint(b, p - 1)", "last = -1")
        self.add(2, "for _ in range(count):")
        self.add(3, "tag, p = uvarint(b, p)", "size, p = uvarint(b, p)", "tag_end = p + size")
        self.add(
            3,
            "if tag_end > n:",
            '    raise Malformed(f"tag {tag} ends after the end of the message")',
        )
        self.add(3, "if tag <= last:", '    raise Malformed(f"tag {tag} after tag {last}")')
        self.add(3, "last = tag")
        for index, field in enumerate(fields):
            self.add(3, f"{'el' if index else ''}if tag == {field.tag}:")
            self.source.owner = (field.name, False)
            self.tagged(4, field)
            text = f'raise Malformed(f"tag {field.tag} ends at {{p}}, not at {{tag_end}}")'
            self.add(4, "if p != tag_end:", f"    {text}")
            self.source.owner = ("tags", False)
        self.add(3, "else:", "    p = tag_end")

    def tagged(self, indent: int, field: MessageField) -> None:
        if field.is_fixed:
            self.fixed_element(indent, field.kafka_type or "")
            self.add(indent, f"v_{field.name} = x")
        else:
            self.variable(indent, field)


def _converted(field: MessageField) -> Iterable[str]:
    name = f"v_{field.name}"
    conversion = _conversion(field.kafka_type or "", name)
    if field.kafka_type == "datetime_i64" and field.nullable:
        conversion = [f"None if {name} == -1 else {conversion[0]}"]
    if field.kafka_type == "uuid" and not field.nullable:
        # `_uuid` returns None for the zero id, as the classes with a nullable field expect it.
        conversion = [f"{conversion[0]} or ZERO_UUID"]
    return [f"{name} = {text}" for text in conversion]


def _conversion(kind: str, name: str) -> list[str]:
    """Return the expression that converts struct's value to kio's; [] if both are the same."""
    match kind:
        case "uuid":
            return [f"topic_uuid({name})"]
        case "error_code":
            return [f"error_codes({name}, {name})"]
        case "timedelta_i32" | "timedelta_i64":
            return [f"milliseconds({name})"]
        case "datetime_i64":
            return [f"EPOCH + timedelta(milliseconds={name})"]
    return []


def _smallest(field: MessageField) -> int:
    """Return the least number of bytes of a field that is no tag."""
    if field.is_fixed:
        return Struct(">" + FIXED_FORMATS[field.kafka_type or ""]).size
    if field.is_array or field.kafka_type is not None:
        if field.compact:
            return 1
        return 2 if field.kafka_type == "string" and not field.is_array else 4
    assert field.entity is not None
    return 1 if field.nullable else smallest_bytes(field.entity)


def _smallest_element(field: MessageField) -> int:
    if field.entity is not None:
        # At least 1: any count would pass the check if elements took no bytes.
        return max(1, smallest_bytes(field.entity))
    if field.kafka_type in FIXED_FORMATS:
        return Struct(">" + FIXED_FORMATS[field.kafka_type]).size
    if field.compact:
        return 1
    return 2 if field.kafka_type == "string" else 4


def _uvarint(b: Any, p: int) -> tuple[int, int]:
    """Return the unsigned varint of at most 32 bits at p, and the position after it."""
    # Unrolled, because nearly all of these numbers take one byte or two.
    if (first := b[p]) < 0x80:
        return first, p + 1
    if (second := b[p + 1]) < 0x80:
        return first & 0x7F | second << 7, p + 2
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = b[p + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 2**32:
                break
            return value, p + index + 1
    raise Malformed("expected a varint of at most 32 bits")


def skip_tags(b: Any, p: int, n: int) -> int:
    """Return the position after the tagged fields at p, which are all unknown."""
    if b[p] == 0:
        return p + 1  # The usual case: no tagged fields.
    # The count needs no check: a tag takes two bytes or more, so the loop ends with the bytes.
    count, p = _uvarint(b, p)
    last = -1
    for _ in range(count):
        tag, p = _uvarint(b, p)
        size, p = _uvarint(b, p)
        if p + size > n:
            raise Malformed(f"tag {tag} ends after the end of the message")
        if tag <= last:
            raise Malformed(f"tag {tag} after tag {last}")
        last = tag
        p += size
    return p


@lru_cache(maxsize=4096)
def _uuid(raw: bytes) -> UUID | None:
    """Return the UUID, None for the zero id; cached, because few topic ids occur often."""
    return None if raw == _ZERO_UUID else interned_uuid(raw)


@lru_cache(maxsize=4096)
def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


ELEMENTS_MAX = 1_000_000
"""Number of array elements of one message, with those of nested arrays; 32 int8 count as one."""

SMALL_BYTES = 16 * 1024
"""Size up to which buffers are first copied to bytes, because slices of bytes decode faster."""

Message = TypeVar("Message")
Buffer = bytes | bytearray | memoryview
Records = Callable[[Buffer], Any]
"""The type made of slices of records: ``bytes``, ``bytearray``, or ``memoryview`` (no copy)."""


DECODING_ERRORS = (Malformed, struct.error, IndexError, UnicodeDecodeError, OverflowError)


class DecodeError(Exception):
    """The bytes are no such message; the text has field, position and what was expected."""


def decode(
    cls: type[Message],
    buffer: Buffer,
    position: int = 0,
    *,
    records: Records = bytes,
    elements_max: int = ELEMENTS_MAX,
) -> tuple[Message, int]:
    """Return the message that starts at ``position``, and the position after it."""
    size = len(buffer)
    assert 0 <= position <= size
    read = _readers.get((cls, records)) or _compiled(cls, records)
    if type(buffer) is memoryview and size <= SMALL_BYTES:
        buffer = bytes(buffer)
    try:
        # The budget is a list, because the functions of all nested structs count down one number.
        message, end = read(buffer, position, size, [elements_max])
    except DECODING_ERRORS as error:
        raise DecodeError(_explain(cls, error)) from None
    return message, end


def decode_steps(
    cls: type[Message],
    buffer: Buffer,
    position: int = 0,
    *,
    records: Records = bytes,
    elements_max: int = ELEMENTS_MAX,
) -> Steps[Message]:
    """Return the message that starts at ``position``, in steps."""
    assert 0 <= position <= len(buffer)
    read = _step_readers.get((cls, records)) or _compiled(cls, records, in_steps=True)
    try:
        message, _ = yield from read(buffer, position, len(buffer), [elements_max])
    except DECODING_ERRORS as error:
        raise DecodeError(_explain(cls, error)) from None
    return message  # type: ignore[no-any-return]  # The compiled function is untyped.


def prepare(cls: type[Any], *, records: Records = bytes) -> None:
    """Compile the decoder now, so the first message of this class need not wait for it."""
    _compiled(cls, records)


Read = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
"""A compiled function: (buffer, position, end, [elements left]) to message and position."""

_readers: dict[tuple[type[Any], Records], Read] = {}

ReadSteps = Callable[[Buffer, int, int, list[int]], Steps[tuple[Any, int]]]

_step_readers: dict[tuple[type[Any], Records], ReadSteps] = {}


def _compiled(cls: type[Any], records: Records, *, in_steps: bool = False) -> Any:
    """Return the function that reads ``cls``, or does it in steps; compile it on first use."""
    readers: dict[Any, Any] = _step_readers if in_steps else _readers
    known = readers.get((cls, records))
    if known is not None:
        return known
    function = _DecoderSource(cls, in_steps=in_steps)
    function.build()
    function.names["records_of"] = records
    for field in message_fields(cls):
        if field.entity is not None:
            # Ends, because no struct of Kafka's schemas contains itself.  A struct without arrays
            # has a limited length, so a generator for each would only cost time.
            function.names[f"read_{field.name}"] = _compiled(
                field.entity, records, in_steps=in_steps and has_arrays(field.entity)
            )
    title = f"decoder{' in steps' * in_steps} of {cls.__module__}.{cls.__qualname__}"
    read = function.source.compiled("read", title, function.names)
    readers[cls, records] = read
    return read


def _explain(cls: type[Any], error: Exception) -> str:
    path, position = failed_field(error.__traceback__)
    match error:
        case Malformed():
            problem = str(error)
        case UnicodeDecodeError():
            problem = "expected UTF-8"
        case OverflowError():
            problem = "time out of range"
        case _:
            problem = "expected more bytes, the message ends"
    return f"{cls.__name__}.{path} at byte {position}: {problem}"
