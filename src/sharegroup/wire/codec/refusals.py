"""Makes the response to a request that failed as a whole, from the fields of the two messages.

A response without an error code of its own tells the error for each item that the request names:

    DeleteTopicsRequest(topics=[name, topic_id])  ->  DeleteTopicsResponse(responses=[name,
                                                          topic_id, error_code, error_message])

The items of a response are those of the request's array with the same name, else of its first one.
An item has what names it in the request, and the defaults of the schema in its other fields.  A
handler whose refusals differ has a function ``refuse``, or ``refused`` for a few other values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sharegroup.errors import KafkaError
from sharegroup.steps import Steps, of_each
from sharegroup.wire.codec.schema import MessageField, message_fields, wire_error_code

NAMING_TYPES = ("string", "uuid")
NAMING_NUMBERS = (
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "resource_type",
    "producer_id",
)
"""The fields of these types, and these numbers, name an item of a request."""


class _Plan(NamedTuple):
    """How one struct of a response is made from the element of the request it belongs to."""

    copied: tuple[str, ...]
    """Fields with the value of the request."""
    itself: str | None
    """The field whose value is the element itself, which is no struct."""
    items: tuple[tuple[str, str, type[Any]], ...]
    """The arrays of the response, with the array of the request and the class of an element."""


def refusal(
    request: Any,
    response_class: type[Any],
    error: KafkaError,
    instead: Mapping[str, Any],
    *,
    with_items: bool = False,
) -> Steps[Any]:
    """Return the response in steps; ``instead`` has values that replace the schema's defaults.

    ``with_items`` asks for an item for each element of the request, also if the response has an
    error code of its own.
    """
    shared_values = {
        **instead,
        "error_code": wire_error_code(error.code),
        "error_message": str(error),
    }
    values = _values(response_class, shared_values)
    for name, source, entity in _plan(type(request), response_class, with_items=with_items).items:
        values[name] = yield from _failed(getattr(request, source) or (), entity, shared_values)
    return response_class(**values)


def _failed(
    elements: Sequence[Any], entity: type[Any], shared_values: Mapping[str, Any]
) -> Steps[Any]:
    """Return an item with the error for each element of a request."""
    if not elements:
        return ()
    plan, values = _plan(type(elements[0]), entity), _values(entity, shared_values)
    if not plan.items:
        return (yield from of_each(partial(_item, entity, plan, values), elements))
    items = []
    for element in elements:
        for name, source, inner in plan.items:
            # Every element sets the same names, so one dict serves all of them.
            values[name] = yield from _failed(getattr(element, source) or (), inner, shared_values)
        items.append(_item(entity, plan, values, element))
        # After every element, because each may have many items of its own.
        yield
    return tuple(items)


def _item(entity: type[Any], plan: _Plan, values: Mapping[str, Any], element: Any) -> Any:
    named = {name: getattr(element, name) for name in plan.copied}
    if plan.itself is not None:
        named[plan.itself] = element
    return entity(**{**values, **named})


def _values(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values.get(field.name, field.default) for field in message_fields(cls)}


_plans: dict[tuple[type[Any], type[Any], bool], _Plan] = {}


def _plan(source: type[Any], target: type[Any], *, with_items: bool = False) -> _Plan:
    """Return the plan for a struct of a request and one of its response; it is made once."""
    key = source, target, with_items
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _new_plan(source, target, with_items=with_items)
    return plan


def _new_plan(source: type[Any], target: type[Any], *, with_items: bool) -> _Plan:
    targets = message_fields(target)
    if not hasattr(source, "__dataclass_fields__"):
        return _Plan((), next(field.name for field in targets if _names(field)), ())
    sources = {field.name: field for field in message_fields(source)}
    copied = tuple(field.name for field in targets if field.name in sources and _names(field))
    arrays = [field.name for field in sources.values() if field.is_array]
    items: tuple[tuple[str, str, type[Any]], ...] = ()
    if arrays and (with_items or not _has_own_error(target)):
        items = tuple(
            (field.name, field.name if field.name in sources else arrays[0], field.entity)
            for field in targets
            if field.is_array and field.entity is not None and _tells_errors(field.entity)
        )
    return _Plan(copied, None, items)


def _names(field: MessageField) -> bool:
    # The text of the error is a string like the names, but belongs to the response alone.
    if field.is_array or field.name == "error_message":
        return False
    return field.kafka_type in NAMING_TYPES or field.name in NAMING_NUMBERS


def _has_own_error(cls: type[Any]) -> bool:
    return any(field.name == "error_code" for field in message_fields(cls))


def _tells_errors(cls: type[Any]) -> bool:
    """Whether an element, or an element of an array in it, has an error code."""
    return _has_own_error(cls) or any(
        field.entity is not None and _tells_errors(field.entity) for field in message_fields(cls)
    )
