"""The options of `share_group` and `consumer_group`, and the checks that make a `Route`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from sharegroup.durations import Duration, delay_seconds, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import (
    check_redact,
    checked_group,
    checked_topic,
    is_whole,
)
from sharegroup.worker.declarations.foreign_options import elsewhere_of, refuse_unknown
from sharegroup.worker.declarations.handler import HandlerShape
from sharegroup.worker.declarations.kafka_options import kafka_options
from sharegroup.worker.declarations.outputs import output_problems
from sharegroup.worker.declarations.policies import (
    CircuitBreaker,
    Expiry,
    Filter,
    check_filter,
    expiry_of,
)
from sharegroup.worker.declarations.retry import Retry, RetryByError, RetryPolicies, retry_of
from sharegroup.worker.declarations.route import (
    Batching,
    CommitName,
    GroupProtocolName,
    Holding,
    OnFailure,
    OnUnreadable,
    RateLimit,
    Route,
    RouteKind,
    StartFrom,
    rate_limit_of,
)
from sharegroup.worker.declarations.topics import (
    BrokerDeadLetter,
    DeadLetter,
    dead_letter_of,
    topic_of,
)
from sharegroup.worker.payloads.codec import Payload
from sharegroup.worker.redaction import Redact
from sharegroup.worker.stores.store import Store, TransactionalStore

if TYPE_CHECKING:
    from sharegroup.worker.payloads.registry import Registry

OnUnreadableName = OnUnreadable | Literal["dead_letter", "reject", "release"]
OnFailureName = OnFailure | Literal["block", "retry_topic"]
StartFromName = StartFrom | Literal["earliest", "latest"]
Topics = str | Iterable[str]

CONCURRENCY_MAX = 100_000
WEIGHT_MAX = 1_000


class RouteDefaults(TypedDict, total=False):
    """The options that an App may declare for all its handlers: ``App(..., defaults={...})``."""

    concurrency: int | Literal["auto"]
    retry: Retry | RetryPolicies | None
    dead_letter: DeadLetter | BrokerDeadLetter | str | None
    max_handling: Duration | None
    rate_limit: RateLimit | str | None
    batch: Batching | int
    holding: Holding
    in_flight_bytes: int
    unreadable: OnUnreadableName
    start_from: StartFromName
    retry_tiers: Sequence[Duration]
    steering: bool
    expires_after: Expiry | Duration | None
    breaker: CircuitBreaker | None
    kafka: Mapping[str, Any]


class CommonOptions(RouteDefaults, total=False):
    """The options of a handler of a group of either kind."""

    name: str
    """The handler's name in metrics, logs and dead letters; by default that of the function."""
    processes: int
    payload: Payload | Registry | None
    only: Filter | None
    priorities: Mapping[str, int]
    once_by: Callable[[Any], str | int] | None
    once_for: Duration
    to: str | None
    replies: bool
    result_for: Duration
    redact: Redact | None


class RouteOptions(CommonOptions, total=False):
    """The options of a handler of a share group, in addition to its group and topics."""

    order_by: Callable[[Any], Any] | Literal["key"] | None
    group_configs: Mapping[str, str]


class ConsumerGroupOptions(CommonOptions, total=False):
    """The options of a handler of a consumer group, in addition to its group and topics."""

    order_by: Callable[[Any], Any] | Literal["key", "partition"] | None
    on_failure: OnFailureName
    commit: CommitName
    exactly_once: bool
    group_protocol: GroupProtocolName


OPTIONS_OF: Mapping[RouteKind, Collection[str]] = {
    RouteKind.SHARE: RouteOptions.__annotations__,
    RouteKind.CONSUMER: ConsumerGroupOptions.__annotations__,
}


def route_of(
    group: str,
    topics: Topics,
    shape: HandlerShape,
    options: Mapping[str, Any],
    *,
    kind: RouteKind = RouteKind.SHARE,
) -> Route:
    """Check the options and build the route.

    Raises InvalidConfig, which names the group, the handler and the option.
    """
    whose = f"{kind} group {checked_group(group, f'{kind}_group')!r}, handler {shape.name}"
    refuse_unknown(options, OPTIONS_OF[kind], whose, elsewhere_of(kind), f"a {kind} group")
    settings = _settings(options, whose)
    settings["kind"] = kind
    settings["kafka"] = kafka_options(settings.get("kafka"), kind, whose)
    if kind is RouteKind.CONSUMER and settings.get("order_by") is not None:
        settings.setdefault("on_failure", OnFailure.BLOCK)
    named = _topics(topics, whose)
    try:
        route = Route(group=group, topics=named, shape=shape, **settings)
    except InvalidConfig as error:  # Raised for the option `payload`.
        raise InvalidConfig(f"{whose}: {error}") from error
    if route.redact is not None:
        check_redact(route.redact, whose)
    if route.only is not None:
        try:
            check_filter(route.only, may_decode=not route.codec.may_block)
        except InvalidConfig as error:
            raise InvalidConfig(f"{whose}: {error}") from error
    for problem in _problems(route):
        raise InvalidConfig(f"{whose}: {problem}")
    return route


def checked_defaults(given: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return the defaults of this App for its handlers; raises InvalidConfig."""
    whose = f"App {name!r}: defaults"
    if not isinstance(given, Mapping | None):
        raise InvalidConfig(f"{whose}={given!r:.80}; expected a dict of options")
    defaults, allowed = dict(given or {}), RouteDefaults.__annotations__
    for option in defaults:
        if option not in allowed and option in CommonOptions.__annotations__:
            raise InvalidConfig(f"{whose}: {option} is declared for each handler")
    refuse_unknown(defaults, allowed, whose, elsewhere_of(RouteKind.SHARE), "all handlers")
    _settings(defaults, whose)  # Raises for a value that no handler could have.
    return defaults


def with_defaults(route: Route, given: Collection[str], defaults: Mapping[str, Any]) -> Route:
    """Return the route with the defaults of its App, except the options it was ``given``.

    Raises InvalidConfig if they do not go together.
    """
    used = {name: value for name, value in defaults.items() if name not in given}
    if not route.shape.is_batch:
        used.pop("batch", None)
    if not used:
        return route
    whose = route.title
    settings = _settings(used, whose)
    if "kafka" in settings:
        settings["kafka"] = kafka_options(settings["kafka"], route.kind, whose)
    changed = route.changed(**settings)
    for problem in _problems(changed):
        raise InvalidConfig(
            f"{whose}: {problem} (with the App's defaults: {', '.join(sorted(used))})"
        )
    return changed


def _settings(options: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Convert options to the fields of a route; raises InvalidConfig."""
    settings: dict[str, Any] = {name: options[name] for name in options if name != "name"}
    for name, (written, make) in WRITTEN_OTHERWISE.items():
        if written in settings:
            try:
                settings[name] = make(settings.pop(written))
            except (InvalidConfig, TypeError, ValueError) as error:
                raise InvalidConfig(f"{whose}: {written}: {error}") from error
    for name, enum in ENUMS.items():
        if settings.get(name) in enum.__members__.values():  # `_problems` refuses other values.
            settings[name] = enum(settings[name])
    return settings


def _max_handling(value: Duration | None) -> float | None:
    return None if value is None else seconds(value)


def _batching(value: Batching | int) -> Batching:
    return Batching(size=value) if isinstance(value, int) else value


def _tiers(value: Sequence[Duration]) -> tuple[float, ...]:
    return tuple(delay_seconds(delay) for delay in value)


WRITTEN_OTHERWISE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "retry": ("retry", retry_of),
    "dead_letter": ("dead_letter", dead_letter_of),
    "rate_limit": ("rate_limit", rate_limit_of),
    "max_handling_seconds": ("max_handling", _max_handling),
    "batching": ("batch", _batching),
    "retry_tiers": ("retry_tiers", _tiers),
    "once_seconds": ("once_for", delay_seconds),
    "result_seconds": ("result_for", delay_seconds),
    "expiry": ("expires_after", expiry_of),
}
"""Field of the route: the name of its option, and the function that converts its value."""

ENUMS: Mapping[str, type[StrEnum]] = {
    "unreadable": OnUnreadable,
    "start_from": StartFrom,
    "on_failure": OnFailure,
}
"""The options with a fixed set of values, which are given as members or as strings."""


def _topics(given: Topics, whose: str) -> tuple[str, ...]:
    if not isinstance(given, str | Iterable):
        raise InvalidConfig(f"{whose}: topics={given!r}; expected a topic's name, or several")
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InvalidConfig(f"{whose}: it has no topics; expected topics='name', or several")
    if len(set(names)) < len(names):
        raise InvalidConfig(f"{whose}: topics={names}; expected each topic only once")
    return tuple(checked_topic(name, whose) for name in names)


def _problems(route: Route) -> Iterator[str]:
    """Describe what is wrong with the route."""
    for name, (written, kinds, expected) in OPTION_TYPES.items():
        if not isinstance(getattr(route, name), kinds):
            yield f"{written}={getattr(route, name)!r}; expected {expected}"
    for name, kind in ENUMS.items():
        if not isinstance(getattr(route, name), kind):
            expected = " or ".join(kind.__members__.values())
            yield f"{name}={getattr(route, name)!r}; expected {expected}"
    for name, low, high in (("processes", 0, 1_000), ("in_flight_bytes", 1, 2**40)):
        if not is_whole(getattr(route, name), low, high):
            yield f"{name}={getattr(route, name)!r}; expected {low} to {high}"
    if route.concurrency != "auto" and not is_whole(route.concurrency, 1, CONCURRENCY_MAX):
        yield f"concurrency={route.concurrency!r}; expected 1 to {CONCURRENCY_MAX}, or 'auto'"
    if route.max_handling_seconds == 0:
        yield "max_handling=0; expected more than 0, or None for no limit"
    yield from _contradictions(route)


def _contradictions(route: Route) -> Iterator[str]:
    shape = route.shape
    if route.processes and (shape.name == "<lambda>" or "<locals>" in shape.qualified_name):
        yield (
            "processes: a handler process finds the handler by module and name; define it at "
            "module level"
        )
    words = ("key",) if route.is_share else ("key", "partition")
    if route.order_by is not None and route.order_by not in words and not callable(route.order_by):
        expected = " or ".join(map(repr, words))
        yield f"order_by={route.order_by!r}; expected {expected}, or a function of the payload"
    if not route.is_share:
        yield from _consumer_contradictions(route)
    if route.batching is not None and not shape.is_batch:
        yield "batch: its payload is not annotated list[...], so it is called for one record"
    if route.order_by is not None and shape.is_batch:
        yield "order_by: a batch handler has no order among the records of its list"
    yield from _once_problems(route)
    yield from output_problems(route)
    tiers = route.retry_tiers
    if (
        not tiers
        or tiers[0] <= 0
        or any(delay >= next_delay for delay, next_delay in pairwise(tiers))
    ):
        yield f"retry_tiers={tiers}; expected growing delays above 0"
    dead = topic_of(route.dead_letter, route.group)
    if dead in route.topics:
        yield f"dead_letter: topic {dead!r} is one that the handler reads, so it would form a loop"
    if route.steering and route.retry is None:
        yield "steering: with retry=None no record waits, so there is nothing to steer"
    yield from _priority_problems(route)
    if route.breaker is not None and route.retry is None and not route.blocks:
        yield (
            "breaker: with retry=None there are no retry topics in which records could wait; "
            "Retry(max_attempts=1) has retry topics without retries"
        )
    if route.own_topic in route.topics:
        yield f"topic {route.own_topic!r} is the group's own, which is read automatically"


def _consumer_contradictions(route: Route) -> Iterator[str]:
    if route.group_protocol not in ("consumer", "classic"):
        yield f"group_protocol={route.group_protocol!r}; expected 'consumer' or 'classic'"
    if route.commit not in ("after", "manual"):
        yield f"commit={route.commit!r}; expected 'after' or 'manual'"
    if not isinstance(route.exactly_once, bool):
        yield f"exactly_once={route.exactly_once!r}; expected True or False"
    if route.exactly_once and (route.shape.is_batch or route.processes):
        yield (
            "exactly_once: a handler of lists, or in other processes, does not say which of its "
            "records an output belongs to"
        )
    if route.exactly_once and route.commit == "manual":
        yield "exactly_once: commit='manual' finishes records after their outputs; use 'after'"
    if route.commit == "manual" and route.processes:
        yield "commit='manual': a handler in another process has no record to finish later"
    if route.blocks and route.order_by is None:
        yield "on_failure='block': without order_by no record waits behind another"
    if route.unreadable is OnUnreadable.RELEASE:
        yield (
            "unreadable='release': no other member of a consumer group could take the record, so "
            "this process would take it again and again; use 'dead_letter' or 'reject'"
        )
    if isinstance(route.dead_letter, BrokerDeadLetter):
        yield (
            "dead_letter: a broker writes dead letters of share groups only; expected a topic's "
            "name or DeadLetter(...)"
        )


def check_requirements(route: Route, store: Store | None, *, announces: bool) -> None:
    """Raise InvalidConfig if a handler has no store, or no fleet, that its options require."""
    whose = route.title
    shared = None if route.rate_limit is None else route.rate_limit.shared
    if shared == "fleet" and not announces:
        raise InvalidConfig(
            f"{whose}: rate_limit with shared='fleet' requires App(..., announce=True), so that "
            f"the processes know each other"
        )
    for option, is_given in (
        ("result_for", route.result_seconds),
        ("rate_limit with shared='store'", shared == "store"),
    ):
        if is_given and store is None:
            raise InvalidConfig(
                f"{whose}: {option} requires a store: App(..., store=SqliteStore('names.db')), or "
                f"PostgresStore or RedisStore"
            )
    if route.once_by is not None and not isinstance(store, TransactionalStore):
        raise InvalidConfig(
            f"{whose}: once_by requires a store with transactions: "
            f"App(..., store=PostgresStore(...)) or SqliteStore(...); the App has {store!r:.80}"
        )


def _priority_problems(route: Route) -> Iterator[str]:
    for topic, weight in route.priorities.items():
        if topic not in route.topics:
            yield (
                f"priorities: topic {topic!r} is none of the handler's; expected some of "
                f"{', '.join(route.topics)}"
            )
        if not is_whole(weight, 1, WEIGHT_MAX):
            yield f"priorities: {topic!r} has {weight!r}; expected a weight from 1 to {WEIGHT_MAX}"


def _once_problems(route: Route) -> Iterator[str]:
    if route.once_by is None:
        if route.once_seconds:
            yield "once_for: expected once_by=..., a function of the payload, too"
        return
    if not callable(route.once_by):
        yield f"once_by={route.once_by!r}; expected a function of the payload, such as its id"
    if not route.once_seconds:
        yield "once_by: expected once_for='7d', the time after which the mark is forgotten, too"
    if route.shape.is_batch:
        yield "once_by: a batch handler has no transaction for each record of its list"
    if route.processes:
        yield "once_by: a handler in another process has no connection of the store"


OPTION_TYPES: Mapping[str, tuple[str, tuple[type, ...], str]] = {
    "retry": (
        "retry",
        (Retry, RetryByError, type(None)),
        (
            "Retry(max_attempts=..., initial_delay=...), or None for no retries; or a dict of them "
            "by class of error"
        ),
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
    "breaker": (
        "breaker",
        (CircuitBreaker, type(None)),
        "CircuitBreaker(failures=..., of=..., open_for=...), or None",
    ),
    "steering": ("steering", (bool,), "True if waiting records are to be run or cancelled"),
    "priorities": ("priorities", (Mapping,), "a dict of the weights of topics"),
    "holding": ("holding", (Holding,), "Holding(longest_seconds=..., records=..., bytes=...)"),
    "group_configs": ("group_configs", (Mapping,), "a dict by Kafka's names of settings"),
}
"""Field of the route: the name of its option, the allowed types, and these in words."""


SETTINGS_OF_A_GROUP = (
    "start_from",
    "group_configs",
    "group_protocol",
    "exactly_once",
    "retry_tiers",
    "steering",
    "kafka",
)
"""Options that are the same for all handlers of a group."""


def check_together(routes: Sequence[Route]) -> None:
    """Raise InvalidConfig if two routes of a group contradict each other; it names both."""
    by_group: dict[str, list[Route]] = {}
    for route in routes:
        for other in by_group.setdefault(route.group, []):
            _check_pair(other, route)
        by_group[route.group].append(route)


def _check_pair(first: Route, second: Route) -> None:
    both = (
        f"{first.kind} group {first.group!r}: handlers {first.shape.name} and {second.shape.name}"
    )
    if first.kind is not second.kind:
        raise InvalidConfig(
            f"{both} are of a {first.kind} group and of a {second.kind} group; a group id belongs "
            f"to one kind: give one of them a group of its own"
        )
    if shared := sorted(set(first.topics) & set(second.topics)):
        raise InvalidConfig(
            f"{both} both have topic {shared[0]!r}; a record goes to one handler of a group: "
            f"give one of them a group of its own"
        )
    if first.shape.name == second.shape.name:
        raise InvalidConfig(
            f"{both} have the same name, which identifies them in metrics and dead letters; "
            f"give one of them another: name='...'"
        )
    for name in SETTINGS_OF_A_GROUP:
        if getattr(first, name) != getattr(second, name):
            raise InvalidConfig(
                f"{both} differ in {name}, which is a setting of the group: "
                f"{_written(getattr(first, name))} and {_written(getattr(second, name))}"
            )
    letters = {first.dead_letter, second.dead_letter}
    if len(letters) > 1 and any(
        isinstance(declaration, BrokerDeadLetter) for declaration in letters
    ):
        raise InvalidConfig(
            f"{both} differ in dead_letter: a BrokerDeadLetter is for all records of the group"
        )


def _written(value: object) -> str:
    """The value as an application writes it."""
    return repr(str(value) if isinstance(value, StrEnum) else value)
