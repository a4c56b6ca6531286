"""A module of declarations whose handlers run in processes of their own."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.worker import share_group


@dataclass
class Order:
    total: int


@dataclass
class Total:
    """What is sent on."""

    doubled: int


async def collect(total: Total) -> None:
    """Replaced by the test's own."""


totals = share_group("process-routes-totals", topics="process-routes-totals", handler=collect)


@share_group("process-routes", topics="process-routes", processes=1)
class Double:
    """Opened in the process where it runs."""

    factor = 0

    def open(self) -> None:
        self.factor = 2

    async def handle(self, order: Order) -> None:
        await totals.send(Total(order.total * self.factor))
