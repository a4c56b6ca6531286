"""The application: the object on which handlers, hooks and middleware are declared, and which runs.

    app = App("orders-service", bootstrap_servers="127.0.0.1:9092")

    @app.share_group("billing", topics="orders", retry=Retry(max_attempts=8))
    async def bill(order: Order) -> None: ...

Declaring handlers does not start anything.  An application runs

    as a program             ``sharegroup worker orders.app:app``, or `App.run`
    in an event loop         ``async with app:``, or in an ASGI server ``lifespan=app.lifespan``
    in a test                `App.test`

A process that only sends uses ``async with app.client():``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType, SimpleNamespace
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

from sharegroup.dead_letters.topics import MIN_INSYNC
from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import (
    PARTITIONS_MAX,
    check_callable,
    check_listener,
    check_redact,
    checked_announce,
    checked_app_name,
    checked_grace,
    checked_store,
    checked_topic,
    is_whole,
)
from sharegroup.worker.declarations.foreign_options import OF_AN_APP, refuse_unknown
from sharegroup.worker.declarations.options import (
    ConsumerGroupOptions,
    RouteDefaults,
    RouteOptions,
    Topics,
    check_requirements,
    check_together,
    checked_defaults,
    with_defaults,
)
from sharegroup.worker.declarations.outputs import outputs_of
from sharegroup.worker.declarations.replies import topics_with_replies
from sharegroup.worker.declarations.route import Route, RouteKind
from sharegroup.worker.declarations.schedules import (
    THE_RUN,
    DeclaredSchedule,
    Plan,
    ScheduleOptions,
    TheRun,
    cron_of,
    declared_schedule,
    interval_of,
    no_handler_here,
    topics_with_schedules,
    with_schedule,
)
from sharegroup.worker.declarations.topics import Replication, TopicDeclaration
from sharegroup.worker.events import Event, Events, Listener, check_name
from sharegroup.worker.lifecycle.app_life import AppLife
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.other_names import OF_APPS, missing_attribute
from sharegroup.worker.ports import Outbox, WorkerClock
from sharegroup.worker.redaction import Redact, Redaction
from sharegroup.worker.routed import Declare, Routed, routed_in, routed_of_groups
from sharegroup.worker.scheduling.schedule_commands import ScheduleCommands
from sharegroup.worker.sender import BeforeSend, Outlet
from sharegroup.worker.stores.store import Store

if TYPE_CHECKING:
    from sharegroup.client.settings.cluster_choice import ClusterChoice
    from sharegroup.fleet.commands import Intent
    from sharegroup.worker.consuming.consumed_partitions import ConsumedPartitions
    from sharegroup.worker.running.worker import StopReport, Worker
    from sharegroup.worker.telemetry.state import AppHealth
    from sharegroup.worker.testing.app_test import AppTest

Sent = TypeVar("Sent")
Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Scheduled = TypeVar("Scheduled", bound=Routed[Any, Any])
Hook = TypeVar("Hook", bound=Callable[..., Any])
AroundCall = TypeVar("AroundCall", bound=Middleware)
OnEvent = TypeVar("OnEvent", bound=Listener)

OPTIONS = (
    "bootstrap_servers",
    "client",
    "grace",
    "prepare",
    "redact",
    "replication_factor",
    "min_insync_replicas",
    "announce",
    "store",
    "defaults",
)
SERVERS = "bootstrap_servers"


class App:
    """An application: declares handlers of groups and runs them in this process.

    ``name`` is also the default client id.  ``bootstrap_servers`` has the addresses of the first
    brokers to ask, unless an argument or the variable SHAREGROUP_BOOTSTRAP names others
    (`cluster`).

    ``client`` has further options of the Kafka clients, such as those for security.  ``grace`` is
    the time that handlers get to finish when the worker stops.  With ``prepare``, the start creates
    missing topics and settings.  ``redact`` removes secrets from exception texts before they are
    written (`redaction`).

    ``replication_factor`` and ``min_insync_replicas`` apply to the topics that the application
    creates.  By default a topic has three replicas, or one per broker if there are fewer brokers.
    All replicas but one must be in sync.

    With ``announce``, each worker process writes heartbeats to ``<name>.workers`` and reads
    commands from ``<name>.control``, so ``sharegroup worker status`` shows all processes in the
    cluster, and ``quiet``, ``resume`` and ``stop`` reach them (`sharegroup.fleet`).

    ``store`` keeps the names of records that are sent with ``unique``; it is used by those alone.

    ``defaults`` has options for all handlers, such as ``{"retry": Retry(max_attempts=8)}``.  An
    option of a handler has precedence over that default.

    Example::

        app = App("orders-service", bootstrap_servers="127.0.0.1:9092")

        @app.share_group("billing", topics="orders", retry=Retry(max_attempts=8))
        async def bill(order: Order) -> None: ...

    Run it with ``sharegroup worker orders.app:app``, with `run`, in an event loop with
    ``async with app:``, or in a test with `test`.
    """

    obey: Callable[[Intent], None] | None = None
    """Carries out commands, if a program runs this application; None: the application itself."""

    def __init__(
        self,
        name: str,
        *,
        bootstrap_servers: str | list[str] | None = None,
        client: Mapping[str, Any] | None = None,
        grace: Duration = "30s",
        prepare: bool = True,
        redact: Redact | None = None,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        announce: bool = False,
        store: Store | None = None,
        defaults: RouteDefaults | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, OPTIONS, f"App {name!r}", OF_AN_APP, "an App")
        self.name = checked_app_name(name)
        self._declared_servers = bootstrap_servers
        self._explicit_servers: tuple[str | list[str], str] | None = None
        """An address that precedes the variable and the declared one, and what named it."""
        self.client_options: dict[str, Any] = dict(client or {})
        if SERVERS in self.client_options:
            raise InvalidConfig(
                f"App {name!r}: client: {SERVERS} is an option of the App: App(..., {SERVERS}=...)"
            )
        self.grace_seconds = checked_grace(grace, name)
        self.prepare = prepare
        self.replication = Replication(replication_factor, min_insync_replicas).checked(
            f"App {name!r}"
        )
        self.store = checked_store(store, name)
        self._defaults = checked_defaults(defaults, name)
        self.state = SimpleNamespace()
        """Free for the application, for example for connections that its hooks open."""
        self.events = Events()
        if redact is not None:
            check_redact(redact, f"App {name!r}")
        self._redact = redact
        self.middlewares: list[Middleware] = []
        self.announce = checked_announce(announce, name)
        self.outlet = Outlet(app_name=name)
        self._topics: tuple[TopicDeclaration, ...] = ()
        self.schedule_list: tuple[DeclaredSchedule, ...] = ()  # Of `every` and `cron`.
        self.is_watched = False
        """Whether events are logged and handlers traced.  Set by the first `start` or `client`."""
        self._routed: list[Routed[Any, Any]] = []
        self._life = AppLife(self)

    def _redaction(self, route: Route) -> Redaction | None:
        """Calls the route's `redact`, then the application's.  None if neither is declared."""
        functions = tuple(
            function for function in (route.redact, self._redact) if function is not None
        )

        def report(why: str) -> None:
            self.events.tell(Event("redaction.failed", details={"why": why}))

        return Redaction(functions, report) if functions else None

    @property
    def cluster(self) -> ClusterChoice:
        """The cluster that this application talks to, as a worker and as a sender.

        The address is that of the first of these that names one: `talk_to` (an argument of `start`,
        `client` or `run`, the option ``--bootstrap-server``, or an assignment to
        ``bootstrap_servers``), the variable SHAREGROUP_BOOTSTRAP, the App's ``bootstrap_servers``,
        the profile that applies to commands, 127.0.0.1:9092.
        """
        # Imported here, so that declaring handlers does not import the client.
        from sharegroup.client.settings.cluster_choice import NamedAddress, choose_cluster

        explicit = self._explicit_servers
        return choose_cluster(
            () if explicit is None else (NamedAddress(*explicit),),
            NamedAddress(self._declared_servers, f"App {self.name!r}"),
        )

    @property
    def bootstrap_servers(self) -> str:
        """The address of `cluster`; assigning another one is the same as `talk_to`."""
        return self.cluster.bootstrap_servers

    @bootstrap_servers.setter
    def bootstrap_servers(self, servers: str | list[str]) -> None:
        self.talk_to(servers, "an assignment")

    def talk_to(self, bootstrap_servers: str | list[str], origin: str = "an argument") -> None:
        """Name the cluster explicitly; ``origin`` says in logs and errors what did so."""
        self._explicit_servers = (bootstrap_servers, origin)

    @property
    def schedules(self) -> ScheduleCommands:
        """Pauses, resumes and runs schedules: ``await app.schedules.pause("nightly")``."""
        return ScheduleCommands(self.name, self.outlet)

    @property
    def topic_list(self) -> tuple[TopicDeclaration, ...]:
        """The topics that `topic` declared, and those of schedules and replies if there are any."""
        topics = topics_with_schedules(self._topics, self.name, self.schedule_list)
        return topics_with_replies(topics, self.name, self.route_list)

    @property
    def route_list(self) -> tuple[Route, ...]:
        """The routes, in the order of their declaration."""
        return tuple(routed.route for routed in self._routed)

    if not TYPE_CHECKING:  # A type checker shall report an unknown name.

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, OF_APPS)

    @property
    def handlers(self) -> tuple[Routed[Any, Any], ...]:
        """The handlers with their routes, in the order of their declaration."""
        return tuple(self._routed)

    @property
    def worker(self) -> Worker | None:
        """The running worker; None before `start` and after `stop`."""
        return self._life.worker

    def partitions(self, group: str) -> ConsumedPartitions:
        """Return the partitions that this process owns of a consumer group, to pause or seek.

        Raises RuntimeError without a running worker.
        """
        if self.worker is None:
            raise RuntimeError(f"App {self.name!r} is not running, so it owns no partitions")
        return self.worker.partitions(group)

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
        """Declare a handler of a share group.

        Used as a decorator, or as a plain call with ``handler``.
        """
        declare = Declare(group, topics, options, take=self.routes)
        return declare if handler is None else declare(handler)

    @overload
    def consumer_group(
        self,
        group: str,
        *,
        topics: Topics,
        handler: None = None,
        **options: Unpack[ConsumerGroupOptions],
    ) -> Declare: ...
    @overload
    def consumer_group(
        self,
        group: str,
        *,
        topics: Topics,
        handler: object,
        **options: Unpack[ConsumerGroupOptions],
    ) -> Routed[Any, Any]: ...
    def consumer_group(
        self,
        group: str,
        *,
        topics: Topics = (),
        handler: Any = None,
        **options: Unpack[ConsumerGroupOptions],
    ) -> Any:
        """Declare a handler of a consumer group: in order by key, in parallel, by offsets.

        Used as a decorator, or as a plain call with ``handler``.
        """
        declare = Declare(group, topics, options, kind=RouteKind.CONSUMER, take=self.routes)
        return declare if handler is None else declare(handler)

    def routes(self, *declared: Routed[Any, Any] | ModuleType | Iterable[Routed[Any, Any]]) -> None:
        """Add handlers that were declared with `sharegroup.worker.share_group`.

        Accepts handlers, lists of handlers, and modules, of which it takes all handlers.
        """
        handlers = [routed for given in declared for routed in routed_in(given)]
        new = list(dict.fromkeys(routed for routed in handlers if routed not in self._routed))
        routes = [with_defaults(routed.declared, routed.given, self._defaults) for routed in new]
        all_routes = [*self.route_list, *routes]
        check_together(all_routes)
        for route in routes:
            check_requirements(route, self.store, announces=self.announce)
        outputs = outputs_of(all_routes, self._topics, self.name)
        for routed, route in zip(new, routes, strict=True):
            routed.send.belong(self.outlet, route)
            routed.route = route.changed(redaction=self._redaction(route))
        for routed, output in zip([*self._routed, *new], outputs, strict=True):
            routed.route = routed.route.changed(output=output)
        self._routed += new

    def topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        min_insync_replicas: int | None = None,
        payload: Any = None,
    ) -> str:
        """Declare a topic with its settings and return its name.

        ``sharegroup worker plan`` compares the cluster with these declarations.  ``configs`` has
        settings by their Kafka names, such as ``{"retention.ms": "86400000"}``.
        ``replication_factor`` and ``min_insync_replicas`` default to those of the App.
        ``payload`` is the type of its values, for handlers that send ``to`` it.
        """
        if partitions is not None and not is_whole(partitions, 1, PARTITIONS_MAX):
            raise InvalidConfig(f"topic {name!r}: partitions={partitions}; expected 1 or more")
        checked_topic(name, f"App {self.name!r}")
        replication = Replication(replication_factor, min_insync_replicas).checked(
            f"topic {name!r}"
        )
        settings = dict(configs or {})
        if min_insync_replicas is not None and MIN_INSYNC in settings:
            raise InvalidConfig(
                f"topic {name!r}: min_insync_replicas={min_insync_replicas} and {MIN_INSYNC!r} in "
                f"configs; expected only one of them"
            )
        self._topics += (TopicDeclaration(name, partitions, settings, replication, payload),)
        return name

    def every(
        self,
        interval: Duration,
        *,
        to: Routed[Sent, Any] | None = None,
        payload: Sent | TheRun = THE_RUN,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Scheduled], Scheduled]:
        """Send a record to a handler in this interval, counted from 1970-01-01T00:00Z.

        Used as a decorator above that of the handler, or as a plain call with ``to``.  Without
        ``payload`` the handler gets a `ScheduledRun`.  ``missed`` says what happens to runs that
        were due while no process could make them.  A definition replaces the one that is in force
        if its ``revision`` is higher.
        """
        return self._scheduled(to, Plan(interval_of(interval), payload, options))

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        to: Routed[Sent, Any] | None = None,
        payload: Sent | TheRun = THE_RUN,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Scheduled], Scheduled]:
        """Send a record to a handler at the times of a cron expression, in this time zone.

        The expression has five fields, or six with seconds first.  A fixed time that the clock
        skips is due after the gap, and one that the clock repeats is due once.  The other options
        are those of `every`.
        """
        return self._scheduled(to, Plan(cron_of(expression, timezone), payload, options))

    def _scheduled(self, to: Any, plan: Plan) -> Callable[[Scheduled], Scheduled]:
        def declare(routed: Scheduled) -> Scheduled:
            if routed not in self._routed:
                raise no_handler_here(self.name, routed)
            declared = declared_schedule(routed.route, plan)
            self.schedule_list = with_schedule(self.schedule_list, declared, self.name)
            return routed

        if to is not None:
            declare(to)
        return declare

    def narrow(
        self, groups: Iterable[str] = (), *, concurrency: int | Literal["auto"] | None = None
    ) -> None:
        """Restrict this process to these share groups, or change the concurrency of its handlers.

        Without ``groups``, all groups stay.  Senders of the excluded handlers still work.
        """
        self._routed = routed_of_groups(self._routed, frozenset(groups), self.name)
        if concurrency is not None:
            for routed in self._routed:
                routed.route = routed.route.changed(concurrency=concurrency)

    @overload
    def on(self, name: str) -> Callable[[OnEvent], OnEvent]: ...
    @overload
    def on(self, name: str, listener: OnEvent) -> OnEvent: ...
    def on(self, name: str, listener: Any = None) -> Any:
        """Call a function with each event of this name (`sharegroup.worker.events`).

        Used as a decorator, or as a plain call with ``listener``.  The name ``"*"`` stands for all
        events.
        """
        check_name(name)  # Before `listen`, so the traceback points to the call of `on`.

        def listen(function: OnEvent) -> OnEvent:
            check_listener(function, f"App {self.name!r}: on({name!r})")
            self.events.on(name, function)
            return function

        return listen if listener is None else listen(listener)

    def on_startup(self, hook: Hook) -> Hook:
        """Run ``hook`` before the first record.

        The hook may be a coroutine function.  If it has a parameter, it gets the App.
        """
        check_callable(hook, f"App {self.name!r}: on_startup", takes=(0, 1))
        self._life.startup.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Run ``hook`` after the last record.

        Hooks run in the reverse order of their declaration.  A hook may be a coroutine function.
        If it has a parameter, it gets the App.
        """
        check_callable(hook, f"App {self.name!r}: on_shutdown", takes=(0, 1))
        self._life.shutdown.append(hook)
        return hook

    def middleware(self, middleware: AroundCall) -> AroundCall:
        """Wrap every handler in this middleware (`sharegroup.worker.middleware`)."""
        check_callable(middleware, f"App {self.name!r}: middleware", takes=(2,))
        self.middlewares.append(middleware)
        return middleware

    def before_send(self, function: BeforeSend) -> BeforeSend:
        """Call ``function`` before a sender writes a record.

        It gets the topic and the list of headers, to which it may add headers.
        """
        check_callable(function, f"App {self.name!r}: before_send", takes=(2,))
        self.outlet.before_send += (function,)
        return function

    def run(self, *, bootstrap_servers: str | list[str] | None = None) -> int:
        """Run the application until SIGTERM or SIGINT, on `cluster` or on this one.

        Returns the exit code, which is 0 if the application stopped because of a signal.
        """
        # Imported here, so that declaring handlers does not import what only a program needs.
        from sharegroup.worker.lifecycle.program import run

        if bootstrap_servers is not None:
            self.talk_to(bootstrap_servers)
        return run(self)

    async def start(self, *, bootstrap_servers: str | list[str] | None = None) -> None:
        """Start the worker in the current event loop; returns when its members are started.

        It talks to `cluster`, or to ``bootstrap_servers``.  First it prepares topics and settings,
        checks the user's rights and runs the startup hooks.
        """
        self._life.check_startable()
        if bootstrap_servers is not None:
            self.talk_to(bootstrap_servers)
        await self._life.start()

    async def stop(self, grace: Duration | None = None) -> StopReport | None:
        """Stop the worker and return a report; None if it was not running.

        The worker takes no more records.  Handlers get ``grace`` to finish, by default the
        App's; the records of the others are released.  A second call while the first one waits
        ends the grace.
        """
        return await self._life.stop(self.grace_seconds if grace is None else seconds(grace))

    def health(self) -> AppHealth:
        """Return the health of the application in this process, for health checks of a server.

        Groups and brokers that are lost show within seconds; nothing is sent to find out.
        """
        return self._life.health()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, _application: object) -> AsyncIterator[None]:
        """The lifespan of a Starlette or FastAPI application: runs the worker while that runs."""
        async with self:
            yield

    @asynccontextmanager
    async def client(
        self, *, bootstrap_servers: str | list[str] | None = None
    ) -> AsyncIterator[Self]:
        """Connect the senders of the handlers, to `cluster` or to this one, and run no handler."""
        if bootstrap_servers is not None:
            self.talk_to(bootstrap_servers)
        async with self._life.client():
            yield self

    def test(
        self,
        *,
        lock: Duration = "30s",
        delivery_limit: int = 10,
        renewal: bool = True,
        processes: bool = False,
        patience_seconds: float = 1.0,
        store: Store | None = None,
    ) -> AppTest:
        """Run the application in the process of a test, without a broker and in virtual time.

        ``lock``, ``delivery_limit`` and ``renewal`` are settings of its share groups: the lock
        duration, the delivery count limit, and whether locks may be renewed.  With ``processes``,
        handlers that are declared with ``processes=N`` run in processes; otherwise they run in this
        process, N at a time, so that the test sees their effects.  ``store`` replaces the App's;
        without it, that is one in memory.  See `sharegroup.worker.testing`.
        """
        # Imported here, because only tests need it; it imports the broker's core.
        from sharegroup.worker.testing.app_test import AppTest

        return AppTest(
            self,
            lock=lock,
            delivery_limit=delivery_limit,
            renewal=renewal,
            processes=processes,
            patience_seconds=patience_seconds,
            store=store,
        )

    def connected(
        self, outbox: Outbox, clock: WorkerClock, store: Store | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Connect the senders to this outbox for the duration of the context."""
        return self._life.connected(outbox, clock, store)

    def opened(
        self, outbox: Outbox, clock: WorkerClock, store: Store | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Connect the senders, run the startup hooks, then open the handlers that are classes.

        Leaving the context closes them again in the reverse order.
        """
        return self._life.opened(outbox, clock, store)

    def __repr__(self) -> str:
        return f"<App {self.name!r}, {len(self._routed)} handlers>"
