"""Keeps the history in two topics, which all consoles of a cluster share (``--remember``).

    start ─▶ create topics ─▶ read, put before what was seen ─▶ join the group ─▶ owner? ─▶ write

The consoles are members of the consumer group `GROUP`, and the owner of the one partition of the
seconds writes the blocks of both topics, from what it has seen itself; every console sees every
group once a minute.  A new owner first looks how far the one before has written, and writes what is
missing, because it has seen that time, too.

A block is written after a look at the ownership, not in a transaction: an owner that was suspended
may write once after another console took over.  That does no harm, because a reader takes the first
block of a moment and passes over what is older than what it has.

Whatever fails, the console goes on without: it says what it lacks, and tries again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sharegroup.client.consume.consumer import Consumer
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.settings.client_config import ClientOptions, ReadingConfig, config_from
from sharegroup.console.remember.blocks import GroupPoints, packed
from sharegroup.console.remember.notice import Notice
from sharegroup.console.remember.restoring import SLICE_GROUPS, Restoring
from sharegroup.console.remember.topics import TOPICS, BlockReader, create_topics
from sharegroup.console.remember.windows import Window, due
from sharegroup.console.watch.history import History, Tier
from sharegroup.errors import AuthorizationException, KafkaError

log = logging.getLogger(__name__)

GROUP = "__sharegroup.console"
SESSION_MS = 10_000
"""Time after which the partition of a console that was killed goes to another one."""
HEARTBEAT_MS = 3_000
LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0
"""The pause after a failure."""
STOP_SECONDS = 5.0
"""Time for the last blocks at a stop."""
NEEDED = (
    "it needs CREATE, DESCRIBE, READ and WRITE of topics __sharegroup.console.*, and READ of group "
    f"{GROUP}; give these rights, or start without --remember"
)
OWNED = TOPICS[Tier.SECONDS].where


class SharedHistory:
    """The task that reads, and writes as long as it owns the partition."""

    def __init__(
        self,
        history: History,
        options: ClientOptions,
        notice: Notice,
        *,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._history, self._options, self._notice = history, options, notice
        self._wall_ms = wall_ms
        self._is_loaded = False
        self._written_ms: dict[Tier, int] = {}
        """By tier the time up to which blocks are written, by this console or another one."""
        self.is_owner = False
        """Whether this console writes."""

    async def run(self) -> None:
        """Share the history until this is cancelled."""
        while True:
            try:
                await self._share()
            except AuthorizationException as error:
                self._notice.wrong(f"the history is not remembered: {error}", NEEDED)
            except KafkaError as error:
                self._notice.wrong(
                    f"the history is not remembered: {error}", "look at the brokers; it goes on"
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _share(self) -> None:
        cluster = Cluster(config_from(ReadingConfig, {**self._options}))
        try:
            await create_topics(cluster)
            if not self._is_loaded:
                await self._load(cluster)
            producer = Producer(**self._options)
            member = Consumer(
                OWNED.topic,
                **self._options,
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                enable_auto_commit=False,
            )
            try:
                await self._take_part(cluster, producer, member)
            except asyncio.CancelledError:
                await self._write_last(producer, member)
                raise
            finally:
                self.is_owner = False
                await member.close(STOP_SECONDS)
                await producer.close(STOP_SECONDS)
        finally:
            cluster.close()

    async def _load(self, cluster: Cluster) -> None:
        """Read both topics, the minutes first."""
        restoring = Restoring()
        now_ms = self._wall_ms()
        for tier in (Tier.MINUTES, Tier.SECONDS):
            async for block in BlockReader(cluster, tier).blocks(now_ms - tier.keep_ms):
                if block.slot_ms <= now_ms:
                    await restoring.take(block)
        await restoring.restore(self._history)
        self._is_loaded = True
        log.info("event=console.history_read group=%s points=%d", GROUP, restoring.points)

    async def _take_part(self, cluster: Cluster, producer: Producer, member: Consumer) -> None:
        """Write while this console owns the partition."""
        while True:
            await member.poll(LOOK_SECONDS)
            is_owner = OWNED in member.assignment
            if is_owner and not self.is_owner:
                await self._find_written(cluster)
                log.info("event=console.history_owner group=%s", GROUP)
            self.is_owner = is_owner
            await self._write(producer, member, whole_slots=True)
            self._notice.right()

    async def _write_last(self, producer: Producer, member: Consumer) -> None:
        """Write what is not written yet, at a stop."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._write(producer, member, whole_slots=False)
        except (TimeoutError, KafkaError) as error:
            log.warning(
                "event=console.history_unwritten error=%r effect=%r",
                *(error, "the last seconds are missing, unless another console goes on"),
            )

    async def _find_written(self, cluster: Cluster) -> None:
        """Find out up to which time the owner before has written."""
        now_ms = self._wall_ms()
        for tier, topic in TOPICS.items():
            since_ms = now_ms - topic.backlog_ms
            written_ms = since_ms
            async for block in BlockReader(cluster, tier).blocks(since_ms):
                written_ms = max(written_ms, block.newest_ms)
            self._written_ms[tier] = written_ms

    async def _write(self, producer: Producer, member: Consumer, *, whole_slots: bool) -> None:
        """Write the blocks that are due; at a stop those of slots, too, that have not ended."""
        for tier, topic in TOPICS.items():
            if not self.is_owner:
                return
            written_ms = self._written_ms[tier]
            for window in due(topic, written_ms, self._wall_ms(), whole_slots=whole_slots):
                groups = await self._points(tier, window)
                blocks = await asyncio.to_thread(_packed, tier, window, groups)
                for block in blocks:
                    # Both may have changed while this was waiting.
                    if OWNED not in member.assignment:
                        self.is_owner = False
                        return
                    await producer.send_and_wait(topic.name, block, partition=OWNED.partition)
                self._written_ms[tier] = window.end_ms - 1

    async def _points(self, tier: Tier, window: Window) -> list[GroupPoints]:
        groups = []
        for number, group_id in enumerate(self._history.group_ids()):
            series = self._history.of(group_id).of(tier)
            groups.append(GroupPoints(group_id, series.columns(window.first_ms, window.end_ms)))
            if number % SLICE_GROUPS == SLICE_GROUPS - 1:
                await asyncio.sleep(0)
        return groups


def _packed(tier: Tier, window: Window, groups: list[GroupPoints]) -> list[bytes]:
    return list(packed(tier, window.slot_ms, groups))
