"""A fetch may exceed the group's limit of locks to complete the log batch that it began."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.protocol_enums import ResourceType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fairness import fetch_and_accept, joined
from tests.integration.broker.test_share_fetch import (
    alter,
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_share_isolation import (
    A,
    abort,
    batch,
    read_committed,
    transactional,
    write,
)
from tests.support.limits import HANGING_SECONDS

RECORDS_MAX = "sharegroup.share.partition.batch.completion.max.records"
BYTES_MAX = "sharegroup.share.partition.batch.completion.max.bytes"


async def hundred_locks(broker: Broker) -> None:
    await alter_group(broker, "share.partition.max.record.locks", "100")


def test_large_log_batch_is_sent_once_and_room_is_counted_after_it(tmp_path: Path) -> None:
    """5,000 records for 2,000 locks, of which the member asks for 500."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        for _ in range(2):
            await produce(broker, 5_000)
        answer = await broker.ask(request(member, max_records=500, batch_size=500))
        assert records(answer) == [(0, 4_999, 1)]
        other = await joined(broker, "other", 1)
        parked = await waiting(broker, request(other, max_records=500, batch_size=500))
        some = fetch_and_accept(member, member.session_epoch + 1, ((0, 2_999, 1),))
        assert not (await waiting(broker, some)).done()
        assert not parked.done(), "2,000 are still locked"
        more = fetch_and_accept(member, member.session_epoch + 2, ((3_000, 3_000, 1),))
        await waiting(broker, more)
        assert records(await asyncio.wait_for(parked, HANGING_SECONDS)) == [(5_000, 5_000, 1)]
        [live] = broker.running.parts.share_partitions
        assert live.state.snapshot().acquired_count == 2_000
        broker.clock.advance(1)

    run(scenario, tmp_path)


def test_locks_above_the_limit_end_like_others(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 5_000)
        assert records(await broker.ask(request(member))) == [(0, 4_999, 1)]
        broker.clock.advance(31)
        for _ in range(5):
            await asyncio.sleep(0)
        [live] = broker.running.parts.share_partitions
        snapshot = live.state.snapshot()
        assert (snapshot.acquired_count, snapshot.available_count) == (0, 5_000)
        other = await joined(broker, "other", 1)
        answer = await broker.ask(request(other, max_records=9_000, batch_size=9_000))
        assert records(answer) == [(0, 1_999, 2)]

    run(scenario, tmp_path)


@pytest.mark.parametrize(("key", "enough"), [(RECORDS_MAX, "150"), (BYTES_MAX, "100000")])
def test_limits_of_completion_change_while_the_broker_runs(
    tmp_path: Path, key: str, enough: str
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await hundred_locks(broker)
        await alter(broker, ResourceType.BROKER, "", key, "0")
        await produce(broker, 150)
        answer = await broker.ask(request(member, max_records=500))
        assert records(answer) == [(0, 99, 1)]
        await alter(broker, ResourceType.BROKER, "", key, enough)
        again = fetch_and_accept(member, member.session_epoch + 1, ((0, 0, 1),))
        assert records(await broker.ask(again)) == [(100, 149, 1)]

    run(scenario, tmp_path)


def test_size_of_a_log_batch_is_its_own_beside_aborted_ones(tmp_path: Path) -> None:
    """Of the batches that members get the first is larger, and only the second is completed."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await hundred_locks(broker)
        await read_committed(broker)
        completed = batch(60)
        await write(broker, transactional(A, 70), batch(60, size=100), abort(A), completed)
        await alter(broker, ResourceType.BROKER, "", BYTES_MAX, str(len(completed) - 1))
        answer = await broker.ask(request(member, max_records=500, batch_size=500))
        assert records(answer) == [(70, 129, 1), (131, 170, 1)]
        await alter(broker, ResourceType.BROKER, "", BYTES_MAX, str(len(completed)))
        again = fetch_and_accept(member, member.session_epoch + 1, ((70, 70, 1),))
        assert records(await broker.ask(again)) == [(171, 190, 1)]

    run(scenario, tmp_path)


def test_part_of_a_crowded_member_is_not_exceeded(tmp_path: Path) -> None:
    """Two members at a limit of 100: the part of each is 50, also within a batch of 80."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await hundred_locks(broker)
        for _ in range(3):
            await produce(broker, 80)
        first = await broker.ask(request(member, max_records=500, batch_size=500))
        assert records(first) == [(0, 159, 1)]
        await joined(broker, "other", 1)
        again = fetch_and_accept(member, member.session_epoch + 1, ((0, 79, 1),))
        assert records(await broker.ask(again)) == [(160, 179, 1)]

    run(scenario, tmp_path)
