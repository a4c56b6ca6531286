"""The keywords of JSON Schema: what they apply to, and the values that they may have.

A registry refuses a schema with a wrong value of a keyword that its draft has.  A keyword that it
does not have may have any value, and validators ignore it.  `SOUND` tells a value that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeGuard

ANNOTATIONS = frozenset(
    {
        "$anchor", "$comment", "$defs", "$id", "$schema", "$vocabulary", "contentEncoding",
        "contentMediaType", "contentSchema", "default", "definitions", "deprecated", "description",
        "examples", "format", "id", "readOnly", "title", "writeOnly",
    }
)  # fmt: skip
"""Keywords that make no document invalid; validators check ``format`` only on request."""

TYPES = frozenset({"array", "boolean", "null", "number", "object", "string"})
TYPE_NAMES = TYPES | {"integer"}

UPPER_LIMITS = {
    "maximum": "number",
    "exclusiveMaximum": "number",
    "maxLength": "string",
    "maxItems": "array",
    "maxProperties": "object",
}
"""Keywords that may only grow, and the type that they apply to."""
LOWER_LIMITS = {
    "minimum": "number",
    "exclusiveMinimum": "number",
    "minLength": "string",
    "minItems": "array",
    "minProperties": "object",
}
"""Keywords that may only shrink, and the type that they apply to."""
COUNTS = frozenset({"minLength", "minItems", "minProperties"})
"""Lower limits whose value 0 is the same as none."""

OTHER_TYPED = {
    "additionalItems": "array", "additionalProperties": "object", "contains": "array",
    "dependencies": "object", "dependentRequired": "object", "dependentSchemas": "object",
    "items": "array", "maxContains": "array", "minContains": "array", "multipleOf": "number",
    "pattern": "string", "patternProperties": "object", "prefixItems": "array",
    "properties": "object", "propertyNames": "object", "required": "object",
    "unevaluatedItems": "array", "unevaluatedProperties": "object", "uniqueItems": "array",
}  # fmt: skip
"""Other keywords that only apply to documents of one type."""
TYPE_OF_KEYWORD = {**UPPER_LIMITS, **LOWER_LIMITS, **OTHER_TYPED}


def is_schema(value: Any) -> TypeGuard[dict[str, Any] | bool]:
    """Return whether a value may be a schema: an object or a boolean."""
    return isinstance(value, dict | bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)  # Also the flags beside a limit, in draft 4.


def _is_list_of_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_schema, value))


def is_schema_or_list(value: Any) -> bool:
    return is_schema(value) or _is_list_of_schemas(value)


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_schema, value.values()))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _are_names(names) and TYPE_NAMES.issuperset(names)


def _is_divisor(value: Any) -> bool:
    return _is_number(value) and not isinstance(value, bool) and 0 < value < inf


def _are_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _are_names(needed) or not isinstance(needed, list) for needed in value.values()
    )


SOUND: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys([*UPPER_LIMITS, *LOWER_LIMITS], _is_number),
    "additionalItems": is_schema,
    "additionalProperties": is_schema,
    "allOf": _is_list_of_schemas,
    "anyOf": _is_list_of_schemas,
    "dependencies": _are_dependencies,
    "dependentRequired": _are_dependencies,
    "enum": lambda value: isinstance(value, list),
    "items": is_schema_or_list,
    "multipleOf": _is_divisor,
    "oneOf": _is_list_of_schemas,
    "patternProperties": _are_named_schemas,
    "prefixItems": _is_list_of_schemas,
    "properties": _are_named_schemas,
    "required": _are_names,
    "type": _are_types,
}
"""Whether the value of a keyword has the type that its comparison needs."""

TOGETHER = (
    frozenset({"properties", "patternProperties", "additionalProperties"}),
    frozenset({"items", "prefixItems", "additionalItems"}),
    frozenset({"if", "then", "else"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"minimum", "exclusiveMinimum"}),
    frozenset({"maximum", "exclusiveMaximum"}),
)
"""Keywords whose meaning depends on each other, in some draft."""
