"""What a handler is, found out from its signature."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Context, Record, share_group
from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape, shape_of

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Order:
    total: int


async def bill(order: Order) -> None: ...


def resize(image: bytes) -> None: ...


async def audit(order: Order, record: Record) -> None: ...


async def load(orders: list[Order]) -> None: ...


async def load_all(orders: list[Order], records: list[Record]) -> None: ...


async def anything(order): ...


class Bill:
    opened = False

    async def open(self) -> None:
        self.opened = True

    async def handle(self, order: Order, record: Context) -> None: ...

    def close(self) -> None:
        self.opened = False


class Charge:
    def __init__(self, rate: int) -> None:
        self.rate = rate

    def __call__(self, order: Order) -> int:
        return order.total * self.rate


COROUTINE, FUNCTION = HandlerKind.COROUTINE, HandlerKind.FUNCTION


@pytest.mark.parametrize(
    ("handler", "name", "kind", "payload_type", "takes_record", "is_batch"),
    [
        (bill, "bill", COROUTINE, Order, False, False),
        (resize, "resize", FUNCTION, bytes, False, False),
        (audit, "audit", COROUTINE, Order, True, False),
        (load, "load", COROUTINE, Order, False, True),
        (load_all, "load_all", COROUTINE, Order, True, True),
        (anything, "anything", COROUTINE, Any, False, False),
        (Bill, "Bill", COROUTINE, Order, True, False),
        (Bill(), "Bill", COROUTINE, Order, True, False),
        (Charge(3), "Charge", FUNCTION, Order, False, False),
        (functools.partial(audit), "audit", COROUTINE, Order, True, False),
        (lambda order: None, "<lambda>", FUNCTION, Any, False, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_shape_follows_from_the_signature(
    handler: Any,
    name: str,
    kind: HandlerKind,
    payload_type: Any,
    takes_record: bool,
    is_batch: bool,
) -> None:
    shape = shape_of(handler)
    found = (shape.name, shape.kind, shape.payload_type, shape.takes_record, shape.is_batch)
    assert found == (name, kind, payload_type, takes_record, is_batch)


def test_function_is_its_own_call() -> None:
    assert shape_of(bill) == HandlerShape(
        name="bill",
        call=bill,
        kind=COROUTINE,
        payload_type=Order,
        takes_record=False,
        is_batch=False,
        module=__name__,
        qualified_name="bill",
        return_type=type(None),
    )


def test_handler_object_is_called_with_its_own_state() -> None:
    assert shape_of(Charge(3)).call(Order(5)) == 15


async def opened_and_closed(shape: HandlerShape) -> list[bool]:
    target = shape.call.__self__
    assert shape.opening is not None
    assert shape.closing is not None
    seen = [target.opened]
    await shape.opening()
    seen.append(target.opened)
    shape.closing()
    return [*seen, target.opened]


def test_class_is_made_once_and_has_an_opening_and_a_closing() -> None:
    import asyncio

    shape = shape_of(Bill)
    assert shape.qualified_name == "Bill"
    assert asyncio.run(opened_and_closed(shape)) == [False, True, False]


def test_coroutine_function_under_a_decorator_is_one() -> None:
    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(*arguments)

        return call

    shape = shape_of(decorated(audit))
    assert (shape.kind, shape.payload_type, shape.takes_record) == (COROUTINE, Order, True)
    assert shape_of(decorated(resize)).kind is FUNCTION


def test_function_has_nothing_to_open() -> None:
    assert shape_of(bill).opening is None
    assert shape_of(Charge(3)).closing is None


def test_annotation_may_name_a_local_type() -> None:
    @dataclass
    class Local:
        total: int

    @share_group("billing", topics="orders")
    async def handler(payload: Local) -> None: ...

    assert handler.route.shape.payload_type is Local


def test_second_parameter_with_a_default_is_not_the_record() -> None:
    async def handler(order: Order, retries: int = 3, *, loud: bool = False) -> None: ...

    assert not shape_of(handler).takes_record


def test_same_function_may_be_declared_for_a_second_group() -> None:
    first = share_group("billing", topics="orders", handler=bill)
    second = share_group("audit", topics="orders", handler=first)
    assert second.route.shape.call is bill
    assert second.route.shape.name == "bill"


def test_handler_keeps_its_name_and_text() -> None:
    async def handler(order: Order) -> None:
        """Bill it."""

    routed = share_group("billing", topics="orders", handler=handler)
    assert routed.__name__ == "handler"
    assert routed.__doc__ == "Bill it."
    assert repr(routed) == "<handler handler of share group 'billing', topics orders>"


async def stream(order: Order) -> AsyncIterator[int]:
    yield 1


def rows(order: Order) -> Iterator[int]:
    yield 1


async def nothing() -> None: ...


async def two(order: Order, other: int) -> None: ...


async def named(order: Order, *, loud: bool) -> None: ...


async def three(order: Order, record: Record, other: int) -> None: ...


async def only_record(record: Record) -> None: ...


async def list_for_one(order: Order, records: list[Record]) -> None: ...


async def one_for_list(orders: list[Order], record: Record) -> None: ...


async def not_imported(total: Decimal) -> None: ...


class Empty: ...


class Picky:
    def __init__(self, rate: int) -> None: ...

    def handle(self, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (stream, "handler stream: it has a yield, so calling it would not run it"),
        (rows, "handler rows: it has a yield"),
        (nothing, "handler nothing: it has no parameter for the payload"),
        (two, "handler two: no argument is passed for its parameter other"),
        (named, "handler named: no argument is passed for its parameter loud"),
        (three, "handler three: no argument is passed for its parameter other"),
        (only_record, "handler only_record: its first parameter is the payload"),
        (list_for_one, r"records is annotated list\[Record\]; expected Record"),
        (one_for_list, r"record is annotated Record; expected list\[Record\]"),
        (not_imported, "handler not_imported: an annotation .* 'Decimal' .* TYPE_CHECKING"),
        (Empty, "handler Empty: a class needs a method `handle`"),
        (Empty(), "handler Empty: expected a function, .* got Empty"),
        (Picky, "handler Picky: it is instantiated without arguments .* `handler=`"),
        (3, "handler int: expected a function"),
    ],
)
def test_handler_that_cannot_be_called_with_a_record_is_refused(handler: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        shape_of(handler)
