"""Ranges held by a member of a share group, on a broker in the same process or on Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
)
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import AcquiredRanges, ShareRanges
from sharegroup.client.share.session.acknowledgements import AckRun, released_after
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.errors import RequestTimedOut, UnsupportedVersion
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.testing import ManualClock, broker
from tests.integration.client.group_on_a_broker import groups, kafka, stage
from tests.support.limits import HANGING_SECONDS

ACCEPT, RELEASE, REJECT = 1, 2, 3
WAIT_MS = 5_000
LOCK_SECONDS = 30.0
"""How long a broker locks records unless told otherwise."""


class Bench:
    """A broker with records in topic ``t``, and a group that reads them all."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.bootstrap_servers = bootstrap
        self.group = f"g{next(groups)}"
        self.partitions = partitions

    async def fill(self, count: int) -> None:
        async with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for partition in range(self.partitions):
                sent = [
                    producer.send("t", b"%d" % index, partition=partition) for index in range(count)
                ]
                await asyncio.gather(*sent)

    @asynccontextmanager
    async def member(self, **options: str) -> AsyncIterator[ShareRanges]:
        config = ClientConfig(bootstrap_servers=self.bootstrap_servers)
        ranges = ShareRanges(config, group_id=self.group, topics=["t"], **options)
        try:
            yield ranges
        finally:
            async with asyncio.timeout(HANGING_SECONDS):
                await ranges.close()


def play(
    scenario: Callable[[Bench], Coroutine[Any, Any, None]],
    *,
    count: int = 10,
    partitions: int = 1,
    group: Mapping[str, str] | None = None,
    clock: ManualClock | None = None,
) -> None:
    async def run() -> None:
        async with stage(clock=clock) as bootstrap:
            bench = Bench(bootstrap, partitions)
            async with AdminClient(bootstrap_servers=bootstrap) as admin:
                await admin.create_topics([NewTopic("t", partitions)])
                configs = {"share.auto.offset.reset": "earliest", **(group or {})}
                resource = ConfigResource(ResourceType.GROUP, bench.group)
                changes = [AlterConfig(name, value) for name, value in configs.items()]
                altered = await admin.incremental_alter_configs({resource: changes})
                assert altered == {resource: None}
            await bench.fill(count)
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(bench)

    asyncio.run(run())


def range_of(acquired: AcquiredRecords) -> tuple[int, int, int]:
    return acquired.first_offset, acquired.end_offset, acquired.delivery_count


def plain(acquisition: AcquiredRanges) -> dict[int, list[tuple[int, int, int]]]:
    assert acquisition.failure is None
    return {
        key.partition: [range_of(acquired) for acquired in some]
        for key, some in acquisition.ranges.items()
    }


async def everything(ranges: ShareRanges, partitions: int) -> AcquiredRanges:
    """What there is in all partitions of a new group: Kafka hands out of each when it is loaded."""
    found: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = {}
    async with asyncio.timeout(WAIT_MS / 1_000):
        while len(found) < partitions:
            found |= (await ranges.acquire(wait_ms=WAIT_MS)).ranges
    return AcquiredRanges(found)


async def settle(
    ranges: ShareRanges, acquisition: AcquiredRanges, *parts: tuple[int, int, int]
) -> dict[int, OffsetSet]:
    """Acknowledge parts of every partition: first, end and type."""
    runs = {key: [AckRun(*part) for part in parts] for key in acquisition.ranges}
    left = await ranges.acknowledge(runs)
    return {key.partition: offsets for key, offsets in left.items()}


def test_accepted_ranges_are_not_acquired_again() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            acquisition = await everything(ranges, 2)
            assert plain(acquisition) == {0: [(0, 10, 1)], 1: [(0, 10, 1)]}
            assert await settle(ranges, acquisition, (0, 10, ACCEPT)) == {}
            assert ranges.held == {}
            assert (await ranges.acquire(wait_ms=50)).ranges == {}
            positions = await ranges.positions()
            assert {key.partition: position.lag for key, position in positions.items()} == {
                0: 0,
                1: 0,
            }

    play(scenario, partitions=2)


def test_range_that_is_released_with_a_delay_is_acquired_after_it() -> None:
    """On a broker without delays this is an error, before anything is acknowledged."""

    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            acquisition = await ranges.acquire(wait_ms=WAIT_MS)
            (key,) = acquisition.ranges
            if kafka:
                with pytest.raises(UnsupportedVersion, match="does not, as Apache Kafka"):
                    ranges.check_delays([key])
                return
            ranges.check_delays([key])
            began = time.monotonic()
            parts = ((0, 4, ACCEPT), (4, 6, released_after(300)), (6, 10, released_after(0)))
            assert await settle(ranges, acquisition, *parts) == {}
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(6, 10, 2)]}
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(4, 6, 2)]}
            assert time.monotonic() - began >= 0.3

    play(scenario)


@pytest.mark.skipif(bool(kafka), reason="there every broker has no delays")
def test_delays_are_refused_for_ranges_of_a_broker_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sharegroup.client.net.connection.DELAY_FEATURE", "unknown")

    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            (key,) = (await ranges.acquire(wait_ms=WAIT_MS)).ranges
            ranges.check_delays([])
            with pytest.raises(UnsupportedVersion, match=f"'{bench.group}' node 1: expected a br"):
                ranges.check_delays([key])

    play(scenario)


def test_released_ranges_are_acquired_again_and_rejected_ones_are_not() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            first = await ranges.acquire(wait_ms=WAIT_MS)
            parts = (0, 2, RELEASE), (2, 3, REJECT), (3, 8, ACCEPT), (8, 10, RELEASE)
            assert await settle(ranges, first, *parts) == {}
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(0, 2, 2), (8, 10, 2)]}

    play(scenario)


def test_only_records_with_ended_locks_are_not_settled() -> None:
    """Two acquisitions at different times; the first locks end, and all is acknowledged at once.

    The group allows no renewal: the member renews in real time, so on a slow machine it would renew
    the first locks after the clock was moved, and they would not end.
    """
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            first = await ranges.acquire(wait_ms=WAIT_MS)
            assert plain(first) == {0: [(0, 10, 1)]}
            clock.advance(LOCK_SECONDS - 1)
            await bench.fill(90)
            second = await ranges.acquire(wait_ms=WAIT_MS)
            assert plain(second) == {0: [(10, 100, 1)]}
            clock.advance(2)
            assert await settle(ranges, first, (0, 100, ACCEPT)) == {0: OffsetSet(((0, 10),))}
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(0, 10, 2)]}

    play(scenario, clock=clock, group={"share.renew.acknowledge.enable": "false"})


def test_renewed_locks_outlive_their_time() -> None:
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            acquisition = await ranges.acquire(wait_ms=WAIT_MS)
            for _ in range(3):
                clock.advance(LOCK_SECONDS - 1)
                await ranges.renew()
            assert await settle(ranges, acquisition, (0, 10, ACCEPT)) == {}

    play(scenario, clock=clock)


def test_ranges_that_the_member_does_not_hold_are_not_settled() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges, bench.member() as other:
            acquisition = await ranges.acquire(wait_ms=WAIT_MS)
            assert await settle(other, acquisition, (0, 10, ACCEPT)) == {0: OffsetSet(((0, 10),))}
            assert await settle(ranges, acquisition, (5, 20, ACCEPT)) == {0: OffsetSet(((10, 20),))}

    play(scenario)


def test_close_releases_held_ranges() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(0, 10, 1)]}
        async with bench.member() as other:
            assert plain(await other.acquire(wait_ms=WAIT_MS)) == {0: [(0, 10, 2)]}

    play(scenario)


def test_a_wanted_number_bounds_an_acquisition() -> None:
    """The log's batches are larger than a record, and are not cut."""

    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            first = await ranges.acquire(records_max=1, wait_ms=WAIT_MS)
            assert plain(first) == {0: [(0, 10, 1)]}
            await bench.fill(5)
            assert plain(await ranges.acquire(wait_ms=WAIT_MS)) == {0: [(10, 15, 1)]}

    play(scenario)


@pytest.mark.slow
def test_a_large_window_is_one_acquisition() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            # One of each partition on Kafka, which answers with the partitions that are ready.
            acquisition = await (
                everything(ranges, 2) if kafka else ranges.acquire(wait_ms=WAIT_MS)
            )
            assert plain(acquisition) == {0: [(0, 5_000, 1)], 1: [(0, 5_000, 1)]}
            assert await settle(ranges, acquisition, (0, 5_000, ACCEPT)) == {}

    play(scenario, count=5_000, partitions=2, group={"share.partition.max.record.locks": "10000"})


def test_waiting_for_records_ends_in_time() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            assert plain(await ranges.acquire(wait_ms=50)) == {}

    play(scenario, count=0)


def test_broker_in_doubt_keeps_no_acquisition_waiting() -> None:
    """An acquisition lasts as long as its slowest broker; a silent one is left out."""

    class TwoBrokers:
        def __init__(self) -> None:
            self.attempts = 0
            self.answer = asyncio.Event()

        def is_doubtful(self, node_id: int) -> bool:
            return node_id == 2

        async def connection(self, node_id: int, purpose: object) -> None:
            self.attempts += 1
            await self.answer.wait()
            raise RequestTimedOut(f"node {node_id}: silent")

    async def run() -> None:
        ranges = ShareRanges(ClientConfig(), group_id="g", topics=["t"])
        brokers = TwoBrokers()
        ranges._cluster = brokers  # type: ignore[assignment]
        key = TopicIdPartition(TopicId(UUID(int=1)), 0)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                assert ranges._answering({1: (key,), 2: (key,)}, tasks) == {1: (key,)}
                await asyncio.sleep(0)
            assert brokers.attempts == 1
            brokers.answer.set()
        assert isinstance(ranges._unreachable, RequestTimedOut)

    asyncio.run(run())


def test_broker_in_doubt_is_used_again_when_it_answers() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as ranges:
            assert plain(await ranges.acquire(records_max=1, wait_ms=WAIT_MS))
            [node_id] = ranges._cluster.nodes
            for connection in ranges._cluster._connections._by_purpose.values():
                connection.fail(RequestTimedOut("silent"))
            ranges._cluster.doubt(node_id)
            assert (await ranges.acquire(wait_ms=WAIT_MS)).ranges
            assert not ranges._cluster.is_doubtful(node_id)

    play(scenario)


def test_positions_that_take_long_delay_neither_metadata_nor_heartbeats() -> None:
    """Kafka's coordinator asks the leaders for the lag; a dead one delays the answer by 15 s.

    A broker answers the requests of a connection in order, so others must not wait behind it.
    """

    async def run() -> None:
        async with broker() as running:
            config = ClientConfig(bootstrap_servers=running.bootstrap_servers)
            async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("t", 1)])
            ranges = ShareRanges(config, group_id="g", topics=["t"])
            slow = running.delay("DescribeShareGroupOffsets", 60.0)
            try:
                async with asyncio.timeout(HANGING_SECONDS):
                    while not ranges.assigned:
                        await ranges.acquire(wait_ms=50)
                    positions = asyncio.create_task(ranges.positions())
                    while not slow.is_used_up:
                        await asyncio.sleep(0.01)
                    assert (await ranges.topic_ids())["t"] is not None
                    await ranges._group.heartbeats._beat()
                    assert not positions.done()
                    positions.cancel()
            finally:
                await ranges.close()

    asyncio.run(run())


def offset_count(acquisition: AcquiredRanges) -> int:
    return sum(run.offset_count for runs in acquisition.ranges.values() for run in runs)


@pytest.mark.skipif(bool(kafka), reason="there no group has this setting")
def test_wide_assignment_helps_beside_a_limit_of_records_alone() -> None:
    """As two queries of Spark: without a limit one takes all records of both partitions."""

    async def scenario(bench: Bench) -> None:
        async with bench.member() as first, bench.member() as other:
            for ranges in (first, other):
                while len(ranges.assigned) < bench.partitions:
                    assert (await ranges.acquire(wait_ms=20)).ranges == {}
            for _ in range(3):
                await bench.fill(10)
            assert offset_count(await first.acquire(wait_ms=WAIT_MS)) == 60
            assert (await other.acquire(wait_ms=50)).ranges == {}
            for _ in range(3):
                await bench.fill(10)
            part = offset_count(await first.acquire(records_max=10, wait_ms=WAIT_MS))
            assert 10 <= part < 60
            assert offset_count(await other.acquire(wait_ms=WAIT_MS)) == 60 - part

    play(scenario, count=0, partitions=2, group={"sharegroup.assignment": "wide"})
