"""The watcher on a broker in the same process: what it reads, how often, and what it survives."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sharegroup.client import AdminClient, Consumer, ShareConsumer, TopicPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.console.watch.cluster_view import GroupView
from sharegroup.console.watch.group_reading import REQUEST_SECONDS
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import DEFECT, Watcher
from sharegroup.errors import RequestTimedOut
from sharegroup.testing import AsyncTestBroker, broker
from tests.support.chosen_broker import SHORT_TIMES

SETTINGS = {**SHORT_TIMES, "group.share.assignment.interval.ms": "0"}
LIMIT_SECONDS = 30.0


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class CountingAdmin:
    """An admin client that counts its calls, and fails when a test wants it."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.calls: Counter[str] = Counter()
        self.broken: Exception | None = None
        """What all next calls raise."""
        self.failing: dict[str, Exception] = {}
        """What the next calls of these methods raise."""

    def __getattr__(self, name: str) -> Any:
        if self.broken is not None:
            raise self.broken
        method = getattr(self._admin, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name in self.failing:
                raise self.failing[name]
            return await method(*args, **options)

        return counted


class Watched:
    """A watcher with its clock, on a broker."""

    def __init__(self, broker: AsyncTestBroker, admin: AdminClient, reading: Cluster) -> None:
        self.broker, self.clock, self.history = broker, Clock(), History()
        self.admin = CountingAdmin(admin)
        self.watcher = Watcher(
            self.admin,  # type: ignore[arg-type]  It stands in for the client.
            reading,
            self.history,
            monotonic=self.clock,
            wall_ms=lambda: int(self.clock.seconds * 1000),
        )

    async def look(self, *, after: float = 30.0) -> None:
        """Look once, ``after`` seconds of the clock later."""
        self.clock.seconds += after
        await self.watcher.look()

    def group(self, group_id: str) -> GroupView:
        return self.watcher.view.groups[group_id]

    async def until(self, is_reached: Callable[[], bool]) -> None:
        """Look until a condition holds."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not is_reached():
                await self.look()
                await asyncio.sleep(0.05)


@asynccontextmanager
async def watched(**settings: str) -> AsyncIterator[Watched]:
    async with (
        broker({**SETTINGS, **settings}) as running,
        AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
    ):
        options = {"bootstrap_servers": running.bootstrap_servers}
        reading = Cluster(config_from(ReadingConfig, options))
        try:
            yield Watched(running, admin, reading)
        finally:
            reading.close()


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await body()

    asyncio.run(limited())


async def settle(broker: AsyncTestBroker, group: str, count: int) -> None:
    """Settle some records of the topic ``orders`` as a member of a group, which leaves then."""
    await broker.configure_group(group, {"share.auto.offset.reset": "earliest"})
    async with ShareConsumer(
        "orders",
        group_id=group,
        bootstrap_servers=broker.bootstrap_servers,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        settled = 0
        while settled < count:
            records = await consumer.poll(max_records=count)
            taken = records[: count - settled]
            consumer.accept(taken)
            consumer.release(records[len(taken) :])
            settled += len(taken)


async def settle_one(seen: Watched) -> None:
    """Settle one of two records of a group, and look."""
    await seen.broker.create_topic("orders")
    await seen.broker.produce("orders", "a", "b")
    await settle(seen.broker, "billing", 1)
    await seen.look()


def test_group_is_seen_with_lag_and_age() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            sent = await seen.broker.produce("orders", *map(str, range(10)))
            await settle(seen.broker, "billing", 4)
            await seen.look()
            group = seen.group("billing")
            assert (group.type, group.lag, group.topics) == ("share", 6, ("orders",))
            assert group.oldest_ms == sent[4].timestamp_ms
            assert seen.watcher.view.topics["orders"].partition_count == 1
            assert [broker.error for broker in seen.watcher.view.brokers] == [None]
            assert seen.watcher.view.problems == {}

    run(body)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_groups_of_both_protocols_are_seen(protocol: str) -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", "a", "b", "c")
            async with Consumer(
                "orders",
                group_id="warehouse",
                bootstrap_servers=seen.broker.bootstrap_servers,
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                while not await consumer.poll(timeout=1):
                    pass
                await consumer.commit({TopicPartition("orders", 0): 1})
                await seen.look()
                group = seen.group("warehouse")
                assert (group.type, group.error, len(group.members)) == (protocol, None, 1)
                assert (group.lag, group.topics) == (2, ("orders",))

    run(body)


def test_age_is_read_only_when_a_start_offset_moved() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", *map(str, range(10)))
            await settle(seen.broker, "billing", 2)
            await seen.look()
            read = seen.group("billing").oldest_ms
            assert read is not None
            with seen.broker.fail("Fetch", error="TOPIC_AUTHORIZATION_FAILED", times=None):
                await seen.look()
                assert seen.group("billing").oldest_ms == read  # Nothing was read.
                await settle(seen.broker, "billing", 2)
                await seen.look()
                assert seen.group("billing").oldest_ms is None

    run(body)


def test_age_that_could_not_be_read_for_a_moment_is_read_again() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", *map(str, range(10)))
            await settle(seen.broker, "billing", 2)
            with seen.broker.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=None):
                await seen.look()
                assert seen.group("billing").oldest_ms is None
            await seen.look()
            assert seen.group("billing").oldest_ms is not None

    run(body)


def test_settled_records_are_a_rate() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", *map(str, range(100)))
            await settle(seen.broker, "billing", 10)
            await seen.look()
            await settle(seen.broker, "billing", 60)
            await seen.look(after=30)
            assert seen.history.of("billing").settled_per_second() == 2.0

    run(body)


def test_idle_watcher_reads_for_the_history_alone_and_all_of_it_for_the_first_page() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", "a", "b")
            await settle(seen.broker, "billing", 1)
            await seen.look()
            seen.admin.calls.clear()
            for _ in range(12):
                await seen.look(after=5)
            assert seen.admin.calls == {
                "list_share_group_offsets": 12,
                "describe_share_groups": 12,
                "describe_cluster": 3,
                "list_groups": 3,
                "describe_topics": 1,
                "describe_configs": 2,
                "list_offsets": 4,
            }
            seen.watcher.looks_at()
            waiting = asyncio.create_task(seen.watcher.wait_until_fresh(LIMIT_SECONDS))
            await asyncio.sleep(0)
            assert not waiting.done()
            seen.admin.calls.clear()
            await seen.look(after=3)
            assert seen.admin.calls["list_groups"] == 1
            await waiting

    run(body)


def test_idle_watcher_sees_at_once_in_the_list_that_the_last_member_left() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", "a", "b")
            async with ShareConsumer(
                "orders", group_id="billing", bootstrap_servers=seen.broker.bootstrap_servers
            ) as consumer:
                await consumer.poll(timeout=1)
                await seen.look()
                assert len(seen.group("billing").members) == 1
            seen.admin.failing["describe_share_groups"] = RequestTimedOut("planted")
            await seen.look(after=20)
            assert seen.group("billing").has_no_members

    run(body)


def test_deleted_group_is_forgotten_with_its_history() -> None:
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", "a", "b")
            await settle(seen.broker, "billing", 1)
            await seen.look()
            assert len(seen.history) == 2
            async with AdminClient(bootstrap_servers=seen.broker.bootstrap_servers) as admin:
                assert await admin.delete_groups(["billing"]) == {"billing": None}
            seen.watcher.looks_at(["billing"])
            await seen.look()
            assert (dict(seen.watcher.view.groups), len(seen.history)) == ({}, 0)
            assert seen.watcher.view.problems == {}

    run(body)


def test_group_that_is_deleted_between_its_listing_and_its_description_is_an_error_of_its_own() -> (
    None
):
    async def body() -> None:
        async with watched() as seen:
            await seen.broker.create_topic("orders")
            await seen.broker.produce("orders", "a", "b")
            await settle(seen.broker, "billing", 1)
            await settle(seen.broker, "audit", 1)
            await seen.look()
            async with AdminClient(bootstrap_servers=seen.broker.bootstrap_servers) as admin:
                await admin.delete_groups(["billing"])
            seen.watcher.looks_at(["billing", "audit"])
            await seen.look(after=1)  # The list of groups is older.
            assert seen.group("billing").error is not None
            assert seen.group("audit").error is None
            assert seen.watcher.view.problems == {}

    run(body)


@pytest.mark.slow
def test_broker_that_goes_away_is_told_with_the_older_state_until_it_comes_back() -> None:
    async def body() -> None:
        async with watched() as seen:
            await settle_one(seen)
            await seen.broker.kill()
            await seen.look()
            assert seen.watcher.view.problems.keys() == {"brokers"}
            assert "connection refused" in seen.watcher.view.problems["brokers"]
            assert [bool(broker.error) for broker in seen.watcher.view.brokers] == [True]
            assert seen.group("billing").lag == 1
            await seen.look(after=1)
            assert seen.watcher.view.problems.keys() == {"brokers"}
            await seen.broker.start()
            await seen.until(lambda: not seen.watcher.view.problems)
            assert [broker.error for broker in seen.watcher.view.brokers] == [None]

    run(body)


def test_outage_in_the_middle_of_a_part_is_shown_at_once_and_ends_the_part() -> None:
    """The part alone would try for ten seconds."""

    async def body() -> None:
        async with watched() as seen:
            await settle_one(seen)
            await seen.broker.kill()
            began = asyncio.get_running_loop().time()
            look = asyncio.create_task(seen.look(after=1))  # The part of the groups alone is due.
            while not [broker for broker in seen.watcher.view.brokers if broker.error]:
                await asyncio.sleep(0.05)
            assert not look.done()
            assert "connection refused" in str(seen.watcher.view.brokers[0].error)
            await look
            assert asyncio.get_running_loop().time() - began < REQUEST_SECONDS / 2
            assert "no broker can be reached" in seen.watcher.view.problems["group details"]
            assert seen.group("billing").lag == 1
            await seen.broker.start()
            await seen.until(lambda: not seen.watcher.view.problems)
            assert [broker.error for broker in seen.watcher.view.brokers] == [None]

    run(body)


def test_outage_is_one_warning_whatever_the_texts_are(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with watched() as seen:
            for text in ("refused", "reset", "refused"):
                seen.admin.failing["describe_cluster"] = RequestTimedOut(text)
                await seen.look()
                assert seen.watcher.view.problems == {"brokers": text}

    run(body)
    assert sum("look_failed" in record.message for record in caplog.records) == 1


def test_defect_of_the_console_is_shown_and_the_watcher_goes_on() -> None:
    async def body() -> None:
        async with watched() as seen:
            seen.admin.broken = ZeroDivisionError("planted")
            task = asyncio.create_task(seen.watcher.run())
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    while DEFECT not in seen.watcher.view.problems:
                        await asyncio.sleep(0.02)
                    assert "ZeroDivisionError: planted" in seen.watcher.view.problems[DEFECT]
                    seen.admin.broken = None
                    seen.watcher.looks_at()
                    while DEFECT in seen.watcher.view.problems:
                        await asyncio.sleep(0.02)
            finally:
                task.cancel()

    run(body)
