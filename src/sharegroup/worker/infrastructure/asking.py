"""Queries the topics and settings of a cluster, for the comparison in `changes`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ConfigEntry, ConfigResource, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.net.cluster import NO_LEADER
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.protocol_enums import ResourceType
from sharegroup.worker.infrastructure.changes import (
    Change,
    ChangeKind,
    ExistingInfrastructure,
    ExistingTopic,
    owned_names,
    same_value,
)
from sharegroup.worker.infrastructure.wanted import RequiredInfrastructure

log = logging.getLogger(__name__)

GONE = (UnknownTopicOrPartition, TopicAuthorizationFailed)
"""Errors for a listed topic that was deleted or closed to this user in the meantime."""
UNSEEN = (TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed)
"""Errors that say that this user may not describe a resource."""
VISIBLE_SECONDS_MAX = 10.0
VISIBLE_SECONDS_STEP = 0.05
LAG_SECONDS_MAX = 5.0
"""Maximum time to wait for a broker that lags behind the others."""


async def found(
    admin: AdminClient, wanted: RequiredInfrastructure, *, former: Iterable[str] = ()
) -> ExistingInfrastructure:
    """Query the wanted topics that exist, the groups, and other topics with the worker's names.

    ``former`` has groups that are no longer declared, whose topics are searched, too.  Instead of
    settings that this user may not see, the result has the error.  Other errors are raised.
    """
    groups = [entry.group for entry in wanted.groups]
    everything = await admin.list_topics()
    names = {topic.name for topic in wanted.topics}
    surplus = [entry for entry in owned_names((*groups, *former), everything) if entry not in names]
    topics = await _topics(admin, sorted(names & {*everything}) + surplus)
    counted = await _records(admin, {name: topics[name] for name in surplus if name in topics})
    compared = {topic.name for topic in wanted.topics if topic.is_ours} & {*topics}
    configs = await _configs(
        admin,
        [ConfigResource(ResourceType.TOPIC, name) for name in sorted(compared)]
        + [ConfigResource(ResourceType.GROUP, name) for name in groups],
    )
    cluster = await admin.describe_cluster(include_fenced=True)
    return ExistingInfrastructure(
        {
            name: ExistingTopic(
                topic.partition_count,
                configs.get(ConfigResource(ResourceType.TOPIC, name), {}),
                counted.get(name),
                min((len(entry.replicas) for entry in topic.partitions), default=1),
            )
            for name, topic in topics.items()
        },
        {name: configs[ConfigResource(ResourceType.GROUP, name)] for name in groups},
        max(1, len(cluster.nodes)),
    )


async def _topics(admin: AdminClient, names: list[str]) -> dict[str, TopicDescription]:
    described = await admin.describe_topics(names) if names else {}
    existing = {}
    for name, topic in described.items():
        if isinstance(topic, TopicDescription):
            existing[name] = topic
        elif not isinstance(topic, GONE):
            raise topic
    return existing


async def _configs(
    admin: AdminClient, resources: list[ConfigResource]
) -> dict[ConfigResource, Mapping[str, ConfigEntry] | KafkaError]:
    answers: dict[ConfigResource, Mapping[str, ConfigEntry] | KafkaError] = {}
    for resource, answer in (await admin.describe_configs(resources)).items():
        if isinstance(answer, KafkaError) and not isinstance(answer, UNSEEN):
            raise answer
        answers[resource] = answer
    return answers


async def _records(admin: AdminClient, topics: Mapping[str, TopicDescription]) -> dict[str, int]:
    """The number of offsets in each of these topics, reported before a topic is deleted."""
    partitions = [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
    ]
    first = await _offsets(admin, partitions, OffsetSpec.EARLIEST)
    end = await _offsets(admin, partitions, OffsetSpec.LATEST)
    counted = dict.fromkeys(topics, 0)
    for partition in partitions:
        counted[partition.topic] += end[partition] - first[partition]
    return counted


async def _offsets(
    admin: AdminClient, where: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """List offsets; retries while a partition has no leader."""
    limit = time.monotonic() + VISIBLE_SECONDS_MAX
    while True:
        answers = await admin.list_offsets(dict.fromkeys(where, spec))
        errors = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
        if not errors:
            return {
                partition: answer.offset
                for partition, answer in answers.items()
                if isinstance(answer, ListedOffset)
            }
        # A partition that was just created has no leader for a moment.
        if time.monotonic() >= limit or not all(answer.retriable for answer in errors):
            raise errors[0]
        await asyncio.sleep(VISIBLE_SECONDS_STEP)


async def visible(
    admin: AdminClient,
    made: Sequence[Change],
    *,
    step_seconds: float = VISIBLE_SECONDS_STEP,
    lag_seconds_max: float = LAG_SECONDS_MAX,
) -> None:
    """Wait until the cluster reports the changes that were made.

    The controller answers before all brokers know of a change.  A member that joined too early
    would start at the default position of a new group, and a plan would repeat these changes.
    """
    limit = time.monotonic() + VISIBLE_SECONDS_MAX
    everything = made
    while made:
        names = sorted({change.name for change in made if change.resource == "topic"})
        topics = await admin.describe_topics(names) if names else {}
        settings = [_resource_of(change) for change in made if change.is_setting]
        configs = await admin.describe_configs(settings) if settings else {}
        made = [change for change in made if not _is_seen(change, topics, configs)]
        if made:
            if time.monotonic() >= limit:
                raise RequestTimedOut(
                    f"{made[0]}: requested, but not visible after {VISIBLE_SECONDS_MAX} s"
                )
            await asyncio.sleep(step_seconds)
    await _visible_everywhere(
        admin,
        [change for change in everything if change.kind is not ChangeKind.SURPLUS],
        step_seconds=step_seconds,
        lag_seconds_max=lag_seconds_max,
    )


async def _visible_everywhere(
    admin: AdminClient, made: Sequence[Change], *, step_seconds: float, lag_seconds_max: float
) -> None:
    """Wait until every running broker knows of the changes, for at most ``lag_seconds_max``.

    The partition leader decides where a new group starts, by the group's settings as it knows them.
    Brokers may lag behind the one that answered first.  One that does not answer is only logged.
    """
    nodes = (await admin.describe_cluster()).nodes if made else ()
    if len(nodes) < 2:
        return
    asking = {
        node.node_id: asyncio.create_task(_seen_by(admin, node.node_id, made, step_seconds))
        for node in nodes
    }
    _, late = await asyncio.wait(asking.values(), timeout=lag_seconds_max)
    for task in late:
        task.cancel()
    await asyncio.gather(*asking.values(), return_exceptions=True)
    lagging = [str(node_id) for node_id, task in asking.items() if task in late]
    if lagging:
        log.warning(
            "event=infrastructure.lagging brokers=%s seconds=%s reason='these brokers have not "
            "applied the changes yet' action='a group may start at the latest record of "
            "partitions that they lead'",
            ",".join(lagging),
            lag_seconds_max,
        )


async def _seen_by(
    admin: AdminClient, node_id: int, made: Sequence[Change], step_seconds: float
) -> None:
    """Wait until this broker knows of the topics and settings."""
    resources = list(dict.fromkeys(map(_resource_of, made)))
    while True:
        configs = await admin.describe_configs(resources, node_id=node_id)
        if all(_is_heard_of(change, configs[_resource_of(change)]) for change in made):
            return
        await asyncio.sleep(step_seconds)


def _is_heard_of(change: Change, configs: Mapping[str, ConfigEntry] | KafkaError) -> bool:
    if isinstance(configs, UNSEEN):
        return True  # This user cannot find out, so there is nothing to wait for.
    if isinstance(configs, KafkaError):
        return False
    if not change.is_setting:
        return True
    assert change.setting is not None, "a setting has a name"
    entry = configs.get(change.setting)
    return entry is not None and same_value(entry.value, change.wanted or "")


def _is_seen(
    change: Change,
    topics: Mapping[str, TopicDescription | KafkaError],
    configs: Mapping[ConfigResource, Mapping[str, ConfigEntry] | KafkaError],
) -> bool:
    topic = topics.get(change.name)
    if change.kind is ChangeKind.SURPLUS:
        return isinstance(topic, UnknownTopicOrPartition)
    if isinstance(topic, TopicAuthorizationFailed):
        return True  # A user who may create a topic need not be allowed to describe it.
    if change.is_setting:
        return _is_heard_of(change, configs[_resource_of(change)])
    if not isinstance(topic, TopicDescription) or NO_LEADER in topic.leaders:
        return False
    return change.setting is None or topic.partition_count >= int(change.wanted or 0)


def _resource_of(change: Change) -> ConfigResource:
    kind = ResourceType.TOPIC if change.resource == "topic" else ResourceType.GROUP
    return ConfigResource(kind, change.name)
