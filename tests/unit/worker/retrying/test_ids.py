"""A record that waits has an id, which it keeps over attempts, tiers and processes (`App.test`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from sharegroup.dead_letters.story import Story, from_elsewhere, identified
from sharegroup.worker import App, Holding, Record, Retry

HELD = Retry(max_attempts=4, initial_delay="1s", multiplier=1, jitter=0)
IN_TIERS = Retry(max_attempts=3, initial_delay="1h", multiplier=1, jitter=0)


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


async def ids_of_attempts(retry: Retry, holding: Holding, *, delay: str = "0s") -> list[str | None]:
    """The id of a record in each of its attempts, all but the last of which fail."""
    seen: list[str | None] = []

    async def fail(value: bytes, record: Record) -> None:
        seen.append(record.id)
        if len(seen) < retry.max_attempts:
            raise TimeoutError

    app = App("ids")
    bill = app.share_group("billing", topics="orders", handler=fail, retry=retry, holding=holding)
    async with app.test() as t:
        await bill.send(b"1", delay=delay)
        await t.advance("4h")
    return seen


@run
async def test_held_record_keeps_the_id_of_its_first_wait() -> None:
    first, second, *others = await ids_of_attempts(HELD, Holding())
    assert first is None, "it has not waited yet"
    assert second is not None
    assert others == [second, second]


@run
async def test_record_in_tiers_keeps_the_id_of_its_first_wait() -> None:
    first, second, third = await ids_of_attempts(IN_TIERS, Holding(records=0))
    assert first is None
    assert second is not None
    assert third == second


@run
async def test_record_that_was_held_keeps_its_id_in_the_tiers() -> None:
    """The first delay is held, the second is longer than records are held."""
    growing = Retry(max_attempts=3, initial_delay="1s", multiplier=60, jitter=0)
    _, held, in_tiers = await ids_of_attempts(growing, Holding())
    assert held is not None
    assert in_tiers == held


@run
async def test_delayed_record_has_its_id_from_the_sending_on() -> None:
    ids = await ids_of_attempts(IN_TIERS, Holding(), delay="1h")
    assert ids[0] is not None
    assert ids == [ids[0]] * 3


@run
async def test_events_name_the_id() -> None:
    told: list[object] = []

    async def fail(value: bytes) -> None:
        raise TimeoutError

    app = App("ids")
    bill = app.share_group("billing", topics="orders", handler=fail, retry=HELD)
    app.on("record.held", lambda event: told.append(event.details["id"]))
    app.on("record.postponed", lambda event: told.append(event.details["id"]))
    async with app.test() as t:
        await bill.send(b"1")
        await t.settle()  # The stop of the test postpones what is held.
    assert told == [told[0]] * 2
    assert told[0] is not None


def test_ids_differ_and_are_kept() -> None:
    ids = {identified(Story()).id for _ in range(1_000)}
    assert len(ids) == 1_000
    assert identified(Story(id="f00")).id == "f00"


def test_id_that_a_producer_of_another_topic_wrote_does_not_count() -> None:
    assert from_elsewhere(Story(failures=1, id="f00")).id is None
