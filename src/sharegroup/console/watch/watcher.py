"""Refreshes the console's view of the cluster, however many browsers look at it.

                                   while a browser is there     otherwise
    groups on an open page         every second
    other groups, in turn          within 60 s (`turns`)        within 60 s, members in 10 min
    list of groups; brokers        2 s; 5 s                     20 s
    topics, counts of letters      20 s                         60 s

Without a browser it reads what the history needs.  The first page after such a time waits for a
look that reads everything that is older than it is with browsers.

The oldest record of a group is read only when its start offset has moved.  Requests are made one
after the other, so the console never has more than one under way; a part that fails keeps its
older state, and the view says so.

A part may take `REQUEST_SECONDS`.  Meanwhile the view says which brokers the client cannot reach,
and the part is given up when it has reached none for two seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import GroupListing, GroupState, TopicDescription
from sharegroup.client.net.cluster import Cluster, reachability_of
from sharegroup.console.watch.cluster_view import BrokerView, ClusterView, GroupView, TopicView
from sharegroup.console.watch.group_reading import REQUEST_SECONDS, read_groups
from sharegroup.console.watch.history import History
from sharegroup.console.watch.oldest import OldestRecords
from sharegroup.console.watch.turns import plan
from sharegroup.dead_letters.letter_topics import KnownNames, LetterSettings, letter_topics
from sharegroup.errors import KafkaError, RequestTimedOut

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
IDLE_LOOK_SECONDS = 5.0
"""The time between two looks while no browser is there."""
LOOKED_SECONDS = 10.0
"""How long a group counts as looked at after a page asked for it."""
GROUPS_MAX = 10_000
"""Groups that are described; the others are a number."""
BROKER_SECONDS = 3.0
"""The time after which no broker counts as one that answers."""
GLANCE_SECONDS = 0.5
"""The time between two looks at which brokers can be reached, while a part is read."""
CUT_OFF_GLANCES_MAX = 4
"""Such looks without any broker, after which the part is given up."""
LETTERS_SECONDS = 20.0
"""Time for all requests that count letters."""
HOUR_MS = 60 * 60 * 1000
DEFECT = "the console's watcher"
"""What a problem is about that is a defect of the console itself."""
BROKERS = "brokers"


class Period(NamedTuple):
    """The seconds between two reads of a part of the view."""

    watched: float
    idle: float


PERIODS = {
    BROKERS: Period(5.0, 20.0),
    "groups": Period(2.0, 20.0),
    "topics": Period(20.0, 60.0),
    "group details": Period(0.0, 0.0),  # In every look, those whose turn it is.
    "letters": Period(20.0, 60.0),
}


class Watcher:
    """Keeps one `ClusterView` up to date while `run` runs."""

    def __init__(
        self,
        admin: AdminClient,
        reading: Cluster,
        history: History,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._admin = admin
        self._history = history
        self._monotonic, self._wall_ms = monotonic, wall_ms
        self._oldest = OldestRecords(reading)
        self._letter_settings = LetterSettings()
        self._read_at = dict.fromkeys(PERIODS, -math.inf)
        self._looked_at: dict[str, float] = {}
        self._visited = asyncio.Event()
        """Set when somebody looks at the console, so that a page after a break is soon fresh."""
        self._fresh = asyncio.Event()
        """Set while everything is as fresh as it is with browsers, or could not be read."""
        self._knows_cluster = asyncio.Event()
        self.view = ClusterView()

    def looks_at(self, group_ids: Iterable[str] = ()) -> None:
        """Note that somebody looks at the console, and at these groups in particular."""
        now = self._monotonic()
        if not self._is_watched(now) and self.view.looked_at is not None:
            self._fresh.clear()
        self._looked_at[""] = now
        self._visited.set()
        for group_id in group_ids:
            self._looked_at[group_id] = now

    async def wait_until_fresh(self, seconds: float) -> None:
        """Return when the view is fresh after a time without browsers, or after ``seconds``."""
        if not self._fresh.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._fresh.wait()

    async def cluster_id(self) -> str:
        """Wait until a broker has told the id of the cluster, and return it."""
        await self._knows_cluster.wait()
        return self.view.cluster_id

    async def run(self) -> None:
        """Look at the cluster again and again, until this is cancelled.

        An unexpected error, which is a defect of the console, is logged and shown on the page,
        and the next look may succeed: a console that shows old values as live would mislead.
        """
        while True:
            started_at = self._monotonic()
            try:
                await self.look()
                self.tell(DEFECT, None)
            except Exception as error:
                text = f"{type(error).__name__}: {error}; the console's log has more"
                if self.view.problems.get(DEFECT) != text:
                    log.exception("event=console.watcher_failed")
                self.tell(DEFECT, text)
            self._visited.clear()
            if not self._is_watched(started_at):
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_LOOK_SECONDS - LOOK_SECONDS):
                        await self._visited.wait()
            if self._fresh.is_set():
                await asyncio.sleep(max(0.0, started_at + LOOK_SECONDS - self._monotonic()))

    def _is_watched(self, now: float) -> bool:
        return now - self._looked_at.get("", -math.inf) < LOOKED_SECONDS

    async def look(self) -> None:
        """Refresh what is due, and publish the new view."""
        steps: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            BROKERS: self._look_at_brokers,
            "groups": self._list_groups,
            "topics": self._look_at_topics,
            "group details": self._read_groups,
            "letters": self._look_at_letters,
        }
        now = self._monotonic()
        is_watched, is_first = self._is_watched(now), self.view.looked_at is None
        try:
            for name, step in steps.items():
                period = PERIODS[name].watched if is_watched else PERIODS[name].idle
                if now >= self._read_at[name] + period:
                    self._read_at[name] = now
                    if not await self._try(name, step):
                        # The next look begins with the question whether any broker answers.
                        self._read_at[BROKERS] = -math.inf
                        if name == BROKERS or self._cut_off() is not None:
                            break  # No other request would be answered.
            self.view = replace(self.view, looked_at=self._monotonic())
        finally:
            if is_watched or is_first:
                self._fresh.set()

    async def _try(self, subject: str, step: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Take a step, and return whether it succeeded; the view says it if not."""
        try:
            await self._while_reachable(step())
        except KafkaError as error:
            # Texts of one outage differ from try to try.
            level = logging.DEBUG if subject in self.view.problems else logging.WARNING
            log.log(level, "event=console.look_failed subject=%r error=%s", subject, error)
            self.tell(subject, str(error))
            return False
        self.tell(subject, None)
        return True

    async def _while_reachable(self, step: Coroutine[Any, Any, None]) -> None:
        """Take a step, and show meanwhile which brokers cannot be reached; give up if none can."""
        task, glances = asyncio.ensure_future(step), 0
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=GLANCE_SECONDS)
                self._show_lost_brokers()
                cut_off = self._cut_off()
                glances = 0 if cut_off is None else glances + 1
                if glances >= CUT_OFF_GLANCES_MAX and not task.done():
                    raise RequestTimedOut(f"no broker can be reached: {cut_off}")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        task.result()

    def _show_lost_brokers(self) -> None:
        lost = reachability_of(self._admin).lost
        brokers = tuple(
            replace(broker, error=lost.get(broker.address)) for broker in self.view.brokers
        )
        if brokers != self.view.brokers:
            self.view = replace(self.view, brokers=brokers)

    def _cut_off(self) -> str | None:
        """Return why no broker can be reached; None: one is, or none was tried."""
        reachability = reachability_of(self._admin)
        if reachability.is_connected:
            return None
        return next(iter(reachability.lost.values()), None)

    def tell(self, subject: str, problem: str | None) -> None:
        """Set what the view says is wrong with reading a subject; None: nothing."""
        problems = {name: text for name, text in self.view.problems.items() if name != subject}
        if problem is not None:
            problems[subject] = problem
        self.view = replace(self.view, problems=problems)

    # The parts.

    async def _look_at_brokers(self) -> None:
        cluster = await self._admin.describe_cluster(include_fenced=True, timeout=BROKER_SECONDS)
        lost = reachability_of(self._admin).lost
        brokers = tuple(
            BrokerView(
                node_id=node.node_id,
                address=(address := f"{node.host}:{node.port}"),
                rack=node.rack,
                is_controller=node.node_id == cluster.controller_id,
                is_fenced=node.is_fenced,
                error=lost.get(address),
            )
            for node in sorted(cluster.nodes, key=lambda node: node.node_id)
        )
        self.view = replace(self.view, cluster_id=cluster.cluster_id, brokers=brokers)
        if cluster.cluster_id:
            self._knows_cluster.set()

    async def _look_at_topics(self) -> None:
        described = await self._admin.describe_topics(timeout=REQUEST_SECONDS)
        topics = {
            name: _topic(topic)
            for name, topic in sorted(described.items())
            if isinstance(topic, TopicDescription)
        }
        self.view = replace(self.view, topics=topics)

    async def _look_at_letters(self) -> None:
        hour_ago_ms = self._wall_ms() - HOUR_MS
        try:
            async with asyncio.timeout(LETTERS_SECONDS):
                found = await letter_topics(
                    self._admin,
                    since_ms=hour_ago_ms,
                    known=self._known_names(),
                    settings=self._letter_settings,
                )
        except TimeoutError as error:
            text = f"the counts of letters were not there after {LETTERS_SECONDS:.0f} s"
            raise RequestTimedOut(text) from error
        letters = {topic.name: topic for topic in found.topics}
        self.view = replace(self.view, letters=letters)

    def _known_names(self) -> KnownNames | None:
        """Return the names of the last look, which comes just before; None if that failed."""
        if {"groups", "topics"} & self.view.problems.keys():
            return None
        counts = {
            name: topic.partition_count
            for name, topic in self.view.topics.items()
            if not topic.is_internal
        }
        return KnownNames(counts, [group.group_id for group in self.view.share_groups])

    async def _list_groups(self) -> None:
        listed = await self._admin.list_groups(timeout=REQUEST_SECONDS)
        by_id = {
            group.group_id: group for group in sorted(listed, key=lambda group: group.group_id)
        }
        kept = dict(list(by_id.items())[:GROUPS_MAX])
        now, known = self._monotonic(), self.view.groups
        groups = {
            group_id: _listed(known.get(group_id), group, now) for group_id, group in kept.items()
        }
        self._history.keep(set(kept))
        self._oldest.keep(set(kept))
        self.view = replace(self.view, groups=groups, left_out=len(by_id) - len(kept))

    async def _read_groups(self) -> None:
        now = self._monotonic()
        self._looked_at = {
            name: at for name, at in self._looked_at.items() if now - at < LOOKED_SECONDS
        }
        is_watched = self._is_watched(now)
        chosen = plan(
            self.view.groups,
            self._looked_at,
            pause_seconds=LOOK_SECONDS if is_watched else IDLE_LOOK_SECONDS,
            is_watched=is_watched,
        )
        before = self.view.groups
        read = await read_groups(self._admin, before, chosen, oldest=self._oldest, now=now)
        now_ms = self._wall_ms()
        for group in read:
            if group.error is None and group.seen_at == now:
                progress = group.progress_since(before[group.group_id])
                self._history.add(group.group_id, at_ms=now_ms, lag=group.lag, progress=progress)
        self.view = replace(self.view, groups={**before, **{view.group_id: view for view in read}})


def _listed(known: GroupView | None, group: GroupListing, now: float) -> GroupView:
    """Return the view of a group that was just listed; a state that changed tells about members."""
    kind, state = str(group.type), str(group.state)
    if known is None or known.type != kind:
        known = GroupView(group.group_id, kind, "")
    if known.state == state:
        return known
    if group.state is GroupState.EMPTY:
        return replace(known, state=state, members=(), members_at=now)
    return replace(known, state=state, members_at=None)


def _topic(topic: TopicDescription) -> TopicView:
    return TopicView(
        name=topic.name,
        partition_count=topic.partition_count,
        is_internal=topic.is_hidden,
        leaderless=tuple(
            partition.partition for partition in topic.partitions if partition.leader < 0
        ),
        short_of_replicas=tuple(
            partition.partition
            for partition in topic.partitions
            if len(partition.in_sync_replicas) < len(partition.replicas)
        ),
    )
