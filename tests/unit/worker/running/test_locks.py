"""Locks, limits and ends of handlers, on virtual time (`App.test`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.dead_letters.story import NEW, RecordOrigin
from sharegroup.dead_letters.story_headers import story_headers
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.events import Event

EXACT = Retry(max_attempts=3, initial_delay="1s", multiplier=1, jitter=0)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def runs() -> None:
        asyncio.run(test())

    runs.__name__ = test.__name__
    return runs


def app_of(handler: Callable[..., Any], **options: Any) -> tuple[App, list[Event]]:
    app = App("locks")
    options = {"retry": EXACT, **options}
    app.share_group("billing", topics="orders", handler=handler, **options)
    events: list[Event] = []
    app.on("*", events.append)
    return app, events


def names(events: list[Event]) -> list[str]:
    return [
        event.name.removeprefix("record.") for event in events if event.name.startswith("record.")
    ]


class Hanging:
    """A handler that waits for ever, or until it is told to go on, and counts how it ends."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.swallows = swallows
        self.go_on = asyncio.Event()
        self.cancelled = self.begun = self.done = 0
        self.attempts: list[int] = []

    async def handle(self, value: bytes, record: Record) -> None:
        self.begun += 1
        self.attempts.append(record.attempt)
        while True:
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                if not self.swallows or self.cancelled > 1:
                    raise
            else:
                self.done += 1
                return


@run
async def test_a_handler_past_its_time_has_failed_and_is_tried_again() -> None:
    hanging = Hanging()
    app, events = app_of(hanging.handle, max_handling="10s")
    async with app.test(patience_seconds=0.01) as t:
        sent = await t.send("orders", b"x")
        await t.advance("9s")
        assert hanging.cancelled == 0
        await t.advance("3s")
        assert (hanging.cancelled, hanging.begun) == (1, 2)
        hanging.go_on.set()
        await t.settle()
        assert sent.outcome == "accepted"
    assert hanging.attempts == [1, 2]
    assert names(events) == [
        "started", "timed_out", "failed", "held", "started", "succeeded",
    ]  # fmt: skip


@run
async def test_a_lost_lock_cancels_the_handler_and_settles_nothing() -> None:
    hanging = Hanging()
    app, events = app_of(hanging.handle)
    async with app.test(patience_seconds=0.01) as t:
        sent = await t.send("orders", b"x")
        await t.settle()
        t.lose_lock(sent)
        await t.advance("31s")
        assert (hanging.cancelled, hanging.begun) == (1, 2)
        hanging.go_on.set()
        await t.advance("1s")
        assert sent.outcome == "accepted"
    # A lost lock is no failure: it is the first attempt still, and the second delivery.
    assert hanging.attempts == [1, 1]
    assert names(events).count("lock_lost") == 1
    assert "failed" not in names(events)


@run
async def test_handler_that_ignores_its_cancellation_is_given_up() -> None:
    hanging = Hanging(swallows=True)
    app, events = app_of(
        hanging.handle, max_handling="10s", retry=Retry(max_attempts=1), concurrency=2
    )
    async with app.test(patience_seconds=0.01) as t:
        first = await t.send("orders", b"x")
        await t.advance("12s")
        assert (hanging.cancelled, first.outcome) == (1, "running")
        await t.advance("10s")
        # The slot stays taken until the handler ends; the record does not wait for that.
        assert first.outcome == "dead_lettered"
        hanging.go_on.set()
        await t.settle()
        assert hanging.done == 1
        second = await t.send("orders", b"y")
        await t.settle()
        assert second.outcome == "accepted"
    assert names(events).count("dead_lettered") == 1


@run
async def test_without_renewal_a_record_is_held_only_while_its_lock_lasts() -> None:
    runs: list[tuple[int, int]] = []

    async def flaky(value: bytes, record: Record) -> None:
        runs.append((record.attempt, record.delivery_attempt))
        if record.attempt == 1:
            raise TimeoutError

    for first, held in (("2s", True), ("9s", False)):
        runs.clear()
        app, events = app_of(flaky, retry=Retry(initial_delay=first, jitter=0))
        async with app.test(lock="10s", renewal=False) as t:
            sent = await t.send("orders", b"x")
            await t.advance("12s")
            assert (sent.outcome, len(sent.runs)) == ("accepted", 2)
        assert runs == [(1, 1), (2, 1)]
        assert ("held" in names(events), "postponed" in names(events)) == (held, not held)


@run
async def test_exception_of_a_middleware_counts_as_one_of_the_handler() -> None:
    async def fine(value: bytes) -> None: ...

    app, _ = app_of(fine, retry=Retry(max_attempts=1))

    @app.middleware
    async def refuse(call: Any, proceed: Any) -> Any:
        await proceed(call)
        raise PermissionError("not you")

    async with app.test() as t:
        await t.send("orders", b"x")
        await t.settle()
        (letter,) = t.dead_letters
    assert letter.death.error_message == "not you"


@pytest.mark.parametrize(
    "raised", [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), MemoryError()]
)
def test_any_raised_exception_fails_only_its_record(raised: BaseException) -> None:
    async def test() -> None:
        async def bad(value: bytes) -> None:
            if value == b"bad":
                raise raised

        app, _ = app_of(bad, retry=Retry(max_attempts=1), concurrency=1)
        async with app.test() as t:
            bad_one = await t.send("orders", b"bad")
            good_one = await t.send("orders", b"good")
            await t.settle()
            assert (bad_one.outcome, good_one.outcome) == ("dead_lettered", "accepted")

    asyncio.run(test())


@run
async def test_unrouted_record_becomes_a_dead_letter() -> None:
    async def fine(value: bytes) -> None: ...

    app, events = app_of(fine)
    app.share_group("billing", topics="refunds", handler=fine, name="refund", retry=EXACT)
    async with app.test() as t:
        await t.send("billing.retry", b"whose?")
        await t.settle()
        (letter,) = t.dead_letters
        assert (letter.death.reason, letter.value) == ("unrouted", b"whose?")
    assert names(events) == ["unrouted", "dead_lettered"]


OF_RETURNS = story_headers(NEW, RecordOrigin("returns", 0, 7, 0))


@run
async def test_a_record_of_a_topic_without_a_handler_here_waits_for_a_process_with_one() -> None:
    """As while a new version is rolled out, which has a handler more."""

    async def fine(value: bytes) -> None: ...

    app, events = app_of(fine)
    async with app.test() as t:
        t._world.log.append("billing.retry", b"x", headers=OF_RETURNS)
        await t.settle()
        assert [record.value for record in t.in_topic("billing.retry.30s")] == [b"x"]
        await t.advance("31s")
        assert t.dead_letters == []
    assert names(events).count("unrouted") == 2


@run
async def test_group_without_retry_topics_buries_unrouted_records() -> None:
    """In a retry topic that no scheduler reads the record would be lost."""

    async def fine(value: bytes) -> None: ...

    app, events = app_of(fine, retry=None)
    async with app.test() as t:
        t._world.log.append("billing.retry", b"x", headers=OF_RETURNS)
        await t.settle()
        (letter,) = t.dead_letters
        assert letter.death.reason == "unrouted"
    assert names(events) == ["unrouted", "dead_lettered"]


@run
async def test_records_of_several_topics_share_the_handlers_of_their_route() -> None:
    hanging = Hanging()
    app = App("locks")
    app.share_group(
        "billing", topics=["orders", "refunds"], handler=hanging.handle, concurrency=2, retry=EXACT
    )
    async with app.test(patience_seconds=0.01) as t:
        some = [await t.send(topic, b"x") for topic in ("orders", "refunds") * 5]
        await t.settle()
        assert hanging.begun == 2
        hanging.go_on.set()
        await t.settle()
        assert {event.outcome for event in some} == {"accepted"}
