"""An exception in another process is judged as in a thread, also if pickle cannot copy it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharegroup.dead_letters.story import NEW
from sharegroup.worker import App, Retry
from sharegroup.worker.decisions.decide import Redeliver, decide
from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.executors.processes import HandlerProcesses
from sharegroup.worker.records.outcomes import SomeFailed
from tests.integration.worker import hostile_handlers
from tests.integration.worker.hostile_handlers import ERRORS

SECONDS_MAX = 60.0
RETRY = Retry(max_attempts=9, retry_on=(ConnectionError, LookupError, OSError))


def route_of(handler: Callable[..., Any]) -> Route:
    app = App("shop")
    app.share_group("billing", topics="orders", handler=handler, processes=1, retry=RETRY)
    return app.route_list[0]


def raised_by(handler: Callable[..., Any], payloads: list[Any]) -> list[Any]:
    """What a child process raises, or returns, for each payload."""

    async def outcome(call: Awaitable[Any]) -> Any:
        try:
            return await call
        except BaseException as error:  # noqa: BLE001  It is what the test looks at.
            return error

    async def ask() -> list[Any]:
        processes = HandlerProcesses(route_of(handler).shape, 1)
        await processes.start()
        try:
            return [await outcome(processes.call(payload)) for payload in payloads]
        finally:
            await processes.close()

    return asyncio.run(asyncio.wait_for(ask(), SECONDS_MAX))


@pytest.mark.parametrize("handler", [hostile_handlers.fails, hostile_handlers.fails_async])
def test_exception_of_a_process_is_judged_as_in_a_thread(handler: Callable[..., Any]) -> None:
    names = [name for name in ERRORS if name != "stop iteration"]
    there = raised_by(handler, [*names, "fine"])
    assert there.pop() is None  # The process still works.
    route = route_of(handler)
    for name, error in zip(names, there, strict=True):
        here = ERRORS[name]()
        steps = [
            decide(route, some, NEW, now_ms=0, chance=0.5, holding_allowed_seconds=0.0, member="m")
            for some in (here, error)
        ]
        assert type(steps[0]) is type(steps[1]), name
        if not isinstance(here, BaseExceptionGroup):
            assert class_name(error) == class_name(here), name
            assert message_of(error, 100) == message_of(here, 100), name
        stories = [getattr(step, "story", None) for step in steps]
        assert stories[0] == stories[1], name
        if isinstance(steps[0], Redeliver):
            assert steps == [Redeliver(90_000)] * 2


def test_stop_iteration_of_a_process_is_an_error_as_in_a_thread() -> None:
    (error,) = raised_by(hostile_handlers.fails, ["stop iteration"])
    assert (type(error), str(error)) == (RuntimeError, "the handler raised StopIteration")


def test_traceback_of_the_process_is_kept() -> None:
    (error,) = raised_by(hostile_handlers.fails, ["refused"])
    assert "hostile_handlers.py" in str(error.__cause__)
    assert "Refused: db:5432 refused" in str(error.__cause__)


def test_return_value_that_cannot_be_pickled_is_none() -> None:
    assert raised_by(hostile_handlers.returns, ["lambda", "lock"]) == [None, None]


def test_errors_of_some_records_keep_their_classes() -> None:
    (error,) = raised_by(hostile_handlers.some_fail, [["fine", "refused", "retry after", "reject"]])
    assert isinstance(error, SomeFailed)
    names = {index: class_name(one).rpartition(".")[2] for index, one in error.errors.items()}
    assert names == {1: "Refused", 2: "Busy", 3: "BadOrder"}
    assert error.errors[2].delay_seconds == 7  # type: ignore[attr-defined]


def test_generator_of_a_batch_handler_in_a_process_fails_all() -> None:
    (ends,) = raised_by(hostile_handlers.generates, [["a", "b"]])
    assert [type(end) for end in ends] == [TypeError, TypeError]


def test_call_that_cannot_be_sent_leaves_the_process_for_the_next_one() -> None:
    error, fine = raised_by(hostile_handlers.fails, [lambda: None, "fine"])
    assert isinstance(error, Exception)
    assert fine is None


def test_endless_pickling_of_an_error_ends_at_the_time_limit() -> None:
    """The child is killed as for a handler that does not end."""

    async def ask() -> float:
        processes = HandlerProcesses(route_of(hostile_handlers.never_pickled).shape, 1)
        await processes.start()
        began = time.monotonic()
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(processes.call("x"), 0.5)
            return time.monotonic() - began
        finally:
            await processes.close()

    asyncio.run(asyncio.wait_for(ask(), SECONDS_MAX))
