"""Refreshes the console's view of the cluster, however many browsers look at it.

    every second        the groups that somebody looks at
    every 60 s          each other group, a few in each second
    2 s, 5 s, 20 s      the list of groups; brokers; topics and the counts of letters

The oldest record of a group is read only when its start offset has moved.  Requests are made one
after the other, so the console never has more than one under way; a part that fails keeps its
older state, and the view says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import (
    CommittedOffset,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    GroupListing,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.net.cluster import Cluster, reachability_of
from sharegroup.client.records import TopicPartition
from sharegroup.console.watch.cluster_view import (
    BrokerView,
    ClusterView,
    GroupPartition,
    GroupView,
    MemberView,
    TopicView,
)
from sharegroup.console.watch.history import History
from sharegroup.console.watch.oldest import OldestRecords
from sharegroup.dead_letters.letter_topics import KnownNames, letter_topics
from sharegroup.dead_letters.own_topics import OWN_TOPICS
from sharegroup.errors import KafkaError, RequestTimedOut
from sharegroup.protocol_enums import GroupType

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
ROTATION_SECONDS = 60.0
"""Within this time every group is described once."""
IDLE_LOOK_SECONDS = 5.0
"""The time between two looks while no browser is there."""
LOOKED_SECONDS = 10.0
"""How long a group counts as looked at after a page asked for it."""
GROUPS_MAX = 10_000
"""Groups that are described; the others are a number."""
LOOKED_MAX = 50
"""Groups that are described every second."""
BROKER_SECONDS = 3.0
"""The time after which no broker counts as one that answers."""
REQUEST_SECONDS = 10.0
LETTERS_SECONDS = 20.0
"""Time for all requests that count letters."""
HOUR_MS = 60 * 60 * 1000
DEFECT = "the console's watcher"
"""What a problem is about that is a defect of the console itself."""
BROKERS = "brokers"
PERIODS = {BROKERS: 5.0, "groups": 2.0, "letters": 20.0, "topics": 20.0}


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
        self._due = dict.fromkeys(PERIODS, -math.inf)
        self._looked_at: dict[str, float] = {}
        self._turn: deque[str] = deque()
        """The groups in the order in which they are described next."""
        self._listed: dict[str, GroupListing] = {}
        self._visited = asyncio.Event()
        """Set when somebody looks at the console, so that a page after a break is soon fresh."""
        self._first_look = asyncio.Event()
        self._knows_cluster = asyncio.Event()
        self.view = ClusterView()

    def looks_at(self, group_ids: Iterable[str] = ()) -> None:
        """Note that somebody looks at the console, and at these groups in particular."""
        now = self._monotonic()
        self._looked_at[""] = now
        self._visited.set()
        for group_id in group_ids:
            self._looked_at[group_id] = now

    async def wait_first_look(self, seconds: float) -> None:
        """Return after the first look, or after a time."""
        if not self._first_look.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._first_look.wait()

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
            await asyncio.sleep(max(0.0, started_at + LOOK_SECONDS - self._monotonic()))

    def _is_watched(self, now: float) -> bool:
        return now - self._looked_at.get("", -math.inf) < LOOKED_SECONDS

    async def look(self) -> None:
        """Refresh what is due, and publish the new view."""
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            BROKERS: self._look_at_brokers,
            "groups": self._list_groups,
            "topics": self._look_at_topics,
            "letters": self._look_at_letters,
        }
        now = self._monotonic()
        for name, step in steps.items():
            if now >= self._due[name]:
                self._due[name] = now + PERIODS[name]
                if not await self._try(name, step):
                    # The next look begins with the question whether any broker answers.
                    self._due[BROKERS] = -math.inf
                    if name == BROKERS:
                        break  # No other request would be answered.
        else:
            await self._try("group details", self._describe_due_groups)
        self.view = replace(self.view, looked_at=self._monotonic())
        self._first_look.set()

    async def _try(self, subject: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Take a step, and return whether it succeeded; the view says it if not."""
        try:
            await step()
        except KafkaError as error:
            if self.view.problems.get(subject) != str(error):
                log.warning("event=console.look_failed subject=%r error=%s", subject, error)
            self.tell(subject, str(error))
            return False
        self.tell(subject, None)
        return True

    def tell(self, subject: str, problem: str | None) -> None:
        """Set what the view says is wrong with reading a subject; None: nothing."""
        problems = {name: text for name, text in self.view.problems.items() if name != subject}
        if problem is not None:
            problems[subject] = problem
        self.view = replace(self.view, problems=problems)

    # The parts.

    async def _look_at_brokers(self) -> None:
        try:
            cluster = await self._admin.describe_cluster(
                include_fenced=True, timeout=BROKER_SECONDS
            )
        except KafkaError:
            lost = reachability_of(self._admin).lost
            known = self.view.brokers
            stale = tuple(replace(broker, error=lost.get(broker.address)) for broker in known)
            self.view = replace(self.view, brokers=stale)
            raise
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
                    self._admin, since_ms=hour_ago_ms, known=self._known_names()
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
        counts = {name: topic.partition_count for name, topic in self.view.topics.items()}
        return KnownNames(counts, [group.group_id for group in self.view.share_groups])

    async def _list_groups(self) -> None:
        listed = await self._admin.list_groups(timeout=REQUEST_SECONDS)
        by_id = {
            group.group_id: group for group in sorted(listed, key=lambda group: group.group_id)
        }
        kept = dict(list(by_id.items())[:GROUPS_MAX])
        known = set(self._turn)
        self._turn = deque(group_id for group_id in self._turn if group_id in kept)
        self._turn.extendleft(group_id for group_id in kept if group_id not in known)
        self._listed = kept
        groups = {
            group_id: replace(
                self.view.groups.get(group_id) or GroupView(group_id, "", ""),
                type=str(group.type),
                state=str(group.state),
            )
            for group_id, group in kept.items()
        }
        self._history.keep(set(kept))
        self._oldest.keep(set(kept))
        self.view = replace(self.view, groups=groups, left_out=len(by_id) - len(kept))

    # Groups.

    async def _describe_due_groups(self) -> None:
        now = self._monotonic()
        self._looked_at = {
            name: at for name, at in self._looked_at.items() if now - at < LOOKED_SECONDS
        }
        chosen = [name for name in self._looked_at if name in self._listed][:LOOKED_MAX]
        for group_id in self._next_in_turn():
            if group_id not in chosen:
                chosen.append(group_id)
        by_type: dict[bool, list[str]] = {True: [], False: []}
        for group_id in chosen:
            by_type[self._listed[group_id].type is GroupType.SHARE].append(group_id)
        described = [
            *await self._share_groups(by_type[True]),
            *await self._consumer_groups(by_type[False]),
        ]
        now_ms = self._wall_ms()
        for group in described:
            if group.error is None:
                self._history.add(
                    group.group_id,
                    at_ms=now_ms,
                    lag=group.lag,
                    progress=group.progress_since(self.view.groups[group.group_id]),
                )
        groups = {**self.view.groups, **{group.group_id: group for group in described}}
        self.view = replace(self.view, groups=groups)

    def _next_in_turn(self) -> list[str]:
        """Return the groups that come next, so many that all have their turn in time."""
        pause = LOOK_SECONDS if self._is_watched(self._monotonic()) else IDLE_LOOK_SECONDS
        count = math.ceil(len(self._listed) * pause / ROTATION_SECONDS)
        new = [group_id for group_id in self._listed if self.view.groups[group_id].seen_at is None]
        chosen = new[: max(count, LOOKED_MAX)]
        for _ in range(min(count, len(self._turn))):
            self._turn.rotate(-1)
            chosen.append(self._turn[-1])
        return list(dict.fromkeys(chosen))

    async def _share_groups(self, group_ids: list[str]) -> list[GroupView]:
        if not group_ids:
            return []
        described = await self._admin.describe_share_groups(group_ids, timeout=REQUEST_SECONDS)
        offsets = await self._admin.list_share_group_offsets(
            dict.fromkeys(group_ids), timeout=REQUEST_SECONDS
        )
        views = []
        for group_id in group_ids:
            group, partitions = described[group_id], offsets[group_id]
            if not isinstance(group, ShareGroupDescription):
                views.append(self._failed(group_id, group))
            elif isinstance(partitions, KafkaError):
                views.append(self._failed(group_id, partitions))
            else:
                view = GroupView(
                    group_id,
                    "share",
                    str(group.state),
                    members=_members(group.members),
                    partitions=tuple(
                        GroupPartition(where, offset.start_offset, offset.lag)
                        for where, offset in sorted(partitions.items())
                        if isinstance(offset, SharePartitionOffset)
                    ),
                    seen_at=self._monotonic(),
                )
                views.append(replace(view, oldest_ms=await self._oldest.timestamp_ms(view)))
        return views

    async def _consumer_groups(self, group_ids: list[str]) -> list[GroupView]:
        if not group_ids:
            return []
        described = await self._admin.describe_groups(group_ids, timeout=REQUEST_SECONDS)
        offsets = await self._admin.list_consumer_group_offsets(
            dict.fromkeys(group_ids), timeout=REQUEST_SECONDS
        )
        wanted = {
            where
            for partitions in offsets.values()
            if not isinstance(partitions, KafkaError)
            for where in partitions
        }
        ends = await self._admin.list_offsets(
            dict.fromkeys(wanted, OffsetSpec.LATEST), timeout=REQUEST_SECONDS
        )
        views = []
        for group_id in group_ids:
            group, partitions = described[group_id], offsets[group_id]
            if not isinstance(group, ConsumerGroupDescription):
                views.append(self._failed(group_id, group))
            elif isinstance(partitions, KafkaError):
                views.append(self._failed(group_id, partitions))
            else:
                views.append(
                    GroupView(
                        group_id,
                        str(group.type),
                        str(group.state),
                        members=_members(group.members),
                        partitions=tuple(
                            _committed(where, offset, ends.get(where))
                            for where, offset in sorted(partitions.items())
                            if isinstance(offset, CommittedOffset)
                        ),
                        seen_at=self._monotonic(),
                    )
                )
        return views

    def _failed(self, group_id: str, error: object) -> GroupView:
        return replace(self.view.groups[group_id], error=str(error), seen_at=self._monotonic())


def _topic(topic: TopicDescription) -> TopicView:
    return TopicView(
        name=topic.name,
        partition_count=topic.partition_count,
        is_internal=topic.is_internal or topic.name.startswith(OWN_TOPICS),
        leaderless=tuple(
            partition.partition for partition in topic.partitions if partition.leader < 0
        ),
        short_of_replicas=tuple(
            partition.partition
            for partition in topic.partitions
            if len(partition.in_sync_replicas) < len(partition.replicas)
        ),
    )


def _members(
    members: Iterable[ShareMemberDescription | ConsumerMemberDescription],
) -> tuple[MemberView, ...]:
    return tuple(
        MemberView(
            member.member_id, member.client_id, member.host, tuple(sorted(member.assignment))
        )
        for member in sorted(members, key=lambda member: member.member_id)
    )


def _committed(
    where: TopicPartition, committed: CommittedOffset, end: ListedOffset | KafkaError | None
) -> GroupPartition:
    lag = None
    if committed.offset is not None and isinstance(end, ListedOffset):
        lag = max(0, end.offset - committed.offset)
    return GroupPartition(where, committed.offset, lag)
