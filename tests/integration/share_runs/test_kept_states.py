"""Runs of share partitions that are read again and again: each read goes on after the last one."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from sharegroup.client import AdminClient, ShareConsumer, TopicPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import KafkaError
from sharegroup.share_runs import durable_runs as module
from sharegroup.share_runs.durable_runs import KeptStates, durable_runs_of_groups
from sharegroup.share_runs.share_runs import ShownSharePartition
from sharegroup.testing import AsyncTestBroker, broker
from tests.support.limits import HANGING_SECONDS

ORDERS = TopicPartition("orders", 0)
STATE_TOPIC = "__share_group_state"


class Reader:
    """Reads one group's runs, with what it has kept and without."""

    def __init__(self, there: AsyncTestBroker, admin: AdminClient, cluster: Cluster) -> None:
        self.there, self.admin, self.cluster = there, admin, cluster
        self.kept = KeptStates()

    async def read(self, group: str = "billing", *, is_fresh: bool = False) -> ShownSharePartition:
        found = await durable_runs_of_groups(
            self.admin, self.cluster, {group: [ORDERS]}, runs_max=1_000,
            kept=None if is_fresh else self.kept,
        )  # fmt: skip
        return found[group][0]

    async def fetches(self) -> int:
        """Return the number of requests for records of the state topic in one read."""
        seen = self.there.delay("Fetch", 0, times=None, topic=STATE_TOPIC)
        await self.read()
        self.there.clear_faults()
        return seen.count


@asynccontextmanager
async def reader() -> AsyncIterator[Reader]:
    """Open a broker with ten records, of which a group has settled every other of the first six."""
    async with broker() as there:
        await there.create_topic("orders")
        await there.produce("orders", *("a" for _ in range(10)))
        address = there.bootstrap_servers
        async with AdminClient(bootstrap_servers=address) as admin:
            for group in ("billing", *(f"other-{number}" for number in range(6))):
                await admin.alter_share_group_offsets(group, {ORDERS: 0})
            await settle(there, 6)
            cluster = Cluster(config_from(ReadingConfig, {"bootstrap_servers": address}))
            try:
                yield Reader(there, admin, cluster)
            finally:
                cluster.close()


async def settle(there: AsyncTestBroker, count: int) -> None:
    """Accept every other of some records, and give the rest back."""
    async with ShareConsumer(
        "orders", group_id="billing", bootstrap_servers=there.bootstrap_servers,
        share_acknowledgement_mode="explicit", max_poll_records=count,
    ) as consumer:  # fmt: skip
        records = await consumer.poll(timeout=10)
        assert records
        for record in records[:count]:
            if record.offset % 2:
                record.accept()
            else:
                record.release()
        for record in records[count:]:
            record.release()
        await consumer.commit()


def test_a_read_goes_on_after_the_last_one_and_finds_the_same_as_a_fresh_one() -> None:
    async def run() -> None:
        async with reader() as orders:
            first = await orders.read()
            assert first == await orders.read(is_fresh=True)
            assert await orders.fetches() == 0, "nothing was written in between"
            await settle(orders.there, 3)
            second = await orders.read()
            assert second != first
            assert second == await orders.read(is_fresh=True)

    asyncio.run(run())


def test_a_read_that_fails_in_the_middle_leaves_nothing_half_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with reader() as orders:
            replay = module._replay

            def fails(*arguments: object) -> None:
                replay(*arguments)  # type: ignore[arg-type]
                raise KafkaError("in the middle")

            monkeypatch.setattr(module, "_replay", fails)
            with pytest.raises(KafkaError, match="in the middle"):
                await orders.read()
            monkeypatch.setattr(module, "_replay", replay)
            assert await orders.read() == await orders.read(is_fresh=True)

    asyncio.run(run())


def test_a_read_that_is_cancelled_leaves_its_thread_nothing_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with reader() as orders:
            replay, loop = module._replay, asyncio.get_running_loop()
            is_replaying, may_end, has_ended = asyncio.Event(), threading.Event(), asyncio.Event()

            def waits(*arguments: object) -> None:
                loop.call_soon_threadsafe(is_replaying.set)
                may_end.wait(HANGING_SECONDS)
                replay(*arguments)  # type: ignore[arg-type]
                loop.call_soon_threadsafe(has_ended.set)

            monkeypatch.setattr(module, "_replay", waits)
            reading = asyncio.create_task(orders.read())
            await is_replaying.wait()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            (kept,) = orders.kept._kept.values()
            states = kept._states
            may_end.set()
            await has_ended.wait()
            assert len(states) == 0
            monkeypatch.setattr(module, "_replay", replay)
            assert await orders.read() == await orders.read(is_fresh=True)

    asyncio.run(run())


def test_a_state_topic_that_got_more_partitions_is_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with reader() as orders:
            describe_topics = orders.admin.describe_topics

            async def fewer(names: Iterable[str]) -> dict[str, object]:
                return {
                    name: dataclasses.replace(topic, partitions=topic.partitions[:1])
                    if name == STATE_TOPIC
                    else topic
                    for name, topic in (await describe_topics(names)).items()
                }

            with monkeypatch.context() as patch:
                patch.setattr(orders.admin, "describe_topics", fewer)
                await orders.read()
            assert await orders.read() == await orders.read(is_fresh=True)

    asyncio.run(run())


def test_records_that_were_deleted_after_the_last_read_let_it_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with reader() as orders:
            before = await orders.read()
            offsets_of = module.offsets_of

            async def later(*arguments: object) -> dict[TopicPartition, int]:
                return dict.fromkeys(await offsets_of(*arguments), 10**6)  # type: ignore[arg-type]

            # The log begins behind all that was read: snapshots replaced it.
            monkeypatch.setattr(module, "offsets_of", later)
            assert (await orders.read()).runs == ()
            monkeypatch.setattr(module, "offsets_of", offsets_of)
            assert await orders.read() == before

    asyncio.run(run())


def test_states_are_kept_of_a_few_groups_and_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.01)

    async def run() -> None:
        async with reader() as orders:
            for number in range(6):
                await orders.read(f"other-{number}")
                assert len(orders.kept._kept) <= module.KEPT_READS_MAX
            await asyncio.sleep(0.05)
            assert not orders.kept._kept

    asyncio.run(run())
