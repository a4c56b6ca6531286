"""Requests that change thousands of partitions: decided in slices, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.consumer_group_heartbeat.v1 import request as heartbeat
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.fetch.v12 import request as fetch
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.produce.v12 import request as produce

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handlers.groups import offset_commit as offset_commit_handler
from sharegroup.broker.server.dispatch import Reply, dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.ids import GroupId, group_partition
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from tests.faults.in_process import SECOND, Broker, HurryingClock
from tests.support.limits import HANGING_SECONDS
from tests.support.observed_calls import most_calls_in_a_turn

PARTITIONS = 1_000
INVALID_REQUIRED_ACKS, UNKNOWN_PARTITION = 21, 3


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path, **settings: str) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path), clock=HurryingClock(), **settings)
        try:
            assert await broker.create_topic("wide", PARTITIONS) == 0
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def send(broker: Broker, message: Any, connection_id: int = 1) -> Reply | asyncio.Future[Reply]:
    frame = memoryview(b"".join(encode_request(1, "test", message))[4:])
    parts = broker.running.parts
    return dispatch(parts, handler_of, frame, connection_id=connection_id, peer=Peer("127.0.0.1"))


def produce_request(*partitions: int, acks: int = -1) -> produce.ProduceRequest:
    batch = bytes(encode_batch([SimpleRecord(b"k", b"v", 0)]))
    data = tuple(produce.PartitionProduceData(index=index, records=batch) for index in partitions)
    return produce.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=SECOND,
        topic_data=(produce.TopicProduceData(name="wide", partition_data=data),),
    )


def commit_request(*partitions: int, offset: int, generation: int = -1) -> Any:
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id="",
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name="wide",
                partitions=tuple(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="x" * 20
                    )
                    for index in partitions
                ),
            ),
        ),
    )


def group_heartbeat(member_id: str, epoch: int, owned: Any = None) -> Any:
    fields = {} if epoch else {"rebalance_timeout": SECOND, "subscribed_topic_names": ("wide",)}
    return heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=owned if epoch else (),
        **fields,
    )


def _heartbeat_answer(answer: bytes) -> tuple[int, int, set[int]]:
    """Error code, member epoch and partitions."""
    found = decode(ConsumerGroupHeartbeatResponse, answer, 9)[0]
    topics = () if found.assignment is None else found.assignment.topic_partitions
    numbers = {int(number) for topic in topics for number in topic.partitions}
    return int(found.error_code), int(found.member_epoch), numbers


def test_heartbeat_of_a_large_group_is_worked_out_in_slices(tmp_path: Path) -> None:
    """A small request behind it is answered first. Members that join meanwhile share."""

    async def scenario(broker: Broker) -> None:
        slices = broker.running.parts.slices
        before = slices.slice_count
        first = send(broker, group_heartbeat("a", 0), 1)
        second = send(broker, group_heartbeat("b", 0), 2)
        assert isinstance(first, asyncio.Future)
        assert isinstance(second, asyncio.Future)
        small = send(
            broker, ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
        )
        assert isinstance(small, list), "it is answered at once"
        answers = [
            _heartbeat_answer(b"".join(reply)) for reply in await asyncio.gather(first, second)
        ]
        assert slices.slice_count > before + 2
        assert answers[0] == (0, 2, set(range(PARTITIONS)))
        assert answers[1] == (0, 3, set()), "the first member has not given up its partitions"
        group = broker.running.parts.modern_groups.find(GroupId("g"))
        assert group is not None
        assert sorted(map(len, group.target.values())) == [PARTITIONS // 2] * 2

    run(scenario, tmp_path)


def test_wide_produce_is_appended_in_slices_and_in_order(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        with most_calls_in_a_turn(Topics.named) as most:
            wide = send(broker, produce_request(*range(PARTITIONS)))
            behind = send(broker, produce_request(PARTITIONS - 1))
            assert isinstance(wide, asyncio.Future)
            assert isinstance(behind, asyncio.Future)
            replies = await asyncio.gather(wide, behind)
        answers = [_produced(b"".join(reply)) for reply in replies]
        assert answers[0] == [(0, 0)] * PARTITIONS
        assert answers[1] == [(0, 1)]  # Its batch lies behind that of the wide request.
        assert 0 < most() <= 5 * 16  # A slice has five steps of 16 partitions on this clock.

    run(scenario, tmp_path)


def _produced(answer: bytes) -> list[tuple[int, int]]:
    from kio.schema.produce.v12.response import ProduceResponse

    response = decode(ProduceResponse, answer, 9)[0]
    return [
        (int(partition.error_code), int(partition.base_offset))
        for partition in response.responses[0].partition_responses
    ]


def test_wide_produce_with_wrong_acks_is_refused_for_each_partition(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(produce_request(*range(PARTITIONS), acks=7))
        errors = {int(response.error_code) for response in answer.responses[0].partition_responses}
        assert errors == {INVALID_REQUIRED_ACKS}

    run(scenario, tmp_path)


def test_wide_produce_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        _, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
        writer.writelines(encode_request(1, "test", produce_request(*range(PARTITIONS))))
        while len(parts.slices) == 0:
            await asyncio.sleep(0)
        writer.close()
        while len(parts.slices) or parts.late_requests.waiting:
            await asyncio.sleep(0)
        assert (await broker.produce("wide", 0, encode_batch([SimpleRecord(b"k", b"v", 0)])))[
            0
        ] == 0

    run(scenario, tmp_path)


def test_wide_commit_is_written_in_pieces_and_in_order(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        coordinator = broker.running.parts.classic_group_coordinator
        wide = send(broker, commit_request(*range(PARTITIONS + 1), offset=7))
        behind = send(broker, commit_request(0, offset=8))
        assert isinstance(wide, asyncio.Future)
        assert isinstance(behind, asyncio.Future)
        await asyncio.gather(wide, behind)
        sizes = batch_sizes(broker, "g")
        assert sum(sizes) == PARTITIONS + 1  # One partition is unknown, and one comes twice.
        assert max(sizes) <= offset_commit_handler.PIECE_OFFSETS
        group = coordinator.offsets("g")
        offsets = {
            partition: committed.offset for (_, partition), committed in _flat(group).items()
        }
        assert offsets == {0: 8} | dict.fromkeys(range(1, PARTITIONS), 7)

    run(scenario, tmp_path)


def batch_sizes(broker: Broker, group_id: str) -> list[int]:
    """The number of records of each batch in the group's partition of the offsets topic."""
    topics = broker.running.parts.topics
    partition_count = topics.catalog.topic(CONSUMER_OFFSETS).partition_count
    _, log = topics.named(CONSUMER_OFFSETS, group_partition(GroupId(group_id), partition_count))
    return [header.record_count for _, header in scan(log.read(0, bytes_max=1 << 24))]


def _flat(group: Any) -> dict[tuple[str, int], Any]:
    return {
        (topic, partition): committed
        for topic, partitions in group.items()
        for partition, committed in partitions.items()
    }


def test_wide_commit_answers_each_partition(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(commit_request(*range(PARTITIONS + 1), offset=7))
        errors = [int(partition.error_code) for partition in answer.topics[0].partitions]
        assert errors == [0] * PARTITIONS + [UNKNOWN_PARTITION]
        answer = await broker.ask(commit_request(*range(PARTITIONS + 1), offset=7, generation=5))
        errors = [int(partition.error_code) for partition in answer.topics[0].partitions]
        assert set(errors[:-1]) - {0}
        assert errors[-1] == UNKNOWN_PARTITION
        assert isinstance(
            send(
                broker,
                ApiVersionsRequest(client_software_name="test", client_software_version="1"),
            ),
            list,
        )

    run(scenario, tmp_path)


def fetch_request(
    *partitions: int, wait_ms: int = 0, min_bytes: int = 1, session: tuple[int, int] = (0, -1)
) -> fetch.FetchRequest:
    wanted = tuple(
        fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in partitions
    )
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=(fetch.FetchTopic(topic="wide", partitions=wanted),) if wanted else (),
        forgotten_topics_data=(),
    )


def fetched(reply: list[Any]) -> tuple[int, dict[int, int]]:
    """The session's id and the bytes of records by partition."""
    response = decode(FetchResponse, b"".join(reply), 9)[0]
    partitions = response.responses[0].partitions if response.responses else ()
    return response.session_id, {
        int(partition.partition_index): len(partition.records or b"") for partition in partitions
    }


def test_wide_fetch_is_read_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        with most_calls_in_a_turn(Topics.named) as most:
            reply = await send(broker, fetch_request(*range(PARTITIONS)))  # type: ignore[misc]
        assert len(fetched(reply)[1]) == PARTITIONS
        assert 0 < most() <= 5 * 16

    run(scenario, tmp_path)


@pytest.mark.parametrize("min_bytes", [1, 100])
def test_wide_fetch_waits_for_records_of_any_partition(tmp_path: Path, min_bytes: int) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        request = fetch_request(*range(PARTITIONS), wait_ms=300_000, min_bytes=min_bytes)
        waiting = send(broker, request)
        assert isinstance(waiting, asyncio.Future)
        while len(parts.waiting) == 0 or len(parts.slices):
            await asyncio.sleep(0)
        assert not waiting.done()
        await broker.produce(
            "wide", PARTITIONS - 1, encode_batch([SimpleRecord(b"k", b"v" * 90, 0)])
        )
        found = fetched(await waiting)[1]
        assert [index for index, size in found.items() if size] == [PARTITIONS - 1]
        assert len(parts.waiting) == 0

    run(scenario, tmp_path)


@pytest.mark.parametrize("min_bytes", [1, 100])
def test_wide_fetch_sees_records_written_during_its_scan(tmp_path: Path, min_bytes: int) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        request = fetch_request(*range(PARTITIONS), wait_ms=300_000, min_bytes=min_bytes)
        waiting = send(broker, request)
        assert isinstance(waiting, asyncio.Future)
        while len(parts.waiting) == 0:
            await asyncio.sleep(0)
        assert len(parts.slices)  # The fetch does not watch all partitions yet.
        batch = encode_batch([SimpleRecord(b"k", b"v" * 90, 0)])
        for partition in (0, PARTITIONS - 1):
            await broker.produce("wide", partition, batch)
        found = fetched(await waiting)[1]
        assert sum(size > 0 for size in found.values()) >= 1

    run(scenario, tmp_path)


def test_wide_fetch_is_answered_when_its_time_is_up(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        session, found = fetched(
            await send(broker, fetch_request(*range(PARTITIONS), session=(0, 0)))  # type: ignore[misc]
        )
        assert (len(found), session > 0) == (PARTITIONS, True)
        # A small request in a session of many partitions.
        waiting = send(broker, fetch_request(wait_ms=300_000, session=(session, 1)))
        assert isinstance(waiting, asyncio.Future)
        while len(broker.running.parts.waiting) == 0:
            await asyncio.sleep(0)
        broker.clock.advance(301)
        assert fetched(await waiting) == (session, {})

    run(scenario, tmp_path)


def test_wide_fetch_ends_with_its_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        for waits in (False, True):
            _, writer = await asyncio.open_connection("127.0.0.1", parts.node.port)
            request = fetch_request(*range(PARTITIONS), wait_ms=300_000, session=(0, 0))
            writer.writelines(encode_request(1, "test", request))
            while len(parts.waiting if waits else parts.slices) == 0:
                await asyncio.sleep(0)
            writer.close()
            while len(parts.slices) or len(parts.waiting) or len(parts.fetch_sessions):
                await asyncio.sleep(0)

    run(scenario, tmp_path)
