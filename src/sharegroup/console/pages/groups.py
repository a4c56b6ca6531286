"""One group: its members, its partitions, the runs of a share group, lag over time, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from markupsafe import Markup

from sharegroup.client.records import TopicPartition
from sharegroup.console.drawing.charts import line_chart
from sharegroup.console.drawing.runs import runs_bar
from sharegroup.console.pages.overview import GROUP_COLUMNS, address, spark
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.resource_settings import settings_of
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.watch.cluster_view import SHARE, ClusterView, GroupView
from sharegroup.console.watch.group_rows import group_row
from sharegroup.console.watch.history import UNKNOWN
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import ResourceType
from sharegroup.share_runs.broker_runs import broker_runs
from sharegroup.share_runs.durable_runs import durable_runs_of_groups
from sharegroup.share_runs.live_runs import LiveRunsError, live_runs
from sharegroup.share_runs.share_runs import ShownSharePartition

RUNS_MAX = 20_000
"""Runs of a share partition that are read for its drawing."""
RUNS_OF_GROUP_MAX = 40_000
"""Runs that are read of all share partitions of a group, which have equal parts of it."""
RUNS_MIN = 200
"""Runs that are read of each share partition, however many there are."""
BARS_MAX = 40
"""Share partitions that are drawn; the table has all."""
LIVE_MS = 1_500
DURABLE_SECONDS = 6.0
CHART_MS = {"15m": 15 * 60_000, "2h": 2 * 3_600_000, "1d": 86_400_000, "8d": 8 * 86_400_000}
RUN_ROWS_MAX = 5_000

MEMBERS = (
    Column("member_id", "Member", "id"),
    Column("client_id", "Client", "id"),
    Column("host", "Host", "text", narrow=False),
    Column("partitions", "Partitions", "list"),
)
PARTITIONS = (
    Column("topic", "Topic", "id", link=lambda row: address("records", topic=row["topic"])),
    Column("partition", "Partition", "number"),
    Column("offset", "Start offset", "number"),
    Column("lag", "Waiting", "number"),
)
COMMITTED = tuple(
    replace(column, heading="Committed offset") if column.key == "offset" else column
    for column in PARTITIONS
)
"""The same for a consumer group."""
RUNS = (
    Column("partition", "Partition", "text"),
    Column("first_offset", "First", "number"),
    Column("last_offset", "Last", "number"),
    Column("state", "State", "state"),
    Column("delivery_count", "Deliveries", "number"),
    Column("member_id", "Member", "id", narrow=False),
    Column("lock_ms_left", "Lock left", "age"),
)


RUN_FIELDS = tuple(column.key for column in RUNS if column.key != "partition")


async def groups(visit: Visit) -> Page:
    """Return all share groups."""
    view, history = visit.watcher.view, visit.history
    rows = [group_row(group, history, visit.now_ms) for group in view.share_groups]
    shown = table("groups", GROUP_COLUMNS, rows, visit.query, sort="group", empty="There are none.")
    visit.watcher.looks_at(row["group"] for row in shown.rows)
    context = {"groups": shown, "spark": lambda row: spark(row, history, visit.now_ms)}
    return Page("groups.html", "Share groups", context, {"groups": rows})


async def group(visit: Visit) -> Page:
    """Return one group: members, partitions, runs, lag over time, settings."""
    group_id = visit.required("id")
    visit.watcher.looks_at([group_id])
    found = _found(visit.watcher.view, group_id)
    is_share = found.type == SHARE
    span = visit.query.get("span", "15m")
    points = visit.history.of(group_id).since(visit.now_ms - CHART_MS.get(span, CHART_MS["15m"]))
    lags = [(point.at_ms, point.lag) for point in points if point.lag != UNKNOWN]
    wanted = [part.where for part in found.partitions if part.offset is not None]
    runs = await runs_of(visit, group_id, wanted) if is_share else Runs((), None, None)
    rate = visit.history.of(group_id).settled_per_second()
    settings = await settings_of(visit, ResourceType.GROUP, group_id) if is_share else []
    return Page(
        "group.html",
        group_id,
        {
            "group": found,
            "is_share": is_share,
            "rate": None if rate is None else round(rate, 1),
            "age_ms": group_row(found, visit.history, visit.now_ms)["oldest_age_ms"],
            "members": table("members", MEMBERS, map(_member, found.members), visit.query,
                             sort="member_id", empty="It has no members now."),
            "partitions": table("partitions", PARTITIONS if is_share else COMMITTED,
                                map(_partition, found.partitions),
                                visit.query, sort="topic", empty="It has no partitions yet."),
            "runs": table("runs", RUNS, runs.rows(), visit.query, sort="partition",
                          empty="There are no runs."),
            "bars": await asyncio.to_thread(runs.bars),
            "more_bars": max(0, len(runs.shown) - BARS_MAX),
            "source": runs.source,
            "legends": LEGENDS,
            "no_runs": runs.problem,
            "chart": line_chart(lags, "records that wait"),
            "chart_rows": _chart_rows(lags),
            "spans": tuple(CHART_MS),
            "span": span,
            "settings": settings,
        },
        {
            "group": asdict(found),
            "runs": lambda: [shown.row(group_id) for shown in runs.shown],
            "runs_source": runs.source,
            "lag": lags,
            "settings": settings,
        },
        parent="/groups" if is_share else "/consumer-groups",
    )  # fmt: skip


def _found(view: ClusterView, group_id: str) -> GroupView:
    found = view.groups.get(group_id)
    if found is None and view.looked_at is None:
        raise NotThere("The first look at the cluster is under way: reload this page in a moment.")
    if found is None:
        raise NotThere(f"There is no group {group_id!r} in this cluster, or you may not see it.")
    return found


class Runs:
    """The runs of a group's share partitions, where they come from, or why there are none."""

    def __init__(
        self, shown: tuple[ShownSharePartition, ...], source: str | None, problem: str | None
    ) -> None:
        self.shown, self.source, self.problem = shown, source, problem

    def bars(self) -> list[tuple[ShownSharePartition, Markup]]:
        """Draw the first share partitions; a thread does it, because it takes some time."""
        return [(shown, runs_bar(shown)) for shown in self.shown[:BARS_MAX]]

    def rows(self) -> list[dict[str, Any]]:
        """Return the runs as rows, up to a bound."""
        every = ((shown, run) for shown in self.shown for run in shown.runs)
        return [
            {
                "partition": f"{shown.topic} {shown.partition}",
                **{name: getattr(run, name) for name in RUN_FIELDS},
            }
            for shown, run in islice(every, RUN_ROWS_MAX)
        ]


LIVE, DURABLE = "live", "durable"
LEGENDS = {
    LIVE: (
        ("acquired", "acquired"),
        ("returned", "available again or delayed"),
        ("archiving", "waits for its dead letter"),
        ("archived", "archived"),
        ("acknowledged", "acknowledged"),
        ("never-delivered", "never delivered"),
    ),
    DURABLE: (
        ("returned", "available again"),
        ("archived", "archived"),
        ("acknowledged", "acknowledged"),
        ("never-delivered", "waits; whether it was delivered is not told here"),
    ),
}
"""What the colours of a bar mean, by the source of its runs."""


def runs_read(share_partitions: int) -> int:
    """Return the number of runs that are read of each share partition of a group."""
    part = RUNS_OF_GROUP_MAX // max(1, share_partitions)
    return min(RUNS_MAX, max(RUNS_MIN, part))


async def runs_of(visit: Visit, group_id: str, wanted: list[TopicPartition]) -> Runs:
    """Read runs from the broker: its metrics port, its coordinator, or the state topic."""
    runs_max = runs_read(len(wanted))
    if visit.settings.metrics_url is not None:
        try:
            shown = await live_runs(
                visit.settings.metrics_url,
                *(group_id, None, None),
                runs_max=runs_max,
                timeout_ms=LIVE_MS,
            )
            seen = tuple(
                share_partition
                for share_partition in shown
                if visit.rights.may_see_topic(share_partition.topic)
            )
            if seen:
                return Runs(seen, LIVE, None)
        except LiveRunsError:
            pass  # The durable state is there without it; the page says which one it shows.
    if not wanted:
        return Runs((), None, "No member has fetched from its partitions yet.")
    try:
        async with asyncio.timeout(LIVE_MS / 1_000):
            listed = await broker_runs(visit.admin, group_id, wanted, runs_max=runs_max)
            return Runs(tuple(listed), LIVE, None)
    except (KafkaError, TimeoutError):
        pass  # As above; Apache Kafka lists none.
    found = await durable_of(visit, {group_id: wanted}, runs_max=runs_max)
    if isinstance(found, str):
        return Runs((), None, found)
    return Runs(tuple(found[group_id]), DURABLE, None)


async def durable_of(
    visit: Visit,
    wanted: Mapping[str, Sequence[TopicPartition]],
    *,
    runs_max: int,
    first_offset: int = 0,
) -> dict[str, list[ShownSharePartition]] | str:
    """Read runs of groups from the state topic; return why it cannot be read, if so."""
    try:
        async with asyncio.timeout(DURABLE_SECONDS):
            return await durable_runs_of_groups(
                visit.admin,
                visit.reading,
                wanted,
                runs_max=runs_max,
                first_offset=first_offset,
                kept=visit.kept_states,
            )
    except KafkaError as error:
        return f"The state topic cannot be read: {error}"
    except TimeoutError:
        return f"The state topic was not read within {DURABLE_SECONDS:.0f} s."


def _member(member: Any) -> dict[str, Any]:
    partitions = [f"{where.topic} {where.partition}" for where in member.partitions]
    return {**asdict(member), "partitions": partitions}


def _partition(partition: Any) -> dict[str, Any]:
    where = partition.where
    return {"topic": where.topic, "partition": where.partition, "offset": partition.offset,
            "lag": partition.lag}  # fmt: skip


def _chart_rows(lags: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return at most twenty of the points, for the table behind the chart."""
    step = max(1, len(lags) // 20)
    return lags[::-1][::step]
