"""The types of schemas, JSON Schemas among them, and the compatibility levels."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sharegroup.testing.registry.avro_schema import parse_avro
from sharegroup.testing.registry.errors import InvalidCompatibility, InvalidSchema, library_missing
from sharegroup.testing.registry.json_compatibility import Documents, narrowed, qualified
from sharegroup.testing.registry.protobuf_schema import parse_protobuf
from sharegroup.testing.registry.schema_texts import ParsedSchema, Resolved

# JSON Schemas are checked against their own metaschema by the jsonschema library.


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A valid JSON Schema."""

    text: str
    identity: str
    documents: Documents
    """The schema with the schemas that it refers to."""

    def normalized(self) -> JsonSchema:
        """Return the schema with its keywords in alphabetical order."""
        text = json.dumps(self.documents.root, separators=(",", ":"), sort_keys=True)
        return JsonSchema(text, text, self.documents)

    def formatted(self, form: str) -> str:  # noqa: ARG002  JSON Schemas have one form.
        """Return the text."""
        return self.text

    def unreadable(self, written: ParsedSchema) -> list[str]:
        """Return the reasons why documents of the other schema are not valid for this one."""
        assert isinstance(written, JsonSchema)
        return narrowed(written.documents, self.documents)


def parse_json_schema(text: str, references: Sequence[Resolved]) -> JsonSchema:
    """Parse a JSON Schema; ``$ref`` to other documents use the names of the references."""
    try:
        # Imported here, because this library is optional.
        from jsonschema import Draft7Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise library_missing("JSON", error) from error
    try:
        definition = json.loads(text)
        if not isinstance(definition, dict | bool):
            raise InvalidSchema(
                f"expected a JSON Schema, that is an object or a boolean; found {text[:80]!r}"
            )
        documents = Documents(definition, _by_name(references))
        if isinstance(definition, dict):
            if not isinstance(draft := definition.get("$schema", ""), str):
                raise InvalidSchema(f"$schema: expected a URI, found {json.dumps(draft)[:80]}")
            check = validator_for(definition, default=Draft7Validator).check_schema
            check(definition)
            # They may be where the draft has no schemas, so they were not checked. Named as
            # properties, which every draft has, all of them take one check.
            check({"properties": documents.targets()})
    # OverflowError: a regular expression with a number of repetitions beyond Python's limit.
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidSchema(f"expected a JSON Schema: {error}") from error
    except SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path) or "the top"
        raise InvalidSchema(f"expected a JSON Schema: at {place}: {error.message}") from error
    compact = json.dumps(definition, separators=(",", ":"))
    return JsonSchema(compact, compact, documents)


def _by_name(references: Sequence[Resolved]) -> dict[str, Any]:
    """Return the referenced documents, also of references of references."""
    documents: dict[str, Any] = {}
    for reference in references:
        assert isinstance(reference.schema, JsonSchema)
        documents |= reference.schema.documents.others
        documents[reference.name] = qualified(reference.schema.documents.root, reference.name)
    return documents


AVRO = "AVRO"
PARSERS: dict[str, Callable[[str, Sequence[Resolved]], ParsedSchema]] = {
    "JSON": parse_json_schema,
    "PROTOBUF": parse_protobuf,
    AVRO: parse_avro,
}
"""The types of schemas."""


class Compatibility(StrEnum):
    """What a new schema of a subject has to be compatible with."""

    NONE = "NONE"
    """Nothing is compared."""
    BACKWARD = "BACKWARD"
    """The new schema reads data of the latest version."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    """The new schema reads data of all versions."""
    FORWARD = "FORWARD"
    """The latest version reads data of the new schema."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    """All versions read data of the new schema."""
    FULL = "FULL"
    """Both backward and forward."""
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    """Both backward and forward, with all versions."""

    @classmethod
    def of(cls, name: object) -> Compatibility:
        """Return a level by its name; raises InvalidCompatibility for another name."""
        try:
            return cls(str(name).upper())
        except ValueError:
            raise InvalidCompatibility(
                f"compatibility {name!r}: expected one of {', '.join(cls)}"
            ) from None


def parse(schema_type: str, text: str, references: Sequence[Resolved]) -> ParsedSchema:
    """Parse a schema; raises InvalidSchema if it is not valid."""
    parser = PARSERS.get(schema_type)
    if parser is None:
        raise InvalidSchema(f"schemaType {schema_type!r}: expected one of {', '.join(PARSERS)}")
    try:
        return parser(text, references)
    except RecursionError as error:
        raise InvalidSchema("the schema, or its references, are nested too deeply") from error


def incompatibilities(
    level: Compatibility, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]]
) -> list[str]:
    """Return why a new schema breaks a level; ``earlier`` has the versions, the oldest first."""
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    reasons: list[str] = []
    for version, old in compared:
        if type(old) is not type(new):
            if level is not Compatibility.NONE:
                reasons.append(f"version {version} is a schema of another type")
            continue
        if level.startswith(("BACKWARD", "FULL")):
            reasons += (f"cannot read version {version}: {r}" for r in new.unreadable(old))
        if level.startswith(("FORWARD", "FULL")):
            reasons += (f"version {version} cannot read it: {r}" for r in old.unreadable(new))
    return reasons
