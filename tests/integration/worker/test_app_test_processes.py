"""`app.test(processes=True)` runs handlers with ``processes`` in processes, in virtual time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.worker import App, DeadLetter, Retry
from tests.integration.worker import handlers, hostile_handlers

SECONDS_MAX = 60.0
ONCE = Retry(max_attempts=1)


def in_processes(
    handler: Callable[..., Any], test: Callable[[Any], Coroutine[Any, Any, None]], **options: Any
) -> None:
    app = App("shop")
    app.share_group(
        "billing",
        topics="orders",
        handler=handler,
        processes=2,
        dead_letter=DeadLetter("orders.dead"),
        **options,
    )

    async def run() -> None:
        async with app.test(processes=True, patience_seconds=SECONDS_MAX) as t:
            await test(t)

    asyncio.run(asyncio.wait_for(run(), 2 * SECONDS_MAX))
    assert app.route_list[0].processes == 2


def test_handler_runs_in_another_process() -> None:
    async def test(t: Any) -> None:
        record = await t.send("orders", b"x")
        await t.settle()
        (letter,) = t.dead_letters
        assert letter.death.error_class == "builtins.LookupError"
        assert int(letter.death.error_message) != os.getpid()
        assert record.outcome == "dead_lettered"

    in_processes(handlers.pid_of, test, retry=ONCE)


def test_crash_of_a_process_is_a_failure_of_its_record() -> None:
    async def test(t: Any) -> None:
        await t.send("orders", b"crash")
        await t.settle()
        (letter,) = t.dead_letters
        assert letter.death.error_class == "sharegroup.worker.HandlerCrashed"

    in_processes(handlers.pid_of, test, retry=ONCE)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("refused", "retrying"), ("retry after", "retrying"), ("reject", "dead_lettered")],
)
def test_class_of_an_exception_decides_as_in_a_thread(name: str, outcome: str) -> None:
    async def test(t: Any) -> None:
        record = await t.send("orders", name.encode())
        await t.settle()
        assert record.outcome == outcome

    in_processes(hostile_handlers.fails, test, retry=Retry(retry_on=(ConnectionError,)))


def test_records_of_a_key_run_one_after_the_other() -> None:
    async def test(t: Any) -> None:
        records = [await t.send("orders", b"x", key=b"same") for _ in range(4)]
        await t.settle()
        assert [record.outcome for record in records] == ["dead_lettered"] * 4
        offsets = [letter.story.origin.offset for letter in t.dead_letters]
        assert offsets == sorted(offsets)

    in_processes(handlers.pid_of, test, order_by="key", retry=ONCE)
