"""A broker process that is stopped (SIGSTOP) and goes on: no lock ends early, none is kept late.

Time goes on while the process does not.  A lock that ended meanwhile is lost to its member, even
to an acknowledgement that lay in the socket before the broker could give the record back; and
one that did not end holds until it does.  This is about real time, so the tests wait for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.produce.v12 import request as produce
from kio.schema.share_fetch.v2.request import ShareFetchRequest

from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import SECOND, ShareMember
from tests.faults.served import ServedBroker
from tests.support.processes import ServeProcess

LATE_SECONDS_MAX = 1.0
"""A lock ends within a tenth of a second; a machine that is busy with other tests gets more."""


def broker_with_locks_of(path: Path, lock_ms: int) -> ServeProcess:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(lock_ms),
    }
    return ServeProcess(path / "data", settings=settings)


async def member_with_a_record(broker: ServedBroker) -> ShareMember:
    """It has joined, and its session is open; the record comes with its next fetch."""
    topic = create_topics.CreatableTopic(
        name="orders", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    request = create_topics.CreateTopicsRequest(topics=(topic,), timeout=SECOND)
    assert (await broker.ask(request)).topics[0].error_code == 0
    member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
    assert await member.heartbeat(broker) == 0
    assert await member.fetch(broker, records_max=10) == ([], {})
    batch = bytes(encode_batch([SimpleRecord(None, b"x", 1)]))
    partition = produce.PartitionProduceData(index=0, records=batch)
    data = produce.TopicProduceData(name="orders", partition_data=(partition,))
    message = produce.ProduceRequest(
        transactional_id=None, acks=-1, timeout=SECOND, topic_data=(data,)
    )
    answer = (await broker.ask(message)).responses[0].partition_responses[0]
    assert answer.error_code == 0
    return member


async def until(moment: float) -> None:
    """Wait for a moment of the monotonic clock."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


@pytest.mark.slow
def test_acknowledgement_that_waited_for_a_stopped_broker_past_its_lock_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario(process: ServeProcess, broker: ServedBroker) -> None:
        member = await member_with_a_record(broker)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        taken, _ = await member.fetch(broker, records_max=10)
        ends = time.monotonic() + 1.0
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 1)]
        os.kill(process.pid, signal.SIGSTOP)
        late = asyncio.create_task(member.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]}))
        await until(ends + 0.1)
        assert not late.done()
        os.kill(process.pid, signal.SIGCONT)
        assert await late == {0: 121}
        taken, _ = await other.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 2)]

    with broker_with_locks_of(tmp_path, 1_000) as process, ServedBroker(process) as broker:
        asyncio.run(scenario(process, broker))


def test_lock_longer_than_the_pause_ends_at_its_deadline(tmp_path: Path) -> None:
    """Stopped for 0.8 of 1.5 seconds: another member gets the record after 1.5, not 2.3."""

    async def scenario(process: ServeProcess, broker: ServedBroker) -> None:
        member = await member_with_a_record(broker)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert await other.fetch(broker, records_max=0) == ([], {})
        before = time.monotonic()
        taken, _ = await member.fetch(broker, records_max=10)
        after = time.monotonic()
        assert len(taken) == 1
        os.kill(process.pid, signal.SIGSTOP)
        parked = asyncio.create_task(broker.ask(waits_for_records(other), 2))
        await until(after + 0.8)
        os.kill(process.pid, signal.SIGCONT)
        answer = await parked
        got = time.monotonic()
        [[partition]] = [topic.partitions for topic in answer.responses]
        assert [record.first_offset for record in partition.acquired_records] == [0]
        assert got >= before + 1.5
        assert got <= after + 1.5 + LATE_SECONDS_MAX

    with broker_with_locks_of(tmp_path, 1_500) as process, ServedBroker(process) as broker:
        asyncio.run(scenario(process, broker))


def waits_for_records(member: ShareMember) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=member.session_epoch,
        max_wait=timedelta(seconds=4),
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=(),
        forgotten_topics_data=(),
    )
