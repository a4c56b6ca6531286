"""An id that no new group may have is never hashed, whatever request brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kio.schema.delete_groups.v2 import request as delete_groups
from kio.schema.delete_share_group_offsets.v0 import request as delete_share_offsets
from kio.schema.heartbeat.v3 import request as heartbeat
from kio.schema.offset_commit.v7 import request as offset_commit
from kio.schema.offset_fetch.v8 import request as offset_fetch

from sharegroup.broker.groups import group_log
from sharegroup.ids import GroupId, group_partition
from tests.attacks.target import join_request
from tests.faults.in_process import Broker

NONE, INVALID_GROUP_ID = 0, 24
OVERLONG = "g" * 250
LONGEST = "g" * 249

Ask = Callable[[Broker, str], Awaitable[int]]


async def commit(broker: Broker, group_id: str) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=(partition,))
    request = offset_commit.OffsetCommitRequest(group_id=group_id, member_id="", topics=(topic,))
    return int((await broker.ask(request)).topics[0].partitions[0].error_code)


async def fetch(broker: Broker, group_id: str) -> int:
    group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    request = offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=False)
    return int((await broker.ask(request)).groups[0].error_code)


async def beat(broker: Broker, group_id: str) -> int:
    request = heartbeat.HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    return int((await broker.ask(request)).error_code)


async def join_share_group(broker: Broker, group_id: str) -> int:
    return int((await broker.ask(join_request(group_id, "m", ["orders"]))).error_code)


async def delete(broker: Broker, group_id: str) -> int:
    request = delete_groups.DeleteGroupsRequest(groups_names=(group_id,))
    return int((await broker.ask(request)).results[0].error_code)


async def delete_share(broker: Broker, group_id: str) -> int:
    topic = delete_share_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="orders")
    request = delete_share_offsets.DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=(topic,)
    )
    answer = await broker.ask(request)
    return int(answer.error_code) or int(answer.responses[0].error_code)


@pytest.mark.parametrize("ask", [commit, fetch, beat, join_share_group, delete, delete_share])
def test_overlong_group_id_is_refused_before_it_is_hashed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    def noting(group_id: GroupId, partition_count: int) -> int:
        hashed.append(len(group_id))
        return group_partition(group_id, partition_count)

    monkeypatch.setattr(group_log, "group_partition", noting)

    async def scenario() -> int:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        code = await ask(broker, OVERLONG)
        await broker.stop()
        return code

    code = asyncio.run(scenario())
    assert max(hashed, default=0) <= len(LONGEST)
    assert code != NONE or ask is fetch, "a group without offsets is no error for this one"


def test_longest_id_is_accepted_and_existing_overlong_groups_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[int]:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        codes = [await commit(broker, LONGEST), await commit(broker, OVERLONG)]
        with monkeypatch.context() as before:
            before.setattr(group_log, "GROUP_ID_CHARACTERS_MAX", 1_000)
            codes.append(await commit(broker, OVERLONG))
        codes.append(await commit(broker, OVERLONG))
        await broker.stop()
        return codes

    assert asyncio.run(scenario()) == [NONE, INVALID_GROUP_ID, NONE, NONE]
