"""The topics with dead letters of a cluster, and how many letters each of them has.

A topic has dead letters if one of these is true; none of them needs more than DESCRIBE on it:

    its setting errors.deadletterqueue.group.enable is true      brokers write letters to it
    a share group names it in errors.deadletterqueue.topic.name  the same
    its name ends with .dead                                      the default of workers
    another topic has its name and .redriven                      letters of it were sent back

Settings that the user may not see are left out without an error, because the names are enough for
most topics.  Internal topics, of Kafka and of sharegroup, have none.  The number of letters is that
of the offsets: no letter is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ConfigResource, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.ledger import SUFFIX as LEDGER_SUFFIX
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import ResourceType

SUFFIX = ".dead"
"""The end of the default name of a worker's dead-letter topic: ``<group>.dead``."""
ENABLED = "errors.deadletterqueue.group.enable"
NAME = "errors.deadletterqueue.topic.name"

Offsets = Mapping[TopicPartition, ListedOffset | KafkaError]


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """A topic of dead letters."""

    name: str
    partition_count: int
    letters: int
    last_letter_ms: int | None
    """The newest timestamp, in ms since 1970; None without letters."""
    groups: tuple[str, ...]
    """The share groups whose setting names the topic."""
    recent_letters: int | None = None
    """The letters since the moment that was asked for; None if none was, or it is unknown."""


@dataclass(frozen=True, slots=True)
class LetterTopics:
    """The topics, and the errors of partitions whose letters could not be counted."""

    topics: tuple[LetterTopic, ...]
    errors: Sequence[KafkaError]


class KnownNames(NamedTuple):
    """The topics and share groups among which the dead-letter topics are."""

    partition_counts: Mapping[str, int]
    """The number of partitions of each topic."""
    share_groups: Collection[str]


async def letter_topics(
    admin: AdminClient, *, since_ms: int | None = None, known: KnownNames | None = None
) -> LetterTopics:
    """Return the dead-letter topics that the user may see; count letters since a moment, too.

    Without ``known`` all topics and share groups are listed first.
    """
    counts, share_groups = known or await _known_names(admin)
    groups = await _groups_by_topic(admin, share_groups)
    enabled = await _enabled(admin, counts)
    places = {
        name: [TopicPartition(name, number) for number in range(counts[name])]
        for name in sorted(counts)
        if name in enabled
        or name in groups
        or name.endswith(SUFFIX)
        or f"{name}{LEDGER_SUFFIX}" in counts
    }
    partitions = [where for own in places.values() for where in own]
    first = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    last = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    recent = (
        {} if since_ms is None else await admin.list_offsets(dict.fromkeys(partitions, since_ms))
    )
    topics = tuple(
        LetterTopic(
            name=name,
            partition_count=len(own),
            letters=_distance(own, first, end),
            last_letter_ms=_newest(own, last),
            groups=tuple(sorted(groups.get(name, []))),
            recent_letters=None if since_ms is None else _distance(own, recent, end),
        )
        for name, own in places.items()
    )
    return LetterTopics(topics, [error for error in end.values() if isinstance(error, KafkaError)])


async def _known_names(admin: AdminClient) -> KnownNames:
    counts = {
        name: topic.partition_count
        for name, topic in (await admin.describe_topics()).items()
        if isinstance(topic, TopicDescription) and not topic.is_hidden
    }
    try:
        groups = [group.group_id for group in await admin.list_share_groups()]
    except UnsupportedVersion:  # A broker without share groups has letters of their workers only.
        groups = []
    return KnownNames(counts, groups)


def _distance(partitions: Collection[TopicPartition], first: Offsets, end: Offsets) -> int:
    """Return the number of offsets between two; a partition without one of them counts 0."""
    count = 0
    for where in partitions:
        begin, limit = first.get(where), end.get(where)
        if not isinstance(begin, ListedOffset) or not isinstance(limit, ListedOffset):
            continue
        if begin.offset >= 0:  # -1: no record is as new as the timestamp.
            count += max(0, limit.offset - begin.offset)
    return count


def _newest(partitions: Collection[TopicPartition], last: Offsets) -> int | None:
    found = [last.get(where) for where in partitions]
    newest = max((at.timestamp_ms for at in found if isinstance(at, ListedOffset)), default=-1)
    return newest if newest >= 0 else None


async def _groups_by_topic(admin: AdminClient, ids: Collection[str]) -> dict[str, list[str]]:
    """Return the share groups for whose dead letters each topic is set."""
    topics: dict[str, list[str]] = {}
    named = await _values(admin, ResourceType.GROUP, ids, NAME)
    for group, topic in named.items():
        if topic:
            topics.setdefault(topic, []).append(group)
    return topics


async def _enabled(admin: AdminClient, topics: Collection[str]) -> set[str]:
    values = await _values(admin, ResourceType.TOPIC, topics, ENABLED)
    return {topic for topic, value in values.items() if value == "true"}


async def _values(
    admin: AdminClient, kind: ResourceType, resources: Collection[str], config: str
) -> dict[str, str | None]:
    """Return the value of one config of these resources; none of those the user may not see."""
    if not resources:
        return {}
    asked = [ConfigResource(kind, name) for name in resources]
    results = await admin.describe_configs(asked, names=[config])
    return {
        resource.name: entries[config].value
        for resource, entries in results.items()
        if not isinstance(entries, KafkaError) and config in entries
    }
