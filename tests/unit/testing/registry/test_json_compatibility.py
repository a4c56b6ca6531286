"""Comparison of JSON Schemas: chosen pairs, and random ones checked with a validator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from sharegroup.testing.registry.json_compatibility import Documents, narrowed, qualified

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
TREE = {
    "definitions": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/definitions/node"}, "value": {"type": "integer"}},
        }
    },
    "$ref": "#/definitions/node",
}
WIDER_TREE = {
    "$defs": {
        "n": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/n"}, "value": {"type": "number"}},
        }
    },
    "$ref": "#/$defs/n",
}
MANY_BRANCHES = {
    "anyOf": [{"maximum": limit} for limit in range(150)],
    "oneOf": [{"minimum": limit} for limit in range(150)],
}


def with_property(schema: dict[str, Any], name: str, part: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], name: part}}


COMPATIBLE = {
    "the same": (OPEN, OPEN),
    "annotations": ({"type": "string"}, {"type": "string", "title": "T", "format": "date"}),
    "everything": (CLOSED, {}),
    "true": (CLOSED, True),
    "integers to numbers": ({"type": "integer"}, {"type": "number"}),
    "another type": ({"type": "string"}, {"type": ["string", "null"]}),
    "a larger limit": ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}),
    "a limit of another type": ({"type": "string"}, {"type": ["string", "number"], "maximum": 4}),
    "a removed limit": ({"minimum": 3}, {}),
    "minItems of 0": ({"type": "array"}, {"type": "array", "minItems": 0}),
    "a divisor": ({"multipleOf": 0.6}, {"multipleOf": 0.2}),
    "more values": ({"enum": ["a"]}, {"enum": ["b", "a"]}),
    "values to their type": ({"enum": ["a"]}, {"type": "string"}),
    "a constant to values": ({"const": 1}, {"enum": [1, 2]}),
    "an optional property, closed": (CLOSED, with_property(CLOSED, "b", {"type": "string"})),
    "a property of any value, open": (OPEN, with_property(OPEN, "b", {})),
    "a removed property, open": (with_property(OPEN, "b", {"type": "string"}), OPEN),
    "a removed requirement": ({**OPEN, "required": ["a"]}, OPEN),
    "a requirement with a default": (
        OPEN,
        {**with_property(OPEN, "a", {"type": "string", "default": ""}), "required": ["a"]},
    ),
    "a closed model opened": (CLOSED, OPEN),
    "a property in a pattern": (
        with_property(CLOSED, "x1", {"type": "integer"}),
        {**CLOSED, "patternProperties": {"^x": {"type": "number"}}},
    ),
    "items": ({"items": {"type": "integer"}}, {"items": {"type": "number"}}),
    "first items": (
        {"items": [{"type": "integer"}], "additionalItems": False},
        {"items": [{"type": "number"}, {"type": "string"}]},
    ),
    "one of several": ({"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
    "more branches": (
        {"oneOf": [{"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
    ),
    "branches to a type": (
        {"anyOf": [{"type": "null"}, {"const": "a"}]},
        {"type": ["null", "string"]},
    ),
    "a removed part": ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string"}),
    "the same parts": (
        {"allOf": [OPEN, {"properties": {"b": {"type": "string"}}}]},
        {"allOf": [{"properties": {"b": {"type": "string"}}}, OPEN]},
    ),
    "a removed not": ({"not": {"type": "string"}}, {}),
    "the same not": ({"not": {"type": "string"}}, {"not": {"type": "string"}}),
    "recursive": (TREE, WIDER_TREE),
    "recursive choices": (
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"oneOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": ["null", "string"]}]},
    ),
    "a dependency on a required property": (
        {"required": ["b"]},
        {"required": ["b"], "dependencies": {"a": ["b"]}},
    ),
    "fewer dependencies": (
        {"dependencies": {"a": ["b", "c"]}},
        {"dependencies": {"a": ["b"]}},
    ),
}  # fmt: skip

INCOMPATIBLE = {
    "nothing": ({}, False, "#: nothing is valid any more"),
    "numbers to integers": ({"type": "number"}, {"type": "integer"}, "#: numbers with a fraction"),
    "fewer types": ({"type": ["string", "null"]}, {"type": "string"}, "#: the type null"),
    "a new type": ({}, {"type": "boolean"}, "#: the type array, null, number, object, string"),
    "a smaller limit": ({"maxLength": 4}, {"maxLength": 3}, "#: maxLength changed from 4 to 3"),
    "a new limit": ({}, {"minimum": 0}, "#: minimum was added"),
    "another divisor": ({"multipleOf": 4}, {"multipleOf": 3}, "#: multipleOf changed"),
    "another pattern": ({"pattern": "a"}, {"pattern": "b"}, "#: the pattern 'b'"),
    "fewer values": ({"enum": ["a", "b"]}, {"enum": ["a"]}, '#: the value "b"'),
    "true for 1": ({"enum": [1]}, {"enum": [True]}, "#: the value 1"),
    "new values": ({"type": "string"}, {"enum": ["a"]}, "#: only certain values"),
    "a property, open": (
        OPEN,
        with_property(OPEN, "b", {"type": "string"}),
        "#/properties/b: the type array, boolean",
    ),
    "a removed property, closed": (
        with_property(CLOSED, "b", {"type": "string"}),
        CLOSED,
        "#/properties/b: nothing is valid",
    ),
    "a new required property": (
        CLOSED,
        {**with_property(CLOSED, "b", {}), "required": ["b"]},
        "#: the property b is required now and has no default",
    ),
    "an open model closed": (OPEN, CLOSED, "#/additionalProperties: nothing is valid"),
    "unique items": ({}, {"uniqueItems": True}, "#: items must be unique"),
    "items": ({"items": {"type": "number"}}, {"items": {"type": "string"}}, "#/items: the type"),
    "one branch less": (
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
        {"oneOf": [{"type": "null"}]},
        "#/oneOf: no branch",
    ),
    "a new part": ({}, {"allOf": [{"type": "string"}]}, "#/allOf/0: the type"),
    "a property that only a part allows": (
        {**OPEN, "allOf": [with_property(CLOSED, "b", {})]},
        with_property(OPEN, "b", False),
        "#/properties/b: nothing is valid",
    ),
    "a new not": ({}, {"not": {"type": "string"}}, "#: not is not the same"),
    "a new condition": ({}, {"if": {}, "then": False}, "#: if is not the same"),
    "recursive": (WIDER_TREE, TREE, "#/properties/next/properties/value: numbers with a fraction"),
    "an unknown reference": ({}, {"$ref": "other.json"}, "#: $ref is not the same"),
    "too many branches": (MANY_BRANCHES, {"type": "null"}, "the schemas are too complicated"),
}


@pytest.mark.parametrize("pair", COMPATIBLE.values(), ids=COMPATIBLE.keys())
def test_wider_schema_is_compatible(pair: tuple[Any, Any]) -> None:
    assert narrowed(Documents(pair[0]), Documents(pair[1])) == []


@pytest.mark.parametrize("case", INCOMPATIBLE.values(), ids=INCOMPATIBLE.keys())
def test_narrower_schema_is_refused_with_the_place(case: tuple[Any, Any, str]) -> None:
    old, new, reason = case
    reasons = narrowed(Documents(old), Documents(new))
    assert any(found.startswith(reason) for found in reasons), reasons


def test_references_inside_a_referenced_document_are_resolved_there() -> None:
    def documents(kind: str) -> Documents:
        other = {"definitions": {"x": {"type": kind}}, "items": {"$ref": "#/definitions/x"}}
        return Documents({"$ref": "other.json"}, {"other.json": qualified(other, "other.json")})

    assert narrowed(documents("integer"), documents("number")) == []
    assert narrowed(documents("number"), documents("integer")) == [
        "#/items: numbers with a fraction are not allowed any more"
    ]


def test_keywords_beside_a_reference_count_since_2019() -> None:
    plain = {"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s"}
    limited = {**plain, "maxLength": 3}
    assert narrowed(Documents(plain), Documents(limited)) == []
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    reasons = narrowed(Documents({**plain, **draft}), Documents({**limited, **draft}))
    assert reasons == ["#/allOf/0: maxLength was added"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([0.5, "", "a", "ab", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(inner, min_size=1, max_size=2)
    names = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.lists(
                st.sampled_from("array boolean integer null number object string".split()),
                min_size=1, max_size=3, unique=True,
            ),
            "enum": st.lists(values, min_size=1, max_size=3),
            "minimum": st.integers(-1, 2),
            "maxLength": st.integers(0, 2),
            "multipleOf": st.sampled_from([0.5, 1, 2]),
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
            "properties": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["a|c", "b"]), inner, max_size=1),
            # jsonschema 4.26 fails on `additionalItems` beside `items` as a boolean.
            "items": parts | inner.filter(lambda schema: isinstance(schema, dict)),
            "additionalItems": inner,
            "allOf": parts,
            "anyOf": parts,
            "not": inner,
            "minItems": st.integers(0, 2),
            "if": inner,
            "then": inner,
        },
    )  # fmt: skip


schemas = st.recursive(st.booleans() | st.just({}), combined, max_leaves=6)


@settings(max_examples=400, deadline=None)
@given(old=schemas, change=schemas, key=st.integers(0, 20), documents=st.lists(values, max_size=20))
def test_document_of_the_old_schema_is_valid_for_a_compatible_one(
    old: Any, change: Any, key: int, documents: list[Any]
) -> None:
    """The new schema is the old one with one keyword removed or taken from another schema."""
    assume(isinstance(old, dict) and old)
    name = sorted(old)[key % len(old)]
    new = {k: v for k, v in old.items() if k != name}
    if isinstance(change, dict) and name in change:
        new[name] = change[name]
    if narrowed(Documents(old), Documents(new)):
        return
    valid = [d for d in documents if Draft7Validator(old).is_valid(d)]
    assert [d for d in valid if not Draft7Validator(new).is_valid(d)] == []
