"""What users get for their tests: a broker in one call, fixtures, a clock moved by hand."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    sync,
)
from sharegroup.errors import InvalidConfig
from sharegroup.ids import TopicName
from sharegroup.testing import ManualClock, TestBroker, broker, embedded, run_broker
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import open_descriptors


def test_fixture_gives_a_broker(sharegroup_broker: TestBroker) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": sharegroup_broker.bootstrap_servers})
    assert (
        admin.describe_cluster().result(HANGING_SECONDS).cluster_id == sharegroup_broker.cluster_id
    )


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


def test_broker_that_starts_too_late_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could stop it afterwards: its thread and folder would stay for all later tests."""
    start = embedded.broker

    @asynccontextmanager
    async def slow(*arguments: Any, **options: Any) -> AsyncIterator[embedded.AsyncTestBroker]:
        await asyncio.sleep(0.1)
        async with start(*arguments, **options) as running:
            yield running

    monkeypatch.setattr(embedded, "broker", slow)
    monkeypatch.setattr(embedded, "START_SECONDS_MAX", 0.001)
    earlier = set(threading.enumerate())
    with pytest.raises(AssertionError, match="did not start"), run_broker():
        pass
    assert "sharegroup-broker" not in [
        thread.name for thread in threading.enumerate() if thread not in earlier
    ]


class _SlowToEnd(asyncio.SelectorEventLoop):
    """A loop whose thread does not end as long as it is in `close`, if that closes it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def close(self) -> None:
        super().close()
        if threading.current_thread() is not threading.main_thread():
            self.may_end.wait(HANGING_SECONDS)


def run_until_it_is_cancelled(loop: _SlowToEnd) -> None:
    def cancel() -> None:
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__name__", "") == "serve":
                task.cancel()

    before = threading.enumerate()  # Fixtures of other tests have brokers of this name, too.
    with run_broker():
        (thread,) = (
            new
            for new in threading.enumerate()
            if new.name == "sharegroup-broker" and new not in before
        )
        loop.call_soon_threadsafe(cancel)
        until = time.monotonic() + HANGING_SECONDS
        while thread.is_alive() and not loop.is_closed() and time.monotonic() < until:
            thread.join(0.01)


def test_error_of_a_broker_that_ends_by_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not hidden by that of a loop that is closed, whose thread has not ended yet."""
    loop = _SlowToEnd()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    try:
        with pytest.raises(asyncio.CancelledError):
            run_until_it_is_cancelled(loop)
    finally:
        loop.may_end.set()
    assert loop.is_closed()


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
        return {f"{fd} {opened}" for fd, opened in open_descriptors()}

    async def run() -> set[str]:
        async with broker() as running:
            async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
                await (await producer.send("orders", b"one"))
            return opened()

    gc.disable()
    try:
        before = opened()
        # Threads of earlier tests open others at any time, and some keep them.
        of_broker = asyncio.run(run()) - before
        assert any(os.devnull in descriptor for descriptor in of_broker), (
            "descriptors are kept in reserve"
        )
        limit = time.monotonic() + HANGING_SECONDS
        while left := opened() & of_broker:
            assert time.monotonic() < limit, left
            time.sleep(0.01)
    finally:
        gc.enable()


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
                [held] = await silent.poll(timeout=HANGING_SECONDS)
                assert held.delivery_count == 1
                clock.advance(29.9)
                assert await other.poll(timeout=0.2) == []
                clock.advance(0.2)
                [again] = await other.poll(timeout=HANGING_SECONDS)
                assert (again.value, again.delivery_count) == (b"one", 2)
                again.accept()
                held.accept()
                results = await silent.commit()
                assert [str(error) != "" for error in results.values() if error] == [True]
                assert list((await other.commit()).values()) == [None]

    asyncio.run(run())


@pytest.mark.slow
def test_connections_that_arrive_while_the_broker_stops_are_closed() -> None:
    """Clients that reconnect quickly are accepted in the last turn of the loop; asyncio warns of
    transports that nobody closes, and pytest makes that an error."""
    for _ in range(5):
        with run_broker() as running:
            host, port = running.bootstrap_servers.split(":")
            connections = []
            for _ in range(30):
                connection = socket.socket()
                connection.setblocking(False)
                connection.connect_ex((host, int(port)))
                connections.append(connection)
        gc.collect()
        for connection in connections:
            connection.close()


def test_broker_starts_again_on_its_port_and_data() -> None:
    with run_broker() as running:
        running.produce("orders", "one", None, key="k", headers=[("h", b"1")])
        address, cluster_id = running.bootstrap_servers, running.cluster_id
        for end in (running.stop, running.kill):
            end()
            assert "stopped" in repr(running)
            with pytest.raises(RuntimeError, match=r"is stopped; call start\(\)"):
                running.produce("orders", "lost")
            running.start()
            assert (running.bootstrap_servers, running.cluster_id) == (address, cluster_id)
        first, second = running.records("orders")
        assert (first.key, first.value, first.headers) == (b"k", b"one", (("h", b"1"),))
        assert (second.offset, second.value) == (1, None)
        running.stop()
        running.stop()
        running.start()
        with pytest.raises(RuntimeError, match="is running"):
            running.start()


def test_repr_shows_address_state_and_faults() -> None:
    with run_broker() as running:
        assert repr(running) == f"<TestBroker {running.bootstrap_servers} running>"
        fault = running.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="t", times=2)
        assert repr(running) == f"<TestBroker {running.bootstrap_servers} running faults=1>"
        assert repr(fault) == (
            "<Fault Produce topic='t': fail with NOT_LEADER_OR_FOLLOWER, 0 of 2 times>"
        )


def reason_for_timeout(running: TestBroker, **condition: Any) -> str:
    """Why a condition is not reached; a slow machine gets more time for the first answer."""
    reason = ""
    for timeout_s in (0.3, 3.0, HANGING_SECONDS):
        with pytest.raises(TimeoutError) as raised:
            running.wait_until(**condition, timeout_s=timeout_s)
        reason = str(raised.value)
        if "nothing was answered" not in reason:
            break
    return reason


def test_waiting_for_lag_tells_why_it_was_not_reached() -> None:
    with run_broker() as running:
        running.create_topic("orders", 2)
        cases = {
            "found no group": {"lag": 0},
            "group 'g' does not exist yet": {"lag": 0, "group": "g"},
            "expected 1 records in 'orders', found 0": {"records": 1, "topic": "orders"},
        }
        for reason, condition in cases.items():
            assert reason in reason_for_timeout(running, **condition)
        for wrong in ({}, {"lag": 0, "records": 1}, {"records": 1}):
            with pytest.raises(TypeError, match="wait_until"):
                running.wait_until(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["share", "consumer"])
def test_waiting_for_lag_ends_when_all_records_are_read(kind: str) -> None:
    with run_broker() as running:
        running.create_topic("orders", 2)
        running.produce("orders", *(str(number) for number in range(10)))
        config = {"bootstrap.servers": running.bootstrap_servers, "group.id": "g"}
        if kind == "share":
            running.configure_group("g", {"share.auto.offset.reset": "earliest"})
            with sync.ShareConsumer(
                "orders", bootstrap_servers=running.bootstrap_servers, group_id="g"
            ) as reader:
                assert reader.poll(timeout=10)
                assert "expected a lag of 0 for group 'g'" in reason_for_timeout(running, lag=0)
                while reader.poll(timeout=0.5):
                    pass
                running.wait_until(lag=0, group="g", topic="orders")
        else:
            consumer = Consumer({**config, "auto.offset.reset": "earliest"})
            consumer.subscribe(["orders"])
            assert len(consumer.consume(10, timeout=HANGING_SECONDS)) == 10
            consumer.commit(asynchronous=False)
            running.wait_until(lag=0, group="g")
            running.produce("orders", "more")
            assert "found 1" in reason_for_timeout(running, lag=0)
            consumer.close()


def test_asynchronous_broker_works_on_another_loop() -> None:
    with run_broker() as running:

        async def run() -> list[bytes | None]:
            b = running.asynchronous
            await b.create_topic("orders")
            await b.produce("orders", "one")
            await b.kill()
            await b.start()
            return [record.value for record in await b.records("orders")]

        assert asyncio.run(run()) == [b"one"]


PROJECT = """
import asyncio
import pytest
from sharegroup.testing import AsyncTestBroker, ManualClock, TestBroker

CLOCK = ManualClock()

@pytest.mark.sharegroup(settings={"num.partitions": "3"}, clock=CLOCK)
def test_marker(sharegroup_broker: TestBroker) -> None:
    sharegroup_broker.produce("orders", "one")
    before = CLOCK.now_ms()
    sharegroup_broker.advance(5)
    assert CLOCK.now_ms() == before + 5_000
    topic = sharegroup_broker.running.parts.topics.catalog.topic("orders")
    assert topic.partition_count == 3

def test_without_marker(sharegroup_broker, sharegroup_session_broker) -> None:
    assert sharegroup_broker.bootstrap_servers != sharegroup_session_broker.bootstrap_servers

def test_async(sharegroup_async_broker: AsyncTestBroker) -> None:
    async def run() -> None:
        await sharegroup_async_broker.produce("orders", "one")
        assert [r.value for r in await sharegroup_async_broker.records("orders")] == [b"one"]
    asyncio.run(run())

@pytest.mark.sharegroup({"num.partitions": "3"})
def test_wrong_marker(sharegroup_broker) -> None: ...
"""


@pytest.mark.slow
def test_fixtures_and_marker_in_somebody_elses_project(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "takes keyword arguments, such as settings={...}" in done.stdout


def test_settings_may_be_python_values() -> None:
    with run_broker({"num.partitions": 3, "auto.create.topics.enable": True}) as running:
        running.create_topic("orders", settings={"retention.ms": 1_000})
        running.configure_group("g", {"share.record.lock.duration.ms": 20_000})
        running.produce("other", "one")
        topic = running.running.parts.topics.catalog.topic(TopicName("other"))
        assert topic.partition_count == 3
        with pytest.raises(TypeError, match=r"setting retention\.ms=None: expected a text"):
            running.create_topic("wrong", settings={"retention.ms": None})  # type: ignore[dict-item]


def test_forked_process_neither_uses_nor_ends_the_broker() -> None:
    with run_broker() as running:
        running.produce("orders", "one")
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                running.produce("orders", "lost")
            except RuntimeError as error:
                os.write(writing, str(error).encode())
            # As sys.exit in a child of a test: what was to end with the process ends.
            atexit._run_exitfuncs()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            assert "this is a fork of it; connect a client to 127.0.0.1" in said.read()
        os.waitpid(child, 0)
        running.produce("orders", "two")
        assert [record.value for record in running.records("orders")] == [b"one", b"two"]
