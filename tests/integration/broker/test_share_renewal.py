"""Renewing locks by both requests, on a clock moved by hand (KIP-1222, KIP-1240)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.share_acknowledge.v1 import request as acknowledge_v1
from kio.schema.share_acknowledge.v2 import request as acknowledge_v2
from kio.schema.share_fetch.v2 import request as fetch_v2

from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, share_state_partition
from sharegroup.protocol_enums import AcknowledgeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.support.limits import HANGING_SECONDS

LOCK = timedelta(seconds=30)


def acknowledgement(
    member: ShareMember,
    epoch: int,
    *batches: tuple[int, int, tuple[int, ...]],
    messages: Any = acknowledge_v2,
    **fields: Any,
) -> Any:
    """A ShareAcknowledge of (first, last, types) in partition 0."""
    return messages.ShareAcknowledgeRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=epoch,
        topics=(
            messages.AcknowledgeTopic(
                topic_id=member.topic_id,
                partitions=(
                    messages.AcknowledgePartition(
                        partition_index=0, acknowledgement_batches=_batches(messages, batches)
                    ),
                ),
            ),
        ),
        **fields,
    )


def renewing_fetch(
    member: ShareMember, epoch: int, *batches: tuple[int, int, tuple[int, ...]], **fields: Any
) -> fetch_v2.ShareFetchRequest:
    """A ShareFetch that fetches nothing and acknowledges in partition 0."""
    nothing = {"max_wait": timedelta(0), "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    topic = fetch_v2.FetchTopic(
        topic_id=member.topic_id,
        partitions=(
            fetch_v2.FetchPartition(
                partition_index=0, acknowledgement_batches=_batches(fetch_v2, batches)
            ),
        ),
    )
    return request(
        member,
        **{
            "share_session_epoch": epoch,
            "is_renew_ack": True,
            "topics": (topic,),
            **nothing,
            **fields,
        },
    )


def _batches(messages: Any, batches: tuple[tuple[int, int, tuple[int, ...]], ...]) -> Any:
    return tuple(
        messages.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in batches
    )


def outcome(answer: Any) -> tuple[int, str]:
    """The code and text of the one partition of a ShareAcknowledge."""
    assert answer.error_code == 0
    [topic] = answer.responses
    [partition] = topic.partitions
    return int(partition.error_code), partition.error_message or ""


async def free_records(broker: Broker) -> list[tuple[int, int, int]]:
    """What another member gets now."""
    other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
    assert await other.heartbeat(broker) == 0
    taken, _ = await other.fetch(broker, records_max=100)
    return [(record.partition, record.offset, record.delivery_count) for record in taken]


def test_renewed_lock_outlives_its_first_end(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        broker.clock.advance(29.999)
        message = acknowledgement(member, 2, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True)
        answer = await broker.ask(message)
        assert outcome(answer) == (0, "")
        assert answer.acquisition_lock_timeout == LOCK
        broker.clock.advance(29.999)
        assert await free_records(broker) == []
        broker.clock.advance(0.001)
        assert await free_records(broker) == [(0, 0, 2)]

    run(scenario, tmp_path)


def test_fetch_that_renews_takes_no_records(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        await produce(broker)
        task = await waiting(broker, renewing_fetch(member, 2, (0, 0, (AcknowledgeType.RENEW,))))
        answer = await task
        assert (answer.error_code, records(answer)) == (0, [])
        [topic] = answer.responses
        assert [int(partition.acknowledge_error_code) for partition in topic.partitions] == [0]
        assert answer.acquisition_lock_timeout == LOCK
        assert records(await broker.ask(request(member, share_session_epoch=3))) == [(1, 1, 1)]

    run(scenario, tmp_path)


def test_fetch_with_renewals_must_fetch_nothing_and_keeps_its_epoch(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        for field, value, name in (
            ("max_bytes", 1, "MaxBytes=1"),
            ("min_bytes", 1, "MinBytes=1"),
            ("max_records", 2, "MaxRecords=2"),
            ("max_wait", timedelta(milliseconds=3), "MaxWaitMs=3"),
        ):
            answer = await broker.ask(renewing_fetch(member, 1, **{field: value}))
            assert answer.error_code == 42
            assert answer.error_message.endswith(f"these must be 0: {name}")
            assert answer.acquisition_lock_timeout == timedelta(0)
        answer = await broker.ask(request(member, max_wait=timedelta(0)))
        assert answer.error_code == 0

    run(scenario, tmp_path)


def test_renewal_and_other_acknowledgements_may_be_in_one_request(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 4)
        assert records(await broker.ask(request(member))) == [(0, 3, 1)]
        broker.clock.advance(20)
        types = (
            AcknowledgeType.ACCEPT,
            AcknowledgeType.RENEW,
            AcknowledgeType.RELEASE,
            AcknowledgeType.RENEW,
        )
        message = acknowledgement(member, 2, (0, 3, types), is_renew_ack=True)
        assert outcome(await broker.ask(message)) == (0, "")
        broker.clock.advance(20)
        assert await free_records(broker) == [(0, 2, 2)]

    run(scenario, tmp_path)


def test_renewal_writes_nothing(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        await broker.ask(request(member))
        assert member.topic_id is not None
        key = SharePartitionKey(GroupId("g"), TopicId(member.topic_id), 0)
        _, state_log = broker.running.parts.topics.named(
            SHARE_GROUP_STATE, share_state_partition(key, 50)
        )
        written = state_log.end_offset
        message = acknowledgement(member, 2, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True)
        assert outcome(await broker.ask(message)) == (0, "")
        assert state_log.end_offset == written

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("messages", "fields"), [(acknowledge_v1, {}), (acknowledge_v2, {"is_renew_ack": False})]
)
def test_renewal_needs_is_renew_ack(tmp_path: Path, messages: Any, fields: dict[str, bool]) -> None:
    """Version 1 has no such field. Only the partition is refused, and the epoch is used up."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        await broker.ask(request(member))
        types = (AcknowledgeType.ACCEPT, AcknowledgeType.RENEW)
        message = acknowledgement(member, 2, (0, 1, types), messages=messages, **fields)
        code, text = outcome(await broker.ask(message))
        assert code == 42
        assert "offsets 0 to 1 have type 4 (renew), which needs a request of version 2" in text
        message = acknowledgement(member, 3, (0, 1, (AcknowledgeType.ACCEPT,)))
        assert outcome(await broker.ask(message)) == (0, "")

    run(scenario, tmp_path)


def test_request_with_is_renew_ack_may_have_no_renewals(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        await broker.ask(request(member))
        message = acknowledgement(member, 2, (0, 0, (AcknowledgeType.ACCEPT,)), is_renew_ack=True)
        assert outcome(await broker.ask(message)) == (0, "")

    run(scenario, tmp_path)


def test_group_may_switch_renewal_off(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        await broker.ask(request(member))
        await alter_group(broker, "share.renew.acknowledge.enable", "false")
        message = acknowledgement(member, 2, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True)
        code, text = outcome(await broker.ask(message))
        assert code == 121
        assert "share.renew.acknowledge.enable is false" in text
        await alter_group(broker, "share.renew.acknowledge.enable", "true")
        message = acknowledgement(member, 3, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True)
        assert outcome(await broker.ask(message)) == (0, "")

    run(scenario, tmp_path)


def test_expiry_timer_follows_a_renewal_with_an_earlier_deadline(tmp_path: Path) -> None:
    """The lock duration was shortened after the acquisition; only the timer can end the lock."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        await broker.ask(request(member))
        await alter_group(broker, "share.record.lock.duration.ms", "15000")
        message = acknowledgement(member, 2, (0, 0, (AcknowledgeType.RENEW,)), is_renew_ack=True)
        assert outcome(await broker.ask(message)) == (0, "")
        task = await waiting(broker, request(member, share_session_epoch=3, max_wait=LOCK))
        assert not task.done()
        broker.clock.advance(15)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(0, 0, 2)]

    run(scenario, tmp_path)
