"""A member of a consumer group that speaks the protocol by hand, in any version of it."""

from __future__ import annotations

import asyncio
import datetime as dt
from importlib import import_module
from typing import Any

from tests.faults.in_process import Broker
from tests.support.limits import HANGING_SECONDS

SESSION = dt.timedelta(seconds=10)
REBALANCE = dt.timedelta(seconds=60)
SUBSCRIPTION = bytes.fromhex("0000 00000001 0006") + b"orders" + bytes.fromhex("00000000")
"""A consumer's, of version 0, to the topic ``orders``."""


def message(name: str, version: int) -> Any:
    """The module of a request's classes, as in ``message("join_group", 9)``."""
    return import_module(f"kio.schema.{name}.v{version}.request")


async def soon(pending: asyncio.Future[Any] | asyncio.Task[Any]) -> Any:
    """What is answered without any time passing."""
    return await asyncio.wait_for(pending, HANGING_SECONDS)


class RawMember:
    """Its requests; what they are answered is the caller's to judge."""

    def __init__(
        self, broker: Broker, group: str, instance: str | None = None, *, connection_id: int = 1
    ) -> None:
        self.broker = broker
        self.connection_id = connection_id
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1

    def send(self, request: Any) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.broker.ask(request, self.connection_id))

    def join(self, version: int = 9) -> asyncio.Task[Any]:
        module = message("join_group", version)
        protocol = module.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout": SESSION,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": (protocol,),
        }
        if version >= 1:
            fields["rebalance_timeout"] = REBALANCE
        if version >= 5:
            fields["group_instance_id"] = self.instance
        return self.send(module.JoinGroupRequest(**fields))

    async def joined(self, version: int = 9) -> Any:
        """Join a group that waits for nobody else; with the detour for an id where there is one."""
        answer = await soon(self.join(version))
        if int(answer.error_code) == 79:
            self.member_id = answer.member_id
            answer = await soon(self.join(version))
        assert int(answer.error_code) == 0
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, version: int = 5, **assignments: bytes) -> asyncio.Task[Any]:
        """``assignments`` have ``me`` for this member."""
        module = message("sync_group", version)
        parts = {self.member_id if who == "me" else who: part for who, part in assignments.items()}
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "assignments": tuple(
                module.SyncGroupRequestAssignment(member_id=who, assignment=part)
                for who, part in parts.items()
            ),
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.send(module.SyncGroupRequest(**fields))

    async def heartbeat(self, version: int = 4) -> int:
        module = message("heartbeat", version)
        fields = {"group_instance_id": self.instance} if version >= 3 else {}
        answer = await self.send(
            module.HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                **fields,
            )
        )
        return int(answer.error_code)

    async def leave(self, version: int = 5) -> Any:
        module = message("leave_group", version)
        if version < 3:
            request = module.LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        else:
            identity = module.MemberIdentity(
                member_id=self.member_id, group_instance_id=self.instance
            )
            request = module.LeaveGroupRequest(group_id=self.group, members=(identity,))
        return await self.send(request)

    async def commit(
        self, offset: int, *, version: int = 9, topic: Any = "orders", partition: int = 0,
        note: str = "", **more: Any,
    ) -> int:  # fmt: skip
        """The partition's error code."""
        module = message("offset_commit", version)
        partition_entry = module.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=note
        )
        which = "topic_id" if version >= 10 else "name"
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "topics": (
                module.OffsetCommitRequestTopic(**{which: topic}, partitions=(partition_entry,)),
            ),
        }
        if version >= 7:
            fields["group_instance_id"] = self.instance
        answer = await self.send(module.OffsetCommitRequest(**fields, **more))
        return int(answer.topics[0].partitions[0].error_code)

    async def fetch(
        self, *, version: int = 9, topic: Any = "orders", partition: int = 0
    ) -> tuple[int, int, str | None]:
        """Error code, offset and note of one partition."""
        module = message("offset_fetch", version)
        if version < 8:
            topics = (module.OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),)
            more = {"require_stable": True} if version >= 7 else {}
            request = module.OffsetFetchRequest(group_id=self.group, topics=topics, **more)
            answer = await self.send(request)
        else:
            which = {"topic_id" if version >= 10 else "name": topic}
            topics = (module.OffsetFetchRequestTopics(**which, partition_indexes=(partition,)),)
            group = module.OffsetFetchRequestGroup(group_id=self.group, topics=topics)
            answer = (await self.send(module.OffsetFetchRequest(groups=(group,)))).groups[0]
        (partition_entry,) = answer.topics[0].partitions
        return (
            int(partition_entry.error_code),
            partition_entry.committed_offset,
            partition_entry.metadata,
        )

    async def every_offset(self, version: int = 9) -> list[tuple[Any, int, int]]:
        """Topic, partition and offset of all that the group has committed."""
        module = message("offset_fetch", version)
        if version < 8:
            request = module.OffsetFetchRequest(group_id=self.group, topics=None)
            answer = await self.send(request)
        else:
            group = module.OffsetFetchRequestGroup(group_id=self.group, topics=None)
            answer = (await self.send(module.OffsetFetchRequest(groups=(group,)))).groups[0]
        return [
            (topic.topic_id if version >= 10 else topic.name, partition.partition_index,
             partition.committed_offset)
            for topic in answer.topics
            for partition in topic.partitions
        ]  # fmt: skip

    async def describe(self, version: int = 6, *, operations: bool = False) -> Any:
        module = message("describe_groups", version)
        fields = {"include_authorized_operations": operations} if version >= 3 else {}
        request = module.DescribeGroupsRequest(groups=(self.group,), **fields)
        return (await self.send(request)).groups[0]

    async def delete_offset(self, topic: str, partition: int = 0) -> int:
        """The first error code that is none, from the top down."""
        module = message("offset_delete", 0)
        partition_entry = module.OffsetDeleteRequestPartition(partition_index=partition)
        wanted = module.OffsetDeleteRequestTopic(name=topic, partitions=(partition_entry,))
        request = module.OffsetDeleteRequest(group_id=self.group, topics=(wanted,))
        answer = await self.send(request)
        return int(answer.error_code) or int(answer.topics[0].partitions[0].error_code)

    async def delete_group(self) -> int:
        request = message("delete_groups", 2).DeleteGroupsRequest(groups_names=(self.group,))
        return int((await self.send(request)).results[0].error_code)
