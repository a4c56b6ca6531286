"""Requests from nested dictionaries, and the facts of a response that an authorizer decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from sharegroup.wire.codec.apis import api_of, request_class
from sharegroup.wire.codec.convert import empty
from sharegroup.wire.codec.schema import message_fields


def message(api_key: int, version: int | None = None, /, **values: Any) -> Any:
    """Return a request; structs are dictionaries, and absent fields have their defaults."""
    cls = request_class(api_key, api_of(api_key).newest if version is None else version)
    return _filled(cls, values)


def _filled(cls: type[Any], values: Mapping[str, Any]) -> Any:
    entities = {field.name: field.entity for field in message_fields(cls)}
    unknown = values.keys() - entities.keys()
    assert not unknown, f"{cls.__module__}.{cls.__name__} has no fields {sorted(unknown)}"
    given = {name: _value(entities[name], value) for name, value in values.items()}
    absent = empty(cls)
    rest = {name: getattr(absent, name) for name in entities if name not in given}
    return cls(**rest, **given)


def _value(entity: type[Any] | None, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(entity, element) for element in value)
    return _filled(entity, value) if entity is not None and isinstance(value, Mapping) else value


class Outcome(NamedTuple):
    """The errors, the operations and the names of a response."""

    errors: frozenset[tuple[str, int]]
    """The names and values of the error codes that are not 0."""
    operations: frozenset[int]
    """The values of ``authorized_operations`` fields."""
    names: frozenset[str | UUID]
    """All strings and ids."""


def outcome_of(response: Any) -> Outcome:
    """Return the facts of a response."""
    errors, operations, names = set(), set(), set()
    for name, value in leaves(response):
        if name.endswith("error_code"):
            if value:
                errors.add((name, int(value)))
        elif name.endswith("authorized_operations"):
            operations.add(int(value))
        elif isinstance(value, str | UUID):
            names.add(value)
    return Outcome(frozenset(errors), frozenset(operations), frozenset(names))


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of all fields of a message with their names, also of nested messages."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), field.name)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        for element in value:
            yield from leaves(element, name)
    elif isinstance(value, str | UUID | IntEnum | int):
        yield name, value
