"""An application: its handlers, what runs around them, and its life.

    app = App("orders-service", bootstrap="127.0.0.1:9092")

    @app.share_group("billing", topics="orders", retry=Retry(attempts=8))
    async def bill(order: Order) -> None: ...

It is a description until it is run: by ``sharegroup worker orders.app:app``, by `App.run`, in
another program's loop (``async with app:``, or ``lifespan=app.lifespan`` of an ASGI application),
or in a test (`App.test`).  A process that only sends uses ``async with app.client():``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import ModuleType, SimpleNamespace, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    Never,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declared.elsewhere import OF_AN_APP, refuse_unknown
from sharegroup.worker.declared.functions import check_callable, check_listener
from sharegroup.worker.declared.names import PARTITIONS_MAX, checked_topic
from sharegroup.worker.declared.numbers import is_whole
from sharegroup.worker.declared.options import RouteOptions, Topics, check_together
from sharegroup.worker.declared.route import Route
from sharegroup.worker.declared.topic import Topic
from sharegroup.worker.durations import Duration, seconds
from sharegroup.worker.events import Events, Listener, check_name
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.ports import Clock, Outbox
from sharegroup.worker.routed import Declare, Routed
from sharegroup.worker.sender import BeforeSend, Outlet

if TYPE_CHECKING:
    from sharegroup.worker.running.worker import StopReport, Worker
    from sharegroup.worker.testing.app_test import AppTest

Sent = TypeVar("Sent")
Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Hook = TypeVar("Hook", bound=Callable[..., Any])
AroundCall = TypeVar("AroundCall", bound=Middleware)
OnEvent = TypeVar("OnEvent", bound=Listener)

OPTIONS = ("bootstrap", "client", "grace", "prepare")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")


class App:
    """See the module's text.

    ``client`` has further options of the clients, as for security; ``grace`` is how long a stop
    waits for handlers; with ``prepare`` missing topics and settings are made at the start.
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | list[str] = "127.0.0.1:9092",
        client: Mapping[str, Any] | None = None,
        grace: Duration = "30s",
        prepare: bool = True,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, OPTIONS, f"App {name!r}", OF_AN_APP)
        given: object = name  # Who has no type checker may give anything.
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise InvalidConfig(
                f"App name {name!r}: expected 1 to 100 of the characters a-z A-Z 0-9 . _ -"
            )
        self.name = name
        self.bootstrap = bootstrap
        self.client_options: dict[str, Any] = dict(client or {})
        self.grace_seconds = _grace(grace, name)
        self.prepare = prepare
        self.state = SimpleNamespace()
        """For the application: what its hooks open and its handlers use."""
        self.events = Events()
        self.middlewares: list[Middleware] = []
        self.outlet = Outlet(app_name=name)
        self.topic_list: tuple[Topic, ...] = ()
        """What `topic` declared."""
        self.is_watched = False
        """Whether its events go to the log, and its handlers are traced: from the first start."""
        self._routed: list[Routed[Any, Any]] = []
        self._startup: list[Callable[..., Any]] = []
        self._shutdown: list[Callable[..., Any]] = []
        self._worker: Worker | None = None
        self._resources = AsyncExitStack()

    @property
    def route_list(self) -> tuple[Route, ...]:
        """The routes, in the order of their declaration."""
        return tuple(routed.route for routed in self._routed)

    @property
    def handlers(self) -> tuple[Routed[Any, Any], ...]:
        """The handlers with their routes, in the order of their declaration."""
        return tuple(self._routed)

    @property
    def worker(self) -> Worker | None:
        """The worker, from `start` to `stop`."""
        return self._worker

    @overload
    def share_group(
        self, group: str, *, topics: Topics, handler: None = None, **options: Unpack[RouteOptions]
    ) -> Declare: ...
    @overload
    def share_group(
        self,
        group: str,
        *,
        topics: Topics,
        handler: Callable[Concatenate[Sent, Rest], Result],
        **options: Unpack[RouteOptions],
    ) -> Routed[Sent, Callable[Concatenate[Sent, Rest], Result]]: ...
    @overload
    def share_group(
        self, group: str, *, topics: Topics, handler: object, **options: Unpack[RouteOptions]
    ) -> Routed[Any, Any]: ...
    def share_group(
        self,
        group: str,
        *,
        topics: Topics = (),
        handler: Any = None,
        **options: Unpack[RouteOptions],
    ) -> Any:
        """Declare a handler: as a decorator, or with ``handler`` at once."""
        declare = Declare(group, topics, options, take=self.routes)
        return declare if handler is None else declare(handler)

    def routes(self, *declared: Routed[Any, Any] | ModuleType | Iterable[Routed[Any, Any]]) -> None:
        """Take handlers that were declared with `sharegroup.worker.share_group`.

        One by one, as a list, or all that stand in a module.
        """
        found = [one for given in declared for one in _routed_in(given)]
        new = list(dict.fromkeys(one for one in found if one not in self._routed))
        check_together([*self.route_list, *(one.route for one in new)])
        for one in new:
            one.send.outlet = self.outlet
        self._routed += new

    def topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Declare how a topic is to be (`sharegroup worker plan`); returns its name.

        ``configs`` are its settings by Kafka's names, as ``{"retention.ms": "86400000"}``.
        """
        if partitions is not None and not is_whole(partitions, 1, PARTITIONS_MAX):
            raise InvalidConfig(f"topic {name!r}: partitions={partitions}; expected 1 or more")
        checked_topic(name, f"App {self.name!r}")
        self.topic_list += (Topic(name, partitions, dict(configs or {})),)
        return name

    def narrow(
        self, groups: Iterable[str] = (), *, concurrency: int | Literal["auto"] | None = None
    ) -> None:
        """Let this process handle only these groups' records, or with another concurrency.

        The handlers left out can still be sent to.
        """
        wanted = frozenset(groups)
        there_are = {route.group for route in self.route_list}
        if unknown := wanted - there_are:
            raise InvalidConfig(
                f"App {self.name!r} has no group {', '.join(sorted(unknown))}; "
                f"its groups are {', '.join(sorted(there_are))}"
            )
        self._routed = [one for one in self._routed if not wanted or one.route.group in wanted]
        if concurrency is not None:
            for one in self._routed:
                one.route = replace(one.route, concurrency=concurrency)

    @overload
    def on(self, name: str) -> Callable[[OnEvent], OnEvent]: ...
    @overload
    def on(self, name: str, listener: OnEvent) -> OnEvent: ...
    def on(self, name: str, listener: Any = None) -> Any:
        """Call a function with each event of this name (`sharegroup.worker.events`)."""
        check_name(name)  # Here, and not where a decorator is used.

        def listen(function: OnEvent) -> OnEvent:
            check_listener(function, f"App {self.name!r}: on({name!r})")
            self.events.on(name, function)
            return function

        return listen if listener is None else listen(listener)

    def on_startup(self, hook: Hook) -> Hook:
        """Run it, with the App if it takes something, before the first record; may be async."""
        check_callable(hook, f"App {self.name!r}: on_startup", takes=(0, 1))
        self._startup.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Run it after the last record; the last that was declared runs first."""
        check_callable(hook, f"App {self.name!r}: on_shutdown", takes=(0, 1))
        self._shutdown.append(hook)
        return hook

    def middleware(self, middleware: AroundCall) -> AroundCall:
        """Put it around every handler (`sharegroup.worker.middleware`)."""
        check_callable(middleware, f"App {self.name!r}: middleware", takes=(2,))
        self.middlewares.append(middleware)
        return middleware

    def before_send(self, function: BeforeSend) -> BeforeSend:
        """Call it with topic and headers of what a sender sends; it may add headers."""
        check_callable(function, f"App {self.name!r}: before_send", takes=(2,))
        self.outlet.before_send += (function,)
        return function

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit code, 0 when it ended as asked."""
        from sharegroup.worker.living.program import run

        return run(self)

    async def start(self) -> None:
        """Begin to work, in this loop; returns when the members run."""
        from sharegroup.worker.infrastructure.applying import prepare
        from sharegroup.worker.running.worker import Worker
        from sharegroup.worker.seeing.watching import watch
        from sharegroup.worker.transport.kafka import kafka_parts

        if self._worker is not None:
            raise RuntimeError(f"App {self.name!r} is running already")
        if not self._routed:
            raise InvalidConfig(f"App {self.name!r} has no handlers: declare one, or use client()")
        watch(self)
        async with AsyncExitStack() as resources:
            parts = kafka_parts(self)
            resources.push_async_callback(parts.close)
            if self.prepare and parts.admin is not None:
                await prepare(self, parts.admin)
            await resources.enter_async_context(self.opened(parts.outbox, parts.clock))
            worker = Worker(self, parts)
            await worker.start()
            self._worker = worker
            self._resources = resources.pop_all()

    async def stop(self, grace: Duration | None = None) -> StopReport | None:
        """Stop taking, finish what fits in ``grace``, give back the rest; None: it wasn't running.

        A second call while the first waits hurries it.
        """
        worker = self._worker
        if worker is None:
            return None
        try:
            return await worker.stop(self.grace_seconds if grace is None else seconds(grace))
        finally:
            if self._worker is worker:  # Else another call that waited was first.
                self._worker = None
                await self._resources.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, _application: object) -> AsyncIterator[None]:
        """As ``lifespan=`` of a Starlette or FastAPI application: it works as long as that runs."""
        async with self:
            yield

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Self]:
        """Only send: its handlers' senders work, and nothing is handled."""
        from sharegroup.worker.infrastructure.applying import prepare
        from sharegroup.worker.seeing.watching import watch
        from sharegroup.worker.transport.kafka import kafka_parts

        watch(self)
        parts = kafka_parts(self)
        try:
            async with self.connected(parts.outbox, parts.clock):
                if self.prepare and parts.admin is not None:
                    # A topic that a broker makes for a send is not as the routes declare it.  Not
                    # now: who only sends, now and then, starts also while no broker is there.
                    self.outlet.prepare = functools.partial(prepare, self, parts.admin)
                yield self
        finally:
            await parts.close()

    def test(
        self,
        *,
        lock: Duration = "30s",
        delivery_limit: int = 10,
        renewal: bool = True,
        patience_seconds: float = 1.0,
    ) -> AppTest:
        """The application in a test's own process, without a broker, in virtual time.

        The first three are settings of its share groups; see `sharegroup.worker.testing`.
        """
        from sharegroup.worker.testing.app_test import AppTest

        return AppTest(
            self,
            lock=lock,
            delivery_limit=delivery_limit,
            renewal=renewal,
            patience_seconds=patience_seconds,
        )

    @asynccontextmanager
    async def connected(self, outbox: Outbox, clock: Clock) -> AsyncIterator[None]:
        """Let the senders send through this outbox."""
        outlet = self.outlet
        if outlet.outbox is not None:
            raise RuntimeError(f"App {self.name!r} is running or sending already")
        outlet.outbox, outlet.clock = outbox, clock
        outlet.loop = asyncio.get_running_loop()
        outlet.preparing = asyncio.Lock()
        try:
            yield
        finally:
            outlet.outbox = outlet.clock = outlet.loop = outlet.prepare = None

    @asynccontextmanager
    async def opened(self, outbox: Outbox, clock: Clock) -> AsyncIterator[None]:
        """`connected`, with hooks run and then classes opened before, and the reverse after.

        Whatever was begun is ended, also when a hook raises.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.connected(outbox, clock))
            for hook in self._shutdown:
                stack.push_async_callback(self._run_hook, hook)
            for hook in self._startup:
                await self._run_hook(hook)
            # Those of `processes` are opened where they run.
            for shape in (route.shape for route in self.route_list if not route.processes):
                if shape.closing is not None:
                    stack.push_async_callback(_called, shape.closing)
                if shape.opening is not None:
                    await _called(shape.opening)
            yield

    async def _run_hook(self, hook: Callable[..., Any]) -> None:
        takes_app = bool(inspect.signature(hook).parameters)
        await _called(hook, *([self] if takes_app else []))

    def __repr__(self) -> str:
        return f"<App {self.name!r}, {len(self._routed)} handlers>"


def _grace(given: Duration, name: str) -> float:
    try:
        return seconds(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"App {name!r}: grace: {error}") from None


async def _called(function: Callable[..., Any], *arguments: Any) -> None:
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result


def _routed_in(given: object) -> list[Routed[Any, Any]]:
    if isinstance(given, Routed):
        return [given]
    if isinstance(given, ModuleType):
        found = [one for one in vars(given).values() if isinstance(one, Routed)]
        lists = [one for one in vars(given).values() if isinstance(one, list | tuple)]
        found += [one for each in lists for one in each if isinstance(one, Routed)]
        if not found:
            raise InvalidConfig(f"module {given.__name__}: there is no share_group(...) in it")
        return found
    if isinstance(given, Iterable) and not isinstance(given, str):
        return [one for each in given for one in _routed_in(each)]
    raise InvalidConfig(
        f"routes: {given!r}; expected what share_group(...) gave, a list of it, or a module"
    )
