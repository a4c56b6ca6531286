"""What users get for their tests: a broker in one call, fixtures, a clock moved by hand."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import InvalidConfig
from sharegroup.testing import ManualClock, TestBroker, broker, run_broker


def test_fixture_gives_a_broker(sharegroup_broker: TestBroker) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": sharegroup_broker.bootstrap_servers})
    assert admin.describe_cluster().result(10).cluster_id == sharegroup_broker.cluster_id


def test_two_brokers_run_side_by_side() -> None:
    with run_broker() as broker, run_broker() as other:
        assert broker.bootstrap_servers != other.bootstrap_servers
        assert broker.cluster_id != other.cluster_id


def test_wrong_setting_is_raised_where_the_broker_is_started() -> None:
    with (
        pytest.raises(InvalidConfig, match=r"num\.partitions"),
        run_broker({"num.partitions": "0"}),
    ):
        pass


def test_data_directory_is_kept_for_the_next_broker(tmp_path: object) -> None:
    async def run() -> None:
        data = str(tmp_path)
        async with (
            broker(data=data) as first,
            AdminClient(bootstrap_servers=first.bootstrap_servers) as a,
        ):
            await a.create_topics([NewTopic("orders", num_partitions=2)])
            cluster_id = first.cluster_id
        async with (
            broker(data=data) as again,
            AdminClient(bootstrap_servers=again.bootstrap_servers) as a,
        ):
            assert "orders" in await a.list_topics()
            assert again.cluster_id == cluster_id

    asyncio.run(run())


def test_a_broker_that_ended_has_closed_every_file() -> None:
    """Also before the interpreter finds its garbage; a test run has thousands of brokers."""

    def opened() -> set[str]:
        return {f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" for fd in open_descriptors()}

    async def run() -> set[str]:
        async with broker() as running:
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                await (await producer.send("orders", b"one"))
            return opened()

    gc.disable()
    try:
        before = opened()
        during = asyncio.run(run())
        assert any(os.devnull in descriptor for descriptor in during - before), (
            "descriptors are kept in reserve"
        )
        assert opened() - before == set()
    finally:
        gc.enable()


def open_descriptors() -> list[int]:
    """Those that are open now, without the one that looks."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.append(int(name))
    return found


async def group_with_a_record(bootstrap: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=1)])
        change = AlterConfig("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "g"): [change]})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await (await producer.send("orders", b"one"))


def test_lock_of_thirty_seconds_expires_at_once_on_a_manual_clock() -> None:
    """One member holds a record; the clock is moved; another member gets the record."""

    async def run() -> None:
        clock = ManualClock()
        async with broker(clock=clock) as running:
            await group_with_a_record(running.bootstrap_servers)
            options = {
                "bootstrap_servers": running.bootstrap_servers,
                "group_id": "g",
                "share_acknowledgement_mode": "explicit",
            }
            async with (
                ShareConsumer("orders", **options) as silent,
                ShareConsumer("orders", **options) as other,
            ):
                [held] = await silent.poll(timeout=10)
                assert held.delivery_count == 1
                clock.advance(29.9)
                assert await other.poll(timeout=0.2) == []
                clock.advance(0.2)
                [again] = await other.poll(timeout=10)
                assert (again.value, again.delivery_count) == (b"one", 2)
                again.accept()
                held.accept()
                results = await silent.commit()
                assert [str(error) != "" for error in results.values() if error] == [True]
                assert list((await other.commit()).values()) == [None]

    asyncio.run(run())
