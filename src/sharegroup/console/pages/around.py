"""Around the queue, read-only: topics and consumer groups."""

from __future__ import annotations

from dataclasses import asdict

from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.resource_settings import settings_of
from sharegroup.console.pages.tables import Column, table
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import ResourceType

TOPICS = (
    Column("name", "Topic", "id", link=lambda row: address("topic", name=row["name"])),
    Column("partition_count", "Partitions", "number"),
    Column("leaderless", "Leaderless", "number"),
    Column("short_of_replicas", "Short of replicas", "number", narrow=False),
    Column("kind", "Kind", "text", narrow=False),
)
TOPIC_PARTITIONS = (
    Column("partition", "Partition"),
    Column("leader", "Leader", "number"),
    Column("replicas", "Replicas", "list", narrow=False),
    Column("in_sync_replicas", "In sync", "list", narrow=False),
    Column("start", "First", "number"),
    Column("end", "End", "number"),
    Column("records", "Offsets", "number"),
)
GROUPS = (
    Column("group", "Group", "id", link=lambda row: address("group", id=row["group"])),
    Column("type", "Type", "text", narrow=False),
    Column("state", "State", "state"),
    Column("members", "Members", "number"),
    Column("lag", "Waiting", "number"),
    Column("topics", "Topics", "list", narrow=False),
)


async def topics(visit: Visit) -> Page:
    """Return all topics of the cluster."""
    rows = [
        {
            **asdict(topic),
            "leaderless": len(topic.leaderless),
            "short_of_replicas": len(topic.short_of_replicas),
            "kind": "internal" if topic.is_internal else "",
        }
        for topic in visit.watcher.view.topics.values()
    ]
    shown = table(
        "topics", TOPICS, rows, visit.query, sort="kind",
        empty="There are no topics. Create one: sharegroup topics create NAME",
    )  # fmt: skip
    return Page("list.html", "Topics", {"shown": shown}, {"topics": rows})


async def topic(visit: Visit) -> Page:
    """Return one topic: partitions with leaders and offsets, and settings."""
    name = visit.topic("name")
    found = (await visit.admin.describe_topics([name]))[name]
    if not isinstance(found, TopicDescription):
        raise NotThere(f"Topic {name!r}: {found}")
    places = [TopicPartition(name, partition.partition) for partition in found.partitions]
    starts = await visit.admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = await visit.admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    rows = []
    for partition, where in zip(found.partitions, places, strict=True):
        start, end = _offset(starts[where]), _offset(ends[where])
        is_known = start is not None and end is not None
        rows.append({
            "partition": partition.partition, "leader": partition.leader,
            "replicas": list(partition.replicas),
            "in_sync_replicas": list(partition.in_sync_replicas), "start": start, "end": end,
            "records": (end or 0) - (start or 0) if is_known else None,
        })  # fmt: skip
    shown = table("partitions", TOPIC_PARTITIONS, rows, visit.query, sort="partition", empty="")
    readers = [group for group in visit.watcher.view.groups.values() if name in group.topics]
    settings = await settings_of(visit, ResourceType.TOPIC, name)
    context = {"topic": found, "shown": shown, "settings": settings, "readers": readers}
    data = {"topic": name, "partitions": rows, "settings": settings}
    return Page("topic.html", name, context, data)


def _offset(found: ListedOffset | KafkaError) -> int | None:
    return found.offset if isinstance(found, ListedOffset) else None


async def consumer_groups(visit: Visit) -> Page:
    """Return the groups that are no share groups, with their lag."""
    rows = [
        {
            "group": group.group_id,
            "type": group.type,
            "state": group.state,
            "members": len(group.members) if group.members_at is not None else None,
            "lag": group.lag,
            "topics": list(group.topics),
        }
        for group in visit.watcher.view.other_groups
    ]
    shown = table(
        "groups", GROUPS, rows, visit.query, sort="-lag", empty="There are no consumer groups."
    )
    visit.watcher.looks_at(row["group"] for row in shown.rows)
    return Page("list.html", "Consumer groups", {"shown": shown}, {"groups": rows})
