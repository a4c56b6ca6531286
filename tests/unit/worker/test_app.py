"""An application as it is declared: routes, hooks, middleware, events; no broker anywhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from sharegroup.dead_letters.story import NEW
from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    App,
    BrokerDeadLetter,
    Call,
    DeadLetter,
    Proceed,
    Reject,
    Retry,
    share_group,
)
from sharegroup.worker.events import Event
from sharegroup.worker.middleware import wrapped
from sharegroup.worker.records.record import Record
from tests.unit.worker.deliveries import FakeDelivery


@dataclass
class Order:
    total: int


charged: list[Order] = []


async def charge(order: Order) -> None:
    charged.append(order)


async def bill(order: Order) -> None: ...


async def audit(order: Order) -> None: ...


class InProcesses:
    def open(self) -> None:
        raise AssertionError("opened in the process that only sends to others")

    def handle(self, order: Order) -> None: ...


def test_the_twelve_lines_of_a_first_application() -> None:
    app = App("orders-service", bootstrap_servers="127.0.0.1:9092")

    # fmt: off
    @app.share_group("billing", topics="orders", concurrency=64,
                     retry=Retry(max_attempts=8, initial_delay="1s", multiplier=3, max_delay="1h", jitter=0.2, retry_on=(TimeoutError, ConnectionError)),  # noqa: E501
                     dead_letter=DeadLetter("orders.dead"))
    async def bill(order: Order) -> None:
        if order.total < 0:
            raise Reject("negative total")
        await charge(order)
    # fmt: on

    (route,) = app.route_list
    assert (route.group, route.topics, route.concurrency) == ("billing", ("orders",), 64)
    assert route.dead_letter == DeadLetter("orders.dead")
    assert route.shape.payload_type is Order


def test_declared_handler_is_called_like_the_plain_function() -> None:
    @App("orders-service").share_group("billing", topics="orders")
    async def bill(order: Order) -> None:
        if order.total < 0:
            raise Reject("negative total")
        await charge(order)

    charged.clear()
    asyncio.run(bill(Order(3)))
    assert charged == [Order(3)]
    with pytest.raises(Reject, match="negative total"):
        asyncio.run(bill(Order(-3)))


def test_declared_class_is_made_like_the_plain_class() -> None:
    @App("orders-service").share_group("billing", topics="orders")
    class Bill:
        def handle(self, order: Order) -> int:
            return order.total

    assert Bill().handle(Order(3)) == 3


def test_routes_apart_from_code_are_taken_one_by_one_in_lists_and_as_a_module() -> None:
    module = ModuleType("orders_routes")
    module.billing = share_group("billing", topics="orders", handler=bill)
    module.others = [share_group("audit", topics=("orders", "returns"), handler=audit)]
    module.word = "no route"
    wanted = [("billing", ("orders",)), ("audit", ("orders", "returns"))]
    for declared in ([module], [module.billing, *module.others], [[module.billing, module.others]]):
        app = App("orders-service")
        app.routes(*declared)
        assert [(route.group, route.topics) for route in app.route_list] == wanted


def test_route_added_twice_is_registered_once() -> None:
    app = App("orders-service")
    routed = share_group("billing", topics="orders", handler=bill)
    app.routes(routed, routed)
    app.routes(routed)
    assert len(app.route_list) == 1


def test_module_without_routes_is_refused() -> None:
    with pytest.raises(
        InvalidConfig, match=r"module empty: it declares no handler with share_group"
    ):
        App("orders-service").routes(ModuleType("empty"))


@pytest.mark.parametrize("declared", [bill, "orders.routes", 3])
def test_object_that_is_no_route_is_refused(declared: Any) -> None:
    with pytest.raises(InvalidConfig, match="expected a handler declared with share_group"):
        App("orders-service").routes(declared)


def test_handlers_of_one_group_have_different_topics() -> None:
    app = App("orders-service")
    app.share_group("billing", topics=("orders", "returns"), handler=bill)
    with pytest.raises(InvalidConfig) as raised:
        app.share_group("billing", topics="returns", handler=audit)
    assert str(raised.value) == (
        "share group 'billing': handlers bill and audit both have topic 'returns'; a record goes "
        "to one handler of a group: give one of them a group of its own"
    )
    assert len(app.route_list) == 1
    app.share_group("audit", topics="returns", handler=audit)
    app.share_group("billing", topics="refunds", handler=audit)
    assert len(app.route_list) == 3


@pytest.mark.parametrize(
    ("options", "other", "name"),
    [
        ({"start_from": "latest"}, {}, "start_from"),
        ({"group_configs": {"share.isolation.level": "read_committed"}}, {}, "group_configs"),
        ({"retry_tiers": ("1s",)}, {}, "retry_tiers"),
        ({"dead_letter": BrokerDeadLetter("dead")}, {"dead_letter": "dead"}, "dead_letter"),
    ],
)
def test_handlers_of_one_group_must_agree_on_group_options(
    options: dict[str, Any], other: dict[str, Any], name: str
) -> None:
    app = App("orders-service")
    app.share_group("billing", topics="orders", handler=bill, **options)
    with pytest.raises(InvalidConfig, match=f"handlers bill and audit differ in {name}"):
        app.share_group("billing", topics="returns", handler=audit, **other)


def test_handlers_of_one_group_have_different_names() -> None:
    app = App("orders-service")
    app.share_group("billing", topics="orders", handler=bill)
    with pytest.raises(InvalidConfig, match=r"handlers bill and bill have the same name, .*name='"):
        app.share_group("billing", topics="returns", handler=bill)
    app.share_group("billing", topics="returns", handler=bill, name="bill-returns")
    app.share_group("audit", topics="orders", handler=bill)
    assert len(app.route_list) == 3


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        (
            "brokers",
            "brokers is not an option of an App; bootstrap_servers='host:port'",
        ),
        ("group_id", "group_id is not an option of an App; @app.share_group("),
        ("ssl_context", "ssl_context is not an option of an App; client={'ssl_context': ...}"),
        ("botstrap", "unknown option botstrap; did you mean bootstrap_servers?"),
    ],
)
def test_unknown_application_option_is_refused_with_its_replacement(
    name: str, instead: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        App("orders-service", **{name: "127.0.0.1:9092"})
    assert str(raised.value).startswith(f"App 'orders-service': {instead}")


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 101])
def test_application_has_a_name_that_files_can_have(name: str) -> None:
    with pytest.raises(InvalidConfig, match="expected 1 to 100 of the characters"):
        App(name)


def test_events_are_delivered_to_their_listeners() -> None:
    app = App("orders-service")
    heard: list[str] = []

    @app.on("record.failed")
    def failed(event: Event) -> None:
        heard.append(event.name)

    app.on("*", lambda event: heard.append(f"* {event.name}"))
    app.events.tell(Event("record.failed"))
    app.events.tell(Event("record.held"))
    assert heard == ["record.failed", "* record.failed", "* record.held"]
    with pytest.raises(ValueError, match=r"there is no event 'record\.fialed'"):
        app.on("record.fialed")
    with pytest.raises(ValueError, match="there is no event 'failed'"):
        app.events.on("failed", print)


def test_listener_may_unsubscribe_during_an_event() -> None:
    events, heard = App("orders-service").events, list[str]()

    def once(event: Event) -> None:
        heard.append("once")
        events.off("record.held", once)

    events.on("record.held", once)
    events.on("record.held", lambda event: heard.append("always"))
    for _ in range(2):
        events.tell(Event("record.held"))
    assert heard == ["once", "always", "always"]


class TestHooks:
    """What runs before the first record and after the last."""

    async def around(self, app: App, happened: list[str]) -> None:
        async with app.opened(outbox=object(), clock=object()):
            happened.append("working")

    def test_hooks_run_in_order_at_startup_and_in_reverse_at_shutdown(self) -> None:
        app, happened = App("orders-service"), []

        @app.on_startup
        async def connect() -> None:
            happened.append("connect")
            app.state.pool = "pool"

        @app.on_startup
        def warm_up(given: App) -> None:
            happened.append(f"warm up {given.state.pool}")

        @app.on_shutdown
        async def disconnect(given: App) -> None:
            happened.append(f"disconnect {given.state.pool}")

        @app.on_shutdown
        def cool_down() -> None:
            happened.append("cool down")

        asyncio.run(self.around(app, happened))
        assert happened == ["connect", "warm up pool", "working", "cool down", "disconnect pool"]

    def test_classes_are_opened_after_the_hooks_and_closed_before_them(self) -> None:
        app, happened = App("orders-service"), []

        @app.share_group("billing", topics="orders")
        class Bill:
            async def open(self) -> None:
                happened.append(f"open {app.state.pool}")

            def handle(self, order: Order) -> None: ...

            async def close(self) -> None:
                happened.append(f"close {app.state.pool}")

        @app.on_startup
        def connect(given: App) -> None:
            given.state.pool = "pool"

        app.on_shutdown(lambda: happened.append("disconnect"))
        asyncio.run(self.around(app, happened))
        assert happened == ["open pool", "working", "close pool", "disconnect"]

    def test_handler_class_with_processes_is_not_opened_in_the_main_process(self) -> None:
        app, happened = App("orders-service"), []
        app.share_group("billing", topics="orders", handler=InProcesses, processes=1)
        asyncio.run(self.around(app, happened))
        assert happened == ["working"]

    def test_shutdown_runs_whole_also_when_a_hook_raises(self) -> None:
        app, happened = App("orders-service"), []
        app.on_shutdown(lambda: happened.append("disconnect"))

        @app.on_shutdown
        def cool_down() -> None:
            raise ValueError("too hot")

        with pytest.raises(ValueError, match="too hot"):
            asyncio.run(self.around(app, happened))
        assert happened == ["working", "disconnect"]
        assert app.outlet.outbox is None

    def test_startup_that_fails_lets_nothing_begin(self) -> None:
        app, happened = App("orders-service"), []
        app.on_shutdown(lambda: happened.append("disconnect"))

        @app.on_startup
        async def connect() -> None:
            raise ConnectionError("no database")

        with pytest.raises(ConnectionError, match="no database"):
            asyncio.run(self.around(app, happened))
        assert happened == ["disconnect"]
        assert app.outlet.outbox is None


class TestMiddleware:
    """What is around every handler."""

    def run(self, handler: Proceed, *around: Any) -> Any:
        app = App("orders-service")
        route = app.share_group("billing", topics="orders", handler=bill).route
        for middleware in around:
            app.middleware(middleware)
        call = Call(route, Order(3), (Record(FakeDelivery(), NEW, clock=None),))
        return asyncio.run(wrapped(handler, app.middlewares)(call))

    def named(self, name: str, happened: list[str]) -> Callable[[Call, Proceed], Any]:
        async def middleware(call: Call, proceed: Proceed) -> Any:
            happened.append(f"{name} before {call.record.offset}")
            result = await proceed(call)
            happened.append(f"{name} after")
            return result

        return middleware

    def test_first_is_the_outermost(self) -> None:
        happened: list[str] = []

        async def handler(call: Call) -> str:
            happened.append(f"{call.route.shape.name} {call.payload}")
            return "done"

        around = [self.named("outer", happened), self.named("inner", happened)]
        assert self.run(handler, *around) == "done"
        assert happened == [
            "outer before 7",
            "inner before 7",
            "bill Order(total=3)",
            "inner after",
            "outer after",
        ]

    def test_middleware_may_replace_the_payload(self) -> None:
        async def doubled(call: Call, proceed: Proceed) -> Any:
            call.payload = Order(call.payload.total * 2)
            return await proceed(call)

        async def handler(call: Call) -> Any:
            return call.payload

        assert self.run(handler, doubled) == Order(6)

    def test_middleware_may_replace_the_exception_of_the_handler(self) -> None:
        async def translated(call: Call, proceed: Proceed) -> Any:
            try:
                return await proceed(call)
            except KeyError as error:
                raise Reject("no such customer") from error

        async def handler(call: Call) -> Any:
            raise KeyError("customer-7")

        with pytest.raises(Reject, match="no such customer"):
            self.run(handler, translated)

    def test_middleware_that_returns_none_keeps_the_result_of_the_handler(self) -> None:
        failed = ValueError("a bad row")

        async def handler(call: Call) -> list[object]:
            return [None, failed]

        async def timed(call: Call, proceed: Proceed) -> None:
            await proceed(call)

        assert self.run(handler, timed, timed) == [None, failed]

    @pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
    def test_one_that_forgets_to_await_fails_and_accepts_nothing(self) -> None:
        async def handler(call: Call) -> None: ...

        async def returns_it(call: Call, proceed: Proceed) -> object:
            return proceed(call)

        async def drops_it(call: Call, proceed: Proceed) -> None:
            proceed(call)

        def is_plain(call: Call, proceed: Proceed) -> None: ...

        for options, message in (
            (
                returns_it,
                (
                    r"returns_it: it calls proceed\(\) without awaiting it; expected "
                    r"`return await proceed\(call\)`"
                ),
            ),
            (drops_it, r"drops_it: it calls proceed\(\) without awaiting it"),
            (is_plain, "is_plain: it is not a coroutine function"),
        ):
            with pytest.raises(TypeError, match=message):
                self.run(handler, options)

    def test_handler_without_middleware_is_not_wrapped(self) -> None:
        async def handler(call: Call) -> None: ...

        assert wrapped(handler, []) is handler


def test_application_without_handlers_does_not_start() -> None:
    with pytest.raises(InvalidConfig, match="has no handlers"):
        asyncio.run(App("orders-service").start())


def test_stopping_an_application_that_does_not_run_returns_none() -> None:
    assert asyncio.run(App("orders-service").stop()) is None


async def alarm(event: Event) -> None: ...


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.on_startup(3), "on_startup: expected a function, got 3"),
        (lambda app: app.on_startup(lambda a, b: None), r"on_startup: .* with 0 or 1 arguments"),
        (lambda app: app.on_shutdown(lambda *, a: None), r"on_shutdown: .* with 0 or 1 arguments"),
        (lambda app: app.middleware(lambda call: None), r"middleware: .* with 2 arguments"),
        (lambda app: app.before_send(lambda: None), r"before_send: .* with 2 arguments"),
        (
            lambda app: app.on("record.failed", lambda: None),
            r"on\('record.failed'\): .* with 1 arg",
        ),
        (
            lambda app: app.on("*", alarm),
            r"on\('\*'\): .* coroutine function, which would not be awaited",
        ),
    ],
)
def test_uncallable_function_is_refused_at_the_declaration(
    declare: Callable[[App], object], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"App 'orders-service': {message}"):
        declare(App("orders-service"))


def test_grace_that_is_no_time_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"App 'orders-service': grace: .* got 'soon'"):
        App("orders-service", grace="soon")


@pytest.mark.parametrize(
    ("name", "announce", "text"),
    [
        ("orders", "yes", "announce='yes'; expected True or False"),
        ("orders.retry", True, "a name that does not end in '.retry': 'orders.retry.control'"),
    ],
)
def test_announce_is_refused(name: str, announce: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        App(name, announce=announce)
