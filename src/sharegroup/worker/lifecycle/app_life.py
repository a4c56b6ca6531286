"""The life of an application in this process: from its first connection to its last hook.

    start   connect --> prepare topics, check rights --> senders, hooks, handler classes --> worker
    client  connect --> senders; topics are prepared at the first send
    stop    the worker ends its handlers, then everything that was opened closes in reverse order

`app.App` declares, and passes its calls on to its `AppLife`; `App.test` enters `AppLife.opened`
with parts in memory and its own worker.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from sharegroup.errors import InvalidConfig
from sharegroup.worker.ports import Outbox, WorkerClock
from sharegroup.worker.stores.store import Store

if TYPE_CHECKING:
    # Its module imports the client.
    from sharegroup.worker.lifecycle.announced import Announced
    from sharegroup.worker.parts import WorkerParts
    from sharegroup.worker.running.worker import StopReport, Worker
    from sharegroup.worker.telemetry.state import AppHealth


class AppLife:
    """The hooks of an application, and while it runs or sends, its connections and its worker."""

    __slots__ = (
        "_app", "_is_client", "_parts", "_resources", "_stopping", "shutdown", "startup", "worker",
    )  # fmt: skip

    def __init__(self, app: Announced) -> None:
        self._app = app
        self.startup: list[Callable[..., Any]] = []
        self.shutdown: list[Callable[..., Any]] = []
        self.worker: Worker | None = None
        """The running worker; None before `start` and after `stop`."""
        self._parts: WorkerParts | None = None
        """The connections to the cluster, while the application runs or sends."""
        self._is_client = False
        self._stopping: asyncio.Task[StopReport] | None = None
        self._resources = AsyncExitStack()

    async def start(self) -> None:
        """Start the worker in the current event loop; returns when its members are started.

        `check_startable` was called before.
        """
        # Imported here, so that declaring handlers does not import the client.
        from sharegroup.worker.infrastructure.applying import prepare
        from sharegroup.worker.infrastructure.isolation import check_isolation
        from sharegroup.worker.infrastructure.rights import SchedulesNeed, check_rights
        from sharegroup.worker.lifecycle.announced import announced
        from sharegroup.worker.running.worker import Worker
        from sharegroup.worker.telemetry.logs import watch

        app = self._app
        watch(app)
        async with AsyncExitStack() as resources:
            parts = await resources.enter_async_context(self._connected_parts(is_client=False))
            if app.prepare and parts.admin is not None:
                await prepare(app, parts.admin)
            if parts.admin is not None:
                await check_rights(app.route_list, parts.admin, SchedulesNeed.of(app))
                await check_isolation(app, parts.admin)
            await resources.enter_async_context(self.opened(parts.outbox, parts.clock))
            worker = Worker(app, parts)
            await worker.start()
            if app.announce:
                await resources.enter_async_context(announced(app, worker, parts))
            self.worker = worker
            # Not before: a start that fails closes what it has opened.
            self._resources = resources.pop_all()

    def check_startable(self) -> None:
        """Raise an error if the worker already runs, or would have nothing to run."""
        name = self._app.name
        if self.worker is not None:
            raise RuntimeError(f"App {name!r} is already running")
        if not self._app.handlers:
            raise InvalidConfig(f"App {name!r} has no handlers: declare one, or use client()")

    async def stop(self, grace_seconds: float) -> StopReport | None:
        """Stop the worker and return a report; None if it was not running.

        A second call while the first one waits ends the grace.
        """
        worker = self.worker
        if worker is None:
            return None
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(worker, grace_seconds))
        else:
            worker.hurry()
        # A caller that is cancelled must not close the producer under handlers that still run.
        return await asyncio.shield(self._stopping)

    async def _stop(self, worker: Worker, grace_seconds: float) -> StopReport:
        try:
            return await worker.stop(grace_seconds)
        finally:
            try:
                await self._resources.aclose()
            finally:
                # Also after an error, so that the application can be started again.
                self.worker = self._stopping = None

    def health(self) -> AppHealth:
        """Return the health of the application in this process."""
        # Imported here, so that declaring handlers does not import what only a program needs.
        from sharegroup.worker.telemetry.state import health_of

        reachability = None if self._parts is None else self._parts.reachability()
        state = None if self.worker is None else self.worker.state
        return health_of(reachability, state, is_client=self._is_client)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        """Connect the senders of the handlers, and run no handler."""
        # Imported here, so that declaring handlers does not import the client.
        from sharegroup.worker.infrastructure.applying import prepare
        from sharegroup.worker.telemetry.logs import watch

        app = self._app
        watch(app)
        async with (
            self._connected_parts(is_client=True) as parts,
            self.connected(parts.outbox, parts.clock),
        ):
            if app.prepare and parts.admin is not None:
                # Without it a broker may create the topic with settings that differ from those
                # declared.  It runs at the first send, not here: a process that sends only
                # occasionally must be able to start while no broker is available.
                app.outlet.prepare = functools.partial(prepare, app, parts.admin, only_sends=True)
            yield

    @asynccontextmanager
    async def _connected_parts(self, *, is_client: bool) -> AsyncIterator[WorkerParts]:
        """The parts on the chosen cluster; says while they exist that no broker can be reached."""
        # Imported here, so that declaring handlers does not import the client.
        from sharegroup.worker.telemetry.reachability import reporting_unreachable
        from sharegroup.worker.transport.kafka import kafka_parts

        app = self._app
        parts = kafka_parts(app)
        self._parts, self._is_client = parts, is_client
        app.outlet.open_replies = parts.open_replies
        where = app.cluster.where
        try:
            async with reporting_unreachable(app.name, where, parts.reachability, parts.clock):
                yield parts
        finally:
            self._parts = None
            await parts.close()

    @asynccontextmanager
    async def connected(
        self, outbox: Outbox, clock: WorkerClock, store: Store | None = None
    ) -> AsyncIterator[None]:
        """Connect the senders to this outbox for the duration of the block.

        ``store`` replaces the application's.  At the end the codecs close their connections to a
        schema registry, and the store its own.
        """
        app, outlet = self._app, self._app.outlet
        if outlet.outbox is not None:
            raise RuntimeError(f"App {app.name!r} is already running or sending")
        outlet.outbox, outlet.clock = outbox, clock
        outlet.store = app.store if store is None else store
        outlet.loop = asyncio.get_running_loop()
        outlet.preparing = asyncio.Lock()
        try:
            yield
        finally:
            asks = outlet.disconnected_asks()
            used, outlet.store = outlet.store, None
            outlet.outbox = outlet.clock = outlet.loop = outlet.prepare = None
            for route in app.route_list:
                route.codec.close()
            try:
                if asks is not None:
                    await asks.close()
            finally:
                if used is not None:
                    await used.close()

    @asynccontextmanager
    async def opened(
        self, outbox: Outbox, clock: WorkerClock, store: Store | None = None
    ) -> AsyncIterator[None]:
        """Connect the senders, run the startup hooks, then open the handlers that are classes.

        At the end the opposite happens in the reverse order.  All shutdown hooks run, even if a
        startup hook raises.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.connected(outbox, clock, store))
            for hook in self.shutdown:
                stack.push_async_callback(self._run_hook, hook)
            for hook in self.startup:
                await self._run_hook(hook)
            # Handlers with `processes` are opened in their own processes.
            for shape in (route.shape for route in self._app.route_list if not route.processes):
                if shape.closing is not None:
                    stack.push_async_callback(_called, shape.closing)
                if shape.opening is not None:
                    await _called(shape.opening)
            yield

    async def _run_hook(self, hook: Callable[..., Any]) -> None:
        takes_app = bool(inspect.signature(hook).parameters)
        await _called(hook, *([self._app] if takes_app else []))


async def _called(function: Callable[..., Any], *arguments: Any) -> None:
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result
