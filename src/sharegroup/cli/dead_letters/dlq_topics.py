"""``sharegroup dlq list`` without a topic: the dead-letter topics of a cluster and their counts.

A topic has dead letters if one of these is true; none of them needs more than DESCRIBE on it:

    its setting errors.deadletterqueue.group.enable is true      brokers write letters to it
    a share group names it in errors.deadletterqueue.topic.name  the same
    its name ends with .dead                                      the default of workers
    another topic has its name and .redriven                      letters of it were sent back

Settings that the user may not see are left out without an error, because the names are enough for
most topics. The number of letters is that of the offsets: no letter is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sharegroup.cli.common.output import Listing, Row
from sharegroup.cli.dead_letters.dlq_options import moment_text
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
COLUMNS = ("topic", "partitions", "letters", "last_letter", "groups")
SPARE = ("partitions", "groups", "last_letter")
NOTHING = "There are no dead-letter topics."

Offsets = Mapping[TopicPartition, ListedOffset | KafkaError]


async def dead_letter_topics(admin: AdminClient) -> Listing:
    """Return a row for each dead-letter topic that the user may see."""
    described = {
        name: topic
        for name, topic in (await admin.describe_topics()).items()
        if isinstance(topic, TopicDescription)
    }
    groups = await _groups_by_topic(admin)
    enabled = await _enabled(admin, described)
    names = [
        name
        for name in sorted(described)
        if name in enabled
        or name in groups
        or name.endswith(SUFFIX)
        or f"{name}{LEDGER_SUFFIX}" in described
    ]
    partitions = [
        TopicPartition(name, partition.partition)
        for name in names
        for partition in described[name].partitions
    ]
    first = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    last = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    rows = [_row(described[name], groups.get(name, []), first, end, last) for name in names]
    errors = [error for error in end.values() if isinstance(error, KafkaError)]
    return Listing(rows, COLUMNS, NOTHING, errors, spare=SPARE)


async def _groups_by_topic(admin: AdminClient) -> dict[str, list[str]]:
    """Return the share groups for whose dead letters each topic is set."""
    try:
        ids = [group.group_id for group in await admin.list_share_groups()]
    except UnsupportedVersion:  # A broker without share groups has letters of their workers only.
        return {}
    topics: dict[str, list[str]] = {}
    for group, settings in (await _settings(admin, ResourceType.GROUP, ids)).items():
        if topic := settings.get(NAME):
            topics.setdefault(topic, []).append(group)
    return topics


async def _enabled(admin: AdminClient, topics: Collection[str]) -> set[str]:
    settings = await _settings(admin, ResourceType.TOPIC, topics)
    return {topic for topic, values in settings.items() if values.get(ENABLED) == "true"}


async def _settings(
    admin: AdminClient, kind: ResourceType, names: Collection[str]
) -> dict[str, dict[str, str | None]]:
    """Return the settings of these resources; none of those that the user may not see."""
    if not names:
        return {}
    results = await admin.describe_configs([ConfigResource(kind, name) for name in names])
    return {
        resource.name: {entry.name: entry.value for entry in entries.values()}
        for resource, entries in results.items()
        if not isinstance(entries, KafkaError)
    }


def _row(
    topic: TopicDescription, groups: list[str], first: Offsets, end: Offsets, last: Offsets
) -> Row:
    letters = 0
    last_ms = -1
    for partition in topic.partitions:
        where = TopicPartition(topic.name, partition.partition)
        first_offset, end_offset, newest = first[where], end[where], last[where]
        if isinstance(first_offset, ListedOffset) and isinstance(end_offset, ListedOffset):
            letters += max(0, end_offset.offset - first_offset.offset)
        if isinstance(newest, ListedOffset):
            last_ms = max(last_ms, newest.timestamp_ms)
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "letters": letters,
        "last_letter": moment_text(last_ms) if letters and last_ms >= 0 else None,
        "groups": sorted(groups),
    }
