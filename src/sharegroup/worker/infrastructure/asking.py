"""What a cluster has of what routes need: the questions that `changes` wants answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.worker.infrastructure.changes import Found, FoundTopic, owned_names
from sharegroup.worker.infrastructure.wanted import Wanted

if TYPE_CHECKING:
    from sharegroup.worker.app import App


async def found(admin: AdminClient, wanted: Wanted, *, former: Iterable[str] = ()) -> Found:
    """The wanted topics that are there, others that are named as ours are, and the groups.

    ``former``: groups that are declared no longer, whose topics are looked for, too.  Raises
    the first error of something that can't be looked at.
    """
    groups = [one.group for one in wanted.groups]
    everything = await admin.list_topics()
    names = {topic.name for topic in wanted.topics}
    surplus = [one for one in owned_names((*groups, *former), everything) if one not in names]
    topics = await _topics(admin, sorted(names & {*everything}) + surplus)
    counted = await _records(admin, {name: topics[name] for name in surplus if name in topics})
    configs = await _configs(
        admin,
        [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        + [ConfigResource(ResourceType.GROUP, name) for name in groups],
    )
    return Found(
        {
            name: FoundTopic(
                topic.partition_count,
                configs[ConfigResource(ResourceType.TOPIC, name)],
                counted.get(name),
            )
            for name, topic in topics.items()
        },
        {name: configs[ConfigResource(ResourceType.GROUP, name)] for name in groups},
    )


async def _topics(admin: AdminClient, names: list[str]) -> dict[str, TopicDescription]:
    described = await admin.describe_topics(names) if names else {}
    there = {}
    for name, topic in described.items():
        if isinstance(topic, TopicDescription):
            there[name] = topic
        elif not isinstance(topic, UnknownTopicOrPartition):  # Deleted meanwhile.
            raise topic
    return there


async def _configs(
    admin: AdminClient, resources: list[ConfigResource]
) -> dict[ConfigResource, Mapping[str, ConfigEntry]]:
    answers: dict[ConfigResource, Mapping[str, ConfigEntry]] = {}
    for resource, answer in (await admin.describe_configs(resources)).items():
        if isinstance(answer, KafkaError):
            raise answer
        answers[resource] = answer
    return answers


async def _records(admin: AdminClient, topics: Mapping[str, TopicDescription]) -> dict[str, int]:
    """How many offsets these topics hold, for whoever is about to delete them."""
    where = [
        TopicPartition(name, one.partition)
        for name, topic in topics.items()
        for one in topic.partitions
    ]
    first = await admin.list_offsets(dict.fromkeys(where, OffsetSpec.EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(where, OffsetSpec.LATEST))
    counted = dict.fromkeys(topics, 0)
    for one in where:
        counted[one.topic] += _offset(end[one]) - _offset(first[one])
    return counted


def _offset(answer: ListedOffset | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer.offset


def open_admin(app: App) -> AdminClient:
    """An admin client that reaches the application's cluster as the application does."""
    from sharegroup.worker.transport.kafka import admin_options

    return AdminClient(**admin_options(app))
