"""The environment of both halves of the demo: the broker process and its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.flights.broker_view import BrokerView
from examples.flights.children import Children
from examples.flights.waiting import wait_for
from sharegroup.client import AdminClient

BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run of the demo."""

    rows: int
    port: int
    folder: Path
    """The folder of this run, with data, ledgers and logs."""

    def ledger(self, name: str) -> Path:
        """Return the path of the ledger of a process."""
        return self.folder / f"{name}.ledger"


class BrokerProcess:
    """The broker process; all its starts use the same port."""

    def __init__(self, children: Children, plan: Plan) -> None:
        self._children = children
        self._data = str(plan.folder / "data")
        self._port = plan.port
        self.bootstrap_servers = ""

    async def start(self) -> None:
        """Start the broker, and wait until it accepts connections."""
        serve = ("-m", "sharegroup", "serve", "--data", self._data, "--port", str(self._port))
        self._children.start(BROKER, *serve)
        ready: list[str] = []

        def is_ready() -> bool:
            bootstrap_servers = self._children.ready_bootstrap(BROKER)
            ready.extend([bootstrap_servers] if bootstrap_servers else [])
            return bool(ready)

        await wait_for(is_ready, "the broker to accept connections")
        self.bootstrap_servers = ready[0]
        self._port = int(self.bootstrap_servers.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Stage:
    """The running broker with its admin view, and the demo's other processes."""

    plan: Plan
    children: Children
    broker: BrokerProcess
    view: BrokerView


@asynccontextmanager
async def stage(plan: Plan) -> AsyncIterator[Stage]:
    """Run a broker with the demo's topics; at exit, kill all processes that are left."""
    children = Children(plan.folder)
    broker = BrokerProcess(children, plan)
    try:
        await broker.start()
        async with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            view = BrokerView(admin, broker.bootstrap_servers)
            await view.prepare()
            yield Stage(plan, children, broker, view)
        children.stop(BROKER)
    finally:
        children.kill_all()
