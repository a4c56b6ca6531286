"""A stop is not a failure: workers are restarted one after the other, all the time, under load.

A release and the end of a session leave the delivery count of a record as it is, so a deployment
costs a delivery of everything that its processes had taken.  A record whose count comes near the
limit is written to the group's own topic at a stop, with its failures unchanged, and accepted; it
begins there with a delivery count of 1 (row 24 of «Outcomes of a record»).

``CHAOS=all`` (`make chaos`) restarts a hundred times.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from sharegroup.client import Producer
from sharegroup.worker import App, Event, Record, Retry

RESTARTS = 100 if os.environ.get("CHAOS") else 6
FINISH_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.02
FAILURES = 2
"""Of each third record; one more would be a letter."""
RETRY = Retry(max_attempts=FAILURES + 1, initial_delay="50ms", multiplier=1, jitter=0)


@dataclass
class Trial:
    """The lives of two workers of one application, and what became of the records."""

    bootstrap: str
    group: str
    topic: str
    concurrency: int
    deliveries: int
    succeeded: Counter[bytes] = field(default_factory=Counter)
    histories: dict[bytes, list[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(list))
    """The numbers of the failed attempts, as each successful run of a record saw them."""
    told: Counter[str] = field(default_factory=Counter)

    def app(self) -> App:
        app = App("rolling", bootstrap_servers=self.bootstrap, grace="0s")
        for name in ("record.dead_lettered", "record.rejected", "record.put_aside"):
            app.on(name, self._tell)

        @app.share_group(
            self.group,
            topics=self.topic,
            concurrency=self.concurrency,
            retry=RETRY,
            group_configs={"share.delivery.count.limit": str(self.deliveries)},
        )
        async def work(value: bytes, record: Record) -> None:
            await asyncio.sleep(0.03)
            if int(value) % 3 == 0 and record.attempt <= FAILURES:
                raise ConnectionError(f"attempt {record.attempt}")
            self.succeeded[value] += 1
            self.histories[value].append(tuple(attempt.number for attempt in record.history))

        return app

    def _tell(self, event: Event) -> None:
        self.told[event.name] += 1

    async def roll(self, values: list[bytes]) -> None:
        lives = [self.app() for _ in range(2)]
        for app in lives:
            await app.start()
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                await producer.send(self.topic, value)
        for number in range(RESTARTS):
            await asyncio.sleep(0.1)
            await lives[number % 2].stop()
            lives[number % 2] = self.app()
            await lives[number % 2].start()
        until = time.monotonic() + FINISH_SECONDS_MAX
        while missing := set(values) - set(self.succeeded):
            assert time.monotonic() < until, f"not handled: {sorted(missing)}; {self.told}"
            await asyncio.sleep(LOOK_SECONDS)
        for app in lives:
            await app.stop()


@pytest.mark.parametrize(
    ("concurrency", "deliveries"),
    [
        (16, 10),
        pytest.param(16, 5, marks=pytest.mark.slow),
        pytest.param(1, 5, marks=pytest.mark.slow),
        pytest.param(16, 3, marks=pytest.mark.slow),
        pytest.param(1, 10, marks=pytest.mark.slow),
    ],
)
def test_rolling_restarts_lose_no_record_and_make_no_letter(
    bootstrap: str, group: str, topic: str, concurrency: int, deliveries: int
) -> None:
    """Each stop interrupts handlers, and takes back records that wait, are held or not begun."""
    trial = Trial(bootstrap, group, topic, concurrency, deliveries)
    values = [b"%d" % number for number in range(20 * RESTARTS if concurrency > 1 else 100)]
    asyncio.run(trial.roll(values))
    assert trial.told["record.dead_lettered"] == 0, trial.told
    assert trial.told["record.rejected"] == 0, trial.told
    assert set(trial.succeeded) == set(values)
    expected = tuple(range(1, FAILURES + 1))
    for value, histories in trial.histories.items():
        of_failing = expected if int(value) % 3 == 0 else ()
        assert set(histories) == {of_failing}, (value, histories)
