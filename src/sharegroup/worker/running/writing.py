"""Records on their way to a retry topic or to the dead letters, under their locks.

    handler failed ---> write ---acknowledged---> settled (accepted, or rejected)
                          |  ^
                        fails '--- back off, 100 ms to 30 s; the lock is renewed meanwhile

Nothing is settled before its write is acknowledged, so nothing is lost when a topic can't be
written: it is held.  When a write fails, one record goes on trying and the others wait for what
comes of it (`Gate`), so that thousands that are held don't ask thousands of times.

A record that is too large with its story is tried once more without traceback and history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from sharegroup.errors import InvalidRecord, KafkaError, MessageTooLarge, RequestTimedOut
from sharegroup.worker.ports import Clock
from sharegroup.worker.running.in_hand import InHand

log = logging.getLogger(__name__)

BACKOFF_SECONDS_MIN = 0.1
BACKOFF_SECONDS_MAX = 30.0
SLOW_SECONDS = 5.0
"""A write that takes longer counts as blocked; the client tries on by itself."""
UNDER_WAY_MAX = 10_000
"""With so many records on their way, no more are taken: while a topic can't be written, each
that fails would stay here, and all that the group has would in the end."""
ITS_OWN_FAULT = (MessageTooLarge, InvalidRecord)
"""Said of this record, and of no other."""


class Write(Protocol):
    """One attempt; ``shrunk`` leaves out what can be left out.  Raises KafkaError."""

    def __call__(self, *, shrunk: bool) -> Awaitable[object]: ...


class Gate:
    """Of all that is written to one kind of topic; closed while that fails."""

    __slots__ = ("_changed", "_failures", "_prober", "name", "told")

    def __init__(self, name: str, told: Callable[[str, KafkaError | None, InHand], None]) -> None:
        self.name = name
        self.told = told
        """Called when it closes, with the error, and when it opens, with None."""
        self._failures = 0
        self._prober: InHand | None = None
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the last write that ended did not fail."""
        return self._failures == 0

    def may_try(self, one: InHand) -> bool:
        """Whether this record is to try now."""
        return self.is_open or self._prober is None or self._prober is one

    async def changes(self) -> None:
        """Wait until somebody else may try, or all."""
        self._changed.clear()
        await self._changed.wait()

    def failed(self, one: InHand, error: KafkaError) -> float:
        """Writing this record failed; how many seconds to wait."""
        if self.is_open:
            self.told(self.name, error, one)
        self._prober = one
        self._failures += 1
        return _backoff(self._failures)

    def succeeded(self, one: InHand) -> None:
        """A write was acknowledged."""
        if not self.is_open:
            self._failures, self._prober = 0, None
            self._changed.set()
            self.told(self.name, None, one)

    def left(self, one: InHand) -> None:
        """This record tries no more: another one may."""
        if self._prober is one:
            self._prober = None
            self._changed.set()


@dataclass(slots=True)
class _UnderWay:
    """A record that is to be written."""

    one: InHand
    gate: Gate
    attempt_at: float | None = None
    """When the attempt began that is under way; None: there is none."""
    waits: bool = False
    """Whether it waits because a write failed."""


class Writing:
    """All writes of one group that are under way."""

    __slots__ = ("_clock", "_tasks")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[asyncio.Task[None], _UnderWay] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def blocked(self) -> int:
        """How many can't be written: they wait, or try where the last write failed."""
        every = self._tasks.values()
        return sum(under_way.waits or not under_way.gate.is_open for under_way in every)

    @property
    def is_full(self) -> bool:
        """Whether nothing should be taken that may come here, too."""
        return len(self._tasks) >= UNDER_WAY_MAX

    def records(self) -> list[InHand]:
        """What is being written."""
        return [under_way.one for under_way in self._tasks.values()]

    def begin(self, one: InHand, gate: Gate, write: Write, then: Callable[[], None]) -> None:
        """Write until it is acknowledged, and call ``then``; never, when its lock is lost."""
        under_way = _UnderWay(one, gate)
        task = asyncio.get_running_loop().create_task(self._write(under_way, write, then))
        self._tasks[task] = under_way
        task.add_done_callback(self._ended)

    def look(self, now: float) -> None:
        """Notice a write that neither succeeds nor fails, and end what waits to write a record
        whose lock is lost: it is delivered again, and would be here twice."""
        for task, under_way in self._tasks.items():
            gate, attempt_at = under_way.gate, under_way.attempt_at
            if attempt_at is None and under_way.one.is_done:
                task.cancel()
            elif attempt_at is not None and now - attempt_at >= SLOW_SECONDS and gate.is_open:
                text = f"{gate.name}: no acknowledgement for {now - attempt_at:.1f} s"
                gate.failed(under_way.one, RequestTimedOut(text))

    async def finish(self) -> None:
        """Wait for all that are under way."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def cancel(self) -> None:
        """End them all; what was not acknowledged is not settled."""
        for task in self._tasks:
            task.cancel()
        await self.finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "event=writing.failed error=%r (a fault of this library)", error, exc_info=error
            )

    async def _write(self, under_way: _UnderWay, write: Write, then: Callable[[], None]) -> None:
        one, gate = under_way.one, under_way.gate
        shrunk, failures = False, 0
        try:
            while not one.is_done:
                if not gate.may_try(one):
                    await self._wait(under_way, gate.changes())
                    continue
                try:
                    await self._attempt(under_way, write, shrunk=shrunk)
                except ITS_OWN_FAULT as error:
                    failures += 1
                    if shrunk:
                        _say_too_large(one, gate.name, error)
                        await self._pause(under_way, _backoff(failures + 8))
                    shrunk = True
                except KafkaError as error:
                    await self._pause(under_way, gate.failed(one, error))
                else:
                    gate.succeeded(one)
                    then()
                    return
        finally:
            gate.left(one)

    async def _attempt(self, under_way: _UnderWay, write: Write, *, shrunk: bool) -> None:
        under_way.attempt_at = self._clock.now()
        try:
            await write(shrunk=shrunk)
        finally:
            under_way.attempt_at = None

    async def _pause(self, under_way: _UnderWay, seconds: float) -> None:
        await self._wait(under_way, self._clock.sleep_until(self._clock.now() + seconds))

    async def _wait(self, under_way: _UnderWay, what: Awaitable[None]) -> None:
        under_way.waits = True
        try:
            await what
        finally:
            under_way.waits = False


def _backoff(failures: int) -> float:
    return min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2.0 ** min(failures - 1, 20))


def _say_too_large(one: InHand, name: str, error: KafkaError) -> None:
    delivery = one.delivery
    log.error(
        "event=record.unwritable of=%s topic=%s partition=%s offset=%s error=%r "
        "(it is held; let the topic take larger records: max.message.bytes)",
        name,
        delivery.topic,
        delivery.partition,
        delivery.offset,
        error,
    )
