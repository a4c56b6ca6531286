"""Decodes values of one schema to Python objects: JSON and Protobuf; Avro is in `avro_values`.

A value begins with a zero byte and the id of its schema, in four bytes, as the serializers of
Confluent's registry write it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from importlib import import_module
from typing import Any, NamedTuple

MAGIC = 0
PREFIX_BYTES = 5

Decode = Callable[[bytes], Any]
"""Decodes a value without its prefix.  It may raise any exception for bytes of another form."""


class UnreadableValue(Exception):
    """A value cannot be decoded; the text says why, for the column ``error``."""


class FetchedSchema(NamedTuple):
    """A schema as the registry has it, with the schemas that it refers to."""

    text: str
    references: Mapping[str, FetchedSchema]
    """By their names: a full name in Avro, an import path in Protobuf."""


def schema_id_of(value: bytes) -> int:
    """Return the id of the schema of a value; UnreadableValue if it does not begin with one."""
    if len(value) < PREFIX_BYTES or value[0] != MAGIC:
        raise UnreadableValue(
            f"expected a zero byte and a schema id, found {len(value)} bytes: "
            f"{value[:PREFIX_BYTES].hex(' ')}"
        )
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def json_decode(payload: bytes) -> Any:
    """Decode a JSON value.  The column's type, not the JSON schema, decides what is valid."""
    return json.loads(payload)


# Protobuf values, with the descriptors that the registry has of their files.
#
# No generated classes are needed: the registry is asked for descriptors instead of ``.proto``
# files. A schema is data of the user who registered it, so the paths of its imports never name a
# Python module, except for Google's own files (`WELL_KNOWN`). Between the prefix and the message a
# value has the index of its message type in the file, as a path through nested types; a single
# zero stands for the first type.


WELL_KNOWN = re.compile(r"(google/(?:api|protobuf|rpc|type)/[a-z0-9_]+)\.proto")
"""Files of Google's packages protobuf and googleapis-common-protos, whose modules may be imported.
The modules only register descriptors."""

INDEX_DEPTH_MAX = 100
PATH_CHARACTERS_MAX = 200
VARINT_BYTES_MAX = 5
LONG_VARINT_BYTES_MAX = 10
MESSAGE_FIELDS_MAX = 1_000_000
"""Fields of all messages of a value, also those that are absent.  Two bytes are a message with all
fields of its type, and a field takes about half a microsecond."""
FIELDS_PER_BYTE_MAX = 4
"""Further fields for each byte of a value."""
PARSED_FIELDS_MAX = 50_000_000
"""Fields that the library may have room for: some eight bytes each.  If a value could have more,
its fields are counted before it is parsed."""
MESSAGE_DEPTH_MAX = 100
"""Messages within each other, which is the limit of the library."""
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in (
        *("Bool", "Bytes", "Double", "Float"),
        *("Int32", "Int64", "String", "UInt32", "UInt64"),
    )
)
"""Messages that only make a value nullable."""


def protobuf_decode(schema: FetchedSchema) -> Decode:
    """Return the function that decodes Protobuf values with this descriptor."""
    # Imported here, because this library is optional.
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    file = _added(pool, "main.proto", schema, set())
    classes: dict[tuple[int, ...], tuple[Any, int]] = {}

    def decode(payload: bytes) -> Any:
        path, start = _message_path(payload)
        if path not in classes:
            kind = _message_type(file, path)
            classes[path] = message_factory.GetMessageClass(kind), _widest(kind)
        make, widest = classes[path]
        encoded = payload[start:]
        if len(encoded) // 2 * widest > PARSED_FIELDS_MAX:
            _FieldCount(len(encoded)).count(make.DESCRIPTOR, encoded, 0)
        message = make()
        message.ParseFromString(encoded)
        return _Fields(len(encoded)).of(message)

    return decode


def _added(pool: Any, path: str, schema: FetchedSchema, known: set[str]) -> Any:
    """Add the file of a schema and all files that it imports to the pool; returns the file."""
    # Imported here, because this library is optional.
    from google.protobuf import descriptor_pb2

    known.add(path)
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
    file.name = path
    _add_imports(pool, file.dependency, schema.references, known)
    pool.Add(file)
    return pool.FindFileByName(path)


def _add_imports(
    pool: Any, paths: Any, references: Mapping[str, FetchedSchema], known: set[str]
) -> None:
    for path in paths:
        if path in known:
            continue
        if path in references:
            _added(pool, path, references[path], known)
            continue
        known.add(path)
        file = _built_in(path)
        _add_imports(pool, file.dependency, {}, known)
        pool.Add(file)


def _built_in(path: str) -> Any:
    """Return a file that libraries bring along, such as ``google/protobuf/timestamp.proto``."""
    # Imported here, because this library is optional.
    from google.protobuf import descriptor_pb2, descriptor_pool

    if (well_known := WELL_KNOWN.fullmatch(path)) is not None:
        with suppress(ModuleNotFoundError):
            import_module(well_known[1].replace("/", ".") + "_pb2")
    try:
        # It also has the files of modules that the application has imported itself.
        found = descriptor_pool.Default().FindFileByName(path)
    except KeyError as error:
        raise UnreadableValue(
            f"the schema imports {path[:PATH_CHARACTERS_MAX]!r}, which is neither a reference in "
            "the registry nor a well-known file of Google's packages; add the reference to the "
            "schema, or import the file's module on the executors"
        ) from error
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    return file


def _message_path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path to the message type in its file, and where the message begins."""
    count, position = _zigzag(payload, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEX_DEPTH_MAX:
        raise UnreadableValue(f"expected a path of up to {INDEX_DEPTH_MAX} indexes, found {count}")
    path = []
    for _ in range(count):
        index, position = _zigzag(payload, position)
        path.append(index)
    return tuple(path), position


def _zigzag(payload: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(VARINT_BYTES_MAX):
        if position + shift >= len(payload):
            break
        byte = payload[position + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + shift + 1
    raise UnreadableValue("the index of the message type is cut off or too large")


def _message_type(file: Any, path: tuple[int, ...]) -> Any:
    types = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(types):
            raise UnreadableValue(f"the schema has no message type at {list(path)}")
        found = types[index]
        types = list(found.nested_types)
    return found


def _widest(kind: Any) -> int:
    """Return the number of fields of the largest type in a message."""
    seen, open_kinds, widest = {kind.full_name}, [kind], 0
    while open_kinds:
        fields = open_kinds.pop().fields
        widest = max(widest, len(fields))
        for field in fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                open_kinds.append(inner)
    return widest


class _FieldCount:
    """Counts the fields of the messages of a value, also those that are absent."""

    __slots__ = ("_left",)

    def __init__(self, size: int) -> None:
        self._left = MESSAGE_FIELDS_MAX + FIELDS_PER_BYTE_MAX * size

    def add(self, descriptor: Any) -> None:
        """Count the fields of a message; UnreadableValue if there are too many."""
        self._left -= len(descriptor.fields)
        if self._left < 0:
            raise UnreadableValue(
                f"expected up to {MESSAGE_FIELDS_MAX} fields and {FIELDS_PER_BYTE_MAX} for each "
                "byte, with those that are absent, found more"
            )

    def count(self, descriptor: Any, encoded: bytes | memoryview, depth: int) -> None:
        """Count the fields of a message that is not parsed yet, and of those in it."""
        if depth > MESSAGE_DEPTH_MAX:
            raise UnreadableValue(f"expected messages up to {MESSAGE_DEPTH_MAX} deep")
        self.add(descriptor)
        view = memoryview(encoded)
        position = 0
        while position < len(view):
            tag, position = _varint(view, position)
            match tag & 7:
                case 0:
                    _, position = _varint(view, position)
                case 1:
                    position += 8
                case 5:
                    position += 4
                case 2:
                    size, position = _varint(view, position)
                    field = descriptor.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        inner = view[position : position + size]
                        self.count(field.message_type, inner, depth + 1)
                    position += size
                case other:
                    raise UnreadableValue(
                        f"a value of {len(view)} bytes has a field of the wire type {other}; "
                        "groups are read only in small values"
                    )


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(view[position : position + LONG_VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, position + shift + 1
    raise UnreadableValue("a number of the message is cut off or too large")


class _Fields:
    """Converts the messages of one value to dictionaries."""

    __slots__ = ("_count",)

    def __init__(self, size: int) -> None:
        self._count = _FieldCount(size)

    def of(self, message: Any) -> Any:
        """Return a message as a dictionary; times and wrapped values as plain values."""
        descriptor = message.DESCRIPTOR
        name = descriptor.full_name
        if name == "google.protobuf.Timestamp":
            return message.ToDatetime(tzinfo=UTC)
        if name in WRAPPERS:
            return message.value
        self._count.add(descriptor)
        return {field.name: self._field(message, field) for field in descriptor.fields}

    def _field(self, message: Any, field: Any) -> Any:
        if field.has_presence and not message.HasField(field.name):
            return None
        content = getattr(message, field.name)
        if not field.is_repeated:
            return self._value(field, content)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            return {key: self._value(value_field, content[key]) for key in content}
        return [self._value(field, element) for element in content]

    def _value(self, field: Any, content: Any) -> Any:
        if field.enum_type is not None:
            number = field.enum_type.values_by_number.get(content)
            return str(content) if number is None else number.name
        return content if field.message_type is None else self.of(content)
