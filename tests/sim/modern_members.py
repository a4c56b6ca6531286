"""Simulated members of a consumer group of KIP-848: they own, revoke and commit as real ones do.

Committed is always offset 0, which every log has, with metadata that is never used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from datetime import timedelta

from kio.schema.consumer_group_heartbeat.v1 import request as heartbeat
from kio.schema.offset_commit.v10 import request as offset_commit
from kio.schema.offset_fetch.v10 import request as offset_fetch

from tests.sim.board import Board
from tests.sim.client import Client, NoAnswer
from tests.sim.messages import NO_SUCH_TOPIC, Partition, by_topic

GROUP = "modern"
REBALANCE = timedelta(seconds=4)
OVERSLEPT_S = 6.0
"""Longer than the session: other members have its partitions then."""
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class Fenced(Exception):
    """The member has lost its partitions and must join again."""


@dataclass
class ModernMember:
    """One member; it sends its partitions with most heartbeats."""

    name: str
    board: Board
    chance: random.Random
    instance_id: str | None = None
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    revoked: set[Partition] = field(default_factory=set)
    """Those of its own that it has to give up, and still has."""
    is_unsure: bool = False
    """Whether a heartbeat got no answer.  The next one is whole, as KIP-848 wants it: the lost
    answer may have had an assignment, which the broker repeats for no other request."""
    committed: int = 0
    starts: int = 0

    @property
    def member_id(self) -> str:
        """A member that starts again has a new id."""
        return f"{self.name}.{self.starts}"

    async def run(self) -> None:
        client = Client(self.name)
        while True:
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            try:
                await self._live(client)
            except Fenced:
                continue

    async def _live(self, client: Client) -> None:
        """Join and stay; a request without an answer is repeated with the same epoch."""
        self.epoch = 0
        self.owned.clear()
        self.revoked.clear()
        while True:
            with contextlib.suppress(NoAnswer):
                await self._heartbeat(client)
                if self.owned:
                    await self._use(client, self.chance.choice(sorted(self.owned)))
            if self.chance.random() < 0.5:  # Otherwise it sends heartbeats while it revokes.
                self.owned -= self.revoked
                self.revoked.clear()
            if not self.board.is_settling and self.chance.random() < 0.04:
                await asyncio.sleep(OVERSLEPT_S)
                with contextlib.suppress(NoAnswer):
                    for partition in sorted(self.owned):
                        await self._use(client, partition)
            await asyncio.sleep(self.chance.uniform(0.2, 0.8))
            if not self.board.is_settling and self.chance.random() < 0.04:
                await self._end(client)
                return

    async def _heartbeat(self, client: Client) -> None:
        request, self.is_unsure = self._request(self.epoch), True
        answer = await client.ask(request)
        self.is_unsure = False
        if int(answer.error_code) != 0:
            raise Fenced
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        target = {
            Partition(topic.topic_id, index)
            for topic in answer.assignment.topic_partitions
            for index in topic.partitions
        }
        self.owned |= target
        self.revoked = self.owned - target

    def _request(self, epoch: int) -> heartbeat.ConsumerGroupHeartbeatRequest:
        is_whole = epoch == 0 or self.is_unsure
        owned = tuple(
            heartbeat.TopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
            for topic_id, indexes in by_topic(sorted(self.owned)).items()
        )
        by_pattern = self.name.endswith("p")
        return heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout=REBALANCE if is_whole else timedelta(milliseconds=-1),
            subscribed_topic_names=self.board.names if is_whole and not by_pattern else None,
            subscribed_topic_regex="topic-[0-9]+" if is_whole and by_pattern else None,
            topic_partitions=owned if is_whole or self.chance.random() < 0.7 else None,
        )

    async def _use(self, client: Client, where: Partition) -> None:
        """Read the committed offset of a partition, or commit."""
        if self.chance.random() < 0.3:
            await self._fetch(client, where)
            return
        self.committed += 1
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=where.index,
            committed_offset=0,
            committed_metadata=f"{self.name}/{self.committed}",
        )
        topic = offset_commit.OffsetCommitRequestTopic(
            topic_id=where.topic_id, partitions=(partition,)
        )
        stale = self.chance.random() < 0.1 and self.epoch > 1
        answer = await client.ask(
            offset_commit.OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.epoch - stale,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=(topic,),
            )
        )
        code = int(answer.topics[0].partitions[0].error_code)
        if code != 0 and not stale and code not in NO_SUCH_TOPIC:
            raise Fenced

    async def _fetch(self, client: Client, where: Partition) -> None:
        topic = offset_fetch.OffsetFetchRequestTopics(
            topic_id=where.topic_id, partition_indexes=(where.index,)
        )
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, topics=(topic,)
        )
        await client.ask(offset_fetch.OffsetFetchRequest(groups=(group,)))

    async def _end(self, client: Client) -> None:
        """Leave, or just stop, as a process that is killed; then start again."""
        if self.chance.random() < 0.6:
            epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
            with contextlib.suppress(NoAnswer):
                await client.ask(self._request(epoch))
        client.close()
        self.starts += 1
        await asyncio.sleep(self.chance.uniform(0, 2))
