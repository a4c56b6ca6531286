"""The catalog: topics, the settings of topics, groups and brokers, and the cluster id.

A catalog is replayed from a small journal at start.  A command checks its arguments and returns an
`Event`.  The caller writes the event to the journal, and only `replay` changes the catalog.  So the
catalog in memory equals the catalog that the journal restores after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from sharegroup.broker.cluster.acl_entries import AclEntries
from sharegroup.broker.cluster.catalog_part import CatalogPart, ClientMetricsSettings, Event
from sharegroup.broker.cluster.scram_credentials import ScramCredentials
from sharegroup.broker.configuration.config import GroupConfig, TopicConfig
from sharegroup.broker.configuration.config_values import check_topic_name, parse_part
from sharegroup.broker.configuration.topic_config import check_topic_config
from sharegroup.core.quotas.entities import ClientQuotas
from sharegroup.core.security.principal import Author, parse_principal
from sharegroup.core.shared_totals import SharedTotal, text_bytes
from sharegroup.errors import (
    InvalidTopic,
    KafkaStorageError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sharegroup.ids import GroupId, TopicId, TopicName, interned_uuid

CATALOG_FILE = "catalog.journal"

CONSUMER_OFFSETS = TopicName("__consumer_offsets")
SHARE_GROUP_STATE = TopicName("__share_group_state")
TRANSACTION_STATE = TopicName("__transaction_state")

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
"""The setting of a group that the catalog keeps with the user who made it."""

GROUP_SETTINGS_BYTES = 600
SETTING_BYTES = 250
"""Memory of a group with settings, and of one setting, in bytes, without their text."""
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE})

LEVELS_BEFORE: Mapping[str, int] = MappingProxyType(
    {"group.version": 1, "metadata.version": 33, "share.version": 1}
)
"""The feature levels of a data directory whose catalog has no feature levels."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in its current state; each change creates a new object."""

    name: TopicName
    topic_id: TopicId
    partition_count: int
    config: TopicConfig
    settings: Mapping[str, str]
    """The settings of the topic itself as text, without defaults."""

    @property
    def is_internal(self) -> bool:
        """Whether the broker keeps its own state in the topic (`INTERNAL_TOPICS`)."""
        return self.name in INTERNAL_TOPICS


class Catalog:
    """The topics, settings and identity of the cluster, changed only by `replay`."""

    __slots__ = (
        "_broker",
        "_dead_letter_authors",
        "_deleted",
        "_groups",
        "_ids",
        "_parts",
        "_topics",
        "acls",
        "client_metrics",
        "client_quotas",
        "cluster_id",
        "feature_levels",
        "features_epoch",
        "group_settings_memory",
        "partitions",
        "producer_ids_end",
        "scram_credentials",
        "topics_version",
    )

    def __init__(self, *, user_percent: int = 100) -> None:
        """``user_percent`` is ``sharegroup.user.limits.percent``."""
        self.cluster_id = ""
        self.producer_ids_end = 0
        self.topics_version = 0
        """A number that changes whenever a topic is created, changed or deleted; not stored."""
        self.feature_levels: Mapping[str, int] = LEVELS_BEFORE
        self.features_epoch = 0
        self._topics: dict[TopicName, Topic] = {}
        self._ids: dict[TopicId, TopicName] = {}
        self._deleted: dict[TopicId, None] = {}
        self._groups: dict[GroupId, dict[str, str]] = {}
        self._dead_letter_authors: dict[GroupId, Author] = {}
        self.partitions = SharedTotal[TopicId](
            "partitions of topics", "topic", PolicyViolation, user_percent
        )
        """The partitions of all topics but the internal ones."""
        self.group_settings_memory = SharedTotal[GroupId](
            "bytes of group settings", "group", PolicyViolation, user_percent
        )
        self.client_metrics = ClientMetricsSettings()
        self.acls = AclEntries()
        self.client_quotas = ClientQuotas()
        self.scram_credentials = ScramCredentials()
        parts: list[CatalogPart] = [
            self.client_metrics,
            self.acls,
            self.client_quotas,
            self.scram_credentials,
        ]
        self._parts = {kind: part for part in parts for kind in part.kinds}
        self._broker: dict[bool, dict[str, str]] = {False: {}, True: {}}  # True: for all brokers.

    def topic(self, name: TopicName) -> Topic:
        """Return the topic with this name; raise UnknownTopicOrPartition if there is none."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def find(self, name: TopicName) -> Topic | None:
        """Return the topic with this name, or None if there is none."""
        return self._topics.get(name)

    def by_id(self, topic_id: TopicId) -> Topic | None:
        """Return the topic with this id, or None if there is none; deleted topics are not found."""
        name = self._ids.get(topic_id)
        return None if name is None else self._topics[name]

    @property
    def names(self) -> KeysView[TopicName]:
        """The names of all topics."""
        return self._topics.keys()

    def topics(self) -> Iterator[Topic]:
        """Iterate over all topics, internal ones included, in the order of their names."""
        yield from sorted(self._topics.values(), key=lambda topic: topic.name)

    @property
    def deleted_topics(self) -> Sequence[TopicId]:
        """The deleted topics that may still have folders; only their folders may be removed."""
        return tuple(self._deleted)

    def forget_deleted(self, topic_id: TopicId) -> None:
        """Forget a deleted topic whose folders are durably removed."""
        self._deleted.pop(topic_id, None)

    @property
    def events_needed(self) -> int:
        """The approximate number of events that `events` yields."""
        named = len(self._topics) + len(self._deleted) + len(self._groups)
        return 3 + named + sum(map(len, self._every_part())) + len(self._broker)

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics that are not internal."""
        return self.partitions.used

    @property
    def group_settings_bytes(self) -> int:
        """The approximate memory of the settings of all groups in bytes."""
        return self.group_settings_memory.used

    def group_settings(self, group_id: GroupId) -> Mapping[str, str]:
        """Return the settings of a group as text, without defaults; the group need not exist."""
        return self._groups.get(group_id, {})

    def groups_with_settings(self) -> list[GroupId]:
        """Return the ids that have group settings, even if no such group exists."""
        return sorted(self._groups)

    def dead_letter_author(self, group_id: GroupId) -> Author | None:
        """Return the user who set the group's dead-letter topic.

        None if there was no authorizer then, or the setting is from an earlier version.
        """
        return self._dead_letter_authors.get(group_id)

    def groups_without_dead_letter_author(self) -> list[GroupId]:
        """Return the groups whose dead-letter topic belongs to no user."""
        return [
            group_id
            for group_id in self.groups_with_settings()
            if DEAD_LETTER_TOPIC in self._groups[group_id]
            and group_id not in self._dead_letter_authors
        ]

    def group_config(self, group_id: GroupId) -> GroupConfig:
        """Return the parsed settings of a group; None means that the broker's value is used."""
        return parse_part(GroupConfig, self.group_settings(group_id))

    def broker_settings(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the settings made at run time: those of this broker, and those of all brokers.

        A setting of this broker takes precedence.
        """
        return self._broker[False], self._broker[True]

    def create_topic(
        self, name: TopicName, topic_id: TopicId, *, partitions: int, settings: Mapping[str, str]
    ) -> Event:
        """Return the event that creates a topic, after its name and settings are checked."""
        check_topic_name(name)
        if name in self._topics:
            raise TopicAlreadyExists(f"topic {name!r} already exists")
        # As in Kafka (`Topic.hasCollision`).
        if any(_metric_name(topic) == _metric_name(name) for topic in self._topics):
            # Its name is not told, because the client may not be allowed to know it.
            raise InvalidTopic(
                f"topic {name!r} differs from an existing topic only in '.' and '_', which are the "
                "same in names of metrics"
            )
        # Only checked here: `replay` parses the settings, also those that the journal has.
        check_topic_config(parse_part(TopicConfig, settings))
        return {
            "event": "topic_created",
            "name": name,
            "id": topic_id.hex,
            "partitions": partitions,
            "settings": dict(settings),
        }

    def events(self) -> Iterator[Event]:
        """Yield the shortest sequence of events that leads to this catalog."""
        # Without an epoch the levels are `LEVELS_BEFORE`, which a catalog without this event has
        # anyway.
        if self.features_epoch:
            yield {
                "event": "features",
                "levels": dict(self.feature_levels),
                "epoch": self.features_epoch,
            }
        yield {"event": "cluster", "id": self.cluster_id}
        if self.producer_ids_end:
            yield {"event": "producer_ids", "end": self.producer_ids_end}
        for topic_id in self.deleted_topics:
            yield {"event": "topic_deleted", "id": topic_id.hex}
        for topic in self._topics.values():
            yield {
                "event": "topic_created",
                "name": topic.name,
                "id": topic.topic_id.hex,
                "partitions": topic.partition_count,
                "settings": dict(topic.settings),
            }
        for group_id, settings in self._groups.items():
            author = self._dead_letter_authors.get(group_id)
            yield group_settings_event(group_id, settings, author)
        for part in self._every_part():
            yield from part.events()
        for default, settings in self._broker.items():
            if settings:
                yield {"event": "broker_settings", "settings": settings, "default": default}

    def load(self, payloads: Iterable[bytes]) -> None:
        """Apply the events of a journal.

        Raises KafkaStorageError for an event that this version does not understand.  Its content is
        not shown, because it may be that of a credential.
        """
        for number, payload in enumerate(payloads):
            try:
                self.replay(decode_event(payload))
            except (ValueError, LookupError, TypeError, AssertionError) as error:
                raise KafkaStorageError(
                    f"event {number} of the catalog cannot be read: {type(error).__name__}: "
                    f"{str(error)[:200]}; a newer version of sharegroup wrote this data directory, "
                    "or it is damaged: use that version, or restore a backup"
                ) from error

    def replay(self, event: Event) -> None:
        """Apply one event to the catalog."""
        if (part := self._parts.get(event["event"])) is not None:
            part.replay(event)
            return
        match event["event"]:
            case "cluster":
                self.cluster_id = event["id"]
            case "features":
                self.feature_levels = MappingProxyType(dict(event["levels"]))
                self.features_epoch = event["epoch"]
            case "producer_ids":
                self.producer_ids_end = event["end"]
            case "topic_created":
                self._put(_topic(event))
            case "topic_deleted":
                topic_id = TopicId(UUID(event["id"]))
                self._deleted[topic_id] = None
                name = self._ids.pop(topic_id, None)
                if name is not None:  # A rewritten journal has only the deletion.
                    topic = self._topics.pop(name)
                    self.partitions.change(topic_id, -_counted(topic))
                    self.topics_version += 1
            case "partitions_added":
                topic = self._topics[event["name"]]
                self._put(_changed(topic, event["partitions"], topic.settings))
            case "topic_settings":
                topic = self._topics[event["name"]]
                self._put(_changed(topic, topic.partition_count, event["settings"]))
            case "group_settings":
                group_id, settings = event["group"], event["settings"]
                self._put_group_settings(group_id, settings, _author(event))
            case "broker_settings":
                self._broker[event.get("default", False)] = event["settings"]
            case other:
                raise ValueError(f"catalog events of the kind {other!r} are not known")

    def _every_part(self) -> Iterable[CatalogPart]:
        """Return each part once, also one with several kinds of events."""
        return dict.fromkeys(self._parts.values())

    def _put_group_settings(
        self, group_id: GroupId, settings: dict[str, str], author: Author | None
    ) -> None:
        """Replace the settings of a group; a group without settings is removed."""
        self._dead_letter_authors.pop(group_id, None)
        if settings and author is not None:
            self._dead_letter_authors[group_id] = author
        previous = self._groups.pop(group_id, {})
        if settings:
            self._groups[group_id] = settings
        growth_bytes = settings_bytes(group_id, settings) - settings_bytes(group_id, previous)
        self.group_settings_memory.change(group_id, growth_bytes)

    def _put(self, topic: Topic) -> None:
        self.topics_version += 1
        before = self._topics.get(topic.name)
        growth = _counted(topic) - (0 if before is None else _counted(before))
        self.partitions.change(topic.topic_id, growth)
        self._topics[topic.name] = topic
        self._ids[topic.topic_id] = topic.name


def _counted(topic: Topic) -> int:
    """Return the partitions of a topic that count for ``sharegroup.partitions.max``."""
    return 0 if topic.is_internal else topic.partition_count


def settings_bytes(group_id: GroupId, settings: Mapping[str, str]) -> int:
    """Return the approximate memory of a group's settings in bytes; 0 without settings."""
    if not settings:
        return 0
    values = sum(SETTING_BYTES + text_bytes(value) for value in settings.values())
    return GROUP_SETTINGS_BYTES + text_bytes(group_id) + values


def group_settings_event(
    group_id: GroupId, settings: Mapping[str, str], author: Author | None
) -> Event:
    """Return the event that replaces a group's settings.

    ``author`` is the user who set its dead-letter topic, if that is known.
    """
    event: Event = {"event": "group_settings", "group": group_id, "settings": dict(settings)}
    if author is not None:
        event["dead_letter_author"] = [str(author.principal), author.host]
    return event


def _author(event: Event) -> Author | None:
    author = event.get("dead_letter_author")
    if author is None:
        return None
    principal, host = author
    return Author(parse_principal(principal), host)


def encode_event(event: Event) -> bytes:
    """Return the event as compact JSON in UTF-8, as it is written to the journal."""
    return json.dumps(event, separators=(",", ":")).encode()


def decode_event(data: bytes) -> Event:
    """Return the event of a payload that `encode_event` has made."""
    event = json.loads(data)
    assert isinstance(event, dict)
    return event


def _topic(event: Event) -> Topic:
    settings = event["settings"]
    return Topic(
        name=TopicName(event["name"]),
        # The object that requests have, too: dictionaries find it without comparing numbers.
        topic_id=TopicId(interned_uuid(UUID(event["id"]).bytes)),
        partition_count=event["partitions"],
        config=parse_part(TopicConfig, settings),
        settings=settings,
    )


def _changed(topic: Topic, partition_count: int, settings: Mapping[str, str]) -> Topic:
    config = parse_part(TopicConfig, settings)
    return Topic(topic.name, topic.topic_id, partition_count, config, settings)


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
