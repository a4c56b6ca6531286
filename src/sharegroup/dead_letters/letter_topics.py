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
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.client.admin.types import ConfigResource, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.ledger import SUFFIX as LEDGER_SUFFIX
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import ResourceType

if TYPE_CHECKING:
    # Imported for its type alone, because callers of other names need no such client.
    from sharegroup.client.admin.admin_client import AdminClient

SUFFIX = ".dead"
"""The end of the default name of a worker's dead-letter topic: ``<group>.dead``."""
ENABLED = "errors.deadletterqueue.group.enable"
NAME = "errors.deadletterqueue.topic.name"

READ_AGAIN_MAX = 500
"""Known topics, and groups, whose settings are read again in one read."""

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


class LetterSettings:
    """The settings that name dead-letter topics, for callers that ask again and again.

    Each time they are read of all new topics and groups, and of `READ_AGAIN_MAX` others of each,
    those first that were read longest ago.
    """

    __slots__ = ("_enabled", "_named")

    def __init__(self) -> None:
        self._enabled: dict[str, str | None] = {}
        """The value of `ENABLED` by topic; those that were read last are at the end."""
        self._named: dict[str, str | None] = {}
        """The value of `NAME` by share group, in the same order."""

    async def read(self, admin: AdminClient, names: KnownNames) -> None:
        """Read the settings of new topics and groups, and of some others."""
        self._enabled = await _read_again(
            admin, ResourceType.TOPIC, ENABLED, self._enabled, names.partition_counts
        )
        self._named = await _read_again(
            admin, ResourceType.GROUP, NAME, self._named, names.share_groups
        )

    def enabled_topics(self) -> set[str]:
        """Return the topics to which brokers may write letters."""
        return {topic for topic, value in self._enabled.items() if value == "true"}

    def groups_by_topic(self) -> dict[str, list[str]]:
        """Return the share groups for whose dead letters each topic is set."""
        topics: dict[str, list[str]] = {}
        for group, topic in self._named.items():
            if topic:
                topics.setdefault(topic, []).append(group)
        return topics


async def letter_topics(
    admin: AdminClient,
    *,
    since_ms: int | None = None,
    known: KnownNames | None = None,
    settings: LetterSettings | None = None,
) -> LetterTopics:
    """Return the dead-letter topics that the user may see; count letters since a moment, too.

    Without ``known`` all topics and share groups are listed first, and without ``settings`` those
    of all of them are read.
    """
    names = known or await _known_names(admin)
    counts = names.partition_counts
    settings = settings or LetterSettings()
    await settings.read(admin, names)
    groups, enabled = settings.groups_by_topic(), settings.enabled_topics()
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


async def _read_again(
    admin: AdminClient,
    kind: ResourceType,
    config: str,
    known: Mapping[str, str | None],
    names: Collection[str],
) -> dict[str, str | None]:
    """Return the values of a config by name, those that were just read at the end.

    A value that cannot be read for the moment is the older one; a new name is then asked again.
    """
    present = set(names)
    kept = {name: value for name, value in known.items() if name in present}
    asked = [*(name for name in names if name not in kept), *islice(kept, READ_AGAIN_MAX)]
    for name, value in (await _values(admin, kind, asked, config)).items():
        if isinstance(value, KafkaError) and value.retriable:
            continue
        kept.pop(name, None)
        kept[name] = None if isinstance(value, KafkaError) else value
    return kept


async def _values(
    admin: AdminClient, kind: ResourceType, names: Collection[str], config: str
) -> dict[str, str | KafkaError | None]:
    """Return the value of one config, or the error, of each of these resources by name."""
    if not names:
        return {}
    asked = [ConfigResource(kind, name) for name in names]
    results = await admin.describe_configs(asked, names=[config])
    return {
        resource.name: entries
        if isinstance(entries, KafkaError)
        else None
        if config not in entries
        else entries[config].value
        for resource, entries in results.items()
    }
