"""The topics to which return values of handlers are sent: the option ``to``.

    billed = app.topic("billed", payload=Invoice)

    @app.share_group("billing", topics="orders", to=billed)
    async def bill(order: Order) -> Invoice: ...

    @app.share_group("mailing", topics=billed)
    async def mail(invoice: Invoice) -> None: ...

The value is encoded as the topic's readers in the application decode it, otherwise as `App.topic`
declares it, otherwise by the annotation of what the handler returns.  All of these types
are compared when a handler is declared, so a chain that does not fit is found before it runs.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import checked_topic
from sharegroup.worker.declarations.replies import check_no_reader
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import TopicDeclaration
from sharegroup.worker.payloads.codec import Codec, Payload, codec_for, text_of

NONE = type(None)


def output_problems(route: Route) -> Iterator[str]:
    """Describe what is wrong with the options for the return value of a handler."""
    if not isinstance(route.replies, bool):
        yield f"replies={route.replies!r}; expected True or False"
    names = ("to", "replies", "result_seconds")
    used = [name.replace("result_seconds", "result_for") for name in names if getattr(route, name)]
    if used and route.shape.is_batch:
        yield f"{used[0]}: a batch handler returns which of its records failed, and no values"
    if route.to is None:
        return
    checked_topic(route.to, "to")
    if route.to in route.topics:
        yield f"to: topic {route.to!r} is one that the handler reads, so it would form a loop"
    if route.to == route.own_topic or route.to.startswith(f"{route.own_topic}."):
        yield f"to: topic {route.to!r} is the group's own, which the worker writes"
    if route.shape.return_type is NONE:
        yield f"to: the handler is annotated `-> None`, so nothing would be sent to {route.to!r}"


def outputs_of(
    routes: Sequence[Route], declared: Iterable[TopicDeclaration], app_name: str
) -> list[Codec | None]:
    """Return the codec of the topic `to` of each route; None for a route without one.

    Raises InvalidConfig if such a topic is unknown, if two disagree about the type of its values,
    or if handlers send to each other in a loop.
    """
    check_no_reader(routes, app_name)
    for route in routes:
        if route.to is not None:
            _check_no_loop(route, routes)
    topics = {topic.name: topic for topic in declared}
    return [None if route.to is None else _codec(route, routes, topics) for route in routes]


def _check_no_loop(route: Route, routes: Sequence[Route]) -> None:
    """Raise InvalidConfig if what the handler sends comes back to it, through other handlers."""
    name = route.shape.name
    paths = [(route.to, name)]
    seen: set[str | None] = {None}
    while paths:
        topic, path = paths.pop()
        if topic in seen:
            continue
        seen.add(topic)
        for reader in routes:
            if topic not in reader.topics:
                continue
            longer = f"{path} -> {reader.shape.name}"
            if reader is route:
                raise InvalidConfig(
                    f"{route.title}: to={route.to!r} forms a loop ({longer}), in which a record "
                    f"would circle for ever; if it ends, call `await {name}.send(...)` in the last "
                    f"handler instead of its `to`"
                )
            paths.append((reader.to, longer))


def _codec(route: Route, routes: Sequence[Route], topics: Mapping[str, TopicDeclaration]) -> Codec:
    topic, returned = route.to, route.shape.return_type
    assert topic is not None, "the route has the option"
    whose = f"{route.title}: to={topic!r}"
    readers = [reader for reader in routes if topic in reader.topics]
    if topic not in topics and not readers:
        raise InvalidConfig(
            f"{whose}: the topic is not declared; declare it before the handler: "
            f"app.topic({topic!r}, payload={_name(returned, 'Invoice')})"
        )
    declared = topics[topic].payload if topic in topics else None
    if declared is not None:
        _check_fits(returned, declared, f"{whose}: ", "as app.topic declares it")
    for reader in readers:
        by = f"as handler {reader.shape.name} of group {reader.group!r} reads it"
        _check_fits(returned, reader.shape.payload_type, f"{whose}: ", by)
        if declared is not None:
            _check_fits(declared, reader.shape.payload_type, f"topic {topic!r}: ", by)
        if isinstance(reader.payload, Payload) and reader.payload.encode is None:
            raise InvalidConfig(
                f"{whose}: its Payload of handler {reader.shape.name} has no `encode`, so nothing "
                f"can be sent to the topic: Payload(decode=..., encode=...)"
            )
    for reader in readers:
        # A type of its own only: an encoder for Any does not check what it is given.
        if reader.payload is not None or reader.shape.payload_type not in (Any, object):
            return reader.codec
    return codec_for(declared if declared is not None else returned)


def _check_fits(returned: Any, wanted: Any, whose: str, by: str) -> None:
    if not fits(returned, wanted):
        raise InvalidConfig(
            f"{whose}it gets {_name(returned)}, and has {_name(wanted)} {by}; expected one type"
        )


def fits(returned: Any, wanted: Any) -> bool:
    """Whether a value of the first type can be one of the second; None is left out of both.

    True if it cannot be told, as for Any: the encoder checks each value.
    """
    returned_types, wanted_types = _parts(returned), _parts(wanted)
    return all(any(_fits(part, other) for other in wanted_types) for part in returned_types)


def _fits(returned: Any, wanted: Any) -> bool:
    if returned == wanted or returned in (Any, object) or wanted in (Any, object):
        return True
    if isinstance(returned, type) and isinstance(wanted, type):
        return issubclass(returned, wanted)
    # Of generic types, such as dict and dict[str, int], the arguments may be left out.
    bare_returned, bare_wanted = get_origin(returned) or returned, get_origin(wanted) or wanted
    has_none_left = bare_returned is returned or bare_wanted is wanted
    return bool(bare_returned == bare_wanted and has_none_left)


def _parts(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return (annotation,)
    return tuple(part for part in get_args(annotation) if part is not NONE)


def _name(annotation: Any, otherwise: str = "Any") -> str:
    return otherwise if annotation in (Any, object) else text_of(annotation)
