"""The frozen picture of the engine: what is in flight, whose it is, and until when."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from sharegroup.broker.picture import RunPicture, picture
from sharegroup.core.delivery import Ack, RecordState
from sharegroup.ids import GroupId, MemberId
from tests.faults.in_process import Broker, ShareMember
from tests.unit.broker.test_share_fetch import produce, records, request, run

LOCK_MS = 30_000


def test_picture_shows_every_run_in_flight(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 6)
        taken_ms = broker.clock.now_ms()
        assert records(await broker.ask(request(member, max_records=4))) == [(0, 5, 1)]
        member.session_epoch = 2
        acks = [(1, Ack.ACCEPT), (2, Ack.REJECT), (3, Ack.RELEASE)]
        assert await member.acknowledge(broker, {0: acks}) == {0: 0}
        broker.clock.advance(7)

        taken = picture(broker.running.parts, runs_max=100)

        held = {"member_id": MemberId("member-1"), "lock_until_ms": taken_ms + LOCK_MS}
        free = {"member_id": None, "lock_until_ms": None}
        [group] = taken.groups
        [one] = group.share_partitions
        assert one.runs == (
            RunPicture(0, 1, RecordState.ACQUIRED, 1, **held),
            RunPicture(1, 2, RecordState.ACKNOWLEDGED, 1, **free),
            RunPicture(2, 3, RecordState.ARCHIVED, 1, **free),
            RunPicture(3, 4, RecordState.AVAILABLE, 1, **free),
            RunPicture(4, 6, RecordState.ACQUIRED, 1, **held),
        )
        assert (one.topic_name, one.key.partition, one.is_full) == ("orders", 0, False)
        assert (one.counts.start_offset, one.counts.end_offset, one.high_watermark) == (0, 6, 6)
        assert one.next_lock_end_ms == taken_ms + LOCK_MS
        assert (one.last_stable_offset, one.timed_out_count, one.is_archiving) == (6, 0, False)
        assert taken.now_ms == taken_ms + 7_000
        assert (taken.session_count, taken.session_partition_count) == (1, 1)
        assert group.description is not None
        assert [each.member_id for each in group.description.members] == ["member-1"]

    run(scenario, tmp_path)


def test_runs_come_on_request_and_up_to_a_number(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 6)
        await broker.ask(request(member, max_records=6))
        member.session_epoch = 2
        await member.acknowledge(broker, {0: [(1, Ack.ACCEPT), (3, Ack.ACCEPT)]})
        for runs_max, expected in ((0, (0, 5)), (2, (2, 3)), (9, (5, 0))):
            taken = picture(broker.running.parts, runs_max=runs_max)
            [[one]] = [group.share_partitions for group in taken.groups]
            assert (len(one.runs), one.runs_left_out) == expected
            assert taken.runs_left_out == expected[1]

    run(scenario, tmp_path)


def test_picture_of_one_group_leaves_the_others_out(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        other = ShareMember("h", "member-2", "orders", 1, connection_id=2)
        assert await other.heartbeat(broker) == 0
        parts = broker.running.parts
        assert [group.group_id for group in picture(parts).groups] == ["g", "h"]
        assert [g.group_id for g in picture(parts, group_id=GroupId("h")).groups] == ["h"]
        assert picture(parts, group_id=GroupId("absent")).groups == ()

    run(scenario, tmp_path)


def test_picture_is_frozen_and_does_not_follow_the_engine(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 2)
        await broker.ask(request(member))
        before = picture(broker.running.parts, runs_max=10)
        member.session_epoch = 2
        await member.acknowledge(broker, {0: [(0, Ack.ACCEPT)]})
        [[one]] = [group.share_partitions for group in before.groups]
        assert [(each.first, each.end, each.state) for each in one.runs] == [
            (0, 2, RecordState.ACQUIRED)
        ]
        with pytest.raises(FrozenInstanceError):
            one.is_full = True  # type: ignore[misc]

    run(scenario, tmp_path)


def test_records_that_ran_out_of_time_are_counted(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 3)
        await broker.ask(request(member))
        broker.clock.advance(30)
        [[one]] = [group.share_partitions for group in picture(broker.running.parts).groups]
        assert (one.timed_out_count, one.next_lock_end_ms) == (3, None)

    run(scenario, tmp_path)


def test_full_share_partition_says_so_until_records_settle(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker, 120)
        await broker.ask(request(member, max_records=120))
        member.session_epoch = 2
        every_other = [(offset, Ack.ACCEPT) for offset in range(1, 120, 2)]
        assert await member.acknowledge(broker, {0: every_other}) == {0: 0}

        def is_full() -> bool:
            [[one]] = [group.share_partitions for group in picture(broker.running.parts).groups]
            return one.is_full

        assert is_full()
        assert await member.acknowledge(
            broker, {0: [(n, Ack.ACCEPT) for n in range(0, 40, 2)]}
        ) == {0: 0}
        assert not is_full()

    run(scenario, tmp_path, sharegroup_share_partition_runs_max="100")
