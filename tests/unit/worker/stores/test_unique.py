"""`send(unique=...)` in virtual time: one record for a name, and none is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharegroup.errors import (
    InvalidConfig,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from sharegroup.worker import App, MemoryStore, SentBefore, StoreUnavailable
from sharegroup.worker.stores.store import Reservation
from sharegroup.worker.stores.unique import unique_name, write_once
from sharegroup.worker.testing import AppTest
from sharegroup.worker.transport.memory_clock import MemoryClock

NAME = "unique/billing/orders/invoice-42"


def app_of(**options: Any) -> tuple[App, Any]:
    app = App("orders-service", store=MemoryStore(), **options)

    @app.share_group("billing", topics=("orders", "returns"))
    async def bill(order: dict) -> None: ...

    return app, bill


def in_test(test: Callable[[AppTest, Any], Awaitable[None]]) -> None:
    async def inside() -> None:
        app, bill = app_of()
        async with app.test() as t:
            await test(t, bill)

    asyncio.run(inside())


def test_a_name_is_sent_once_until_its_time_is_over() -> None:
    async def test(t: AppTest, bill: Any) -> None:
        async def send() -> Any:
            return await bill.send({"id": 42}, topic="orders", unique="invoice-42", for_="1h")

        first, second = await send(), await send()
        place = (first.topic, first.partition, first.offset, first.timestamp_ms)
        assert second == SentBefore(*place)
        assert not isinstance(first, SentBefore)
        await t.advance("59m")
        assert await send() == SentBefore(*place)
        assert len(t.in_topic("orders")) == 1
        await t.advance("2m")
        assert not isinstance(await send(), SentBefore)
        assert len(t.in_topic("orders")) == 2

    in_test(test)


def test_a_name_is_remembered_after_a_crash_of_the_process() -> None:
    async def test(t: AppTest, bill: Any) -> None:
        await bill.send({}, topic="orders", unique="invoice-42", for_="1h")
        await t.crash()
        found = await bill.send({}, topic="orders", unique="invoice-42", for_="1h")
        assert isinstance(found, SentBefore)

    in_test(test)


def test_topics_and_other_names_do_not_share_a_name() -> None:
    async def test(t: AppTest, bill: Any) -> None:
        for topic, unique in (("orders", "a/b"), ("returns", "a/b"), ("orders", "a%2Fb")):
            found = await bill.send({}, topic=topic, unique=unique, for_="1h")
            assert not isinstance(found, SentBefore)

    in_test(test)


def test_a_delayed_record_is_unique_with_its_topic() -> None:
    async def test(t: AppTest, bill: Any) -> None:
        await bill.send({}, topic="orders", delay="10m", unique="a", for_="1h")
        assert isinstance(await bill.send({}, topic="orders", unique="a", for_="1h"), SentBefore)
        await t.advance("11m")
        assert len(t.in_topic("billing.retry")) == 1
        assert len(t.in_topic("orders")) == 0

    in_test(test)


def test_of_many_at_once_one_is_written_and_the_others_get_its_place() -> None:
    async def test(t: AppTest, bill: Any) -> None:
        sends = [
            asyncio.ensure_future(bill.send({}, topic="orders", unique="a", for_="1h"))
            for _ in range(50)
        ]
        await t.advance("10s")
        found = await asyncio.gather(*sends)
        assert sum(isinstance(entry, SentBefore) for entry in found) == 49
        assert {(entry.partition, entry.offset) for entry in found} == {(0, 0)}

    in_test(test)


@pytest.mark.parametrize("error", [MessageTooLarge("no"), TopicAuthorizationFailed("no")])
def test_a_write_that_is_refused_frees_the_name(error: KafkaError) -> None:
    async def test(t: AppTest, bill: Any) -> None:
        t.fail_writes("orders", error)
        with pytest.raises(type(error)):
            await bill.send({}, topic="orders", unique="a", for_="1h")
        t.mend_writes("orders")
        found = await bill.send({}, topic="orders", unique="a", for_="1h")
        assert not isinstance(found, SentBefore)

    in_test(test)


@pytest.mark.parametrize("error", [NetworkException("away"), RequestTimedOut("120 s are over")])
def test_a_write_with_an_unknown_outcome_holds_the_name_until_its_lease_lapses(
    error: KafkaError,
) -> None:
    """The record may be durable, or become so while the producer goes on."""

    async def test(t: AppTest, bill: Any) -> None:
        t.fail_writes("orders", error)
        with pytest.raises(type(error)):
            await bill.send({}, topic="orders", unique="a", for_="1h")
        t.mend_writes("orders")
        again = asyncio.ensure_future(bill.send({}, topic="orders", unique="a", for_="1h"))
        await t.advance("29s")
        assert not again.done()
        await t.advance("3s")
        assert not isinstance(await again, SentBefore)

    in_test(test)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unique": "a"}, "expected both"),
        ({"for_": "1h"}, "expected both"),
        ({"unique": "a", "for_": 0}, "expected more than 0"),
        ({"unique": "a", "for_": "3y"}, "a duration"),
        ({"unique": "", "for_": "1h"}, "expected a text of 1 to 500 bytes"),
        ({"unique": "ü" * 251, "for_": "1h"}, "expected a text of 1 to 500 bytes"),
        ({"unique": b"a", "for_": "1h"}, "expected a text of 1 to 500 bytes"),
        ({"unique": "\ud800", "for_": "1h"}, "surrogates"),
    ],
)
def test_other_names_and_times_are_refused(options: dict[str, Any], error: str) -> None:
    async def test(t: AppTest, bill: Any) -> None:
        with pytest.raises(ValueError, match=error):
            await bill.send({}, topic="orders", **options)
        assert t.in_topic("orders") == []

    in_test(test)


def test_control_characters_are_escaped_in_names() -> None:
    assert unique_name("g", "t", "a\0/\x1b%\n ü") == "unique/g/t/a%00%2F%1B%25%0A %C3%BC"


def test_unique_without_a_store_says_what_to_declare() -> None:
    async def inside() -> None:
        app = App("orders-service")

        @app.share_group("billing", topics="orders")
        async def bill(order: dict) -> None: ...

        async with app.test():
            with pytest.raises(InvalidConfig, match=r"unique requires a store.*store=SqliteStore"):
                await bill.send({}, unique="a", for_="1h")
            await bill.send({})

    asyncio.run(inside())


def test_an_app_refuses_what_is_not_a_store() -> None:
    with pytest.raises(InvalidConfig, match="expected a store, such as SqliteStore"):
        App("orders-service", store="sqlite:///names.db")


# Between reserve, write and confirm: what a process that dies there leaves behind.


class Clocked:
    """A store and its virtual clock, and what `write_once` wrote."""

    def __init__(self, store: MemoryStore | None = None, clock: MemoryClock | None = None) -> None:
        self.clock = clock or MemoryClock()
        self.store = store or MemoryStore(now=self.clock.now)
        self.written: list[SentBefore] = []

    async def write(self) -> SentBefore:
        self.written.append(SentBefore("orders", 0, len(self.written), 7))
        return self.written[-1]

    def send(self, write: Callable[[], Awaitable[Any]] | None = None) -> asyncio.Task[Any]:
        sending = write_once(self.store, self.clock, NAME, write or self.write, keep_seconds=3600)
        return asyncio.ensure_future(sending)

    async def advance(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while True:
            for _ in range(50):
                await asyncio.sleep(0)
            due = self.clock.next_due()
            if due is None or due > until:
                self.clock.move_to(until)
                return
            self.clock.move_to(due)


async def killed(sending: asyncio.Task[Any]) -> None:
    """End a send at once, without what it does after an error."""
    for _ in range(10):
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait((sending,))


def test_killed_before_the_write_the_next_send_writes_when_the_lease_lapses() -> None:
    async def inside() -> None:
        scene = Clocked()
        await killed(scene.send(asyncio.Event().wait))
        again = scene.send()
        await scene.advance(29.9)
        assert not again.done()
        await scene.advance(0.2)
        assert again.result() == SentBefore("orders", 0, 0, 7)

    asyncio.run(inside())


class Dies(MemoryStore):
    """A store whose first confirmation never returns, as if the process died in it."""

    deaths = 0

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        self.deaths += 1
        if self.deaths == 1:
            await asyncio.Event().wait()
        return await super().confirm(name, token, value, keep_seconds=keep_seconds)


def test_killed_before_the_confirmation_the_record_is_written_twice_and_not_lost() -> None:
    async def inside() -> None:
        clock = MemoryClock()
        scene = Clocked(Dies(now=clock.now), clock)
        await killed(scene.send())
        again = scene.send()
        await scene.advance(31)
        assert again.result() == SentBefore("orders", 0, 1, 7)
        assert (await scene.send()) == SentBefore("orders", 0, 1, 7)

    asyncio.run(inside())


def test_a_lease_is_extended_while_the_producer_waits_for_its_broker() -> None:
    async def inside() -> None:
        scene = Clocked()
        broker = asyncio.Event()

        async def slow() -> SentBefore:
            await broker.wait()
            return await scene.write()

        first, second = scene.send(slow), scene.send()
        await scene.advance(300)
        assert not first.done()
        assert not second.done()
        broker.set()
        await scene.advance(3)
        assert first.result() == second.result() == SentBefore("orders", 0, 0, 7)
        assert len(scene.written) == 1

    asyncio.run(inside())


class Away(MemoryStore):
    """A store that fails from its ``ends_at``-th call on."""

    ends_at = 2
    calls = 0

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        self._count()
        return await super().reserve(name, token, lease_seconds=lease_seconds)

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        self._count()
        return await super().confirm(name, token, value, keep_seconds=keep_seconds)

    async def release(self, name: str, token: str) -> None:
        self._count()
        await super().release(name, token)

    def _count(self) -> None:
        self.calls += 1
        if self.calls >= self.ends_at:
            raise StoreUnavailable("the store is away")


def test_a_store_that_is_away_for_the_confirmation_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def inside() -> None:
        scene = Clocked(Away())
        with caplog.at_level(logging.WARNING):
            assert await scene.send() == SentBefore("orders", 0, 0, 7)

    asyncio.run(inside())
    (line,) = caplog.messages
    assert line.startswith(f"event=unique.unconfirmed name={NAME!r} why='the store is unavailable'")


def test_a_store_that_is_away_before_the_write_is_an_error_and_nothing_is_written() -> None:
    async def inside() -> None:
        store = Away()
        store.ends_at = 1
        scene = Clocked(store)
        with pytest.raises(StoreUnavailable, match="the store is away"):
            await scene.send()
        assert scene.written == []

    asyncio.run(inside())


def test_a_failed_write_is_raised_also_if_the_name_cannot_be_released() -> None:
    async def inside() -> None:
        async def fail() -> Any:
            raise MessageTooLarge("no room")

        with pytest.raises(MessageTooLarge) as raised:
            await Clocked(Away()).send(fail)
        assert raised.value.__notes__ == ["The name is held for up to 30 s: the store is away"]

    asyncio.run(inside())


@pytest.mark.parametrize("value", [b"", b"[" * 100_000, b"[1,2]", b'["t",0,"x",1]', b"\xff"])
def test_a_value_that_is_no_place_is_an_error(value: bytes) -> None:
    async def inside() -> None:
        scene = Clocked()
        await scene.store.put(NAME, value, keep_seconds=9)
        with pytest.raises(StoreUnavailable, match="expected the place of a record"):
            await scene.send()
        assert scene.written == []

    asyncio.run(inside())


def test_a_full_memory_store_forgets_expired_names_and_then_refuses() -> None:
    async def inside() -> None:
        clock = MemoryClock()
        store = MemoryStore(now=clock.now, entries_max=2)
        await store.put("a", b"", keep_seconds=1)
        await store.put("b", b"", keep_seconds=9)
        with pytest.raises(StoreUnavailable, match="holds 2 names, its entries_max"):
            await store.put("c", b"", keep_seconds=1)
        await store.put("b", b"2", keep_seconds=9)
        clock.move_to(clock.now() + 2)
        await store.put("c", b"", keep_seconds=1)
        assert await store.get("b") == b"2"

    asyncio.run(inside())
