"""From one version of a message to another, field by field name.

A handler is written once, against the newest version of its API.  What a client sent in an
older version is upgraded before, what the handler answers is downgraded after:

- a field of the same name is carried, structs and arrays of structs recursively;
- a field that only the target has gets its default, or Kafka's zero of its type;
- a field that only the source has is dropped.

Whatever was renamed, split or restructured between versions is the caller's to handle, before
or after; and so is null where an older version has none, which takes the target's default.

The plan for a pair of classes is made once; converting runs through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sharegroup.wire.schema import MessageField, message_fields

Target = TypeVar("Target")

Step = tuple[str, Callable[[Any], Any] | None]
"""A field to carry, and how to convert its value; None means as it is."""

_plans: dict[tuple[type[Any], type[Any]], tuple[tuple[Step, ...], dict[str, Any]]] = {}


def upgrade(message: Any, newest_class: type[Target]) -> Target:
    """The message as a newer version has it."""
    return _convert(message, newest_class)


def downgrade(message: Any, older_class: type[Target]) -> Target:
    """The message as an older version has it; what that lacks is dropped."""
    return _convert(message, older_class)


def _convert(message: Any, target: type[Target]) -> Target:
    source = type(message)
    if source is target:
        return message  # type: ignore[no-any-return]
    carried, missing = _plans.get((source, target)) or _plan(source, target)
    values = dict(missing)
    for name, convert in carried:
        value = getattr(message, name)
        values[name] = value if convert is None else convert(value)
    return target(**values)


def _plan(source: type[Any], target: type[Any]) -> tuple[tuple[Step, ...], dict[str, Any]]:
    theirs = {field.name: field for field in message_fields(source)}
    carried: list[Step] = []
    missing: dict[str, Any] = {}
    for field in message_fields(target):
        if field.name in theirs:
            carried.append((field.name, _conversion(theirs[field.name], field)))
        else:
            missing[field.name] = field.default
    plan = tuple(carried), missing
    _plans[source, target] = plan
    return plan


def _conversion(source: MessageField, target: MessageField) -> Callable[[Any], Any] | None:
    shapes = [(field.entity is None, field.is_array) for field in (source, target)]
    assert shapes[0] == shapes[1], (
        f"field {target.name} is another kind of thing in the other version: "
        "its handler has to convert it"
    )
    entity, default = target.entity, target.default
    convert: Callable[[Any], Any] | None = None
    if entity is not None and target.is_array:
        convert = lambda values: tuple(_convert(value, entity) for value in values)  # noqa: E731
    elif entity is not None:
        convert = lambda value: _convert(value, entity)  # noqa: E731
    if not source.nullable:
        return convert
    if target.nullable and convert is None:
        return None
    null = None if target.nullable else default
    return lambda value: null if value is None else convert(value) if convert else value
