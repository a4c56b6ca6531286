"""What a cluster has of what routes need: the questions that `changes` wants answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from sharegroup.client.cluster import NO_LEADER
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from sharegroup.worker.infrastructure.changes import (
    Change,
    Found,
    FoundTopic,
    Kind,
    owned_names,
    same_value,
)
from sharegroup.worker.infrastructure.wanted import Wanted

VISIBLE_SECONDS_MAX = 10.0
VISIBLE_SECONDS_STEP = 0.05


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
    first = await _offsets(admin, where, OffsetSpec.EARLIEST)
    end = await _offsets(admin, where, OffsetSpec.LATEST)
    counted = dict.fromkeys(topics, 0)
    for one in where:
        counted[one.topic] += end[one] - first[one]
    return counted


async def _offsets(
    admin: AdminClient, where: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offsets, once each partition has a leader that knows that it is one."""
    limit = time.monotonic() + VISIBLE_SECONDS_MAX
    while True:
        answers = await admin.list_offsets(dict.fromkeys(where, spec))
        errors = [one for one in answers.values() if isinstance(one, KafkaError)]
        if not errors:
            return {at: one.offset for at, one in answers.items() if isinstance(one, ListedOffset)}
        if time.monotonic() >= limit or not all(one.retriable for one in errors):
            raise errors[0]
        await asyncio.sleep(VISIBLE_SECONDS_STEP)


async def visible(admin: AdminClient, made: Sequence[Change]) -> None:
    """Return when what was made is what the cluster answers.

    A controller answers before its brokers have heard of it: a member that joined in between
    would begin where a new group begins by default, and a plan would find what was just mended.
    """
    limit = time.monotonic() + VISIBLE_SECONDS_MAX
    while made:
        names = sorted({one.name for one in made if one.resource == "topic"})
        topics = await admin.describe_topics(names) if names else {}
        settings = [_resource_of(one) for one in made if one.is_setting]
        configs = await admin.describe_configs(settings) if settings else {}
        made = [one for one in made if not _is_seen(one, topics, configs)]
        if made:
            if time.monotonic() >= limit:
                raise RequestTimedOut(f"{made[0]}: made, and not seen in {VISIBLE_SECONDS_MAX} s")
            await asyncio.sleep(VISIBLE_SECONDS_STEP)


def _is_seen(
    change: Change,
    topics: Mapping[str, TopicDescription | KafkaError],
    configs: Mapping[ConfigResource, Mapping[str, ConfigEntry] | KafkaError],
) -> bool:
    topic = topics.get(change.name)
    if change.kind is Kind.SURPLUS:
        return isinstance(topic, UnknownTopicOrPartition)
    if change.is_setting:
        answer = configs[_resource_of(change)]
        assert change.setting is not None, "a setting has a name"
        entry = None if isinstance(answer, KafkaError) else answer.get(change.setting)
        return entry is not None and same_value(entry.value, change.wanted or "")
    if not isinstance(topic, TopicDescription) or NO_LEADER in topic.leaders:
        return False
    return change.setting is None or topic.partition_count >= int(change.wanted or 0)


def _resource_of(change: Change) -> ConfigResource:
    kind = ResourceType.TOPIC if change.resource == "topic" else ResourceType.GROUP
    return ConfigResource(kind, change.name)
