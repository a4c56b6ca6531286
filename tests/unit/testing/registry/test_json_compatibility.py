"""Comparison of JSON Schemas: chosen pairs, and random ones checked with a validator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st
from jsonschema import Draft7Validator

from sharegroup.testing.registry.errors import InvalidSchema
from sharegroup.testing.registry.json_compatibility import (
    UNCOMPARED,
    Documents,
    narrowed,
    qualified,
)
from sharegroup.testing.registry.json_keywords import OTHER_TYPED, SOUND
from sharegroup.testing.registry.schema_types import parse_json_schema

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


def nested_trials(leaf: dict[str, Any], levels: int = 12) -> dict[str, Any]:
    """A schema whose branches each need the comparison of the next level again."""
    definitions: dict[str, Any] = {"0": leaf}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/definitions/{level - 1}"}
        definitions[str(level)] = {"anyOf": [{"allOf": [below]}, {"anyOf": [below]}]}
    return {"definitions": definitions, "$ref": f"#/definitions/{levels}"}


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
    "trials within trials": (
        nested_trials({"type": "string"}),
        nested_trials({"type": "integer"}),
        "the schemas are too complicated",
    ),
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


@pytest.mark.slow
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


@pytest.mark.parametrize("draft", ["2019-09", "2020-12"])
@pytest.mark.parametrize("place", ["beside the reference", "in its target"])
def test_all_of_beside_a_reference_and_in_its_target_is_compared(draft: str, place: str) -> None:
    def schema(target: int, sibling: int) -> dict[str, Any]:
        return {
            "$schema": f"https://json-schema.org/draft/{draft}/schema",
            "$ref": "#/$defs/a",
            "allOf": [{"maxLength": sibling}],
            "$defs": {"a": {"allOf": [{"maxLength": target}]}},
        }

    narrower = schema(5, 3) if place == "beside the reference" else schema(3, 5)
    assert narrowed(Documents(schema(5, 5)), Documents(narrower))
    assert not narrowed(Documents(narrower), Documents(schema(5, 5)))


DRAFTS = [
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
KEYWORDS = sorted({*SOUND, *OTHER_TYPED, *UNCOMPARED, "$defs", "$schema", "const", "x"})
PLACES = ["#", "#/x", "#/x/0", "#/$defs/a", "#/properties/a", "#/²"]
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats()
    | st.sampled_from(["a", "(", "string", "any", *PLACES, *DRAFTS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "0", "(", *KEYWORDS]), inner, max_size=3)
    ),
    max_leaves=6,
)
SCHEMAS = st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING, max_size=5)


def parsed(definition: Any) -> Any:
    """The parsed schema; None if it is refused."""
    try:
        return parse_json_schema(json.dumps(definition), ())
    except InvalidSchema:
        return None


@given(SCHEMAS, SCHEMAS, st.sampled_from([None, *DRAFTS]), st.sampled_from([None, *DRAFTS]))
def test_keyword_of_any_type_is_refused_or_compared(
    old: dict[str, Any], new: dict[str, Any], old_draft: str | None, new_draft: str | None
) -> None:
    for schema, draft in ((old, old_draft), (new, new_draft)):
        if draft is not None:
            schema["$schema"] = draft
    written, read = parsed(old), parsed(new)
    if written is not None and read is not None:
        assert isinstance(read.unreadable(written), list)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"$ref": "#/x", "x": 5}, r"\$ref #/x: 5 is not"),
        ({"$ref": "#/x", "x": [{}]}, r"\$ref #/x: "),
        ({"items": {"$ref": "#/title"}, "title": "t"}, r"\$ref #/title: 't' is not"),
        ({"$ref": "#/x", "x": {"properties": []}}, r"\$ref #/x/properties: \[\] is not"),
        ({"$ref": "#/x", "x": {"required": 5}}, r"\$ref #/x/required: 5 is not"),
        ({"$ref": "#/x", "x": {"enum": {}}}, r"\$ref #/x/enum: \{\} is not"),
        ({"$ref": 5}, "at \\$ref: 5 is not"),
        ({"properties": []}, "at properties: "),
        ({"required": 5}, "at required: "),
        ({"enum": {}}, "at enum: "),
        ({"$schema": 5}, r"\$schema: expected a URI, found 5"),
        ({"$schema": {}}, r"\$schema: expected a URI"),
    ],
    ids=str,
)
def test_schema_with_a_value_of_another_type_is_refused_with_its_place(
    definition: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse_json_schema(json.dumps(definition), ())


UNKNOWN_TO_THEIR_DRAFT = {
    "allOf in draft 3": (DRAFTS[0], {"allOf": 5}),
    "schemas as types, draft 3": (DRAFTS[0], {"type": ["string", {"type": "object"}]}),
    "any type, draft 3": (DRAFTS[0], {"type": "any"}),
    "required flag, draft 3": (DRAFTS[0], {"required": True}),
    "multipleOf in draft 3": (DRAFTS[0], {"multipleOf": "a"}),
    "multipleOf 0 in draft 3": (DRAFTS[0], {"multipleOf": 0}),
    "prefixItems in draft 7": (DRAFTS[3], {"prefixItems": 5}),
    "dependentRequired in draft 7": (DRAFTS[3], {"dependentRequired": {"a": [{}]}}),
    "additionalItems in 2020": (DRAFTS[5], {"additionalItems": 5}),
    "infinite divisor": (DRAFTS[3], {"multipleOf": float("inf")}),
}


@pytest.mark.parametrize("name", UNKNOWN_TO_THEIR_DRAFT)
def test_keyword_that_the_draft_does_not_have_does_not_count(name: str) -> None:
    draft, keywords = UNKNOWN_TO_THEIR_DRAFT[name]
    odd = parsed({"$schema": draft, **keywords})
    plain = parsed({"required": ["a"], "dependencies": {"a": ["b"]}, "multipleOf": 2})
    assert plain.unreadable(odd)
    assert odd.unreadable(plain) == []


@pytest.mark.parametrize("pattern", ["(", "\\p{Lu}", "a{99999999999}"])
def test_pattern_that_python_does_not_have_is_refused_or_named(pattern: str) -> None:
    """The metaschema of draft 4 does not look at patterns."""
    schema = {
        "properties": {"a": {"type": "string"}},
        "patternProperties": {pattern: {"type": "string"}},
    }
    assert parsed(schema) is None
    with_pattern = parsed({"$schema": DRAFTS[1], **schema})
    for other in (parsed({**schema, "patternProperties": {}}), with_pattern):
        (reason,) = with_pattern.unreadable(other)
        assert reason.startswith(f"the pattern {pattern!r} cannot be compared by this registry")
