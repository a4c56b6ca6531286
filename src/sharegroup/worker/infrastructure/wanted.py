"""What an application's routes need of a cluster: topics, and settings of its share groups.

    declared topics    as `App.topic` says
    handled topics     somebody else's; made if missing, and otherwise left alone
    retry topics       `<group>.retry` and its tiers (`retrying.topics`)
    dead letters       with their retention (`dead_letters.topics`)
    group settings     where a new group begins, that locks may be renewed, how often a record
                       may be delivered, the broker's dead letters, and what the routes say in
                       ``group_configs``

Several routes may share a group, so what they say of it is put together, and must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sharegroup.errors import InvalidConfig
from sharegroup.worker.dead_letters.topics import group_configs_of
from sharegroup.worker.dead_letters.topics import topics_of as dead_letter_topics_of
from sharegroup.worker.declared.dead_letter import BrokerDeadLetter
from sharegroup.worker.declared.route import Route
from sharegroup.worker.declared.topic import Topic
from sharegroup.worker.retrying.topics import topics_of as retry_topics_of

START_FROM = "share.auto.offset.reset"
RENEWAL = "share.renew.acknowledge.enable"
DELIVERIES = "share.delivery.count.limit"
DELIVERIES_WANTED = "10"
"""As many as Kafka allows.  A record is run in the first few and buried in the next; the rest is
for processes that die while they bury it (`parts`)."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic that there must be."""

    name: str
    purpose: str
    """For people: what the routes need it for."""
    partitions: int | None = None
    """At least so many; None: as many as there are, and at first what the broker makes."""
    configs: Mapping[str, str] = field(default_factory=dict)
    more_is_fine: bool = False
    """Nobody declared the number, so whoever gave it more partitions had a reason."""


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """Settings that a share group must have."""

    group: str
    configs: Mapping[str, str]
    optional: frozenset[str] = frozenset()
    """Those of them that an older broker may do without."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that the routes need."""

    topics: tuple[WantedTopic, ...]
    groups: tuple[WantedGroup, ...]


def wanted(routes: Iterable[Route], declared: Iterable[Topic] = ()) -> Wanted:
    """What these routes need; InvalidConfig where two of them want different things."""
    routes = tuple(routes)
    topics: dict[str, WantedTopic] = {}
    said = [WantedTopic(one.name, "declared", one.partitions, one.configs) for one in declared]
    for one in (*said, *(topic for route in routes for topic in _topics(route))):
        topics[one.name] = _both(topics[one.name], one) if one.name in topics else one
    groups: dict[str, dict[str, str]] = {}
    for route in routes:
        settings = groups.setdefault(route.group, {})
        for name, value in _settings(route):
            if settings.setdefault(name, value) != value:
                raise InvalidConfig(
                    f"group {route.group!r}: its handlers declare {name} as "
                    f"{settings[name]!r} and, {route.shape.name}, as {value!r}"
                )
    optional = frozenset((RENEWAL, DELIVERIES))
    return Wanted(
        tuple(topics[name] for name in sorted(topics)),
        tuple(
            WantedGroup(group, configs, optional - _declared(routes, group))
            for group, configs in sorted(groups.items())
        ),
    )


def _topics(route: Route) -> Iterator[WantedTopic]:
    for name in route.topics:
        yield WantedTopic(name, f"handled by {route.group}")
    for retry in retry_topics_of(route):
        yield WantedTopic(
            retry.name,
            f"retries of {route.group}",
            retry.partitions,
            dict(retry.configs),
            more_is_fine=True,
        )
    for dead in dead_letter_topics_of(route):
        yield WantedTopic(
            dead.name,
            f"dead letters of {route.group}",
            dead.partitions,
            dict(dead.configs),
            more_is_fine=isinstance(route.dead_letter, BrokerDeadLetter),
        )


def _settings(route: Route) -> Iterator[tuple[str, str]]:
    declared = dict(route.group_configs)
    implied = {
        START_FROM: route.start_from,
        RENEWAL: "true",
        DELIVERIES: DELIVERIES_WANTED,
        **group_configs_of(route),
    }
    yield from (implied | declared).items()


def _declared(routes: Iterable[Route], group: str) -> frozenset[str]:
    return frozenset(name for one in routes if one.group == group for name in one.group_configs)


def _both(one: WantedTopic, other: WantedTopic) -> WantedTopic:
    """A topic that is needed twice: dead letters of two groups, or handled by two."""
    for name in one.configs.keys() & other.configs.keys():
        if one.configs[name] != other.configs[name]:
            raise InvalidConfig(
                f"topic {one.name!r}: declared with {name}={one.configs[name]} ({one.purpose}) "
                f"and {name}={other.configs[name]} ({other.purpose})"
            )
    purposes = dict.fromkeys((*one.purpose.split(", "), *other.purpose.split(", ")))
    counts = [count for count in (one.partitions, other.partitions) if count is not None]
    return WantedTopic(
        one.name,
        ", ".join(purposes),
        max(counts, default=None),
        {**one.configs, **other.configs},
        one.more_is_fine and other.more_is_fine,
    )
