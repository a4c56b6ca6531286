"""Decodes values of one schema to Python objects: Avro, JSON and Protobuf.

A value begins with a zero byte and the id of its schema, in four bytes, as the serializers of
Confluent's registry write it.
"""

from __future__ import annotations

import base64
import io
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


CheckAvro = Callable[[Any, Mapping[str, Any]], None]
"""Raises UnreadableValue for an Avro schema that must not be used; its named types are given."""


def avro_decode(
    schema: FetchedSchema, reader_schema: str | None, check: CheckAvro | None = None
) -> Decode:
    """Return the function that decodes Avro values, as ``reader_schema`` if there is one."""
    # Imported here, because this library is optional.
    from fastavro import parse_schema, schemaless_reader

    named: dict[str, Any] = {}
    _parse_references(schema, named)
    writer = parse_schema(json.loads(schema.text), named_schemas=named)
    if check is not None:
        check(writer, named)
    reader = None if reader_schema is None else parse_schema(json.loads(reader_schema))

    def decode(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        decoded = schemaless_reader(stream, writer, reader)
        # Bytes of another schema may decode by chance; what is left over shows it.
        if rest := len(payload) - stream.tell():
            raise UnreadableValue(f"{rest} bytes are left after the record")
        return decoded

    return decode


def _parse_references(schema: FetchedSchema, named: dict[str, Any]) -> None:
    """Add the schemas that a schema refers to, the innermost first."""
    # Imported here, because this library is optional.
    from fastavro import parse_schema

    for name, reference in schema.references.items():
        if name not in named:
            _parse_references(reference, named)
            parse_schema(json.loads(reference.text), named_schemas=named)


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
    classes: dict[tuple[int, ...], Any] = {}

    def decode(payload: bytes) -> Any:
        path, start = _message_path(payload)
        if path not in classes:
            classes[path] = message_factory.GetMessageClass(_message_type(file, path))
        message = classes[path]()
        message.ParseFromString(payload[start:])
        return _fields(message)

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


def _fields(message: Any) -> Any:
    """Return a message as a dictionary; times and wrapped values as plain values."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.ToDatetime(tzinfo=UTC)
    if name in WRAPPERS:
        return message.value
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    content = getattr(message, field.name)
    if not field.is_repeated:
        return _value(field, content)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        return {key: _value(value_field, content[key]) for key in content}
    return [_value(field, element) for element in content]


def _value(field: Any, content: Any) -> Any:
    if field.enum_type is not None:
        number = field.enum_type.values_by_number.get(content)
        return str(content) if number is None else number.name
    return content if field.message_type is None else _fields(content)
