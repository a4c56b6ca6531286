"""Simulated members of an ordinary consumer group: they join, share partitions out, and commit.

Subscription and assignment are opaque to the broker, so they are plain text here.  What is
committed is always offset 0, which every log has, with metadata that is never used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kio.schema.heartbeat.v4 import request as heartbeat
from kio.schema.join_group.v9 import request as join_group
from kio.schema.leave_group.v5 import request as leave_group
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.sync_group.v5 import request as sync_group

from tests.sim.board import Board
from tests.sim.client import Client, NoAnswer

GROUP = "ordinary"
PROTOCOL = "plain"
SESSION = timedelta(seconds=6)
MEMBER_ID_REQUIRED = 79


class Rejoin(Exception):
    """The generation is over, or this member is not in it."""


@dataclass
class Consumer:
    """One member; see the module's text."""

    name: str
    board: Board
    chance: random.Random
    member_id: str = ""
    generation: int = -1
    committed: int = 0

    async def run(self) -> None:
        client = Client(self.name, timeout_s=8)
        while True:
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            with contextlib.suppress(NoAnswer, Rejoin):
                assigned = await self._join(client)
                await self._work(client, assigned)

    async def _join(self, client: Client) -> list[tuple[str, int]]:
        """Take part in a generation; what this member reads in it."""
        joined = await client.ask(self._join_request())
        if int(joined.error_code) == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await client.ask(self._join_request())
        if int(joined.error_code) != 0:
            self.member_id = ""
            raise Rejoin
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = self._share_out(joined) if joined.leader == self.member_id else ()
        synced = await client.ask(
            sync_group.SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=PROTOCOL,
                assignments=assignments,
            )
        )
        if int(synced.error_code) != 0:
            raise Rejoin
        return decode_assignment(bytes(synced.assignment))

    async def _work(self, client: Client, assigned: list[tuple[str, int]]) -> None:
        """Commit now and then, until the generation is over."""
        for name, index in assigned:
            await self._position(client, name, index)
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 0.8))
            beat = await client.ask(
                heartbeat.HeartbeatRequest(
                    group_id=GROUP, generation_id=self.generation, member_id=self.member_id
                )
            )
            if int(beat.error_code) != 0:
                raise Rejoin
            if assigned:
                await self._commit(client, *self.chance.choice(assigned))
            if not self.board.is_settling and self.chance.random() < 0.03:
                await self._leave(client)

    async def _position(self, client: Client, name: str, index: int) -> None:
        topic = offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=(index,))
        group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        await client.ask(offset_fetch.OffsetFetchRequest(groups=(group,)))

    async def _commit(self, client: Client, name: str, index: int) -> None:
        self.committed += 1
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=0,
            committed_metadata=f"{self.name}/{self.committed}",
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=(partition,))
        stale = self.chance.random() < 0.05 and self.generation > 1
        answer = await client.ask(
            offset_commit.OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generation - stale,
                member_id=self.member_id,
                topics=(topic,),
            )
        )
        if int(answer.topics[0].partitions[0].error_code) != 0 and not stale:
            raise Rejoin

    async def _leave(self, client: Client) -> None:
        member = leave_group.MemberIdentity(member_id=self.member_id)
        await client.ask(leave_group.LeaveGroupRequest(group_id=GROUP, members=(member,)))
        self.member_id = ""
        raise Rejoin

    def _join_request(self) -> join_group.JoinGroupRequest:
        protocol = join_group.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self.name.encode())
        return join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout=SESSION,
            rebalance_timeout=timedelta(seconds=3),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(protocol,),
        )

    def _share_out(self, joined: Any) -> tuple[sync_group.SyncGroupRequestAssignment, ...]:
        """Every partition to one of the members."""
        members = [member.member_id for member in joined.members]
        shares: dict[str, list[tuple[str, int]]] = {member_id: [] for member_id in members}
        for topic in self.board.topics.values():
            for index in range(topic.partition_count):
                shares[self.chance.choice(members)].append((topic.name, index))
        return tuple(
            sync_group.SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(share)
            )
            for member_id, share in shares.items()
        )


def encode_assignment(share: list[tuple[str, int]]) -> bytes:
    return " ".join(f"{name}:{index}" for name, index in share).encode()


def decode_assignment(data: bytes) -> list[tuple[str, int]]:
    pairs = (part.rpartition(":") for part in data.decode().split())
    return [(name, int(index)) for name, _, index in pairs]
