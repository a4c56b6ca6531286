"""Validates values by a JSON schema, and gives up after `EVALUATIONS_MAX` parts of it.

Thirty definitions, each an ``allOf`` of two ``$ref`` to the next, are a kilobyte of schema and a
billion validations of one value.  The sender of a record chooses its schema, so a worker counts.
Needs jsonschema, which Confluent's registry client needs for JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from attrs import fields
from jsonschema.validators import extend, validator_for

EVALUATIONS_MAX = 2_000_000
"""Parts of a schema that are evaluated for one record: four for each value in a mebibyte of them,
which takes half a minute."""
_LEFT: ContextVar[Iterator[int]] = ContextVar("evaluations_left")


class TooManyEvaluations(ValueError):
    """The validation of a value evaluates too many parts of its schema."""


class BoundedValidator:
    """Validates values by one schema; used by several threads."""

    __slots__ = ("_evaluations_max", "_validator")

    def __init__(self, schema: Any, resources: Any, evaluations_max: int = EVALUATIONS_MAX) -> None:
        self._evaluations_max = evaluations_max
        cls = _counting(validator_for(schema))
        cls.check_schema(schema)
        self._validator = cls(schema, registry=resources)

    def validate(self, value: Any) -> None:
        """Raise ValidationError if the value is not valid, TooManyEvaluations if it takes long."""
        token = _LEFT.set(iter(range(self._evaluations_max)))
        try:
            self._validator.validate(value)
        finally:
            _LEFT.reset(token)


@lru_cache  # As many as there are drafts.
def _counting(cls: Any) -> Any:
    """Return a validator class that counts its validators: one for each evaluated part."""
    counting: Any = extend(cls)
    names = [(known.name, known.alias) for known in fields(counting) if known.init]

    def evolve(self: Any, **changes: Any) -> Any:
        if next(_LEFT.get(), None) is None:
            raise TooManyEvaluations(
                "the value is not validated: its JSON schema has too many "
                "parts to evaluate for it, as with nested $ref that repeat the same definitions; "
                "write the schema with fewer, or send smaller values"
            )
        for name, alias in names:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        # A part that names a draft of its own must not leave the class.
        draft = validator_for(changes["schema"], default=None)
        return (counting if draft is None else _counting(draft))(**changes)

    counting.evolve = evolve
    return counting
