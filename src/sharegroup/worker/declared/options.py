"""The options of `share_group`, as they are written, and the checked `Route` made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declared.dead_letter import (
    BrokerDeadLetter,
    DeadLetter,
    dead_letter_of,
    topic_of,
)
from sharegroup.worker.declared.elsewhere import refuse_unknown
from sharegroup.worker.declared.handler import HandlerShape
from sharegroup.worker.declared.names import checked_group, checked_topic
from sharegroup.worker.declared.numbers import is_whole
from sharegroup.worker.declared.rate import RateLimit, rate_limit_of
from sharegroup.worker.declared.retry import Retry
from sharegroup.worker.declared.route import Batching, Holding, Route
from sharegroup.worker.durations import Duration, seconds
from sharegroup.worker.payloads.codec import Payload

if TYPE_CHECKING:
    from sharegroup.worker.payloads.registry import Registry

Unreadable = Literal["dead_letter", "reject", "release"]
StartFrom = Literal["earliest", "latest"]
Topics = str | Iterable[str]

CONCURRENCY_MAX = 100_000


class RouteOptions(TypedDict, total=False):
    """What can be said of a handler, besides its group and topics."""

    name: str
    """Of the handler, in metrics, logs and dead letters; its own name unless told otherwise."""
    concurrency: int | Literal["auto"]
    processes: int
    retry: Retry | None
    dead_letter: DeadLetter | BrokerDeadLetter | str | None
    order_by: Callable[[Any], Any] | Literal["key"] | None
    max_handling: Duration | None
    rate_limit: RateLimit | str | None
    batch: Batching | int
    holding: Holding
    in_flight_bytes: int
    payload: Payload | Registry | None
    unreadable: Unreadable
    start_from: StartFrom
    group_configs: Mapping[str, str]
    retry_tiers: Sequence[Duration]


def route_of(group: str, topics: Topics, shape: HandlerShape, options: Mapping[str, Any]) -> Route:
    """The route, checked; InvalidConfig names the group, the handler and the option."""
    whose = f"share group {checked_group(group)!r}, handler {shape.name}"
    refuse_unknown(options, RouteOptions.__annotations__, whose)
    settings: dict[str, Any] = {name: options[name] for name in options if name != "name"}
    for name, (written, make) in WRITTEN_OTHERWISE.items():
        if written in settings:
            try:
                settings[name] = make(settings.pop(written))
            except (InvalidConfig, TypeError, ValueError) as error:
                raise InvalidConfig(f"{whose}: {written}: {error}") from error
    named = _topics(topics, whose)
    try:
        route = Route(group=group, topics=named, shape=shape, **settings)
    except InvalidConfig as error:  # Of the payload.
        raise InvalidConfig(f"{whose}: {error}") from error
    for problem in _problems(route):
        raise InvalidConfig(f"{whose}: {problem}")
    return route


def _max_handling(value: Duration | None) -> float | None:
    return None if value is None else seconds(value)


def _batching(value: Batching | int) -> Batching:
    return Batching(size=value) if isinstance(value, int) else value


def _tiers(value: Sequence[Duration]) -> tuple[float, ...]:
    return tuple(seconds(one) for one in value)


WRITTEN_OTHERWISE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "dead_letter": ("dead_letter", dead_letter_of),
    "rate_limit": ("rate_limit", rate_limit_of),
    "max_handling_seconds": ("max_handling", _max_handling),
    "batching": ("batch", _batching),
    "retry_tiers": ("retry_tiers", _tiers),
}
"""A field of the route: the option's name, and what makes the one of the other."""


def _topics(given: Topics, whose: str) -> tuple[str, ...]:
    if not isinstance(given, str | Iterable):
        raise InvalidConfig(f"{whose}: topics={given!r}; expected a topic's name, or several")
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InvalidConfig(f"{whose}: it has no topics; expected topics='name', or several")
    if len(set(names)) < len(names):
        raise InvalidConfig(f"{whose}: topics={names}; expected each of them once")
    return tuple(checked_topic(name, whose) for name in names)


def _problems(route: Route) -> Iterator[str]:
    """What is wrong with it, in words."""
    for name, (written, kinds, expected) in OPTION_TYPES.items():
        if not isinstance(getattr(route, name), kinds):
            yield f"{written}={getattr(route, name)!r}; expected {expected}"
    for name, words in (("unreadable", Unreadable), ("start_from", StartFrom)):
        if getattr(route, name) not in get_args(words):
            yield f"{name}={getattr(route, name)!r}; expected {' or '.join(get_args(words))}"
    for name, low, high in (("processes", 0, 1_000), ("in_flight_bytes", 1, 2**40)):
        if not is_whole(getattr(route, name), low, high):
            yield f"{name}={getattr(route, name)!r}; expected {low} to {high}"
    if route.concurrency != "auto" and not is_whole(route.concurrency, 1, CONCURRENCY_MAX):
        yield f"concurrency={route.concurrency!r}; expected 1 to {CONCURRENCY_MAX}, or 'auto'"
    if route.max_handling_seconds == 0:
        yield "max_handling=0; expected more, or None for no limit"
    yield from _contradictions(route)


def _contradictions(route: Route) -> Iterator[str]:
    shape = route.shape
    if route.processes and (shape.name == "<lambda>" or "<locals>" in shape.qualified_name):
        yield "processes: another process finds a handler by its module and name; move it there"
    if route.order_by is not None and route.order_by != "key" and not callable(route.order_by):
        yield f"order_by={route.order_by!r}; expected 'key', or a function of the payload"
    if route.batching is not None and not shape.is_batch:
        yield "batch: its payload is not annotated list[...], so it is called for one record"
    if route.order_by is not None and shape.is_batch:
        yield "order_by: a batch handler has no order among the records of its list"
    tiers = route.retry_tiers
    if not tiers or tiers[0] <= 0 or any(one >= other for one, other in pairwise(tiers)):
        yield f"retry_tiers={tiers}; expected growing delays above 0"
    dead = topic_of(route.dead_letter, route.group)
    if dead in route.topics:
        yield f"dead_letter: topic {dead!r} is one that the handler reads, so it would never end"
    if route.own_topic in route.topics:
        yield f"topic {route.own_topic!r} is the group's own; it is read without being asked for"


OPTION_TYPES: Mapping[str, tuple[str, tuple[type, ...], str]] = {
    "retry": (
        "retry",
        (Retry, type(None)),
        "Retry(attempts=..., first=...), or None for no retries",
    ),
    "dead_letter": (
        "dead_letter",
        (DeadLetter, BrokerDeadLetter, type(None)),
        "a topic's name, DeadLetter(...), BrokerDeadLetter(...), or None for no dead letters",
    ),
    "rate_limit": (
        "rate_limit",
        (RateLimit, type(None)),
        "a text like '100/s' or '10/2m', RateLimit(records, seconds), or None",
    ),
    "batching": (
        "batch",
        (Batching, type(None)),
        "a size, or Batching(size=..., wait_seconds=...)",
    ),
    "holding": ("holding", (Holding,), "Holding(longest_seconds=..., records=..., bytes=...)"),
    "group_configs": ("group_configs", (Mapping,), "a dict by Kafka's names of settings"),
}
"""A field of the route: the option's name, what it may be, and the same in words."""


def check_together(routes: Sequence[Route]) -> None:
    """InvalidConfig when two routes of one group contradict each other; both are named."""
    by_group: dict[str, list[Route]] = {}
    for route in routes:
        for other in by_group.setdefault(route.group, []):
            _check_pair(other, route)
        by_group[route.group].append(route)


def _check_pair(one: Route, other: Route) -> None:
    both = f"share group {one.group!r}: handlers {one.shape.name} and {other.shape.name}"
    if shared := sorted(set(one.topics) & set(other.topics)):
        raise InvalidConfig(
            f"{both} both have topic {shared[0]!r}; a record goes to one handler of a group: "
            f"give one of them a group of its own"
        )
    if one.shape.name == other.shape.name:
        raise InvalidConfig(
            f"{both} have the same name, by which metrics and dead letters know them; "
            f"give one of them another: name='...'"
        )
    for name in ("start_from", "group_configs", "retry_tiers"):
        if getattr(one, name) != getattr(other, name):
            raise InvalidConfig(
                f"{both} differ in {name}, which is the group's: "
                f"{getattr(one, name)!r} and {getattr(other, name)!r}"
            )
    letters = {one.dead_letter, other.dead_letter}
    if len(letters) > 1 and any(isinstance(each, BrokerDeadLetter) for each in letters):
        raise InvalidConfig(
            f"{both} differ in dead_letter: a BrokerDeadLetter is the group's, for all its records"
        )
