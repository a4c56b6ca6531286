"""Share sessions at the wire: what ends with a session, what outlives it, and what is counted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from kio.schema.share_fetch.v2.request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
)

from sharegroup.broker.app import _connection_closed
from sharegroup.protocol_enums import AcknowledgeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import produce, records, request, run, waiting
from tests.integration.broker.test_share_lifecycle import held_by_another, partitions
from tests.integration.broker.test_share_renewal import acknowledgement, outcome
from tests.support.limits import HANGING_SECONDS


def named(member: ShareMember, *offsets: int) -> tuple[FetchTopic, ...]:
    """Partition 0, with these offsets accepted."""
    batches = tuple(
        AcknowledgementBatch(
            first_offset=offset, last_offset=offset, acknowledge_types=(AcknowledgeType.ACCEPT,)
        )
        for offset in offsets
    )
    partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
    return (FetchTopic(topic_id=member.topic_id, partitions=(partition,)),)


def test_lost_connection_releases_records_and_wakes_waiting_fetches(tmp_path: Path) -> None:
    """The delivery count is kept: an unanswered delivery counts as one."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        await held_by_another(broker, 3)
        task = await waiting(broker, request(member))
        assert not task.done()
        _connection_closed(broker.running.parts, 2)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(0, 2, 2)]
        assert broker.running.parts.share_partitions.counters.sessions_lost == 1

    run(scenario, tmp_path)


def test_close_applies_its_acknowledgements_and_releases_the_rest(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert await other.fetch(broker, records_max=0) == ([], {})
        answer = await broker.ask(request(member, share_session_epoch=-1, topics=named(member, 1)))
        assert (partitions(answer), records(answer)) == ([(0, 0, 0)], [])
        taken, _ = await other.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 2), (2, 2)]
        answer = await broker.ask(request(member, share_session_epoch=2))
        assert answer.error_code == 122

    run(scenario, tmp_path)


def test_acknowledging_can_close_the_session(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        assert records(await broker.ask(request(member))) == [(0, 1, 1)]
        closing = acknowledgement(member, -1, (0, 0, (AcknowledgeType.ACCEPT,)))
        assert outcome(await broker.ask(closing)) == (0, "")
        reopened = request(member, share_session_epoch=0, topics=named(member))
        assert records(await broker.ask(reopened)) == [(1, 1, 2)]

    run(scenario, tmp_path)


def test_session_opened_again_still_holds_its_members_records(tmp_path: Path) -> None:
    """Records belong to the member; nothing is given back, and the new session settles them."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        assert records(await broker.ask(request(member))) == [(0, 1, 1)]
        reopened = request(
            member, share_session_epoch=0, topics=named(member), max_wait=timedelta(0)
        )
        answer = await broker.ask(reopened)
        assert (partitions(answer), records(answer)) == ([(0, 0, 0)], [])
        assert outcome(await broker.ask(acknowledgement(member, 1, (0, 1, (1,))))) == (0, "")

    run(scenario, tmp_path)


def test_epoch_of_a_lost_answer_is_refused_and_its_records_are_not_lost(tmp_path: Path) -> None:
    """The answer with records never came; the client asks again, then opens a new session."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        await broker.ask(request(member))
        assert (await broker.ask(request(member))).error_code == 123
        broker.clock.advance(30)
        reopened = request(member, share_session_epoch=0, topics=named(member))
        assert records(await broker.ask(reopened)) == [(0, 1, 2)]

    run(scenario, tmp_path)


def test_records_of_a_forgotten_partition_are_not_released_with_the_session(tmp_path: Path) -> None:
    """As in Kafka: another member's session keeps the group loaded, so the locks last."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert await other.fetch(broker, records_max=0) == ([], {})
        forgotten = (ForgottenTopic(topic_id=member.topic_id, partitions=(0,)),)
        message = request(member, share_session_epoch=2, forgotten_topics_data=forgotten)
        assert partitions(await broker.ask(message)) == []
        await broker.ask(request(member, share_session_epoch=-1))
        assert await other.fetch(broker, records_max=1) == ([], {})
        broker.clock.advance(30)
        taken, _ = await other.fetch(broker, records_max=1)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 2)]

    run(scenario, tmp_path)


def test_acknowledgements_and_expired_locks_are_counted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 10)
        await broker.ask(request(member))
        types = (
            AcknowledgeType.ACCEPT,
            AcknowledgeType.ACCEPT,
            AcknowledgeType.RELEASE,
            AcknowledgeType.REJECT,
            AcknowledgeType.GAP,
            AcknowledgeType.RENEW,
        )
        mixed = acknowledgement(
            member, 2, (0, 5, types), (6, 7, (AcknowledgeType.ACCEPT,)), is_renew_ack=True
        )
        assert outcome(await broker.ask(mixed)) == (0, "")
        refused = acknowledgement(member, 3, (0, 7, (AcknowledgeType.ACCEPT,)))
        assert outcome(await broker.ask(refused))[0] == 121
        broker.clock.advance(30)
        parts = broker.running.parts
        assert parts.share_partitions.counters.acknowledged == {
            AcknowledgeType.GAP: 1,
            AcknowledgeType.ACCEPT: 4,
            AcknowledgeType.RELEASE: 1,
            AcknowledgeType.REJECT: 1,
            AcknowledgeType.RENEW: 1,
        }
        [live] = parts.share_partitions
        assert live.timed_out_count == 3

    run(scenario, tmp_path)


def test_largest_session_is_evicted_for_a_small_one_and_releases_records(tmp_path: Path) -> None:
    """One partition is within an equal share of 30; the 28 of the large session are not."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        nowhere = tuple(
            FetchPartition(partition_index=index, acknowledgement_batches=())
            for index in range(1, 28)
        )
        grown = request(
            member,
            share_session_epoch=2,
            topics=(FetchTopic(topic_id=member.topic_id, partitions=nowhere),),
        )
        task = await waiting(broker, grown)
        small = [ShareMember("g", f"m-{n}", "orders", 1, connection_id=2) for n in range(3)]
        for newcomer in small:
            assert await newcomer.heartbeat(broker) == 0
            taken, _ = await newcomer.fetch(broker, records_max=3)
        assert (await asyncio.wait_for(task, HANGING_SECONDS)).error_code == 0
        assert (await broker.ask(request(member, share_session_epoch=3))).error_code == 122
        assert broker.running.parts.share_partitions.counters.sessions_lost == 1
        assert broker.running.parts.share_sessions.partition_count() == 3
        assert [record.delivery_count for record in taken] == [2, 2, 2]

    run(scenario, tmp_path, sharegroup_share_session_partitions_max="30")


def test_connection_with_all_sessions_loses_one_to_a_newcomer(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        for number in range(2):
            nobody = ShareMember("g", f"m-{number}", "orders", 1, connection_id=1)
            assert await nobody.fetch(broker, records_max=1) == ([], {})
        newcomer = ShareMember("g", "new", "orders", 1, connection_id=2)
        assert await newcomer.heartbeat(broker) == 0
        taken, _ = await newcomer.fetch(broker, records_max=3)
        assert [record.delivery_count for record in taken] == [2, 2, 2]
        assert len(broker.running.parts.share_sessions) == 3
        assert broker.running.parts.share_partitions.counters.sessions_lost == 1

    settings = {"group_share_max_share_sessions": "3", "group_share_max_size": "3"}
    run(scenario, tmp_path, **settings)


def test_large_session_is_refused_while_the_others_are_small(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        large = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await large.heartbeat(broker) == 0
        nowhere = tuple(
            FetchPartition(partition_index=index, acknowledgement_batches=()) for index in range(30)
        )
        opening = request(
            large,
            share_session_epoch=0,
            max_wait=timedelta(0),
            topics=(FetchTopic(topic_id=member.topic_id, partitions=nowhere),),
        )
        task = await waiting(broker, opening)
        broker.clock.advance(0)
        assert (await asyncio.wait_for(task, HANGING_SECONDS)).error_code == 133
        assert records(await broker.ask(request(member, max_wait=timedelta(0)))) == []

    run(scenario, tmp_path, sharegroup_share_session_partitions_max="30")
