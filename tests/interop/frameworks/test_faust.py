"""Faust-streaming: an agent, and a table that comes back from its changelog topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sharegroup.testing import TestBroker
from tests.interop.frameworks.conftest import transaction_states, values
from tests.support.limits import HANGING_SECONDS

faust = pytest.importorskip(
    "faust", reason="Faust-streaming is not installed; make frameworks runs this"
)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_agent_and_table_go_on_where_they_ended(
    broker: TestBroker, tmp_path: Path, guarantee: str
) -> None:
    """Two applications after each other, with tables in memory only."""

    name = f"faust-{guarantee.replace('_', '-')}"

    async def run(until: int) -> None:
        app = faust.App(
            f"{name}-sums",
            processing_guarantee=guarantee,
            broker=f"kafka://{broker.bootstrap_servers}",
            store="memory://",
            datadir=str(tmp_path),
            topic_partitions=1,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            web_enabled=False,
        )
        orders = app.topic(f"{name}-orders", key_type=str, value_type=int)
        sums = app.topic(f"{name}-totals", value_type=int)
        totals = app.Table("totals", default=int, partitions=1)
        done = asyncio.Event()

        @app.agent(orders)
        async def add(stream: Any) -> None:
            async for customer, total in stream.items():
                totals[customer] += total
                await sums.send(value=totals[customer])
                if totals[customer] >= until:
                    done.set()

        # As the command "faust worker" does: Faust uses transactions in a worker only.
        app.in_worker = True
        app.finalize()
        await app.start()
        async with asyncio.timeout(HANGING_SECONDS):
            await done.wait()
        await app.stop()

    for topic in (f"{name}-orders", f"{name}-totals"):
        broker.create_topic(topic)
    broker.produce(f"{name}-orders", b"3", b"4", key="Ada")
    asyncio.run(run(7))
    broker.produce(f"{name}-orders", b"5", key="Ada")
    asyncio.run(run(12))
    assert values(broker, f"{name}-totals") == [b"3", b"7", b"12"]
    if guarantee == "exactly_once":
        assert "CompleteCommit" in transaction_states(broker)
