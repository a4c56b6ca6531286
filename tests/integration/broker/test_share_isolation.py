"""Share groups on a log with transactions: who is handed what, and what the lag says.

No producer may begin a transaction here yet, so they are written into the log itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.log.partition_log import PartitionLog
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter_group, records, request, run, waiting
from tests.support.limits import HANGING_SECONDS
from tests.unit.storage.logs import abort, batch, commit, transactional as transactional_batch

A, B = 71, 72


def transactional(producer: int, count: int = 1, *, sequence: int = 0) -> bytearray:
    return transactional_batch(count, producer=producer, sequence=sequence)


def log_of(broker: Broker) -> PartitionLog:
    return broker.running.parts.topics.named(TopicName("orders"), 0)[1]


async def write(broker: Broker, *batches: bytearray) -> None:
    for size in batches:
        await log_of(broker).append(bytearray(size), now_ms=broker.clock.wall_ms())


async def read_committed(broker: Broker) -> None:
    await alter_group(broker, "share.isolation.level", "read_committed")


async def lag(broker: Broker) -> tuple[int, int | None]:
    """Start offset and lag of the one partition."""
    [found] = await broker.group_offsets("g", "orders", 1)
    return found


async def accept(broker: Broker, member: ShareMember, *offsets: int) -> dict[int, int]:
    return await member.acknowledge(
        broker, {0: [(offset, AcknowledgeType.ACCEPT) for offset in offsets]}
    )


def test_aborted_records_and_markers_are_not_delivered(tmp_path: Path) -> None:
    """A aborts 0 to 1 and 4, B commits 3; 2 and 7 are in no transaction."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await read_committed(broker)
        await write(broker, transactional(A, 2), batch(), transactional(B))
        await write(broker, transactional(A, sequence=2), commit(B), abort(A), batch())
        answer = await broker.ask(request(member))
        assert records(answer) == [(2, 3, 1), (7, 7, 1)]
        member.session_epoch = 2
        assert await accept(broker, member, 2, 3, 7) == {0: 0}
        assert await lag(broker) == (8, 0)

    run(scenario, tmp_path)


def test_uncommitted_records_are_delivered_with_read_uncommitted(tmp_path: Path) -> None:
    """As in Kafka, the marker's offset is acquired too; clients acknowledge it as a gap."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await write(broker, transactional(A, 2), abort(A), transactional(B))
        assert records(await broker.ask(request(member))) == [(0, 3, 1)]
        member.session_epoch = 2
        acks = {
            0: [
                (0, AcknowledgeType.ACCEPT),
                (1, AcknowledgeType.ACCEPT),
                (2, AcknowledgeType.GAP),
                (3, AcknowledgeType.ACCEPT),
            ]
        }
        assert await member.acknowledge(broker, acks) == {0: 0}
        assert await lag(broker) == (4, 0)

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("end", "expected", "left"), [(commit, [(0, 1, 1)], (0, 2)), (abort, [], (3, 0))]
)
def test_fetch_waits_until_a_transaction_is_decided(
    tmp_path: Path,
    end: Callable[[int], bytearray],
    expected: list[tuple[int, int, int]],
    left: tuple[int, int],
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await read_committed(broker)
        await write(broker, transactional(A, 2))
        task = await waiting(broker, request(member))
        assert not task.done()
        await write(broker, end(A))
        if not expected:
            await asyncio.sleep(0)  # The wake-up has its turn.
            assert await lag(broker) == left
            broker.clock.advance(0.5)
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == expected
        assert await lag(broker) == left

    run(scenario, tmp_path)


def test_records_after_an_open_transaction_wait_for_its_end(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await read_committed(broker)
        await write(broker, batch(), transactional(A), batch())
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        await write(broker, abort(A))
        assert records(await broker.ask(request(member, share_session_epoch=2))) == [(2, 2, 1)]

    run(scenario, tmp_path)


def test_lag_excludes_aborted_records_without_an_acknowledgement(tmp_path: Path) -> None:
    """Kafka writes such offsets only with the next acknowledgement."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await read_committed(broker)
        await write(broker, transactional(A, 5), abort(A), batch())
        assert records(await broker.ask(request(member))) == [(6, 6, 1)]
        assert await lag(broker) == (6, 1)

    run(scenario, tmp_path)


def test_many_aborted_batches_do_not_hide_later_records(tmp_path: Path) -> None:
    """40 batches of one record; each attempt passes one, so the wait continues by itself."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await read_committed(broker)
        await write(broker, *(transactional(A, sequence=number) for number in range(40)))
        await write(broker, abort(A), batch())
        task = await waiting(broker, request(member, max_records=1))
        assert records(await asyncio.wait_for(task, HANGING_SECONDS)) == [(41, 41, 1)]
        assert await lag(broker) == (41, 1)

    run(scenario, tmp_path)


def test_changed_isolation_level_applies_to_the_next_fetch(tmp_path: Path) -> None:
    """A released record that was aborted is not redelivered under read_committed."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await write(broker, transactional(A), abort(A), batch())
        assert records(await broker.ask(request(member))) == [(0, 2, 1)]
        member.session_epoch = 2
        release = [
            (0, AcknowledgeType.RELEASE),
            (1, AcknowledgeType.RELEASE),
            (2, AcknowledgeType.RELEASE),
        ]
        assert await member.acknowledge(broker, {0: release}) == {0: 0}
        await read_committed(broker)
        assert records(await broker.ask(request(member, share_session_epoch=3))) == [(2, 2, 2)]
        assert await lag(broker) == (2, 1)

    run(scenario, tmp_path)
