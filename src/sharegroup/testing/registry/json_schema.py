"""JSON Schemas: checked against their own metaschema by the jsonschema library, and compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sharegroup.testing.registry.errors import InvalidSchema, library_missing
from sharegroup.testing.registry.json_compatibility import Documents, narrowed, qualified
from sharegroup.testing.registry.schema_texts import ParsedSchema, Resolved


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
        if isinstance(definition, dict):
            validator_for(definition, default=Draft7Validator).check_schema(definition)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"expected a JSON Schema: {error}") from error
    except SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path) or "the top"
        raise InvalidSchema(f"expected a JSON Schema: at {place}: {error.message}") from error
    compact = json.dumps(definition, separators=(",", ":"))
    return JsonSchema(compact, compact, Documents(definition, _by_name(references)))


def _by_name(references: Sequence[Resolved]) -> dict[str, Any]:
    """Return the referenced documents, also of references of references."""
    documents: dict[str, Any] = {}
    for reference in references:
        assert isinstance(reference.schema, JsonSchema)
        documents |= reference.schema.documents.others
        documents[reference.name] = qualified(reference.schema.documents.root, reference.name)
    return documents
