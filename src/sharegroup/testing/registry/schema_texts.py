"""The text of a schema with its references, and the interface of parsed schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to a version of another subject."""

    name: str
    """The name by which the schema refers to it: an Avro name, a URI or an import path."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a client sends it."""

    schema_type: str
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    """Metadata and rules as JSON, which are stored for clients and not interpreted."""


class ParsedSchema(Protocol):
    """A valid schema, made from a `SchemaText`."""

    @property
    def text(self) -> str:
        """The text as the registry stores and returns it."""

    @property
    def identity(self) -> str:
        """A text that is equal for schemas that differ only in their layout."""

    def normalized(self) -> ParsedSchema:
        """Return the schema with a normalized text."""

    def formatted(self, form: str) -> str:
        """Return the text in a form that a client asks for; "" and unknown ones give `text`."""

    def unreadable(self, written: ParsedSchema) -> list[str]:
        """Return the reasons why data written with the other schema is not readable with this one.

        An empty list means that it is readable. Both schemas are of the same type.
        """


@dataclass(frozen=True, slots=True)
class Resolved:
    """A referenced schema: the name that is used for it, and the schema."""

    name: str
    schema: ParsedSchema
