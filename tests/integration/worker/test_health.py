"""What applications and consumers know of lost brokers and of a lost membership."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharegroup.client import Consumer, ShareConsumer
from sharegroup.testing import broker
from sharegroup.worker import App
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def shop(bootstrap: str) -> App:
    app = App("shop", bootstrap_servers=bootstrap)

    @app.share_group("billing", topics="orders")
    async def bill(order: dict[str, int]) -> None: ...

    return app


@pytest.mark.slow
def test_consumer_knows_at_once_that_its_broker_has_stopped_and_that_it_is_back() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            async with ShareConsumer(
                "orders", bootstrap_servers=there.bootstrap_servers, group_id="g"
            ) as consumer:
                await until(lambda: consumer.health().is_healthy)
                assert (consumer.flow.is_joined, consumer.health().lost_brokers) == (True, {})
                await there.stop()
                stopped_at = time.monotonic()
                await until(lambda: not consumer.flow.is_joined)
                # Not by the next heartbeat, whose interval is 5 s.
                assert time.monotonic() - stopped_at < 1.0
                await until(lambda: consumer.health().lost_brokers)
                health = consumer.health()
                assert (health.is_healthy, health.is_connected) == (False, False)
                assert health.failure is None
                (error,) = health.lost_brokers.values()
                assert list(health.lost_brokers) == [there.bootstrap_servers]
                assert "refused" in error.lower()
                await there.start()
                await until(lambda: consumer.health().is_healthy)

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_of_a_consumer_group_knows_that_its_broker_has_stopped(protocol: str) -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            async with Consumer(
                "orders",
                bootstrap_servers=there.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
            ) as consumer:
                assert not consumer.health().is_healthy

                async def poll_until(condition: Callable[[], object]) -> None:
                    async with asyncio.timeout(HANGING_SECONDS):
                        while not condition():
                            await consumer.poll(timeout=0.05)

                await poll_until(lambda: consumer.health().is_healthy)
                await there.stop()
                stopped_at = time.monotonic()
                await until(lambda: not consumer.health().is_joined)
                assert time.monotonic() - stopped_at < 1.0
                await until(lambda: consumer.health().lost_brokers)
                assert not consumer.health().is_healthy
                await there.start()
                await poll_until(lambda: consumer.health().is_healthy)

    asyncio.run(run())


def test_consumer_without_a_group_is_healthy_while_it_runs_and_a_broker_answers() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            consumer = Consumer(bootstrap_servers=there.bootstrap_servers)
            consumer.assign([("orders", 0)])
            assert not consumer.health().is_healthy
            async with consumer:
                await until(lambda: consumer.health().is_healthy)
                await there.stop()
                await until(lambda: consumer.health().lost_brokers)
                assert not consumer.health().is_healthy

    asyncio.run(run())


def test_application_is_healthy_while_its_members_and_its_broker_are_there() -> None:
    async def run() -> None:
        async with broker() as there:
            app = shop(there.bootstrap_servers)
            assert (app.health().phase, app.health().is_healthy) == ("stopped", False)
            async with app:
                await until(lambda: app.health().is_healthy)
                await there.stop()
                await until(lambda: app.health().lost_brokers)
                await until(lambda: app.health().absent_groups)
                facts = app.health().facts
                assert (facts["healthy"], facts["phase"]) == (False, "running")
                assert facts["absent_groups"] == ["billing"]
                assert there.bootstrap_servers in json.dumps(facts["lost_brokers"])
                await there.start()
                await until(lambda: app.health().is_healthy)
            assert app.health().phase == "stopped"

    asyncio.run(run())


def test_broker_that_hangs_is_known_after_three_heartbeats() -> None:
    interval_ms = 200

    async def run() -> None:
        names = ("group.share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms")
        settings = dict.fromkeys(names, interval_ms)
        async with broker(settings=settings) as there:
            app = shop(there.bootstrap_servers)
            async with app:
                await until(lambda: app.health().is_healthy)
                with there.frozen():
                    frozen_at = time.monotonic()
                    await until(lambda: not app.health().is_healthy)
                    # Its connections stay open.
                    assert time.monotonic() - frozen_at >= 2 * interval_ms / 1000
                    assert app.health().absent_groups == ("billing",)
                await until(lambda: app.health().is_healthy)

    asyncio.run(run())


def test_route_of_the_page_answers_503_while_the_broker_is_away() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "worker-monitoring.md").read_text()
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if 'Route("/health"' in block
    )  # fmt: skip
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "docs/worker-monitoring.md", "exec"), names)

    async def run() -> None:
        async with broker() as there:
            names["app"].bootstrap_servers = there.bootstrap_servers
            web = names["web"]
            transport = httpx.ASGITransport(web)
            async with (
                web.router.lifespan_context(web),
                httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            ):

                async def answers(status: int) -> httpx.Response:
                    async with asyncio.timeout(HANGING_SECONDS):
                        while (answer := await client.get("/health")).status_code != status:
                            await asyncio.sleep(0.01)
                    return answer

                assert (await answers(200)).json()["healthy"] is True
                await there.stop()
                facts = (await answers(503)).json()
                assert (facts["healthy"], facts["absent_groups"]) == (False, ["billing"])
                await there.start()
                await answers(200)

    asyncio.run(run())


def test_sender_is_healthy_until_its_first_record_meets_no_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    app = shop(f"127.0.0.1:{port}")
    (bill,) = app.handlers
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        async with app.client():
            assert (app.health().phase, app.health().is_healthy) == ("sending", True)
            sending = asyncio.ensure_future(bill.send({"id": 1}))
            try:
                await _until_reported(caplog, port)
            finally:
                sending.cancel()
            assert not app.health().is_healthy

    asyncio.run(run())


def test_worker_without_a_broker_names_the_refused_address_within_two_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    app = shop(f"127.0.0.1:{port}")
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        starting = asyncio.ensure_future(app.start())
        try:
            await _until_reported(caplog, port)
            assert (app.health().phase, app.health().is_healthy) == ("starting", False)
        finally:
            starting.cancel()
            await asyncio.wait((starting,))

    asyncio.run(run())


async def _until_reported(caplog: pytest.LogCaptureFixture, port: int) -> None:
    def line() -> str | None:
        lines = (text for text in caplog.messages if text.startswith("event=cluster.unreachable"))
        return next(lines, None)

    await until(line)
    text = line() or ""
    assert f"bootstrap=\"127.0.0.1:{port} (App 'shop')\"" in text
    assert "refused" in text.lower()
