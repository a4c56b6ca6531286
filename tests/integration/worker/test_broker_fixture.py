"""An application on the broker of the fixture `sharegroup_broker`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sharegroup.testing import TestBroker
from sharegroup.worker import App
from tests.support.limits import HANGING_SECONDS


@dataclass
class Order:
    """What is sent."""

    id: int
    total: int = 5


def test_same_application_runs_on_the_broker_of_the_fixture(sharegroup_broker: TestBroker) -> None:
    """What docs/worker-testing.md shows beside `App.test`."""
    billed: list[Order] = []
    app = App("shop", bootstrap_servers=sharegroup_broker.bootstrap_servers)

    @app.share_group("billing", topics="orders")
    async def bill(order: Order) -> None:
        billed.append(order)

    async def send_and_wait() -> None:
        async with app, asyncio.timeout(HANGING_SECONDS):
            await bill.send(Order(7))
            while not billed:
                await asyncio.sleep(0.01)

    asyncio.run(send_and_wait())
    assert billed == [Order(7)]
