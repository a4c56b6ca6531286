"""Handlers in processes send through the producer of their worker (`App.test`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sharegroup.errors import MessageTooLarge
from sharegroup.worker import App
from tests.integration.worker import sending_handlers
from tests.integration.worker.sending_handlers import MANY, relay, relay_plainly

SECONDS_MAX = 60.0


def test_handlers_in_processes_send() -> None:
    """One worker for all of these, because its processes take a second to start."""

    async def run() -> None:
        app = App("sending")
        app.routes(sending_handlers)
        async with app.test(processes=True, patience_seconds=SECONDS_MAX) as t:
            for check in (_many, _later, _plain, _blocking, _refused, _unique, _not_awaited):
                before = len(t.in_topic("words"))
                await check(t, lambda before=before: t.in_topic("words")[before:])  # type: ignore[misc]

    asyncio.run(asyncio.wait_for(run(), 2 * SECONDS_MAX))


Words = Callable[[], list[Any]]
Check = Callable[[Any, Words], Awaitable[None]]


async def _many(t: Any, words: Words) -> None:
    record = await t.send(relay, "many")
    await t.settle()
    assert sorted(int(word.value) for word in words()) == list(range(MANY))
    assert record.outcome == "accepted"


async def _later(t: Any, words: Words) -> None:
    """The delay is in the time of the test."""
    await t.send(relay, "later")
    await t.advance("9s")
    waiting = t.in_topic("words.retry")
    assert (words(), waiting) == ([], [])
    await t.advance("2s")
    assert [word.value for word in t.in_topic("words.retry")] == [b"later"]


async def _plain(t: Any, words: Words) -> None:
    record = await t.send(relay_plainly, "plain")
    await t.settle()
    assert [word.value for word in words()] == [b"plain"]
    assert record.outcome == "accepted"


async def _blocking(t: Any, words: Words) -> None:
    await t.send(relay, "blocking")
    await t.settle()
    assert [word.value for word in words()] == [b"blocking"]


async def _refused(t: Any, words: Words) -> None:
    t.fail_writes("words", MessageTooLarge("2 MiB"))
    record = await t.send(relay, "refused")
    await t.settle()
    assert record.outcome == "dead_lettered"
    assert t.dead_letters[-1].death.error_message == "seen: 2 MiB"
    t.mend_writes("words")


async def _unique(t: Any, words: Words) -> None:
    record = await t.send(relay, "unique")
    await t.settle()
    assert (record.outcome, words()) == ("retrying", [])
    assert "unique is not available in a process of a handler" in str(record.errors[0])


async def _not_awaited(t: Any, words: Words) -> None:
    """The send is settled before the record is accepted, so both fail and come again."""
    t.fail_writes("words", MessageTooLarge("2 MiB"))
    record = await t.send(relay, "not awaited")
    await t.settle()
    assert record.outcome == "retrying"
    assert isinstance(record.errors[0], MessageTooLarge)
    t.mend_writes("words")
    await t.advance("3s")
    assert record.outcome == "accepted"
    assert [word.value for word in words()] == [b"not awaited"]
