"""What both halves of the demo play on: the broker, and what is known of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sharegroup.cli.flights.broker_view import BrokerView
from sharegroup.cli.flights.children import Children
from sharegroup.cli.flights.waiting import wait_for
from sharegroup.client import AdminClient

BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for."""

    rows: int
    port: int
    folder: Path
    """Of this run: data, ledgers, logs."""

    def ledger(self, name: str) -> Path:
        """Of one process."""
        return self.folder / f"{name}.ledger"


class BrokerProcess:
    """The broker, on the same port over all its starts."""

    def __init__(self, children: Children, plan: Plan) -> None:
        self._children = children
        self._data = str(plan.folder / "data")
        self._port = plan.port
        self.bootstrap = ""

    async def start(self) -> None:
        """Returns when it accepts connections."""
        serve = ("-m", "sharegroup", "serve", "--data", self._data, "--port", str(self._port))
        self._children.start(BROKER, *serve)
        ready: list[str] = []

        def is_ready() -> bool:
            bootstrap = self._children.ready_bootstrap(BROKER)
            ready.extend([bootstrap] if bootstrap else [])
            return bool(ready)

        await wait_for(is_ready, "the broker to accept connections")
        self.bootstrap = ready[0]
        self._port = int(self.bootstrap.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Stage:
    """Open while the broker runs."""

    plan: Plan
    children: Children
    broker: BrokerProcess
    view: BrokerView


@asynccontextmanager
async def stage(plan: Plan) -> AsyncIterator[Stage]:
    """A broker with the demo's topics; whatever happens, no process is left behind."""
    children = Children(plan.folder)
    broker = BrokerProcess(children, plan)
    try:
        await broker.start()
        async with AdminClient(bootstrap_servers=broker.bootstrap) as admin:
            view = BrokerView(admin, broker.bootstrap)
            await view.prepare()
            yield Stage(plan, children, broker, view)
        children.stop(BROKER)
    finally:
        children.kill_all()
