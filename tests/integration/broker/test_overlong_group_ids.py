"""An id that no new group may have is never hashed, whatever request brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.delete_groups.v2 import request as delete_groups
from kio.schema.delete_share_group_offsets.v0 import request as delete_share_offsets
from kio.schema.heartbeat.v3 import request as heartbeat
from kio.schema.offset_commit.v7 import request as offset_commit
from kio.schema.offset_fetch.v8 import request as offset_fetch

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.broker.groups.classic_group_records import encode
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.ids import GroupId, TopicName, group_partition
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.attacks.target import join_request
from tests.faults.in_process import Broker
from tests.support.observed_calls import observed_calls

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
def test_overlong_group_id_is_refused_before_it_is_hashed(ask: Ask, tmp_path: Path) -> None:
    hashed: list[int] = []

    def note(arguments: Mapping[str, Any]) -> None:
        hashed.append(len(arguments["group_id"]))

    async def scenario() -> int:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        code = await ask(broker, OVERLONG)
        await broker.stop()
        return code

    with observed_calls(group_partition, note):
        code = asyncio.run(scenario())
    assert max(hashed, default=0) <= len(LONGEST)
    assert code != NONE or ask is fetch, "a group without offsets is no error for this one"


async def put_group(broker: Broker, group_id: str) -> None:
    """Write a group to the log as a broker did that had no limit for ids, and read the log."""
    topics = broker.running.parts.topics
    partition_count = topics.catalog.topic(CONSUMER_OFFSETS).partition_count
    partition = group_partition(GroupId(group_id), partition_count)
    topic_id = topics.catalog.topic(TopicName("orders")).topic_id
    offset = OffsetAndMetadata(0, -1, "", broker.clock.wall_ms(), None, topic_id)
    key, value = encode(OffsetCommit(GroupId(group_id), TopicName("orders"), 0, offset))
    _, log = topics.named(CONSUMER_OFFSETS, partition)
    await log.append(encode_batch([SimpleRecord(key, value, 0)]), now_ms=0)
    broker.running.parts.groups.load()


def test_longest_id_is_accepted_and_existing_overlong_groups_still_work(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        codes = [await commit(broker, LONGEST), await commit(broker, OVERLONG)]
        await put_group(broker, OVERLONG)
        codes += [await commit(broker, OVERLONG), await commit(broker, OVERLONG)]
        await broker.stop()
        return codes

    assert asyncio.run(scenario()) == [NONE, INVALID_GROUP_ID, NONE, NONE]
