"""Avro schemas: parsed and compared by Apache Avro's own library.

Schemas are compared by Avro's rules of schema resolution.  Logical types take no part in it and
are removed before parsing, because the library reports unknown ones as Python warnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.testing.registry.errors import InvalidSchema, library_missing
from sharegroup.testing.registry.schema_texts import ParsedSchema, Resolved

PRIMITIVE_DEFAULTS: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "bytes": str,
    "string": str,
    "fixed": str,
}
"""The types of JSON values that are valid as the default of a field."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A valid Avro schema."""

    text: str
    identity: str
    parsed: Any
    """The schema as an object of the library."""
    definition: Any
    """The schema as JSON."""
    references: tuple[Resolved, ...]

    def normalized(self) -> AvroSchema:
        """Return the schema with its attributes in alphabetical order."""
        return AvroSchema(
            self.identity, self.identity, self.parsed, self.definition, self.references
        )

    def formatted(self, form: str) -> str:
        """Return the text; the form "resolved" has the referenced types in it."""
        if form != "resolved":
            return self.text
        return json.dumps(self.parsed.to_json(), separators=(",", ":"))

    def unreadable(self, written: ParsedSchema) -> list[str]:
        """Return the reasons why this schema cannot read data of the other one."""
        assert isinstance(written, AvroSchema)
        # Imported here, because this library is optional; it was present for parsing.
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

        result = ReaderWriterCompatibilityChecker().get_compatibility(self.parsed, written.parsed)
        if result.compatibility is not SchemaCompatibilityType.incompatible:
            return []
        kinds = ", ".join(sorted({kind.name.upper() for kind in result.incompatibilities}))
        places = ", ".join(sorted(result.locations))
        reasons = "; ".join(sorted(str(message) for message in result.messages))
        return [f"{kinds} at {places}: {reasons}"]


def parse_avro(text: str, references: Sequence[Resolved]) -> AvroSchema:
    """Parse an Avro schema whose named types may be defined in the references."""
    try:
        # Imported here, because this library is optional.
        import avro.errors
        import avro.name
        import avro.schema
    except ImportError as error:
        raise library_missing("Avro", error) from error
    try:
        definition = _simplified(json.loads(text))
        names = avro.name.Names(validate_names=True)
        for reference in _in_order_of_use(references):
            avro.schema.make_avsc_object(_without_logical_types(reference.definition), names)
        parsed = avro.schema.make_avsc_object(_without_logical_types(definition), names)
        problems = list(_wrong_defaults(parsed, set()))
    except (ValueError, avro.errors.AvroException, RecursionError, TypeError) as error:
        raise InvalidSchema(f"expected an Avro schema: {_first_line(error)}") from error
    except (AttributeError, KeyError) as error:
        # The library looks into a value before it knows that this has the expected type.
        raise InvalidSchema(f"expected an Avro schema: {error!r}") from error
    if problems:
        raise InvalidSchema("; ".join(problems))
    return AvroSchema(
        text=json.dumps(definition, separators=(",", ":")),
        identity=json.dumps(definition, separators=(",", ":"), sort_keys=True),
        parsed=parsed,
        definition=definition,
        references=tuple(references),
    )


def _in_order_of_use(references: Sequence[Resolved]) -> Iterator[AvroSchema]:
    """Yield the referenced schemas, each once and after the schemas that it uses itself."""
    known: set[str] = set()

    def walk(resolved: Sequence[Resolved]) -> Iterator[AvroSchema]:
        for reference in resolved:
            schema = reference.schema
            assert isinstance(schema, AvroSchema)
            yield from walk(schema.references)
            if schema.identity not in known:
                known.add(schema.identity)
                yield schema

    return walk(references)


def _simplified(schema: Any) -> Any:
    """Return the definition with ``"int"`` for ``{"type": "int"}``, as Avro's Java library does."""
    if isinstance(schema, list):
        return [_simplified(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    simple = {
        key: _simplified(value) if key in ("type", "items", "values") else value
        for key, value in schema.items()
    }
    fields = schema.get("fields")
    if isinstance(fields, list):
        simple["fields"] = [
            {**field, "type": _simplified(field["type"])}
            if isinstance(field, dict) and "type" in field
            else field
            for field in fields
        ]
    return simple["type"] if list(simple) == ["type"] else simple


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        # A default is data, where the name ``logicalType`` may stand for a field.
        key: value if key == "default" else _without_logical_types(value)
        for key, value in schema.items()
        if key != "logicalType"
    }


def _wrong_defaults(schema: Any, seen: set[int]) -> Iterator[str]:
    """Yield a problem for each default value that is not valid for its field."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    for inner in _inner_schemas(schema):
        yield from _wrong_defaults(inner, seen)
    if schema.type not in ("record", "error"):
        return
    for field in schema.fields:
        yield from _wrong_defaults(field.type, seen)
        if field.has_default and not _is_default(field.type, field.default):
            yield (
                f"record {schema.fullname}, field {field.name}: the default "
                f"{json.dumps(field.default)} is not valid for the type {field.type.type}"
            )


def _inner_schemas(schema: Any) -> list[Any]:
    if schema.type == "array":
        return [schema.items]
    if schema.type == "map":
        return [schema.values]
    return list(schema.schemas) if schema.type == "union" else []


def _is_default(schema: Any, default: Any) -> bool:
    """Return whether a JSON value is valid as the default of a field of this type.

    The default of a union may be of any branch, as since Avro 1.12.
    """
    if schema.type == "union":
        return any(_is_default(branch, default) for branch in schema.schemas)
    if schema.type == "array":
        return isinstance(default, list) and all(_is_default(schema.items, v) for v in default)
    if schema.type == "map":
        return isinstance(default, dict) and all(
            _is_default(schema.values, value) for value in default.values()
        )
    if schema.type == "enum":
        return default in schema.symbols
    if schema.type in ("record", "error"):
        return isinstance(default, dict) and all(
            field.has_default
            if field.name not in default
            else _is_default(field.type, default[field.name])
            for field in schema.fields
        )
    expected = PRIMITIVE_DEFAULTS[schema.type]
    return isinstance(default, expected) and (
        schema.type == "boolean" or not isinstance(default, bool)
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
