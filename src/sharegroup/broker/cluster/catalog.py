"""What exists: topics, settings of topics, groups and the broker, the cluster's id.

A catalog is replayed from a small journal at start.  A command first checks, then returns
the `Event` that says what happened; the shell writes the event, and `replay` alone changes
the catalog, so what is in memory is what the journal will tell after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sharegroup.broker.configuration.config import GroupConfig, TopicConfig
from sharegroup.broker.configuration.config_values import parse_part
from sharegroup.broker.configuration.topic_name import check_topic_name
from sharegroup.errors import InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from sharegroup.ids import GroupId, TopicId, TopicName

Event = dict[str, Any]

CONSUMER_OFFSETS = TopicName("__consumer_offsets")
SHARE_GROUP_STATE = TopicName("__share_group_state")
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, SHARE_GROUP_STATE})

LEVELS_BEFORE: Mapping[str, int] = MappingProxyType(
    {"group.version": 1, "metadata.version": 33, "share.version": 1}
)
"""The levels of features of a data directory that does not say."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; a change makes a new one."""

    name: TopicName
    topic_id: TopicId
    partition_count: int
    config: TopicConfig
    settings: Mapping[str, str]
    """The configuration as text, only what was set."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Catalog:
    """See the module's text."""

    __slots__ = (
        "_broker",
        "_groups",
        "_ids",
        "_topics",
        "cluster_id",
        "feature_levels",
        "features_epoch",
        "producer_ids_end",
    )

    def __init__(self) -> None:
        self.cluster_id = ""
        self.producer_ids_end = 0
        self.feature_levels: Mapping[str, int] = LEVELS_BEFORE
        self.features_epoch = 0
        self._topics: dict[TopicName, Topic] = {}
        self._ids: dict[TopicId, TopicName] = {}
        self._groups: dict[GroupId, dict[str, str]] = {}
        self._broker: dict[bool, dict[str, str]] = {False: {}, True: {}}  # By «of all».

    def topic(self, name: TopicName) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}; create it first")
        return topic

    def find(self, name: TopicName) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: TopicId) -> Topic | None:
        name = self._ids.get(topic_id)
        return None if name is None else self._topics[name]

    def topics(self) -> Iterator[Topic]:
        yield from sorted(self._topics.values(), key=lambda topic: topic.name)

    @property
    def partition_count(self) -> int:
        """Partitions of all topics that users made."""
        return sum(t.partition_count for t in self._topics.values() if not t.is_internal)

    def group_settings(self, group_id: GroupId) -> Mapping[str, str]:
        return self._groups.get(group_id, {})

    def groups_with_settings(self) -> list[GroupId]:
        """The groups that set something for themselves, whether they exist or not."""
        return sorted(self._groups)

    def group_config(self, group_id: GroupId) -> GroupConfig:
        return parse_part(GroupConfig, self.group_settings(group_id))

    def broker_settings(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What was set at run time: of this broker, and of all that have nothing of their own."""
        return self._broker[False], self._broker[True]

    def create_topic(
        self, name: TopicName, topic_id: TopicId, *, partitions: int, settings: Mapping[str, str]
    ) -> Event:
        """The event that makes a topic; the settings are checked here."""
        check_topic_name(name)
        if name in self._topics:
            raise TopicAlreadyExists(f"topic {name!r} exists already")
        twin = next((t for t in self._topics if _metric_name(t) == _metric_name(name)), None)
        if twin is not None:
            raise InvalidTopic(f"topic {name!r} differs from {twin!r} only in '.' and '_'")
        parse_part(TopicConfig, settings)
        return {
            "event": "topic_created",
            "name": name,
            "id": topic_id.hex,
            "partitions": partitions,
            "settings": dict(settings),
        }

    def events(self) -> Iterator[Event]:
        """The shortest history that leads to this catalog."""
        if self.features_epoch:
            yield {
                "event": "features",
                "levels": dict(self.feature_levels),
                "epoch": self.features_epoch,
            }
        yield {"event": "cluster", "id": self.cluster_id}
        if self.producer_ids_end:
            yield {"event": "producer_ids", "end": self.producer_ids_end}
        for topic in self._topics.values():
            yield {
                "event": "topic_created",
                "name": topic.name,
                "id": topic.topic_id.hex,
                "partitions": topic.partition_count,
                "settings": dict(topic.settings),
            }
        for group_id, settings in self._groups.items():
            yield {"event": "group_settings", "group": group_id, "settings": settings}
        for default, settings in self._broker.items():
            if settings:
                yield {"event": "broker_settings", "settings": settings, "default": default}

    def replay(self, event: Event) -> None:
        """Let ``event`` have happened."""
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
                del self._topics[self._ids.pop(topic_id)]
            case "partitions_added":
                topic = self._topics[event["name"]]
                self._put(_changed(topic, event["partitions"], topic.settings))
            case "topic_settings":
                topic = self._topics[event["name"]]
                self._put(_changed(topic, topic.partition_count, event["settings"]))
            case "group_settings":
                self._groups[event["group"]] = event["settings"]
                if not event["settings"]:
                    del self._groups[event["group"]]
            case "broker_settings":
                self._broker[event.get("default", False)] = event["settings"]
            case other:
                raise ValueError(
                    f"catalog event {other!r} is not known to this version of sharegroup; "
                    "a newer one wrote this data directory"
                )

    def _put(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._ids[topic.topic_id] = topic.name


def encode_event(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def decode_event(data: bytes) -> Event:
    event = json.loads(data)
    assert isinstance(event, dict)
    return event


def _topic(event: Event) -> Topic:
    settings = event["settings"]
    return Topic(
        name=TopicName(event["name"]),
        topic_id=TopicId(UUID(event["id"])),
        partition_count=event["partitions"],
        config=parse_part(TopicConfig, settings),
        settings=settings,
    )


def _changed(topic: Topic, partition_count: int, settings: Mapping[str, str]) -> Topic:
    config = parse_part(TopicConfig, settings)
    return Topic(topic.name, topic.topic_id, partition_count, config, settings)


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
