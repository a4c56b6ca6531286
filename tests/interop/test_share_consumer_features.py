"""The share consumer's own features on either broker: ours, or with SHAREGROUP_INTEROP=kafka
Apache Kafka.

Locks last two seconds in these groups, so renewal can be watched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sharegroup.client import (
    AcknowledgementResult,
    AdminClient,
    AlterConfig,
    ConfigResource,
    IllegalStateError,
    NewTopic,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.errors import InvalidRecordState
from tests.support.limits import HANGING_SECONDS

LOCK_MS = 2_000


class Scene:
    """A topic, and a group that reads it from the beginning with short locks."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap_servers = bootstrap
        self.topic = topic
        self.group = group
        self.where = TopicPartition(topic, 0)

    async def prepare(self, records: int, **configs: str) -> None:
        names = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(LOCK_MS),
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            assert await admin.create_topics([NewTopic(self.topic, 1)]) == {self.topic: None}
            group = ConfigResource(ResourceType.GROUP, self.group)
            changes = [AlterConfig(name, value) for name, value in names.items()]
            assert await admin.incremental_alter_configs({group: changes}) == {group: None}
        await self.produce(range(records))

    async def produce(self, numbers: range) -> None:
        async with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for number in numbers:
                await producer.send(self.topic, b"%d" % number)

    @asynccontextmanager
    async def member(self, **options: Any) -> AsyncIterator[ShareConsumer]:
        options = {"share_acknowledgement_mode": "explicit", **options}
        async with ShareConsumer(
            self.topic, bootstrap_servers=self.bootstrap_servers, group_id=self.group, **options
        ) as made:
            yield made


@pytest.fixture
def play(bootstrap: str, topic: str, group: str) -> Callable[..., None]:
    def play(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(Scene(bootstrap, topic, group))

        asyncio.run(run())

    return play


async def some(member: ShareConsumer, count: int) -> list[Record]:
    """So many records, over as many polls as it takes; needs a window."""
    records: list[Record] = []
    while len(records) < count:
        records += await member.poll(HANGING_SECONDS, count - len(records))
    return records


def test_records_stay_in_flight_over_several_polls(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(6)
        async with scene.member(in_flight_max=4) as member:
            held = await some(member, 4)
            assert await member.poll(0.1) == []
            held[1].accept()
            (fifth,) = await some(member, 1)
            assert [record.offset for record in (*held, fifth)] == [0, 1, 2, 3, 4]
            with pytest.raises(IllegalStateError, match="offset 1 is not held"):
                held[1].release()  # A poll began since: what was settled before it leaves.
            for record in (held[0], *held[2:], fifth):
                record.accept()
            assert await member.commit() == {scene.where: None}
            (last,) = await some(member, 1)
            last.accept()
            report = await member.close()
            assert [(list(result.offsets), result.error) for result in report.acknowledged] == [
                ([5], None)
            ]
            assert (report.released, report.error) == ({}, None)

    play(scenario)


def test_a_renewed_lock_outlives_the_first_one(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(2)
        heard: list[AcknowledgementResult] = []
        async with scene.member(in_flight_max=100) as member, scene.member() as other:
            member.set_acknowledgement_commit_callback(heard.append)
            kept, lost = await some(member, 2)
            first_deadline = kept.deadline
            await until(first_deadline - 1.0)
            kept.renew()
            assert await member.commit() == {scene.where: None}
            assert [(list(result.offsets), result.is_renewal) for result in heard] == [([0], True)]
            assert kept.deadline > first_deadline
            (again,) = await other.poll(HANGING_SECONDS)
            assert (again.offset, again.delivery_count) == (lost.offset, 2)
            kept.accept()
            assert await member.commit() == {scene.where: None}
            again.accept()

    play(scenario)


@pytest.mark.slow
def test_locks_are_renewed_by_themselves(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(3)
        async with scene.member(auto_renew=True, in_flight_max=100) as member:
            records = await some(member, 3)
            end = records[0].deadline + LOCK_MS / 1000 / 2
            async with scene.member() as other:
                while time.monotonic() < end:
                    assert await other.poll(0.2) == []
            member.accept(records)
            assert await member.commit() == {scene.where: None}

    play(scenario)


def test_auto_renew_in_a_group_without_renewal_is_reported(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(1, share_renew_acknowledge_enable="false")
        async with scene.member(auto_renew=True, in_flight_max=100) as member:
            (record,) = await some(member, 1)
            with pytest.raises(InvalidRecordState, match="auto_renew is now disabled"):
                await member.poll(HANGING_SECONDS)
            record.accept()
            assert await member.commit() == {scene.where: None}

    play(scenario)


def test_record_limit_acquires_no_more_than_requested(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(5, share_record_lock_duration_ms="20000")
        async with scene.member(share_acquire_mode="record_limit", max_poll_records=2) as member:
            mine = await member.poll(HANGING_SECONDS)
            assert [record.offset for record in mine] == [0, 1]
            async with scene.member() as other:
                theirs = await other.poll(HANGING_SECONDS)
                assert theirs[0].offset == 2, "the rest is free for others"
                other.release(theirs)
            member.accept(mine)

    play(scenario)


def test_one_ended_lock_fails_no_other(play: Callable[..., None]) -> None:
    """The first half's locks end while its handler dreams; the second half is acknowledged with
    it, in one request, and holds."""

    async def scenario(scene: Scene) -> None:
        await scene.prepare(2)
        async with scene.member(in_flight_max=100, fetch_ahead_ms=0) as member:
            early = await some(member, 2)
            await until(early[0].deadline - 0.5)
            await scene.produce(range(2, 4))
            late = await some(member, 2)
            async with scene.member() as other:
                theirs = await other.poll(HANGING_SECONDS)
                assert [record.offset for record in theirs] == [0, 1]
                heard: list[AcknowledgementResult] = []
                member.set_acknowledgement_commit_callback(heard.append)
                member.accept([*early, *late])
                await member.commit()
                assert [(list(result.offsets), type(result.error)) for result in heard] == [
                    ([0, 1], InvalidRecordState),
                    ([2, 3], type(None)),
                ]
                other.accept(theirs)

    play(scenario)


def test_columns_are_accepted_and_released_in_parts(play: Callable[..., None]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.prepare(1_000)
        async with scene.member() as member:
            batches = []
            while sum(batch.num_rows for batch in batches) < 500:
                batch = await member.poll_arrow(HANGING_SECONDS)
                assert batch is not None
                odd = pc.equal(pc.bit_wise_and(batch["offset"], 1), 1)
                member.accept(batch.filter(odd))
                member.release(batch.filter(pc.invert(odd)))
                assert await member.commit() == {scene.where: None}
                batches.append(batch.filter(odd))
            odd_ones = pa.Table.from_batches(batches)
            values = sorted(int(value) for value in set(odd_ones["value"].to_pylist()))
            assert values == list(range(1, 1_000, 2))

    play(scenario)


async def until(moment: float) -> None:
    """Wait for a moment of ``time.monotonic()``: what is tested is the broker's own clock."""
    await asyncio.sleep(max(moment - time.monotonic(), 0))
