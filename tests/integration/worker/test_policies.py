"""Priorities, filters, expiry and a circuit breaker in one handler, on a real broker.

40 records of each topic, 12 nobody wants, 8 too old --> both topics are read
the service fails  --> the breaker opens, and those that the process has are parked
it is back         --> one probe, the breaker closes, and each record is handled once
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.worker import App, CircuitBreaker, Expiry, Record, Retry
from tests.integration.worker.test_steering import until

RECORDS = 40
NOT_WANTED = 12
TOO_OLD = 8
FAILS_AFTER = 20
"""The number of urgent records."""


class Shop:
    """An application whose handler calls a service that fails after some calls."""

    def __init__(self, bootstrap: str, group: str, topics: tuple[str, str]) -> None:
        self.urgent, self.bulk = topics
        self.app = App("policies", bootstrap_servers=bootstrap, grace="2s")
        self.is_down = False
        self.calls: list[str] = []
        self.calls_before = 0
        """The number of calls when the service failed."""
        self.handled: Counter[bytes] = Counter()
        self.events: list[str] = []
        for name in ("breaker.opened", "breaker.half_open", "breaker.closed"):
            self.app.on(name, lambda event: self.events.append(event.name))

        @self.app.share_group(
            group,
            topics=topics,
            priorities={self.urgent: 5},
            only=lambda record: record.header("type") != b"noise",
            expires_after=Expiry(after="1h", dead_letter=False),
            breaker=CircuitBreaker(failures=2, of=2, open_for="300ms", on=ConnectionError),
            retry=Retry(max_attempts=20, initial_delay="300ms", multiplier=1, jitter=0),
            retry_tiers=("100ms", "300ms"),
            concurrency=1,
        )
        async def call(value: bytes, record: Record) -> None:
            self.calls.append(record.topic)
            if not self.events:
                await asyncio.sleep(0.02)  # A fetch takes less.
            if self.calls.count(self.urgent) == FAILS_AFTER and not self.events:
                self.is_down = True
                self.calls_before = len(self.calls)
            if self.is_down:
                raise ConnectionError("no answer")
            self.handled[value] += 1

    async def send(self, bootstrap: str) -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(self.urgent, 1), NewTopic(self.bulk, 1)])
        past = str(round(time.time() * 1000) - 1).encode()
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for topic in (self.bulk, self.urgent):
                headers: list[list[tuple[str, bytes]]] = [
                    *[[("type", b"noise")]] * (NOT_WANTED // 2),
                    *[[("expires", past)]] * (TOO_OLD // 2),
                    *[[]] * RECORDS,
                ]
                for number, of_record in enumerate(headers):
                    value = f"{topic}/{number}".encode()
                    await producer.send(topic, value, headers=of_record)
            await producer.flush()


def test_policies_of_a_handler_work_together(bootstrap: str, group: str, topic: str) -> None:
    shop = Shop(bootstrap, group, (f"{topic}-urgent", f"{topic}-bulk"))

    async def scene() -> None:
        await shop.send(bootstrap)
        async with shop.app as app:
            await until(lambda: "breaker.half_open" in shop.events, "the first probe")
            assert app.worker is not None
            [counts] = app.worker.counts
            # Two failures open it, and the probes are the only calls meanwhile.
            probes = shop.events.count("breaker.half_open")
            assert len(shop.calls) - shop.calls_before <= 1 + probes
            shop.is_down = False
            await until(lambda: len(shop.handled) == 2 * RECORDS, "all records")
            await until(lambda: counts.running == 0, "the end of the last run")
            assert set(shop.handled.values()) == {1}
            assert (counts.filtered, counts.expired) == (NOT_WANTED, TOO_OLD)
            assert counts.parked > 0
            assert counts.dead_lettered == 0
            assert shop.events[0] == "breaker.opened"
            assert shop.events[-2:] == ["breaker.half_open", "breaker.closed"]
            # By how much is tested in virtual time: on a busy machine fetches take longer than the
            # 20 ms for which a topic holds up others.
            assert {shop.urgent, shop.bulk} == {*shop.calls}

    asyncio.run(scene())
