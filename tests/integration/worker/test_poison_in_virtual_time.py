"""A record that ends its process each time costs only itself, in virtual time.

Its handler never ends, and neither do those that begin while it runs.  Then the process is killed,
as if it had ended by itself, so all of their delivery counts grow.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from sharegroup.dead_letters.story_headers import SUSPICIONS
from sharegroup.worker import App, DeadLetter, Retry
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.testing.app_test import AppTest
from sharegroup.worker.transport.memory import MemoryOutbox
from sharegroup.worker.transport.memory_source import MemoryDelivery, MemoryGroup, MemorySource

LIMIT = 5
CRASHES_MAX = 5
"""Of one such record: three in its topic, and two after it was put aside.

One more if the group allows more deliveries."""
POISON = b"poison"


class Shop:
    """An application whose handlers never end while a poison record is in one of them."""

    def __init__(self, topics: int, **options: Any) -> None:
        self.app = App("shop")
        self.poisoned = False
        self.runs: Counter[bytes] = Counter()
        for number in range(topics):
            self.app.share_group(
                f"billing{number}",
                topics=f"orders{number}",
                dead_letter=DeadLetter("orders.dead"),
                retry=Retry(max_attempts=2),
                max_handling="1h",
                handler=self.batch if options.get("is_batch") else self.handle,
                **{name: value for name, value in options.items() if name != "is_batch"},
            )

    async def handle(self, value: bytes) -> None:
        await self.run([value])

    async def batch(self, values: list[bytes]) -> None:
        await self.run(values)

    async def run(self, values: list[bytes]) -> None:
        self.runs.update(values)
        self.poisoned = self.poisoned or any(value.startswith(POISON) for value in values)
        await asyncio.sleep(0)
        if self.poisoned:
            await asyncio.Event().wait()

    async def crashes(self, t: AppTest, crashes_max: int) -> int:
        """Kill the process whenever a poison record runs, so often at most; returns how often."""
        for crashes in range(crashes_max + 1):
            await t.advance("5m")
            if not self.poisoned:
                return crashes
            self.poisoned = False
            await t.crash()
        raise AssertionError(f"after {crashes_max} crashes it still goes on: {t.outcomes}")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"concurrency": 1}, id="one at a time"),
        pytest.param({"concurrency": 100}, id="all together"),
        pytest.param({"concurrency": 8, "order_by": "key"}, id="by key"),
        pytest.param({"is_batch": True}, id="batches"),
        pytest.param({"concurrency": 8, "rate_limit": "1000/s"}, id="with a rate limit"),
        pytest.param({"concurrency": 8, "rate_limit": "15/m"}, id="with a low rate limit"),
        pytest.param({"is_batch": True, "rate_limit": "15/m"}, id="batches with a rate limit"),
    ],
)
@pytest.mark.parametrize("topics", [1, 3])
def test_record_that_ends_its_process_is_the_only_dead_letter(
    options: dict[str, Any], topics: int
) -> None:
    async def test() -> None:
        shop = Shop(topics, **options)
        async with shop.app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            records = [
                await t.send(f"orders{n % topics}", b"%d" % n, key=b"%d" % (n % 7))
                for n in range(20)
            ]
            poison = await t.send("orders0", POISON, key=b"1")
            records += [
                await t.send(f"orders{n % topics}", b"%d" % n, key=b"%d" % (n % 7))
                for n in range(20, 40)
            ]
            crashes = await shop.crashes(t, CRASHES_MAX)
            assert Counter(record.outcome for record in records) == {"accepted": 40}
            assert poison.outcome == "dead_lettered"
            assert len(t.dead_letters) == 1
            assert shop.runs[POISON] == crashes

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poison", "records", "topics", "limit"),
    [
        pytest.param({3, 4, 17}, 40, 2, 5, id="three meet in two topics"),
        pytest.param({3, 4, 17}, 40, 1, 5, id="three in one topic"),
        pytest.param({0, 1, 2}, 3, 3, 5, id="three groups"),
        pytest.param({0, 1, 2, 3, 4, 5, 6, 7}, 300, 4, 5, id="eight at the beginning"),
        pytest.param(set(range(0, 60, 6)), 60, 3, 10, id="each sixth, ten deliveries"),
        pytest.param({3, 4, 17}, 40, 2, 4, id="four deliveries"),
        pytest.param({3, 4, 17}, 40, 2, 3, id="three deliveries"),
        pytest.param({3, 4, 17}, 40, 2, 2, id="two deliveries"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 100])
def test_several_such_records_are_the_only_dead_letters(
    poison: set[int], records: int, topics: int, limit: int, concurrency: int
) -> None:
    if concurrency == 1 and len(poison) > 3 and "CHAOS" not in os.environ:
        pytest.skip("ten seconds, one by one; `make chaos` runs it")

    async def test() -> None:
        shop = Shop(topics, concurrency=concurrency)
        async with shop.app.test(delivery_limit=limit, patience_seconds=0.02) as t:
            names = [POISON + b"%d" % n if n in poison else b"%d" % n for n in range(records)]
            sent = [await t.send(f"orders{n % topics}", name) for n, name in enumerate(names)]
            honest = {name for name in names if not name.startswith(POISON)}
            await shop.crashes(t, len(poison) * (CRASHES_MAX + (limit > LIMIT)))
            outcomes = {name: record.outcome for name, record in zip(names, sent, strict=True)}
            assert {outcomes[name] for name in honest} <= {"accepted"}, outcomes
            assert sorted(letter.value or b"" for letter in t.dead_letters) == sorted(
                name for name in names if name not in honest
            )

    asyncio.run(test())


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_stop_puts_aside_what_would_be_judged_at_the_next_delivery(crashes: int) -> None:
    """Interrupted by a stop each time: a release would make an honest record a dead letter."""

    async def test() -> None:
        app, is_slow = App("shop"), True

        @app.share_group("billing", topics="orders", dead_letter=DeadLetter("orders.dead"))
        async def handle(value: bytes) -> None:
            if is_slow:
                await asyncio.Event().wait()

        async with app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            record = await t.send("orders", b"slow")
            await t.settle()
            for _ in range(crashes):
                await t.crash()
            for _ in range(4):
                await t._stop()
                await t._start()
            is_slow = False
            await t._stop()
            await t._start()
            await t.advance("5m")
            assert record.outcome == "accepted"
            assert t.dead_letters == []

    asyncio.run(test())


@pytest.mark.parametrize("kills", [4, 5])
def test_record_that_runs_while_its_process_is_killed_from_outside_is_no_letter(kills: int) -> None:
    async def test() -> None:
        app, is_slow = App("shop"), True

        @app.share_group("billing", topics="orders", dead_letter=DeadLetter("orders.dead"))
        async def handle(value: bytes) -> None:
            if is_slow:
                await asyncio.Event().wait()

        async with app.test(patience_seconds=0.02) as t:
            record = await t.send("orders", b"slow")
            for _ in range(kills):
                await t.settle()
                await t.crash()
            is_slow = False
            await t._stop()
            await t._start()
            await t.advance("5m")
            assert (record.outcome, t.dead_letters) == ("accepted", [])
            assert len(t.in_topic("billing.retry")) >= 1

    asyncio.run(test())


@pytest.mark.parametrize("suspicions", [1, 2, 2**63 - 1])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_suspect_runs_beside_handlers_that_do_not_end(suspicions: int, concurrency: int) -> None:
    """Whoever wrote its header: it neither goes round for ever nor stops the others."""

    async def test() -> None:
        app, ends = App("shop"), asyncio.Event()
        runs: list[bytes] = []

        @app.share_group("billing", topics="orders", concurrency=concurrency, max_handling="1h")
        async def handle(value: bytes) -> None:
            runs.append(value)
            if value == b"long":
                await ends.wait()

        @app.share_group("shipping", topics="parcels")
        async def ship(value: bytes) -> None: ...

        async with app.test(patience_seconds=0.02) as t:
            await t.send("orders", b"long")
            await t.settle()
            claimed = (SUSPICIONS, b"%d" % suspicions)
            t._world.log.append("billing.retry", b"suspect", headers=(claimed,))
            await t.advance("3s")
            parcel = await t.send("parcels", b"parcel")
            await t.advance("3s")
            assert parcel.outcome == "accepted"
            if concurrency == 1:
                ends.set()
                await t.advance("3s")
            assert (runs, t.dead_letters) == ([b"long", b"suspect"], [])
            assert len(t.in_topic("billing.retry")) == 1
            ends.set()

    asyncio.run(test())


def test_header_of_a_topic_of_others_makes_no_suspect() -> None:
    async def test() -> None:
        app = App("shop")
        runs: list[bytes] = []

        @app.share_group("billing", topics="orders", concurrency=2)
        async def handle(value: bytes) -> None:
            runs.append(value)
            if value == b"long":
                await asyncio.Event().wait()

        async with app.test(patience_seconds=0.02) as t:
            await t.send("orders", b"long")
            t._world.log.append("orders", b"x", headers=((SUSPICIONS, b"1"),))
            await t.settle()  # Without the wait for the other handler.
            assert runs == [b"long", b"x"]

    asyncio.run(test())


def test_others_begin_when_the_outcome_of_a_run_alone_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If one of them ends the process, the run would be undone, and count for its record."""
    send = MemoryOutbox.send

    async def send_late(self: MemoryOutbox, *args: Any, **options: Any) -> WrittenRecord:
        for _ in range(100):  # As over a network.
            await asyncio.sleep(0)
        return await send(self, *args, **options)

    async def test() -> None:
        monkeypatch.setattr(MemoryOutbox, "send", send_late)
        app, is_slow, other_is_sent, outcomes = App("shop"), True, asyncio.Event(), []

        @app.share_group(
            "billing",
            topics=["orders", "others"],
            retry=Retry(max_attempts=1),
            dead_letter=DeadLetter("dead"),
        )
        async def handle(value: bytes) -> None:
            if value == b"other":
                outcomes.append(suspect.outcome)
            elif is_slow:
                await asyncio.Event().wait()
            else:
                await other_is_sent.wait()  # While this one runs alone.
                raise ValueError

        async with app.test(patience_seconds=0.02) as t:
            suspect = await t.send("orders", b"slow")
            for is_slow in (True, True, False):  # noqa: B007  The handler reads it.
                await t.settle()
                await t.crash()
            await t.settle()
            await t.send("others", b"other")
            await t.settle()
            other_is_sent.set()
            await t.advance("1m")
            assert outcomes == ["dead_lettered"]

    asyncio.run(test())


def test_stop_moves_suspects_that_were_fetched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release would count as a crash alone, and the second one make a dead letter."""
    quiet = MemorySource.quiet

    def quiet_with_ahead(self: MemorySource, *, delivered_below: int) -> list[MemoryDelivery]:
        ahead = self._take(10) if delivered_below == 1 else []
        quiet(self, delivered_below=delivered_below)
        return ahead

    async def test() -> None:
        monkeypatch.setattr(MemorySource, "quiet", quiet_with_ahead)
        app, runs = App("shop"), []

        @app.share_group("billing", topics="orders", dead_letter=DeadLetter("orders.dead"))
        async def handle(value: bytes) -> None:
            runs.append(value)

        async with app.test(patience_seconds=0.02) as t:
            await t.settle()
            for name in (b"one", b"two"):
                t._world.log.append("billing.retry", name, headers=((SUSPICIONS, b"1"),))
            for stops in range(1, 4):
                await t._stop()
                assert len(t.in_topic("billing.retry")) == 2 + 2 * stops
                if stops < 3:  # The next one stops before its first take.
                    monkeypatch.setattr(MemorySource, "take", _takes_nothing)
                    await t._start()
                    await t.settle()
            monkeypatch.undo()
            await t._start()
            await t.advance("1m")
            assert (sorted(runs), t.dead_letters) == ([b"one", b"two"], [])

    asyncio.run(test())


async def _takes_nothing(self: MemorySource, room: int, wait_seconds: float) -> tuple[()]:
    await asyncio.Event().wait()
    return ()


class SlowBroker:
    """Makes the broker of `App.test` take up to ``SECONDS`` for a write, a fetch or an answer.

    A new process cannot read each second partition for a while, on average: its dead predecessor
    is a member of the group until its session ends.
    """

    SECONDS = 6.0
    SESSION_SECONDS = 45.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self._random = Random(seed)
        self._unread_until: dict[tuple[str, int], float] = {}
        self._answered_at: dict[int, float] = {}
        send, take, settle = MemoryOutbox.send, MemorySource.take, MemorySource.settle
        acquire = MemoryGroup._acquire

        def send_slowly(outbox: MemoryOutbox, *given: Any, **options: Any) -> Any:
            async def written() -> WrittenRecord:
                clock = outbox._log.clock
                await clock.sleep_until(clock.now() + self._delay())
                return await send(outbox, *given, **options)

            return asyncio.ensure_future(written())

        async def take_slowly(source: MemorySource, *given: Any) -> Any:
            clock = source._log.clock
            await clock.sleep_until(clock.now() + self._delay())
            return await take(source, *given)

        def settle_later(source: MemorySource, *given: Any) -> None:
            clock = source._log.clock
            answered_at = clock.now() + self._delay()
            latest = self._answered_at.get(id(source), 0.0)
            self._answered_at[id(source)] = max(latest, answered_at)
            clock.call_at(answered_at, lambda: settle(source, *given))

        async def acknowledged(source: MemorySource, within_seconds: float) -> None:
            clock = source._log.clock
            due = min(self._answered_at.get(id(source), 0.0), clock.now() + within_seconds)
            if due > clock.now():
                await clock.sleep_until(due)

        def acquire_what_is_read(
            group: MemoryGroup, member: Any, topic: str, number: int, *given: int
        ) -> Any:
            until = self._unread_until.get((topic, number), 0.0)
            if until <= group._clock.now():
                return acquire(group, member, topic, number, *given)
            group._clock.call_at(until, group._wake)
            return ()

        monkeypatch.setattr(MemoryOutbox, "send", send_slowly)
        monkeypatch.setattr(MemorySource, "take", take_slowly)
        monkeypatch.setattr(MemorySource, "settle", settle_later)
        monkeypatch.setattr(MemorySource, "acknowledged", acknowledged)
        monkeypatch.setattr(MemoryGroup, "_acquire", acquire_what_is_read)

    def _delay(self) -> float:
        return self._random.uniform(0, self.SECONDS)

    def process_died(self, t: AppTest, topics: tuple[str, ...]) -> None:
        now = t._world.clock.now()
        for topic in topics:
            for number in range(2):
                is_read = self._random.random() < 0.5
                until = now if is_read else now + self._random.uniform(0, self.SESSION_SECONDS)
                self._unread_until[topic, number] = until


@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("seed", range(20 if "CHAOS" in os.environ else 6))
def test_slow_broker_makes_no_letter_of_an_honest_record(
    monkeypatch: pytest.MonkeyPatch, seed: int, concurrency: int
) -> None:
    """The process ends as soon as a poison record runs, and its last answers are under way."""
    broker = SlowBroker(monkeypatch, seed)
    topics = ("orders0", "billing0.retry")
    poison = {3, 4, 17}
    names = [POISON + b"%d" % n if n in poison else b"%d" % n for n in range(41)]
    honest = {name for name in names if not name.startswith(POISON)}

    async def test() -> None:
        shop = Shop(1, concurrency=concurrency)
        async with shop.app.test(delivery_limit=LIMIT, patience_seconds=0.02) as t:
            for topic in topics:
                t._world.log.create(topic, partitions=2)
            sent = {name: await t.send("orders0", name) for name in names}
            clock = t._world.clock
            quiet_since = clock.now()
            while (due := clock.next_due()) is not None and due < quiet_since + 300:
                clock.move_to(due)
                await t.settle()
                if shop.poisoned:
                    shop.poisoned, quiet_since = False, clock.now()
                    await t.crash()
                    broker.process_died(t, topics)
            assert {sent[name].outcome for name in honest} == {"accepted"}
            letters = {letter.value for letter in t.dead_letters}
            assert letters == set(names) - honest, "a crash may double a letter"

    asyncio.run(test())
