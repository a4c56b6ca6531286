"""What a share group has in a topic, or at all: a dry run of deleting it, and the deletion.

    plan      a digest of the offsets that the dry run showed; of other offsets nothing is deleted

A coordinator deletes nothing of a group that has members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.client.records import TopicPartition
from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import Forbidden, NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery
from sharegroup.errors import GroupIdNotFound, KafkaError

COLUMNS = (
    Column("topic", "Topic", "id"),
    Column("partition", "Partition", "number"),
    Column("offset", "Start offset", "number"),
    Column("lag", "Waiting", "number"),
    Column("error", "Problem", "text"),
)
OFFSETS, GROUP = "offsets", "group"
KINDS = (OFFSETS, GROUP)
PLAN_CHARACTERS = 32
HIDDEN = "the group has offsets in topics that you may not see, so you cannot delete it"


class Deletion(NamedTuple):
    """What would be deleted."""

    rows: tuple[Mapping[str, Any], ...]
    plan: str
    members: int
    """The members of the group, which has to have none."""


async def delete(visit: Visit) -> Page:
    """Return what deleting a share group, or its offsets in a topic, would delete; a dry run."""
    group_id = visit.required("group")
    if not visit.rights.may_see_group(group_id):
        raise NotThere(f"There is no group {group_id!r}, or you may not see it.")
    kind, topic = visit.query.get("what", ""), visit.query.get("topic", "")
    found = visit.watcher.view.groups.get(group_id)
    context: dict[str, Any] = {
        "group": group_id,
        "topics": () if found is None else found.topics,
        "members": 0,
        "topic": topic,
        "kind": kind,
        "shown": None,
        "plan": "",
    }
    if not kind:
        return Page("delete.html", group_id, context, {"group": group_id})
    if kind not in KINDS:
        raise BadQuery(f"what: expected one of {', '.join(KINDS)}, found {kind[:40]!r}")
    if kind == OFFSETS:
        topic = visit.topic()
    subject = {"group": group_id, "topic": topic if kind == OFFSETS else None}
    deletion = await _deletion(visit, group_id, subject["topic"])
    context |= {
        "shown": table("plan", COLUMNS, deletion.rows, visit.query, sort="topic",
                       empty="It has no offsets."),
        "is_empty": kind == OFFSETS and not deletion.rows,
        "plan": deletion.plan,
        "members": deletion.members,
        "may_delete": visit.rights.may_change(Change.DELETE, **subject),
        "why_not": visit.rights.why_not(Change.DELETE, **subject),
    }  # fmt: skip
    data = {**subject, "what": kind, "plan": deletion.plan, "offsets": deletion.rows}
    return Page("delete.html", group_id, context, data)


async def delete_offsets(visit: Visit, fields: Fields) -> Changed:
    """Delete a share group's offsets in a topic, if they are those of the dry run."""
    group_id, topic = fields.get("group", ""), fields.get("topic", "")
    if not topic:
        raise BadQuery("topic: the name of the topic is missing")
    deletion = await _deletion(visit, group_id, topic)
    _check_plan(fields, deletion)
    if not deletion.rows:
        raise BadQuery(f"topic: group {group_id!r} has no offsets in topic {topic!r}")
    failed = (await visit.admin.delete_share_group_offsets(group_id, [topic]))[topic]
    if failed is not None:
        raise failed
    done = {"group": group_id, "topic": topic, "deleted": len(deletion.rows)}
    return Changed(address("group", id=group_id), done)


async def delete_group(visit: Visit, fields: Fields) -> Changed:
    """Delete a share group with all its offsets, if they are those of the dry run."""
    group_id = fields.get("group", "")
    deletion = await _deletion(visit, group_id, None)
    _check_plan(fields, deletion)
    failed = (await visit.admin.delete_share_groups([group_id]))[group_id]
    if failed is not None:
        raise failed
    return Changed("groups", {"group": group_id, "deleted": len(deletion.rows)})


async def _deletion(visit: Visit, group_id: str, topic: str | None) -> Deletion:
    """Return what the group has in a topic, or in all of them if this is None."""
    described = (await visit.admin.describe_share_groups([group_id]))[group_id]
    if isinstance(described, GroupIdNotFound):
        raise NotThere(f"There is no share group {group_id!r} in this cluster.")
    if isinstance(described, KafkaError):
        raise described
    listed = (await visit.admin.list_share_group_offsets({group_id: None}))[group_id]
    if isinstance(listed, KafkaError):
        raise listed
    chosen = {where: offset for where, offset in listed.items() if topic in (None, where.topic)}
    if not all(visit.rights.may_see_topic(where.topic) for where in chosen):
        raise Forbidden(HIDDEN)
    rows = tuple(_row(where, offset) for where, offset in sorted(chosen.items()))
    text = repr([(row["topic"], row["partition"], row["offset"]) for row in rows])
    digest = hashlib.sha256(f"{group_id!r} {topic!r} {text}".encode("utf-8", "backslashreplace"))
    return Deletion(rows, digest.hexdigest()[:PLAN_CHARACTERS], len(described.members))


def _check_plan(fields: Fields, deletion: Deletion) -> None:
    if fields.get("plan", "") != deletion.plan:
        raise BadQuery(
            "plan: the offsets of the group are not those of a dry run, or have changed since; "
            "nothing was deleted. Look at the dry run again, and send its plan"
        )


def _row(where: TopicPartition, offset: SharePartitionOffset | KafkaError) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": where.topic, "partition": where.partition}
    if isinstance(offset, KafkaError):
        return {**row, "offset": None, "lag": None, "error": str(offset)}
    return {**row, "offset": offset.start_offset, "lag": offset.lag, "error": ""}
