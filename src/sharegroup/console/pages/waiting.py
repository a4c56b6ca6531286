"""Records that wait for a retry: those of a group, one of them, and «run now» and «cancel».

A visit reads up to `RECORDS_MAX` records and up to `LOOK_SECONDS`, and says so if there are more.
Keys and values are not shown.  The page is not live, because each visit reads the retry topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery
from sharegroup.dead_letters.topics import group_of
from sharegroup.waiting.control_records import Intent
from sharegroup.waiting.waiting_filter import EVERY_RECORD, WaitingFilter, WaitingRecord
from sharegroup.waiting.waiting_records import Outcome, WaitingRecords

RECORDS_MAX = 500
LOOK_SECONDS = 4.0
GROUPS = (
    Column("group", "Group", "id", link=lambda row: address("waiting", group=row["group"])),
    Column("topic", "Its own topic", "id"),
)
COLUMNS = (
    Column(
        "id",
        "Record",
        "id",
        link=lambda row: address("waiting", group=row["group"], id=row["id"]),
    ),
    Column("origin_topic", "Topic", "id"),
    Column("due_ms", "Due", "time"),
    Column("failures", "Failures", "number"),
    Column("error", "Last failure", "text"),
    Column("tier", "Waits in", "id", narrow=False),
    Column("partition", "Partition", "number", narrow=False),
    Column("offset", "Offset", "number", narrow=False),
)
CLASSES = (Column("error", "Last failure", "text"), Column("count", "Records", "number"))


class _Read(NamedTuple):
    records: list[WaitingRecord]
    is_whole: bool
    """Whether these are all that match."""


async def waiting(visit: Visit) -> Page:
    """Return the groups that have retry topics, or the waiting records of one."""
    group = visit.query.get("group", "")
    if not group:
        return await _groups(visit)
    if not visit.rights.may_see_group(group):
        raise NotThere(f"There is no group {group!r}, or you may not see it.")
    record_id = visit.query.get("id", "")
    selection = WaitingFilter(ids=frozenset([record_id])) if record_id else EVERY_RECORD
    found = await _read(visit, group, selection)
    rows = [_row(group, record) for record in found.records]
    classes = Counter(row["error"] for row in rows)
    class_rows = [{"error": error, "count": count} for error, count in classes.items()]
    context = {
        "group": group,
        "id": record_id,
        "shown": table("records", COLUMNS, rows, visit.query, sort="due_ms",
                       empty="No record waits."),
        "classes": table("classes", CLASSES, class_rows, visit.query, sort="-count",
                         empty="No record waits."),
        "is_whole": found.is_whole,
        "outcome": _outcome(visit.query.get("outcome", "")),
        "may_steer": visit.rights.may_change(Change.STEER, group=group),
        "why_not": visit.rights.why_not(Change.STEER, group=group),
    }  # fmt: skip
    data = {"records": rows, "classes": class_rows, "is_whole": found.is_whole}
    return Page("waiting.html", f"Waiting in {group}", context, data)


async def run_now(visit: Visit, fields: Fields) -> Changed:
    """Give a waiting record to its handler now."""
    return await _steer(visit, fields, Intent.RUN)


async def cancel(visit: Visit, fields: Fields) -> Changed:
    """Make a waiting record a dead letter, without running it."""
    return await _steer(visit, fields, Intent.CANCEL)


async def _steer(visit: Visit, fields: Fields, intent: Intent) -> Changed:
    group, record_id = fields.get("group", ""), fields.get("id", "")
    if not record_id:
        raise BadQuery("id: the id of a waiting record is missing")
    found = await _read(visit, group, WaitingFilter(ids=frozenset([record_id])))
    if not found.records:
        # Also if the search was cut off: its topic, which decides about the right, is unknown.
        why = "or you may not see it" if found.is_whole else (
            f"as far as {LOOK_SECONDS:g} s of reading showed; try again, or use the command line"
        )  # fmt: skip
        raise NotThere(f"No record {record_id!r} waits in group {group!r}, {why}.")
    async with WaitingRecords(group, **visit.options) as records:
        steered = (
            await records.steer(intent, [record_id], by=visit.user.name, known=found.records)
        )[record_id]
    told = address("waiting", group=group, id=record_id, outcome=str(steered.outcome))
    return Changed(told, {"outcome": str(steered.outcome), "member": steered.member})


async def _groups(visit: Visit) -> Page:
    topics = await visit.admin.list_topics()
    owners = {topic: group_of(topic) for topic in topics}
    rows = [
        {"group": group, "topic": topic}
        for topic, group in owners.items()
        if group is not None and visit.rights.may_see_group(group)
    ]
    empty = "No group has retry topics. A group whose handlers retry has them."
    shown = table("groups", GROUPS, rows, visit.query, sort="group", empty=empty)
    return Page("list.html", "Waiting records", {"shown": shown}, {"groups": rows})


async def _read(visit: Visit, group: str, selection: WaitingFilter) -> _Read:
    """Return the records of the topics that the user may see."""
    found: list[WaitingRecord] = []
    try:
        async with asyncio.timeout(LOOK_SECONDS), WaitingRecords(group, **visit.options) as records:
            async for record in records.records(selection):
                if record.origin_topic and not visit.rights.may_see_topic(record.origin_topic):
                    continue
                if len(found) == RECORDS_MAX:
                    return _Read(found, False)
                found.append(record)
    except TimeoutError:
        return _Read(found, False)
    return _Read(found, True)


def _row(group: str, record: WaitingRecord) -> dict[str, Any]:
    story = record.story
    return {
        "group": group,
        "id": record.id or "",
        "origin_topic": record.origin_topic,
        "due_ms": story.due_ms,
        "failures": story.failures,
        "error": record.error_class or "none: it was sent with a delay",
        "tier": record.place.topic,
        "partition": record.place.partition,
        "offset": record.place.offset,
    }


def _outcome(text: str) -> str:
    """Return what became of a command, from the address; anybody may have written that."""
    if text and text not in tuple(Outcome):
        raise BadQuery(f"outcome: expected one of {', '.join(Outcome)}, found {text[:40]!r}")
    return text
