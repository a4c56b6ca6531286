"""The types of schemas, and the compatibility levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from sharegroup.testing.registry.avro_schema import parse_avro
from sharegroup.testing.registry.errors import InvalidCompatibility, InvalidSchema
from sharegroup.testing.registry.json_schema import parse_json_schema
from sharegroup.testing.registry.protobuf_schema import parse_protobuf
from sharegroup.testing.registry.schema_texts import ParsedSchema, Resolved

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
