"""Conversion of a message from one version to another, by field names.

A handler is written once, for the newest version of its API. A request in an older version is
upgraded before, and the handler's response is downgraded after:

- a field of the same name is carried, structs and arrays of structs recursively;
- a field that only the target has gets its default, or Kafka's zero of its type;
- a field that only the source has is dropped.

If a field was renamed, split or restructured between versions, the caller converts it before or
after. A null that the target version does not allow becomes the target's default.

The plan for a pair of classes is made once and used by every conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sharegroup.steps import Steps, paced
from sharegroup.wire.codec.schema import MessageField, has_arrays, message_fields

Target = TypeVar("Target")

Step = tuple[str, Callable[[Any], Any] | None]
"""A field to carry, and the function that converts its value; None if it stays as it is."""

# Never cleared: the versions in `apis` bound the number of pairs.
_plans: dict[tuple[type[Any], type[Any]], tuple[tuple[Step, ...], dict[str, Any]]] = {}


def upgrade(message: Any, newest_class: type[Target]) -> Target:
    """Return the message in a newer version."""
    return _convert(message, newest_class)


def empty(cls: type[Target]) -> Target:
    """Return a message with the default, or Kafka's zero, in every field."""
    return cls(**{field.name: field.default for field in message_fields(cls)})


def downgrade(message: Any, older_class: type[Target]) -> Target:
    """Return the message in an older version, without the fields that it lacks."""
    return _convert(message, older_class)


def convert_steps(message: Any, target: type[Target]) -> Steps[Target]:
    """Do `upgrade` or `downgrade` in steps."""
    source = type(message)
    if source is target:
        return message  # type: ignore[no-any-return]
    carried, missing = _plans.get((source, target)) or _plan(source, target)
    entities = {field.name: field.entity for field in message_fields(target) if field.is_array}
    values = dict(missing)
    for name, convert in carried:
        value, entity = getattr(message, name), entities.get(name)
        # An empty array or a null goes the other way, where a null that the target does not allow
        # is replaced.
        if value and entity is not None:
            values[name] = yield from _elements_in_steps(value, entity)
        else:
            values[name] = value if convert is None else convert(value)
    return target(**values)


def _elements_in_steps(elements: Sequence[Any], entity: type[Any]) -> Steps[tuple[Any, ...]]:
    is_long = has_arrays(entity)
    converted = []
    for element, pause in paced(elements):
        if is_long:
            converted.append((yield from convert_steps(element, entity)))
        else:
            converted.append(_convert(element, entity))
        if pause:
            yield
    return tuple(converted)


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
    source_fields = {field.name: field for field in message_fields(source)}
    carried: list[Step] = []
    missing: dict[str, Any] = {}
    for field in message_fields(target):
        if field.name in source_fields:
            carried.append((field.name, _conversion(source_fields[field.name], field)))
        else:
            missing[field.name] = field.default
    plan = tuple(carried), missing
    _plans[source, target] = plan
    return plan


def _conversion(source: MessageField, target: MessageField) -> Callable[[Any], Any] | None:
    shapes = [(field.entity is None, field.is_array) for field in (source, target)]
    assert shapes[0] == shapes[1], (
        f"field {target.name} has a different type in the other version: "
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
