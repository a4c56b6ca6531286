"""Honest members of consumer groups: they join, take part in rebalances, commit and leave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9 import request as join_group
from kio.schema.leave_group.v5 import request as leave_group
from kio.schema.offset_commit.v8 import request as offset_commit
from kio.schema.sync_group.v5 import request as sync_group

GROUPS = ("consumers", "consumers", "workers")
JOIN_GROUP = 11
TURNS_MAX = 20
"""An answer that did not come after so many requests was lost with its connection."""
SUBSCRIPTION = b"\0\1\0\0\0\1\0\5plain\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\5plain\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
GONE = (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id)


class ClassicMember:
    """A member of a consumer group; `request` is its next request."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._group = dice.choice(GROUPS)
        self._id = ""
        self._generation = -1
        self._others: tuple[str, ...] = ()
        """The members for whom it assigns as the leader."""
        self._asked = 0
        self._is_synced = False

    def request(self, topic_ids: Sequence[UUID]) -> Any:
        """The next request; None: it waits for an answer."""
        dice = self._dice
        if self._asked:
            self._asked = (self._asked + 1) % TURNS_MAX
            return None
        kind = dice.random()
        if self._generation < 0 or kind < 0.05:
            self._asked = 1
            return self._join()
        if not self._is_synced:
            self._asked = 1
            return self._sync()
        if kind < 0.1:
            self._generation = -1
            return self._leave()
        if kind < 0.5:
            return HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._id,
                group_instance_id=None,
            )
        return self._commit()

    def learn(self, response: Any) -> None:
        """Take what an answer says of the member and its group."""
        if not hasattr(response, "error_code"):
            return
        self._asked = 0
        if response.__api_key__ == JOIN_GROUP:
            self._id = response.member_id
            self._generation, self._is_synced = -1, False
            if response.error_code is ErrorCode.none:
                self._generation = response.generation_id
                is_leader = response.leader == response.member_id
                members = response.members if is_leader else ()
                self._others = tuple(member.member_id for member in members)
        elif response.error_code is not ErrorCode.none:
            self._generation = -1
        else:
            self._is_synced = True
        if response.error_code in GONE:
            self._id = ""

    def _join(self) -> Any:
        names = ("range", "roundrobin") if self._dice.random() < 0.5 else ("range",)
        return join_group.JoinGroupRequest(
            group_id=self._group,
            session_timeout=timedelta(seconds=10),
            rebalance_timeout=timedelta(milliseconds=self._dice.choice((5, 20, 50))),
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=tuple(
                join_group.JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION)
                for name in names
            ),
        )

    def _sync(self) -> Any:
        return sync_group.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                sync_group.SyncGroupRequestAssignment(member_id=member, assignment=ASSIGNMENT)
                for member in self._others
            ),
        )

    def _commit(self) -> Any:
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=self._dice.randrange(3),
            committed_offset=self._dice.randrange(1_000),
            committed_metadata="",
        )
        topic = offset_commit.OffsetCommitRequestTopic(name="plain", partitions=(partition,))
        return offset_commit.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=None,
            topics=(topic,),
        )

    def _leave(self) -> Any:
        member = leave_group.MemberIdentity(member_id=self._id, group_instance_id=None)
        return leave_group.LeaveGroupRequest(group_id=self._group, members=(member,))
