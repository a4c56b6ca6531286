"""The state of one record in each share group that has its partition.

broker's memory, by group      where the metrics port is known
state topic, once              all other groups
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from sharegroup.client.admin.types import ShareRun
from sharegroup.client.records import TopicPartition
from sharegroup.console.pages.groups import LIVE_MS, durable_of
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import Visit
from sharegroup.share_runs.live_runs import LiveRunsError, live_runs
from sharegroup.share_runs.share_runs import ShownSharePartition

GROUPS_MAX = 50
"""Share groups whose state of a record is read."""
ASKED_AT_ONCE_MAX = 8
"""Groups for which the broker's memory is asked at once."""


class RecordStates(NamedTuple):
    """The state of a record by share group."""

    states: list[dict[str, Any]]
    groups_left_out: int
    """Share groups with the record's partition beyond `GROUPS_MAX`."""


async def states_of(visit: Visit, where: TopicPartition, offset: int) -> RecordStates:
    """Return the state of a record in each share group that has its partition."""
    groups = [
        group.group_id
        for group in visit.watcher.view.share_groups
        if any(part.where == where for part in group.partitions)
    ]
    asked = groups[:GROUPS_MAX]
    live = await _live(visit, asked, where, offset)
    others = {group: [where] for group in asked if group not in live}
    durable = await durable_of(visit, others, runs_max=1, first_offset=offset) if others else {}
    problem = durable if isinstance(durable, str) else None
    known = {} if isinstance(durable, str) else {group: of[0] for group, of in durable.items()}
    rows = [
        {
            "group": group,
            "address": address("group", id=group),
            "is_live": group in live,
            **state_at(live.get(group) or known.get(group), offset, problem),
        }
        for group in asked
    ]
    return RecordStates(rows, len(groups) - len(asked))


async def _live(
    visit: Visit, groups: Iterable[str], where: TopicPartition, offset: int
) -> dict[str, ShownSharePartition]:
    """Return what the broker has in memory, if its metrics port is known; groups may be missing."""
    url = visit.settings.metrics_url
    found: dict[str, ShownSharePartition] = {}
    if url is None:
        return found
    turns = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(group: str) -> None:
        async with turns:
            try:
                shown = await live_runs(
                    url, group, *where, runs_max=1, timeout_ms=LIVE_MS, first_offset=offset
                )
            except LiveRunsError:
                return  # The durable state is there without it; the page says which one it shows.
        if shown:
            found[group] = shown[0]

    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(ask(group))
    return found


def state_at(shown: ShownSharePartition | None, offset: int, problem: str | None) -> dict[str, Any]:
    """Return the state of an offset, or why it is not known."""
    unknown = {"state": "unknown", "delivery_count": None, "member_id": None, "lock_ms_left": None}
    if shown is None or shown.start_offset is None:
        return {**unknown, "state": problem or "no offset yet"}
    if offset < shown.start_offset:
        return {**unknown, "state": "settled"}
    run: ShareRun | None = next(
        (run for run in shown.runs if run.first_offset <= offset <= run.last_offset), None
    )
    if run is not None:
        return {
            "state": run.state,
            "delivery_count": run.delivery_count,
            "member_id": run.member_id,
            "lock_ms_left": run.lock_ms_left,
        }
    is_known = shown.end_offset is not None and offset >= shown.end_offset
    return {**unknown, "state": "never delivered" if is_known else "unknown"}
