"""Decodes values of one schema to Python objects: Avro and JSON; `protobuf` decodes the third kind.

A value begins with a zero byte and the id of its schema, in four bytes, as the serializers of
Confluent's registry write it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
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


def avro_decode(schema: FetchedSchema, reader_schema: str | None) -> Decode:
    """Return the function that decodes Avro values, as ``reader_schema`` if there is one."""
    # Imported here, because this library is optional.
    from fastavro import parse_schema, schemaless_reader

    named: dict[str, Any] = {}
    _parse_references(schema, named)
    writer = parse_schema(json.loads(schema.text), named_schemas=named)
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
