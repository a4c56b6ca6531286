"""One producer that sends a number of records, as fast as possible or at a given rate.

The latency of a record is the time from its send to its acknowledgement. A task waits for each
record that is timed. At most about 20,000 records are timed, evenly spread, because a task for
each record would cost more than sending it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sharegroup.cli.common.running import Stop, until_stopped
from sharegroup.cli.measuring.figures import Flow, producing_line
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.errors import KafkaError

# Keys and values: the same seed gives the same ones.


POOL_BYTES = 16 * 1024 * 1024
POOL_RECORDS_MAX = 10_000
"""Maximum number of distinct random values; a run sends them repeatedly in turn.

They are made before the clock starts, because making a value costs more than sending it.
"""

LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"

ValueOf = Callable[[int], bytes]
KeyOf = Callable[[int], bytes | None]


class Keys(NamedTuple):
    """The distribution of keys: ``none``, ``range`` (in turn) or ``random``; from 0 to below.

    ``below`` is the number of distinct keys.
    """

    distribution: str = "none"
    below: int = 0


def random_values(size: int, *, count: int, seed: int) -> ValueOf:
    """Return a function from a record's number to a value of ``size`` random capital letters."""
    chance = random.Random(seed)  # noqa: S311  All runs with the same seed send the same values.
    pool_size = max(1, min(count, POOL_RECORDS_MAX, POOL_BYTES // max(size, 1)))
    pool = [bytes(chance.choices(LETTERS, k=size)) for _ in range(pool_size)]
    return _round_and_round(pool)


def values_from_file(path: Path, *, delimiter: bytes, seed: int) -> ValueOf:
    """Return a function from a record's number to a value of the file, in random order.

    Raises ValueError if the file has no values.
    """
    values = [value for value in path.read_bytes().split(delimiter) if value]
    if not values:
        raise ValueError(f"{path} contains no values")
    random.Random(seed).shuffle(values)  # noqa: S311
    return _round_and_round(values)


def monotonic_values() -> ValueOf:
    """Return a function that gives the number of a record as text."""
    return lambda number: b"%d" % number


def keys(spread: Keys, *, seed: int) -> KeyOf:
    """Return a function from a record's number to its key, or None."""
    match spread.distribution:
        case "range":
            return lambda number: b"%d" % (number % spread.below)
        case "random":
            chance = random.Random(seed)  # noqa: S311
            return lambda _: b"%d" % chance.randrange(spread.below)
    return lambda _: None


def _round_and_round(pool: Sequence[bytes]) -> ValueOf:
    size = len(pool)
    return lambda number: pool[number % size]


TIMED_MAX = 20_000
SETTLE_EVERY = 256
"""Outcomes are counted after this number of sends."""

PAUSE_SECONDS_MIN = 0.001


@dataclass(frozen=True, slots=True)
class ProducePlan:
    """What to send, and how fast; ``records_per_second`` of 0 or less means without a limit."""

    topic: str
    count: int
    value_of: ValueOf
    key_of: KeyOf
    records_per_second: float
    warmup: int
    interval_ms: int


@dataclass(slots=True)
class Produced:
    """The result of a run; ``steady`` and ``steady_ms`` exclude the warm-up."""

    flow: Flow = field(default_factory=Flow)
    steady: Flow = field(default_factory=Flow)
    elapsed_ms: int = 0
    steady_ms: int = 0
    failed: int = 0
    error: KafkaError | None = None
    """The first error; None if there was none."""
    stopped: int = 0
    """The exit code of the signal that ended the run; 0 without a signal."""


def _say_nothing(_: str) -> None:
    """Take a line and print nothing."""


class Producing:
    """Sends the records of a plan with one producer, and measures them."""

    def __init__(self, producer: Producer, plan: ProducePlan) -> None:
        self._producer = producer
        self._plan = plan
        self._say: Callable[[str], None] = _say_nothing
        self.produced = Produced()
        """The result so far."""
        self._window = Flow()
        self._window_began = self._steady_began = time.monotonic()
        self._outstanding: deque[tuple[int, int, SendFuture]] = deque()
        self._timers: set[asyncio.Task[None]] = set()

    async def run(self, stop: Stop, say: Callable[[str], None] = _say_nothing) -> Produced:
        """Send all records and wait for their outcomes; ``stop`` ends the sending early.

        ``say`` gets a line at each reporting interval.
        """
        self._say = say
        produced = self.produced
        began = self._window_began = self._steady_began = time.monotonic()
        await until_stopped(self._send_all(stop, began), stop)
        self._settle()
        ended = time.monotonic()
        produced.stopped = stop.code
        produced.elapsed_ms = int((ended - began) * 1000)
        produced.steady_ms = int((ended - self._steady_began) * 1000)
        return produced

    async def _send_all(self, stop: Stop, began: float) -> None:
        plan = self._plan
        timed_every = max(1, plan.count // TIMED_MAX)
        for number in range(plan.count):
            if number == plan.warmup:
                self._steady_began = time.monotonic()
            await self._send(number, timed=number % timed_every == 0)
            paused = await self._keep_pace(number + 1, began, stop)
            if paused or number % SETTLE_EVERY == 0:
                self._settle()
                if stop.is_set() or self.produced.error is not None:
                    break
        await self._producer.flush()
        self._settle()
        if self._timers:
            await asyncio.wait(self._timers)

    async def _send(self, number: int, *, timed: bool) -> None:
        plan = self._plan
        key, value = plan.key_of(number), plan.value_of(number)
        began = time.monotonic()
        future = await self._producer.send(plan.topic, value, key=key)
        self._outstanding.append((number, len(value), future))
        if timed:
            task = asyncio.create_task(self._time(number, future, began))
            self._timers.add(task)
            task.add_done_callback(self._timers.discard)

    async def _time(self, number: int, future: SendFuture, began: float) -> None:
        try:
            await future
        except KafkaError:
            return  # `_settle` counts the failure.
        ms = round((time.monotonic() - began) * 1000)
        for flow in self._flows(number):
            flow.latencies.add(ms)

    def _settle(self) -> None:
        """Count the records with an outcome by now; print a line at each reporting interval."""
        while self._outstanding and self._outstanding[0][2].done():
            number, size, future = self._outstanding.popleft()
            try:
                future.result()
            except KafkaError as error:
                self.produced.failed += 1
                self.produced.error = self.produced.error or error
                continue
            for flow in self._flows(number):
                flow.records += 1
                flow.bytes += size
        elapsed_ms = int((time.monotonic() - self._window_began) * 1000)
        if elapsed_ms >= self._plan.interval_ms and self._window.records:
            self._say(producing_line(self._window, elapsed_ms))
            self._window, self._window_began = Flow(), time.monotonic()

    def _flows(self, number: int) -> tuple[Flow, ...]:
        """Return the flows that a record counts in: not the steady one during the warm-up."""
        produced = self.produced
        if number < self._plan.warmup:
            return produced.flow, self._window
        return produced.flow, self._window, produced.steady

    async def _keep_pace(self, sent: int, began: float, stop: Stop) -> bool:
        """Wait until the next record is due, or ``stop``; return whether it had to wait."""
        rate = self._plan.records_per_second
        early = began + sent / rate - time.monotonic() if rate > 0 else 0.0
        if early < PAUSE_SECONDS_MIN:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(early):
                await stop.wait()
        return True
