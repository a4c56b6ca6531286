"""JSON schemas whose validation takes exponential time."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import ValidationError
from referencing import Registry

from sharegroup.worker.payloads.bounded_validator import BoundedValidator, TooManyEvaluations

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
EVALUATIONS = 1_000


def nested(levels: int, **around: Any) -> dict[str, Any]:
    """A schema that evaluates its innermost definition 2 ** levels times."""
    definitions: dict[str, Any] = {"0": {"type": "integer"}}
    for level in range(1, levels + 1):
        part = {**around, "allOf": [{"$ref": f"#/$defs/{level - 1}"}]}
        definitions[str(level)] = {"allOf": [part, part]}
    return {"$defs": definitions, "$ref": f"#/$defs/{levels}"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": DRAFT_2020, **nested(40)},
        {"$schema": DRAFT_2020, **nested(40), "unevaluatedProperties": False},
        nested(40, **{"$schema": DRAFT_7}),  # Each part names the draft that it is of.
    ],
)
def test_references_that_multiply_end_the_validation(schema: dict[str, Any]) -> None:
    validator = BoundedValidator(schema, Registry(), EVALUATIONS)
    for _ in range(2):  # Each value has all of them.
        with pytest.raises(TooManyEvaluations, match=r"nested \$ref"):
            validator.validate(1)


def test_values_are_validated_by_the_drafts_of_their_parts() -> None:
    old = {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}  # No keyword of later drafts.
    validator = BoundedValidator(
        {"$schema": DRAFT_2020, "properties": {"old": old, "new": nested(3)}, **nested(0)}
        | {"$defs": nested(3)["$defs"], "$ref": "#/properties/old"},
        Registry(),
        EVALUATIONS,
    )
    validator.validate({"a": 1, "b": 2, "old": {"b": 1}})
    for wrong in ({"a": 1}, {"old": {"a": 1}}, {"new": "a"}):
        with pytest.raises(ValidationError):
            validator.validate(wrong)
