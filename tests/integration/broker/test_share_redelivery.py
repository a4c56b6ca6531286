"""Released records that are delivered again after a delay, on a clock moved by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.share.due_times import DueTimes
from sharegroup.core.delivery.delivery import (
    Delta,
    RecordState,
    SharePartitionLimits,
    StateBatch,
)
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.protocol_enums import DELAY_MS_MAX, AcknowledgeType
from sharegroup.testing.virtual_time import ManualClock
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.messages import share_acknowledge_v2 as messages
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_metrics import scrape
from tests.integration.broker.test_share_fetch import (
    alter_group,
    produce,
    records,
    request,
    run,
    waiting,
)
from tests.integration.broker.test_state_pruning import state_log

DELAY = "sharegroup.redelivery.delay.ms"
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
DAY_MS = 86_400_000
AVAILABLE = RecordState.AVAILABLE
ORDERS = {"group": "g", "topic": "orders", "partition": "0"}


class JumpingClock(ManualClock):
    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


async def offsets(broker: Broker, member: ShareMember) -> list[tuple[int, int]]:
    """The offsets and delivery counts of what a member gets now."""
    taken, _ = await member.fetch(broker, records_max=10)
    return [(record.offset, record.delivery_count) for record in taken]


async def settle(broker: Broker, member: ShareMember, *acks: tuple[int, AcknowledgeType]) -> None:
    assert await member.acknowledge(broker, {0: acks}) == {0: 0}


def test_released_record_answers_a_waiting_fetch_when_its_delay_is_over(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "200")
        await produce(broker, 2)
        assert await offsets(broker, member) == [(0, 1), (1, 1)]
        states = "sharegroup_share_partition_records"
        assert len((await scrape(broker)).all(states)) == 3
        await settle(broker, member, (0, ACCEPT), (1, RELEASE))
        assert (await scrape(broker))(states, state="delayed", **ORDERS) == 1
        assert await offsets(broker, member) == []
        task = await waiting(broker, request(member))
        broker.clock.advance(0.199)
        assert not task.done()
        broker.clock.advance(0.101)
        assert records(await task) == [(1, 1, 2)]

    run(scenario, tmp_path)


@pytest.mark.parametrize("ending", ["stop", "crash", "snapshot"])
def test_delay_survives_a_restart(tmp_path: Path, ending: str) -> None:
    """Ten seconds of a minute are over when the broker starts again."""

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        await alter_group(broker, DELAY, "60000")
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        assert await member.heartbeat(broker) == 0
        await produce(broker, 2)
        assert await offsets(broker, member) == [(0, 1), (1, 1)]
        await settle(broker, member, (0, RELEASE), (1, ACCEPT))
        wall_ms = broker.clock.wall_ms()
        if ending == "snapshot":  # As when the state is moved, so that its log can be deleted.
            coordinator = broker.running.parts.share_coordinator
            await coordinator.snapshot(coordinator.known())
        await (broker.crash() if ending == "crash" else broker.stop())

        clock = ManualClock()
        clock.advance((wall_ms + 10_000 - clock.wall_ms()) / 1000)
        broker = await Broker.start(None, str(tmp_path), clock=clock)
        member.broker_restarted()
        assert await member.heartbeat(broker) == 0
        assert await member.heartbeat(broker) == 0
        assert await offsets(broker, member) == []
        [live] = broker.running.parts.share_partitions
        assert live.state.snapshot().delayed_count == 1
        for _ in range(4):
            broker.clock.advance(12)
            assert await member.heartbeat(broker) == 0
        assert await offsets(broker, member) == []
        broker.clock.advance(6)  # A sixteenth of a minute is less than four seconds.
        assert await offsets(broker, member) == [(0, 2)]
        await broker.stop()

    asyncio.run(scenario())


def test_state_of_very_many_delayed_records_survives_a_restart(tmp_path: Path) -> None:
    """As many runs as a share partition has, each second one delayed: no batch reaches a MiB."""
    run_count = SharePartitionLimits().runs_max

    async def scenario() -> None:
        broker = await Broker.start(
            None, str(tmp_path), share_coordinator_state_topic_num_partitions="1"
        )
        await broker.create_topic("orders", 1)
        await alter_group(broker, "share.auto.offset.reset", "earliest")
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        for _ in range(4):
            await produce(broker, run_count // 4)
        parts = broker.running.parts
        topic_id = parts.topics.catalog.topic(TopicName("orders")).topic_id
        key = SharePartitionKey(GroupId("g"), topic_id, 0)
        due_ms = broker.clock.wall_ms() + 60_000
        batches = tuple(
            StateBatch(n, n + 1, AVAILABLE, 1, due_ms=due_ms + n)
            if n % 2
            else StateBatch(n, n + 1, RecordState.ARCHIVING, 1, reason=1)
            for n in range(run_count)
        )
        state_epoch = parts.share_coordinator.read(key).state_epoch
        await parts.share_coordinator.write(key, state_epoch, Delta(0, 0, batches))
        await parts.share_coordinator.snapshot([key])
        headers = [header for _, header in scan(state_log(broker, 0).read(0, bytes_max=1 << 24))]
        assert [500_000 < header.size < 2**20 for header in headers[-2:]] == [True, True]
        await broker.stop()

        broker = await Broker.start(None, str(tmp_path), clock=broker.clock)
        live = broker.running.parts.share_partitions.get(key)
        counts = live.state.snapshot()
        assert (counts.delayed_count, counts.archiving_count) == (run_count // 2, run_count // 2)
        await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("ahead_ms", [DAY_MS, -DAY_MS])
def test_wall_clock_that_jumps_neither_ends_nor_extends_a_delay(
    ahead_ms: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        clock = JumpingClock()
        broker = await Broker.start(None, str(tmp_path), clock=clock)
        await broker.create_topic("orders", 1)
        await alter_group(broker, DELAY, "20000")
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        assert await offsets(broker, member) == []
        await produce(broker, 2)
        assert await offsets(broker, member) == [(0, 1), (1, 1)]
        await settle(broker, member, (0, RELEASE))
        clock.ahead_ms = ahead_ms
        await settle(broker, member, (1, RELEASE))
        assert await offsets(broker, member) == []
        clock.advance(19.9)
        assert await offsets(broker, member) == []
        clock.advance(1.4)
        assert await offsets(broker, member) == [(0, 2), (1, 2)]
        await broker.stop()

    asyncio.run(scenario())


def test_session_that_ends_gives_its_records_back_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "60000")
        await produce(broker, 3)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert len(await offsets(broker, other)) == 3
        await settle(broker, other, (0, RELEASE))
        other.session_epoch = -1  # It ends its session, and says that it has not begun offset 1.
        await settle(broker, other, (1, RELEASE))
        assert await offsets(broker, member) == [(1, 2), (2, 2)]

    run(scenario, tmp_path)


def test_delay_that_a_session_names_at_its_end_holds(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        assert len(await offsets(broker, other)) == 2
        other.session_epoch = -1
        answer = await broker.ask(with_delay(other, 0, 60_000), 2)
        assert int(answer.responses[0].partitions[0].error_code) == 0
        assert await offsets(broker, member) == [(1, 2)]

    run(scenario, tmp_path)


def test_lock_that_ends_gives_its_record_back_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "60000")
        await produce(broker)
        assert len(await offsets(broker, member)) == 1
        broker.clock.advance(30)
        assert await offsets(broker, member) == [(0, 2)]

    run(scenario, tmp_path)


def test_setting_of_the_group_is_that_of_this_moment(tmp_path: Path) -> None:
    """A delay that has begun goes on when the setting is removed."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "1000")
        await produce(broker, 2)
        assert len(await offsets(broker, member)) == 2
        await settle(broker, member, (0, RELEASE))
        await alter_group(broker, DELAY, "0")
        await settle(broker, member, (1, RELEASE))
        assert await offsets(broker, member) == [(1, 2)]
        broker.clock.advance(1.1)
        assert await offsets(broker, member) == [(0, 2)]

    run(scenario, tmp_path)


def test_state_that_is_written_from_outside_keeps_its_delay(tmp_path: Path) -> None:
    """The requests between brokers carry no due time; a repeated write ends no delay."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "60000")
        await produce(broker)
        assert len(await offsets(broker, member)) == 1
        await settle(broker, member, (0, RELEASE))
        parts = broker.running.parts
        [live] = parts.share_partitions
        read = parts.share_coordinator.read(live.key)
        assert [batch[:4] for batch in read.batches] == [(0, 1, AVAILABLE, 1)]
        plain = tuple(batch._replace(due_ms=0) for batch in read.batches)
        await parts.share_coordinator.write(live.key, live.state_epoch, Delta(0, 0, plain))
        parts.share_partitions.unload(live.key)
        assert await offsets(broker, member) == []
        broker.clock.advance(64)

    run(scenario, tmp_path)


def with_delay(member: ShareMember, offset: int, delay_ms: int) -> Any:
    batch = messages.AcknowledgementBatch(
        first_offset=offset,
        last_offset=offset,
        acknowledge_types=(RELEASE,),
        redelivery_delay_ms=delay_ms,
    )
    partition = messages.AcknowledgePartition(partition_index=0, acknowledgement_batches=(batch,))
    topic = messages.AcknowledgeTopic(topic_id=member.topic_id, partitions=(partition,))
    return messages.ShareAcknowledgeRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=member.session_epoch,
        topics=(topic,),
    )


def test_member_names_the_delay_of_a_record(tmp_path: Path) -> None:
    """It replaces that of the group, also with none; what is out of range is refused."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await alter_group(broker, DELAY, "60000")
        await produce(broker, 3)
        assert len(await offsets(broker, member)) == 3
        for offset, delay_ms, code in ((0, 0, 0), (1, 2_000, 0), (2, DELAY_MS_MAX + 1, 42)):
            answer = await broker.ask(with_delay(member, offset, delay_ms))
            member.session_epoch += 1
            assert int(answer.responses[0].partitions[0].error_code) == code
        assert await offsets(broker, member) == [(0, 2)]
        broker.clock.advance(2.125)
        assert await offsets(broker, member) == [(1, 2)]

    run(scenario, tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def delayed(due_ms: int) -> Delta:
    return Delta(0, 0, (StateBatch(0, 1, AVAILABLE, 1, due_ms=due_ms),))


def test_due_times_are_stored_in_wall_time_and_come_back(clock: ManualClock) -> None:
    due_times = DueTimes(clock)
    due_ms = clock.now_ms() + 5_000
    (stored,) = due_times.stored(delayed(due_ms)).batches
    assert stored.due_ms == clock.wall_ms() + 5_000
    assert [batch.due_ms for batch in due_times.loaded([stored])] == [due_ms]
    clock.advance(5)
    assert [batch.due_ms for batch in due_times.loaded([stored])] == [0]
    unchanged = Delta(0, 0, (StateBatch(0, 1, AVAILABLE, 1),))
    assert due_times.stored(unchanged) == unchanged


@pytest.mark.parametrize(("ahead_ms", "left_ms"), [(10**12, 0), (-(10**12), DELAY_MS_MAX)])
def test_clock_that_jumped_while_the_broker_was_away_adds_a_day_at_most(
    ahead_ms: int, left_ms: int
) -> None:
    clock = JumpingClock()
    (stored,) = DueTimes(clock).stored(delayed(clock.now_ms() + 5_000)).batches
    clock.ahead_ms = ahead_ms
    (loaded,) = DueTimes(clock).loaded([stored])
    assert max(0, loaded.due_ms - clock.now_ms()) == left_ms


def test_clock_that_drifts_by_milliseconds_splits_no_runs() -> None:
    clock = JumpingClock()
    due_times = DueTimes(clock)
    due_ms = clock.now_ms() + 5_000
    first = due_times.stored(delayed(due_ms))
    clock.ahead_ms = 900
    assert due_times.stored(delayed(due_ms)) == first
    clock.ahead_ms = 1_100
    assert due_times.stored(delayed(due_ms)).batches[0].due_ms == first.batches[0].due_ms + 1_100
