"""ShareFetch and ShareAcknowledge of hundreds of partitions: decided and answered in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_fetch.v2.response import ShareFetchResponse

from sharegroup.broker.app import _connection_closed
from sharegroup.broker.handlers.share.share_looking import TOPICS_AT_ONCE
from sharegroup.broker.load.answer_budget import UnlimitedAnswers
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.wire.codec.decoder import decode
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_long_requests import HurryingClock
from tests.integration.broker.test_share_fetch import alter_group
from tests.integration.broker.test_wide_requests import produce_request, send
from tests.support.limits import HANGING_SECONDS
from tests.support.observed_calls import most_calls_in_a_turn, observed_calls

PARTITIONS = 800
RECORDS = 200
"""Partitions that have a record."""
PARTITIONS_IN_A_SLICE = 5 * 16
UNKNOWN_TOPIC_ID = 100
ACCEPT = 1


def run(scenario: Callable[[Broker, UUID], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path), clock=HurryingClock())
        try:
            assert await broker.create_topic("wide", PARTITIONS) == 0
            member = ShareMember("g", "m", "wide", PARTITIONS, connection_id=1)
            await alter_group(broker, "share.auto.offset.reset", "earliest")
            assert await member.heartbeat(broker) == 0
            topic_id = await broker.topic_id("wide")
            assert topic_id is not None
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(broker, topic_id)
        finally:
            await broker.stop()

    asyncio.run(main())


async def produce(broker: Broker, *partitions: int) -> None:
    reply = send(broker, produce_request(*partitions))
    assert isinstance(reply, asyncio.Future)
    await reply


def _topics(module: Any, verb: str, topic_id: UUID, partitions: range, acked: bool) -> Any:
    batch = module.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(ACCEPT,))
    named = tuple(
        getattr(module, f"{verb}Partition")(
            partition_index=number, acknowledgement_batches=(batch,) if acked else ()
        )
        for number in partitions
    )
    topic = getattr(module, f"{verb}Topic")(topic_id=topic_id, partitions=named)
    return (topic,) if named else ()


def fetch(
    topic_id: UUID,
    partitions: range = range(0),
    *,
    epoch: int = 0,
    acked: bool = False,
    wait_ms: int = 0,
    min_bytes: int = 0,
    records_max: int = PARTITIONS,
) -> share_fetch.ShareFetchRequest:
    return share_fetch.ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        max_records=records_max,
        batch_size=records_max,
        topics=_topics(share_fetch, "Fetch", topic_id, partitions, acked),
        forgotten_topics_data=(),
    )


def acknowledge(topic_id: UUID, partitions: range, *, epoch: int) -> Any:
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=_topics(share_acknowledge, "Acknowledge", topic_id, partitions, acked=True),
    )


async def answer_to(broker: Broker, request: Any) -> list[Any]:
    """What is said of each partition."""
    reply = send(broker, request)
    return partitions_of(request, await reply if isinstance(reply, asyncio.Future) else reply)


def partitions_of(request: Any, reply: Any) -> list[Any]:
    is_fetch = isinstance(request, share_fetch.ShareFetchRequest)
    cls = ShareFetchResponse if is_fetch else ShareAcknowledgeResponse
    response = decode(cls, b"".join(reply), 9)[0]
    assert response.error_code == 0
    return [partition for topic in response.responses for partition in topic.partitions]


def with_records(partitions: list[Any]) -> list[int]:
    return sorted(
        int(partition.partition_index) for partition in partitions if partition.acquired_records
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_wide_session_is_opened_and_examined_in_slices(tmp_path: Path, is_known: bool) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        wanted = topic_id if is_known else UUID(int=1)
        with most_calls_in_a_turn(SharePartitions.get) as most:
            found = await answer_to(broker, fetch(wanted, range(PARTITIONS)))
        assert [int(partition.partition_index) for partition in found] == list(range(PARTITIONS))
        assert {int(partition.error_code) for partition in found} == {
            0 if is_known else UNKNOWN_TOPIC_ID
        }
        assert 0 < most() <= PARTITIONS_IN_A_SLICE
        assert broker.running.parts.share_sessions.partition_count() == PARTITIONS

    run(scenario, tmp_path)


@pytest.mark.parametrize("by_fetch", [True, False])
def test_wide_acknowledgements_are_decided_in_slices_and_in_order(
    tmp_path: Path, by_fetch: bool
) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        await produce(broker, *range(RECORDS))
        found = await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        assert with_records(found) == list(range(RECORDS))
        acked = range(RECORDS)
        first: Any = (
            fetch(topic_id, acked, epoch=1, acked=True)
            if by_fetch
            else acknowledge(topic_id, acked, epoch=1)
        )
        behind = acknowledge(topic_id, range(RECORDS - 1, RECORDS), epoch=2)
        with most_calls_in_a_turn(SharePartitions.acknowledge) as most:
            replies = await asyncio.gather(send(broker, first), send(broker, behind))  # type: ignore[arg-type]
        assert 0 < most() <= PARTITIONS_IN_A_SLICE
        errors = {
            int(partition.acknowledge_error_code if by_fetch else partition.error_code)
            for partition in partitions_of(first, replies[0])
        }
        assert errors == {0}
        # It was decided behind the wide request, as the epoch of the session says.
        assert len(partitions_of(behind, replies[1])) == 1

    run(scenario, tmp_path)


async def parked(broker: Broker) -> None:
    """Return when a fetch waits and looks no more."""
    parts = broker.running.parts
    while len(parts.waiting) == 0 or len(parts.slices):
        await asyncio.sleep(0)


def test_whole_answer_of_a_wide_fetch_is_reserved(tmp_path: Path) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        await produce(broker, *range(RECORDS))
        reserved: list[int] = []
        with observed_calls(
            UnlimitedAnswers.reserve, lambda call: reserved.append(call["answer_bytes"])
        ):
            found = await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        assert reserved[-1] == sum(len(partition.records or b"") for partition in found)
        assert len(reserved) > 1

    run(scenario, tmp_path)


@pytest.mark.parametrize("min_bytes", [1, 100])
def test_wide_fetch_waits_for_records_of_any_partition(tmp_path: Path, min_bytes: int) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        request = fetch(topic_id, range(PARTITIONS), wait_ms=300_000, min_bytes=min_bytes)
        waiting = asyncio.ensure_future(answer_to(broker, request))
        await parked(broker)
        await produce(broker, PARTITIONS - 1)
        if min_bytes > 1:
            await parked(broker)
            assert not waiting.done()
            await produce(broker, 0)
        assert len(with_records(await waiting)) == (1 if min_bytes == 1 else 2)
        assert len(broker.running.parts.waiting) == 0

    run(scenario, tmp_path)


def test_wide_fetch_sees_records_written_during_its_scan(tmp_path: Path) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        parts = broker.running.parts
        request = fetch(topic_id, range(PARTITIONS), wait_ms=300_000, min_bytes=1)
        waiting = asyncio.ensure_future(answer_to(broker, request))
        while parts.share_sessions.watched_count == 0:  # The fetch has found an empty partition.
            await asyncio.sleep(0)
        assert len(parts.slices)
        await produce(broker, 0)
        assert with_records(await waiting) == [0]

    run(scenario, tmp_path)


def test_wide_fetch_at_its_deadline_examines_all_partitions_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        parts = broker.running.parts
        await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        request = fetch(topic_id, epoch=1, wait_ms=300_000, min_bytes=1)
        waiting = asyncio.ensure_future(answer_to(broker, request))
        await parked(broker)
        while parts.share_partitions.counters.waiting_count == 0:
            await asyncio.sleep(0)
        with most_calls_in_a_turn(SharePartitions.fetch) as most:
            broker.clock.advance(301)
            assert await waiting == []
        assert 0 < most() <= PARTITIONS_IN_A_SLICE
        assert parts.share_partitions.counters.waits_expired == 1
        assert parts.share_partitions.counters.waiting_count == 0

    run(scenario, tmp_path)


async def closed(broker: Broker) -> None:
    """Close connection 1, as its transport does; return when what it has sent is decided."""
    parts = broker.running.parts
    ended = asyncio.get_running_loop().create_future()
    if 1 in parts.late_requests.waiting:
        parts.late_requests.finish(1, lambda: ended.set_result(None))
        await ended
    _connection_closed(parts, 1)


@pytest.mark.parametrize("waits", [False, True])
def test_wide_fetch_ends_with_its_connection(tmp_path: Path, waits: bool) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        parts = broker.running.parts
        if not waits:
            await produce(broker, *range(RECORDS))
        request = fetch(topic_id, range(PARTITIONS), wait_ms=300_000, min_bytes=1)
        waiting = asyncio.ensure_future(answer_to(broker, request))
        if waits:
            await parked(broker)
        else:
            while not sum(live.state.snapshot().acquired_count for live in parts.share_partitions):
                await asyncio.sleep(0)
        await closed(broker)
        await asyncio.gather(waiting, return_exceptions=True)  # Nobody gets its answer.
        while len(parts.slices) or len(parts.waiting):
            await asyncio.sleep(0)
        assert parts.share_sessions.partition_count() == 0
        found = await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        assert len(with_records(found)) == (0 if waits else RECORDS)

    run(scenario, tmp_path)


def test_acknowledgements_of_a_closed_connection_are_kept(tmp_path: Path) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        parts = broker.running.parts
        await produce(broker, *range(RECORDS))
        await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        # The request closes the session, so its other records are released.
        reply = send(broker, acknowledge(topic_id, range(RECORDS), epoch=-1))
        assert isinstance(reply, asyncio.Future)
        before = parts.share_coordinator.write_count
        while parts.share_coordinator.write_count == before:
            await asyncio.sleep(0)
        assert not reply.done()
        await closed(broker)
        found = await answer_to(broker, fetch(topic_id, range(PARTITIONS)))
        assert with_records(found) == []

    run(scenario, tmp_path)


def test_fetch_of_many_topics_is_counted_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker, topic_id: UUID) -> None:
        request = fetch(topic_id, range(1))
        unknown = tuple(
            share_fetch.FetchTopic(
                topic_id=UUID(int=number + 1),
                partitions=(
                    share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=()),
                ),
            )
            for number in range(TOPICS_AT_ONCE)
        )
        found = await answer_to(broker, replace(request, topics=request.topics + unknown))
        assert len(found) == TOPICS_AT_ONCE + 1
        counted = broker.running.parts.share_partitions.counters.topics
        assert [count.fetch_count for count in counted.values()] == [1]

    run(scenario, tmp_path)
