"""Members of one group get their part, and no record keeps the others from theirs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.share_fetch.v2 import request as messages

from sharegroup.client import AdminClient, NewTopic, Producer, ShareConsumer
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.testing import broker as real_broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_share_renewal import acknowledgement, outcome
from tests.support.limits import HANGING_SECONDS

MEMBERS = ("north", "east", "south", "west")
RECORDS = 100_000


async def joined(broker: Broker, name: str, connection_id: int) -> ShareMember:
    member = ShareMember("g", name, "orders", 1, connection_id=connection_id)
    assert await member.heartbeat(broker) == 0
    assert await member.fetch(broker, records_max=0) == ([], {})
    return member


async def work(broker: Broker, member: ShareMember, taken: Counter[str]) -> None:
    """Fetch up to 500, accept them with the next fetch, until the log is at its end."""
    epoch, held = 1, ()
    while sum(taken.values()) < RECORDS or held:
        message = fetch_and_accept(member, epoch, held)
        answer = await broker.ask(message, member.connection_id)
        assert answer.error_code == 0
        held, epoch = tuple(records(answer)), epoch + 1
        taken[member.member_id] += sum(last - first + 1 for first, last, _ in held)


def fetch_and_accept(
    member: ShareMember, epoch: int, held: tuple[tuple[int, int, int], ...]
) -> Any:
    batches = tuple(
        messages.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=(AcknowledgeType.ACCEPT,)
        )
        for first, last, _ in held
    )
    partition = messages.FetchPartition(partition_index=0, acknowledgement_batches=batches)
    topic = messages.FetchTopic(topic_id=member.topic_id, partitions=(partition,))
    return request(
        member,
        share_session_epoch=epoch,
        topics=(topic,) if held else (),
        max_records=500,
        batch_size=500,
        max_wait=timedelta(seconds=1),
    )


def test_four_equal_members_get_equal_parts(tmp_path: Path) -> None:
    """200 log batches of 500, which come while all four are parked or working."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        taken: Counter[str] = Counter()
        async with asyncio.TaskGroup() as tasks:
            for number, name in enumerate(MEMBERS, start=10):
                reader = await joined(broker, name, number)
                tasks.create_task(work(broker, reader, taken))
            batch = encode_batch([SimpleRecord(None, b"x", 1)] * 500)
            for _ in range(200):
                assert (await broker.produce("orders", 0, batch))[0] == 0
            for _ in range(1_000):
                await asyncio.sleep(0)
            while sum(taken.values()) < RECORDS:
                await asyncio.sleep(0)
            broker.clock.advance(1)
        assert sum(taken.values()) == RECORDS
        assert min(taken.values()) >= RECORDS // 5, taken
        [live] = broker.running.parts.share_partitions
        assert live.state.start_offset == RECORDS

    run(scenario, tmp_path)


def test_freed_locks_go_to_a_waiting_member_before_the_releasing_one(tmp_path: Path) -> None:
    """One member holds all 100 locks, another one waits.

    The first settles ten records and fetches ten more by one request, as share consumers do.
    Without the rule it would get its locks back for ever.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "100")
        for _ in range(20):
            await produce(broker, 10)
        busy = await joined(broker, "busy", 1)
        assert len((await busy.fetch(broker, records_max=100))[0]) == 100
        parked = await waiting(broker, request(member, max_records=10))
        again = fetch_and_accept(busy, busy.session_epoch, ((0, 9, 1),))
        answer = await waiting(broker, again)
        assert parked.done()
        assert records(await asyncio.wait_for(parked, HANGING_SECONDS)) == [(100, 109, 1)]
        broker.clock.advance(1)
        assert records(await asyncio.wait_for(answer, HANGING_SECONDS)) == []

    run(scenario, tmp_path)


def test_locks_at_the_limit_are_shared_equally(tmp_path: Path) -> None:
    """With log batches of 160, a fetch of 500 gets 640: three of four members hold 1,920 of 2,000.

    Without the rule the fourth would settle its 160 and find room for 160, each time.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(200):
            await produce(broker, 160)
        members = [await joined(broker, name, 1) for name in MEMBERS]
        held: dict[str, tuple[tuple[int, int, int], ...]] = dict.fromkeys(MEMBERS, ())
        taken: Counter[str] = Counter()
        sizes = []
        for epoch in range(1, 13):
            for polling in members:
                message = fetch_and_accept(polling, epoch, held[polling.member_id])
                held[polling.member_id] = tuple(records(await broker.ask(message)))
                size = sum(last - first + 1 for first, last, _ in held[polling.member_id])
                taken[polling.member_id] += size
                sizes.append(size)
        assert sizes[:4] == [640, 640, 640, 160]
        assert min(sizes[-4:]) >= 400, sizes
        assert min(taken.values()) * 2 >= max(taken.values()), taken

    run(scenario, tmp_path)


def test_four_equal_consumers_each_get_a_tenth_at_least(tmp_path: Path) -> None:
    """Our own client over sockets, in real time."""

    async def main() -> Counter[str]:
        taken: Counter[str] = Counter()

        async def consume(bootstrap: str, name: str) -> None:
            async with ShareConsumer(
                "orders", bootstrap_servers=bootstrap, group_id="g", client_id=name
            ) as consumer:
                while sum(taken.values()) < RECORDS:
                    taken[name] += len(await consumer.poll(0.2))
                    await asyncio.sleep(0)  # As much time for everybody's loop.
                await consumer.commit()  # The others wait for these.

        async with real_broker(data=str(tmp_path)) as running:
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("orders", 1)])
            parts = running.running.parts
            async with asyncio.TaskGroup() as tasks:
                for name in MEMBERS:
                    tasks.create_task(consume(running.bootstrap_servers, name))
                while len(parts.share_sessions) < len(MEMBERS):
                    await asyncio.sleep(0.005)
                async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                    for _ in range(RECORDS):
                        await producer.send("orders", b"x")
        return taken

    taken = asyncio.run(asyncio.wait_for(main(), HANGING_SECONDS))
    assert sum(taken.values()) == RECORDS
    assert min(taken[name] for name in MEMBERS) >= RECORDS // 10, taken


def test_record_held_for_ever_does_not_stop_other_records(tmp_path: Path) -> None:
    """Its member renews it repeatedly; the others settle 5,000 records after it, 100 at a time.

    The group may hold 100 records at once; Kafka counts the span and would stop at offset 100.
    """

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, "share.partition.max.record.locks", "100")
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        other = await joined(broker, "other", 2)
        epoch = 2
        for _ in range(50):
            await produce(broker, 99)
            taken, _ = await other.fetch(broker, records_max=99)
            assert len(taken) == 99
            accepted = {0: [(record.offset, AcknowledgeType.ACCEPT) for record in taken]}
            assert await other.acknowledge(broker, accepted) == {0: 0}
            broker.clock.advance(5)
            renewal = acknowledgement(
                member, epoch, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True
            )
            assert outcome(await broker.ask(renewal)) == (0, "")
            assert await member.heartbeat(broker) == await other.heartbeat(broker) == 0
            epoch += 1
        [live] = broker.running.parts.share_partitions
        assert (live.state.start_offset, live.state.end_offset) == (0, 4_951)
        assert live.state.snapshot().run_count == 2

    run(scenario, tmp_path)


def test_poisonous_record_is_archived_and_others_are_delivered_once(tmp_path: Path) -> None:
    """Offset 3 is always released and is delivered five times, the other 99 records once."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        worker = await joined(broker, "worker", 2)
        deliveries: Counter[int] = Counter()
        for _ in range(10):
            await produce(broker, 10)
            taken, _ = await worker.fetch(broker, records_max=10)
            deliveries.update(record.offset for record in taken)
            acks = [
                (
                    record.offset,
                    AcknowledgeType.RELEASE if record.offset == 3 else AcknowledgeType.ACCEPT,
                )
                for record in taken
            ]
            assert await worker.acknowledge(broker, {0: acks}) == {0: 0}
        taken, _ = await worker.fetch(broker, records_max=100)
        deliveries.update(record.offset for record in taken)
        assert deliveries == Counter({**dict.fromkeys(range(100), 1), 3: 5})

    run(scenario, tmp_path)


def test_full_share_partition_is_logged_once_and_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A hundred runs are permitted: accepting every other one of 120 records makes 120."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 120)
        assert records(await broker.ask(request(member, max_records=120))) == [(0, 119, 1)]
        member.session_epoch = 2
        odd = [(offset, AcknowledgeType.ACCEPT) for offset in range(1, 120, 2)]
        assert await member.acknowledge(broker, {0: odd}) == {0: 0}
        await produce(broker)
        other = await joined(broker, "other", 1)
        assert await other.fetch(broker, records_max=1) == ([], {})
        assert await other.fetch(broker, records_max=1) == ([], {})
        parked = await waiting(broker, request(other, max_wait=timedelta(seconds=10)))
        assert not parked.done()
        even = [(offset, AcknowledgeType.ACCEPT) for offset in range(0, 60, 2)]
        assert await member.acknowledge(broker, {0: even}) == {0: 0}
        assert records(await asyncio.wait_for(parked, HANGING_SECONDS)) == [(120, 120, 1)]

    with caplog.at_level(logging.INFO, logger="sharegroup.broker.share.share_partitions"):
        run(scenario, tmp_path, sharegroup_share_partition_runs_max="100")
    said = [
        record.getMessage().partition(" action")[0]
        for record in caplog.records
        if "share_partition" in record.getMessage()
    ]
    assert said == [
        "event=share_partition_full group='g' topic='orders' partition=0 runs=120 delayed=0",
        "event=share_partition_goes_on group='g' topic='orders' partition=0",
    ]
