"""The topics and share group settings that an application's routes require.

    declared topics    as declared with `App.topic`
    fleet topics       heartbeats and commands, with ``announce=True`` (`sharegroup.fleet`)
    handled topics     owned by others; created if missing, and otherwise left alone
    retry topics       `<group>.retry` and its tiers (`worker.retrying.postponer`)
    dead letters       with their retention (`worker.dead_letters`)
    group settings     where a new group starts, that locks may be renewed, that only committed
                       records are delivered, the delivery count limit, the broker's dead letters,
                       and the ``group_configs`` of the routes

Several routes may share a group.  Their declarations are merged and must not contradict each other.
The number of replicas of a topic depends on the number of brokers (`changes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sharegroup.errors import InvalidConfig
from sharegroup.fleet.fleet_topics import (
    COMMAND_CONFIGS,
    HEARTBEAT_CONFIGS,
    commands_topic,
    workers_topic,
)
from sharegroup.worker.dead_letters import dead_letter_topics, group_configs_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import (
    NOT_DECLARED,
    BrokerDeadLetter,
    Replication,
    TopicDeclaration,
)
from sharegroup.worker.retrying.postponer import retry_topics

if TYPE_CHECKING:
    from sharegroup.worker.application import Application

ANNOUNCING = "workers announce themselves"
START_FROM = "share.auto.offset.reset"
RENEWAL = "share.renew.acknowledge.enable"
ISOLATION = "share.isolation.level"
COMMITTED = "read_committed"
"""Needed because dead letters are sent back in transactions (`isolation`)."""
DELIVERIES = "share.delivery.count.limit"
DELIVERIES_WANTED = "10"
"""The maximum that Kafka allows.  The first deliveries run the handler, and the next one writes the
dead letter.  The others are a reserve for processes that die while they write it (`parts`)."""


@dataclass(frozen=True, slots=True)
class RequiredTopic:
    """A topic that must exist."""

    name: str
    purpose: str
    """The purpose of the topic, as a text for people."""
    partitions: int | None = None
    """The minimum; None keeps the existing number, or creates the broker's default."""
    configs: Mapping[str, str] = field(default_factory=dict)
    more_is_fine: bool = False
    """Whether more partitions are accepted, because their number is not declared."""
    replication: Replication = NOT_DECLARED
    is_ours: bool = True
    """Whether it is compared with its declaration; other topics are only created."""

    @classmethod
    def of(
        cls, topic: TopicDeclaration, purpose: str, *, more_is_fine: bool = False
    ) -> RequiredTopic:
        """Return the requirement of a topic that was declared."""
        name, partitions, configs, replication, _ = topic
        return cls(name, purpose, partitions, dict(configs), more_is_fine, replication)


@dataclass(frozen=True, slots=True)
class RequiredGroup:
    """The settings that a group must have; none for a consumer group."""

    group: str
    configs: Mapping[str, str]
    optional: frozenset[str] = frozenset()
    """Settings that an older broker may lack."""


@dataclass(frozen=True, slots=True)
class RequiredInfrastructure:
    """All topics and group settings that the routes require."""

    topics: tuple[RequiredTopic, ...]
    groups: tuple[RequiredGroup, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers of topics and groups that an application needs; a topic counts once."""

    topics: int
    retry_topics: int
    dead_letter_topics: int
    share_groups: int
    consumer_groups: int
    retry_schedulers: int
    """Consumer groups that move records through the retry topics: one for each group that retries.

    Handlers of one group share its retry topics, its dead-letter topic and its scheduler.
    """

    def __str__(self) -> str:
        others = self.topics - self.retry_topics - self.dead_letter_topics
        groups = self.share_groups + self.consumer_groups + self.retry_schedulers
        consumer_groups = (
            f"{_counted(self.consumer_groups, 'consumer group')}, " if self.consumer_groups else ""
        )
        return (
            f"{_counted(self.topics, 'topic')} ({others} of the application, {self.retry_topics} "
            f"for retries, {self.dead_letter_topics} for dead letters) and "
            f"{_counted(groups, 'group')} ({_counted(self.share_groups, 'share group')}, "
            f"{consumer_groups}{_counted(self.retry_schedulers, 'retry scheduler')})"
        )


def announced_topics(app: str) -> tuple[TopicDeclaration, ...]:
    """Return the topics through which workers announce themselves and get commands."""
    return (
        TopicDeclaration(workers_topic(app), 1, HEARTBEAT_CONFIGS),
        TopicDeclaration(commands_topic(app), 1, COMMAND_CONFIGS),
    )


def wanted_by(app: Application, *, announced: bool = True) -> RequiredInfrastructure:
    """Determine what an application requires; without ``announced`` not its fleet topics."""
    fleet = announced_topics(app.name) if app.announce and announced else ()
    return wanted(app.route_list, app.topic_list, app.replication, announced=fleet)


def totals(
    routes: Iterable[Route],
    declared: Iterable[TopicDeclaration] = (),
    announced: Iterable[TopicDeclaration] = (),
) -> Totals:
    """Count the topics and groups that these routes and declarations need."""
    routes = tuple(routes)
    retries = {topic.name for route in routes for topic in retry_topics(route)}
    letters = {topic.name for route in routes for topic in dead_letter_topics(route)} - retries
    return Totals(
        topics=len(wanted(routes, declared, announced=announced).topics),
        retry_topics=len(retries),
        dead_letter_topics=len(letters),
        share_groups=len({route.group for route in routes if route.is_share}),
        consumer_groups=len({route.group for route in routes if not route.is_share}),
        retry_schedulers=len({route.group for route in routes if route.retry is not None}),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def wanted(
    routes: Iterable[Route],
    declared: Iterable[TopicDeclaration] = (),
    replication: Replication = NOT_DECLARED,
    *,
    announced: Iterable[TopicDeclaration] = (),
) -> RequiredInfrastructure:
    """Determine the topics and group settings that these routes require.

    Raises InvalidConfig if two of them contradict each other.  ``replication`` applies to topics
    without a declaration of their own.  ``announced`` has the fleet topics.
    """
    routes = tuple(routes)
    topics: dict[str, RequiredTopic] = {}
    declared_topics = [RequiredTopic.of(new, "declared") for new in declared]
    declared_topics += [RequiredTopic.of(new, ANNOUNCING) for new in announced]
    for new in (*declared_topics, *(topic for route in routes for topic in _topics(route))):
        topics[new.name] = _both(topics[new.name], new) if new.name in topics else new
    topics = {
        name: replace(topic, replication=topic.replication.over(replication))
        for name, topic in topics.items()
    }
    groups: dict[str, dict[str, str]] = {}
    for route in routes:
        settings = groups.setdefault(route.group, {})
        if not route.is_share:
            continue  # A consumer group needs no settings.
        for name, value in _settings(route):
            if settings.setdefault(name, value) != value:
                raise InvalidConfig(
                    f"group {route.group!r}: its handlers declare {name} as "
                    f"{settings[name]!r} and, in handler {route.shape.name}, as {value!r}"
                )
    for group, settings in groups.items():
        if settings.get(ISOLATION, COMMITTED) != COMMITTED:
            raise InvalidConfig(
                f"group {group!r}: its group_configs declare {ISOLATION}={settings[ISOLATION]}; "
                f"expected {COMMITTED} or none, because dead letters are sent back in transactions"
            )
    optional = frozenset((RENEWAL, ISOLATION, DELIVERIES))
    return RequiredInfrastructure(
        tuple(topics[name] for name in sorted(topics)),
        tuple(
            RequiredGroup(group, configs, optional - _declared(routes, group))
            for group, configs in sorted(groups.items())
        ),
    )


def _topics(route: Route) -> Iterator[RequiredTopic]:
    for name in route.topics:
        yield RequiredTopic(name, f"handled by {route.group}", is_ours=False)
    if route.to is not None:
        yield RequiredTopic(route.to, f"results of {route.group}", is_ours=False)
    for topic in retry_topics(route):
        yield RequiredTopic.of(topic, f"retries of {route.group}", more_is_fine=True)
    by_broker = isinstance(route.dead_letter, BrokerDeadLetter)
    for topic in dead_letter_topics(route):
        yield RequiredTopic.of(topic, f"dead letters of {route.group}", more_is_fine=by_broker)


def _settings(route: Route) -> Iterator[tuple[str, str]]:
    declared = dict(route.group_configs)
    implied = {
        START_FROM: str(route.start_from),
        RENEWAL: "true",
        ISOLATION: COMMITTED,
        DELIVERIES: DELIVERIES_WANTED,
        **group_configs_of(route),
    }
    yield from (implied | declared).items()


def _declared(routes: Iterable[Route], group: str) -> frozenset[str]:
    return frozenset(
        name for route in routes if route.group == group for name in route.group_configs
    )


def _both(first: RequiredTopic, second: RequiredTopic) -> RequiredTopic:
    """Merge two needs for one topic: the dead letters of two groups, or handled by two."""
    for name in first.configs.keys() & second.configs.keys():
        if first.configs[name] != second.configs[name]:
            raise InvalidConfig(
                f"topic {first.name!r}: declared with "
                f"{name}={first.configs[name]} ({first.purpose}) "
                f"and {name}={second.configs[name]} ({second.purpose})"
            )
    purposes = dict.fromkeys((*first.purpose.split(", "), *second.purpose.split(", ")))
    counts = [count for count in (first.partitions, second.partitions) if count is not None]
    return RequiredTopic(
        first.name,
        ", ".join(purposes),
        max(counts, default=None),
        {**first.configs, **second.configs},
        first.more_is_fine and second.more_is_fine,
        first.replication.both(second.replication),
        first.is_ours or second.is_ours,
    )
