"""The environment of both halves of the demo: the broker process and its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from examples.flights.broker_view import BrokerView
from examples.flights.children import Children
from examples.flights.waiting import wait_for
from sharegroup.client import AdminClient

BROKER = "broker"
CONSOLE = "console"
CONSOLE_NEEDS = ("jinja2", "starlette", "uvicorn")
"""The libraries of the extra ``console``; without them the demo has no console."""


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
    console_url: str | None
    """The address of the console; None without its extra."""


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
            console_url = await _start_console(children, broker.bootstrap_servers)
            yield Stage(plan, children, broker, view, console_url)
            if console_url is not None:
                children.stop(CONSOLE)
        children.stop(BROKER)
    finally:
        children.kill_all()


async def _start_console(children: Children, bootstrap_servers: str) -> str | None:
    """Start the console and return its address; None if its libraries are not installed.

    It is a process of the demo, not of the broker, so it shows how the broker is killed.
    """
    if not all(map(find_spec, CONSOLE_NEEDS)):
        return None
    options = ("--port", "0", "--bootstrap-server", bootstrap_servers)
    children.start(CONSOLE, "-m", "sharegroup", "console", *options)
    urls: list[str] = []

    def is_ready() -> bool:
        children.check(CONSOLE)
        url = children.console_url(CONSOLE)
        urls.extend([url] if url else [])
        return bool(urls)

    await wait_for(is_ready, "the console to print its address")
    return urls[0]
