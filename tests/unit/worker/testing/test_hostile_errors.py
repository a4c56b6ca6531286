"""Whatever an application's exception does when it is looked at, its record has an end.

Each test ends with one letter for the record, and the next record is handled: the worker lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.worker import App, DeadLetter, Payload, Retry, RetryAfter, SomeFailed

NESTED = 5_000


class Loud(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("in __str__")

    __repr__ = __str__


class Disguised(Exception):
    """It does not say what it is."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("in __class__")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class WithoutDelay(RetryAfter):
    """It does not call the constructor of its base."""

    def __init__(self) -> None: ...


class Lazy(RetryAfter):
    """Its delay is no number."""

    def __init__(self) -> None:
        super().__init__(1)
        self.delay_seconds = float("nan")


class Nameless(type):
    """Its classes have no names."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise ValueError("in __module__")


class OfNoName(Exception, metaclass=Nameless):
    """It cannot be named."""


class OddGroup(ExceptionGroup[Exception]):
    """It does not say what is in it."""

    @property
    def exceptions(self) -> Any:
        raise RuntimeError("in exceptions")


def nested() -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(NESTED):
        error = ExceptionGroup("outer", [error])
    return error


def wide() -> BaseException:
    return ExceptionGroup("wide", [ValueError(str(number)) for number in range(20_000)])


def chained() -> BaseException:
    error = last = ValueError("last")
    for number in range(20_000):
        error.__cause__ = error = ValueError(str(number))
    return last


def circular() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    return first


def huge() -> BaseException:
    return ValueError("\udcff" * 10_000_000)


HOSTILE = [
    *(nested, wide, chained, circular, huge, Loud, Disguised, WithoutDelay, Lazy, OfNoName),
    *(lambda: OddGroup("odd", [ValueError()]), SystemExit, GeneratorExit, StopIteration),
    *(RecursionError, asyncio.CancelledError, lambda: ValueError(Loud())),
]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: getattr(make, "__name__", "?"))
@pytest.mark.parametrize("kind", ["loop", "thread", "batch", "batch of some"])
def test_record_with_a_hostile_exception_has_one_letter_and_the_worker_lives(
    make: Callable[[], BaseException], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    app = App("shop")
    options: dict[str, Any] = {
        "topics": "orders",
        "retry": Retry(max_attempts=1),
        "dead_letter": DeadLetter("orders.dead"),
    }

    async def on_the_loop(value: bytes) -> None:
        if value == b"bad":
            raise make()

    def in_a_thread(value: bytes) -> None:
        if value == b"bad":
            raise make()

    async def in_a_batch(values: list[bytes]) -> None:
        if b"bad" in values:
            raise make()

    async def of_some(values: list[bytes]) -> None:
        if b"bad" in values:
            raise SomeFailed({values.index(b"bad"): make()})

    handlers = {
        "loop": on_the_loop, "thread": in_a_thread, "batch": in_a_batch, "batch of some": of_some,
    }  # fmt: skip
    app.share_group("billing", handler=handlers[kind], **options)

    async def test() -> None:
        async with app.test(patience_seconds=60) as t:
            bad = await t.send("orders", b"bad")
            await t.advance("10s")
            good = await t.send("orders", b"good")
            await t.advance("10s")
            assert (bad.outcome, good.outcome) == ("dead_lettered", "accepted")
            assert len(t.dead_letters) == 1

    asyncio.run(test())


RETURNED: list[Callable[[list[bytes]], Any]] = [
    lambda values: (value for value in values),
    lambda values: {number: None for number, _ in enumerate(values)},
    lambda values: [None] * (len(values) + 1),
    lambda values: [None] * (len(values) - 1),
    lambda values: [ValueError("one")] * 7,
    lambda values: set(values),
    lambda values: map(str, values),
    lambda values: iter(lambda: None, 1),
]


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("is_async", [True, False])
def test_batch_handler_that_returns_something_else_fails_as_a_whole(
    returned: Callable[[list[bytes]], Any], is_async: bool
) -> None:
    app = App("shop")

    async def handle(values: list[bytes]) -> Any:
        return returned(values)

    def in_a_thread(values: list[bytes]) -> Any:
        return returned(values)

    app.share_group(
        "billing",
        topics="orders",
        retry=Retry(max_attempts=2, initial_delay="1s"),
        dead_letter=DeadLetter("orders.dead"),
        handler=handle if is_async else in_a_thread,
    )

    async def test() -> None:
        async with app.test(patience_seconds=60) as t:
            records = [await t.send("orders", b"%d" % number) for number in range(3)]
            await t.advance("1m")
            assert [record.outcome for record in records] == ["dead_lettered"] * 3
            assert len(t.dead_letters) == 3
            texts = {letter.death.error_message for letter in t.dead_letters}
            assert all("expected nothing, or a list with one entry" in str(x) for x in texts)

    asyncio.run(test())


def test_classes_of_errors_beyond_the_limit_are_counted_together() -> None:
    from sharegroup.worker.telemetry.state import CLASSES_MAX, OTHER_CLASSES, HandlerCounts

    counts = HandlerCounts("billing", "handle")
    for number in range(CLASSES_MAX + 50):
        counts.failed_with(f"shop.Error{number}")
    assert len(counts.failed) == CLASSES_MAX + 1
    assert counts.failed[OTHER_CLASSES] == 50


class Odd(BaseException):
    """Neither an Exception nor one of Python's own, like those of some test tools."""


def _raise(error: BaseException) -> Any:
    raise error


class OddKey:
    """It cannot be compared."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise self._error


@pytest.mark.parametrize("make", [asyncio.CancelledError, Odd, SystemExit])
@pytest.mark.parametrize("place", ["order_by", "key", "listener", "redact", "decode in a batch"])
def test_no_function_of_the_application_ends_the_tasks_of_its_worker(
    place: str, make: Callable[[], BaseException]
) -> None:
    """An error beside the handler ends neither the worker nor, in silence, one of its tasks.

    A CancelledError would: a task that ends with it counts as cancelled, and nobody looks.
    """
    app = App("shop")
    options: dict[str, Any] = {"topics": "orders", "retry": None}
    if place == "order_by":
        options["order_by"] = lambda value: _raise(make()) if value == b"bad" else None
    elif place == "key":
        options["order_by"] = lambda _: OddKey(make())
    elif place == "listener":
        app.on("record.succeeded", lambda _: _raise(make()))
    elif place == "redact":
        options["redact"] = lambda _: _raise(make())
    else:
        options["payload"] = Payload(
            decode=lambda value: _raise(make()) if value == b"bad" else value, encode=bytes
        )

    async def handle(value: bytes) -> None:
        await asyncio.sleep(0)
        if value == b"bad" and place == "redact":
            raise ValueError("a secret")

    async def handle_batch(values: list[bytes]) -> None: ...

    handler = handle_batch if place == "decode in a batch" else handle
    app.share_group("billing", handler=handler, **options)

    async def test() -> None:
        async with app.test(patience_seconds=5) as t:
            bad, behind = await t.send("orders", b"bad"), await t.send("orders", b"behind")
            await t.advance("10s")
            later = await t.send("orders", b"later")
            await t.advance("10s")
            outcomes = [bad.outcome, behind.outcome, later.outcome]
            if place == "key":  # Which records meet in the table of keys is not promised.
                assert set(outcomes) <= {"accepted", "dead_lettered"}
            else:
                expected = "accepted" if place == "listener" else "dead_lettered"
                assert outcomes == [expected, "accepted", "accepted"]

    asyncio.run(test())
