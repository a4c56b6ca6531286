"""The start offsets of a share group: a dry run of a reset, and the reset that it showed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sharegroup.client.admin.offset_resets import (
    FromPlan,
    OffsetChange,
    Scenario,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from sharegroup.client.records import TopicPartition
from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.console.records.moments import moment_ms
from sharegroup.errors import KafkaError

PARTITIONS_MAX = 1_000
"""Partitions of one reset; the form that makes it has all of them."""
COLUMNS = (
    Column("topic", "Topic", "id"),
    Column("partition", "Partition", "number"),
    Column("old", "Now", "number"),
    Column("new", "Then", "number"),
    Column("moved", "Moved by", "number"),
    Column("error", "Problem", "text"),
)
TARGETS = ("earliest", "latest", "offset", "time")


async def reset(visit: Visit) -> Page:
    """Return what a reset of a share group's start offsets would change; nothing is changed."""
    group_id = visit.required("group")
    if not visit.rights.may_see_group(group_id):
        raise NotThere(f"There is no group {group_id!r}, or you may not see it.")
    target = visit.query.get("to", "")
    topic = visit.query.get("topic", "")
    context: dict[str, Any] = {
        "group": group_id,
        "form": {name: visit.query.get(name, "") for name in ("to", "topic", "offset", "time")},
        "targets": TARGETS,
        "shown": None,
        "plan": "",
        "may_reset": visit.rights.may_change(Change.RESET, group=group_id),
        "why_not": visit.rights.why_not(Change.RESET, group=group_id),
    }
    if not target:
        return Page("reset.html", group_id, context, {"group": group_id})
    plan = await visit.admin.reset_group_offsets(
        group_id, _scenario(visit, target), partitions=[topic] if topic else None, dry_run=True
    )
    plan = {
        where: change for where, change in plan.items() if visit.rights.may_see_topic(where.topic)
    }
    if len(plan) > PARTITIONS_MAX:
        raise BadQuery(f"this is about {len(plan)} partitions; choose a topic")
    rows = [_row(where, change) for where, change in sorted(plan.items())]
    changes = {where: change for where, change in plan.items() if isinstance(change, OffsetChange)}
    context |= {
        "shown": table("plan", COLUMNS, rows, visit.query, sort="topic", empty="No partition."),
        "plan": ",".join(
            f"{where.topic}:{where.partition}:{change.new_offset}"
            for where, change in sorted(changes.items())
            if change.old_offset != change.new_offset
        ),
    }
    return Page("reset.html", group_id, context, {"group": group_id, "plan": rows})


def _scenario(visit: Visit, target: str) -> Scenario:
    match target:
        case "earliest":
            return ToEarliest()
        case "latest":
            return ToLatest()
        case "offset":
            offset = visit.number("offset")
            if offset is None:
                raise BadQuery("offset: expected a whole number")
            return ToOffset(offset)
        case "time":
            at_ms = moment_ms("time", visit.query.get("time", ""))
            if at_ms is None:
                raise BadQuery("time: expected 2026-11-30T12:00 in UTC")
            return ToDatetime(datetime.fromtimestamp(at_ms / 1000, UTC))
        case _:
            raise BadQuery(f"to: expected one of {', '.join(TARGETS)}, found {target[:40]!r}")


def _row(where: TopicPartition, change: OffsetChange | KafkaError) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": where.topic, "partition": where.partition}
    if isinstance(change, KafkaError):
        return {**row, "old": None, "new": None, "moved": None, "error": str(change)}
    old, new = change
    moved = None if old is None else new - old
    return {**row, "old": old, "new": new, "moved": moved, "error": ""}


async def perform(visit: Visit, fields: Fields) -> Changed:
    """Move the start offsets to those that the dry run showed."""
    group_id = fields.get("group", "")
    offsets = _parsed(fields.get("plan", ""))
    for where in offsets:
        if not visit.rights.may_see_topic(where.topic):
            raise NotThere(f"There is no topic {where.topic!r}, or you may not see it.")
    done = await visit.admin.reset_group_offsets(group_id, FromPlan(offsets))
    failed = {where: error for where, error in done.items() if isinstance(error, KafkaError)}
    if failed:
        where, error = next(iter(failed.items()))
        raise BadQuery(
            f"{len(done) - len(failed)} of {len(done)} offsets were moved; {where.topic} "
            f"{where.partition}: {error}"
        )
    return Changed(address("group", id=group_id), {"group": group_id, "moved": len(done)})


def _parsed(text: str) -> dict[TopicPartition, int]:
    offsets = {}
    for part in filter(None, text.split(",")):
        topic, _, rest = part.partition(":")
        partition, _, offset = rest.partition(":")
        if not (topic and is_number(partition) and is_number(offset)):
            raise BadQuery(f"plan: expected TOPIC:PARTITION:OFFSET,…, found {part[:60]!r}")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    if not offsets:
        raise BadQuery("plan: there is nothing to move")
    return offsets
