"""Writes records to a retry topic or a dead-letter topic while their acquisition locks are kept.

    handler failed ---> write ---acknowledged---> settled (accepted or rejected)
                          |  ^
                        fails '--- backoff, 100 ms to 30 s; the lock is renewed meanwhile

A record is settled only after its write was acknowledged.  So no record is lost while a topic
cannot be written: its lock is kept.  When a write fails, one record retries, and the others wait
for its result (`TopicGate`); otherwise thousands of records would retry at the same time.

A record that is too large together with its story is written again without traceback and history.

An error that is no KafkaError is a fault of this program, and repeating the write does not help.
The record is given back, so that another process or version may have it; near the delivery count
limit it is held instead, because the broker would archive it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from sharegroup.backoff import Backoff, without_jitter
from sharegroup.errors import KafkaError, RequestTimedOut
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.retrying.targets import ITS_OWN_FAULT
from sharegroup.worker.running.taken_record import TakenRecord

log = logging.getLogger(__name__)

BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 30_000
SLOW_SECONDS = 5.0
"""A write that takes longer counts as blocked.  The client keeps retrying it."""
PENDING_MAX = 10_000
"""With this many pending writes the worker takes no more records.  While a topic cannot be
written, each failed record stays here, so without a limit all records of the group would."""


class WriteAttempt(Protocol):
    """Makes one attempt to write a record; raises KafkaError.

    ``shrunk`` leaves out the traceback and the history of the record.
    """

    def __call__(self, *, shrunk: bool) -> Awaitable[object]: ...


class TopicGate:
    """Lets all records write while writes to a topic succeed, and a single one while they fail."""

    __slots__ = ("_backoff", "_is_open", "_prober", "_waiting", "name", "tell")

    def __init__(
        self, name: str, tell: Callable[[str, KafkaError | None, TakenRecord], None]
    ) -> None:
        self.name = name
        self.tell = tell
        """Called with the error when the gate closes, and with None when it opens."""
        self._is_open = True
        # Without jitter, because one record probes for all: there is no crowd to spread.
        self._backoff = Backoff(BACKOFF_MS_MIN, BACKOFF_MS_MAX, chance=without_jitter)
        self._prober: TakenRecord | None = None
        self._waiting: dict[asyncio.Future[None], TakenRecord] = {}

    @property
    def is_open(self) -> bool:
        """Whether the last completed write succeeded."""
        return self._is_open

    def may_try(self, record: TakenRecord) -> bool:
        """Whether this record may try to write now; while the gate is closed, no other may then."""
        if not self._is_open and self._prober is None:
            self._prober = record
        return self._is_open or self._prober is record

    async def turn(self, record: TakenRecord) -> None:
        """Wait until the gate opens, or until it is this record's turn to try."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = record
        try:
            await turn
        finally:
            del self._waiting[turn]

    def failed(self, record: TakenRecord, error: KafkaError) -> float:
        """Note that writing this record failed; returns the backoff in seconds."""
        if self.is_open:
            self.tell(self.name, error, record)
        self._is_open = False
        # Writes that were pending when the gate closed fail one after the other: the last one
        # probes, and the others wait for its result.
        self._prober = record
        return self._backoff.next_ms() / 1000

    def succeeded(self, record: TakenRecord) -> None:
        """Open the gate, because a write was acknowledged."""
        if not self.is_open:
            self._is_open, self._prober = True, None
            self._backoff.reset()
            for turn in self._waiting:
                if not turn.done():
                    turn.set_result(None)
            self.tell(self.name, None, record)

    def left(self, record: TakenRecord) -> None:
        """Let the next record try, because this record has stopped trying."""
        if self._prober is not record:
            return
        self._prober = None
        for turn, waiting in self._waiting.items():
            if not turn.done():
                # Only this one wakes.  It has the turn from now on, so it can pass it on.
                self._prober = waiting
                turn.set_result(None)
                return


class PendingWrite:
    """The write of one record, which is repeated until it is acknowledged."""

    __slots__ = (
        "_attempt", "_clock", "_gate_now",
        "attempt_at", "gate", "give_back", "is_waiting", "record",
    )  # fmt: skip

    def __init__(
        self,
        record: TakenRecord,
        gate_now: Callable[[], TopicGate],
        attempt: WriteAttempt,
        clock: WorkerClock,
        *,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        self.record = record
        self.give_back = give_back
        """Releases the record; None if it must be held."""
        self._gate_now = gate_now
        self.gate = gate_now()
        """The gate of the topic that the next attempt writes to."""
        self._attempt = attempt
        self._clock = clock
        self.attempt_at: float | None = None
        """The start time of the current attempt; None between attempts."""
        self.is_waiting = False
        """Whether the record waits because a write failed."""

    async def acknowledged(self) -> bool:
        """Write until it is acknowledged.

        False if the record's lock was lost before that, or if the record was given back.
        """
        record = self.record
        shrunk = False
        try:
            while not record.is_done:
                gate = self.gate
                if not gate.may_try(record):
                    await self._wait(gate.turn(record))
                    continue
                try:
                    await self._write(shrunk=shrunk)
                except ITS_OWN_FAULT as error:
                    # Without its story it is as small as it gets, so its own content is too large.
                    if shrunk:
                        await self._hold(error)
                    shrunk = True
                except KafkaError as error:
                    await self._pause(gate.failed(record, error))
                except Exception as error:  # noqa: BLE001  A bug must not leave the record to nobody.
                    if self.give_back is None:
                        await self._hold(error)
                    else:
                        _say_unwritable(record, gate.name, error, "released")
                        self.give_back()
                else:
                    gate.succeeded(record)
                    return True
        finally:
            self.gate.left(record)
        return False

    async def _hold(self, error: Exception) -> None:
        """Pause after an error of this record alone, which only a change of settings may end."""
        _say_unwritable(self.record, self.gate.name, error, "held")
        self.gate.left(self.record)
        await self._pause(BACKOFF_MS_MAX / 1000)

    async def _write(self, *, shrunk: bool) -> None:
        self.attempt_at = self._clock.now()
        try:
            await self._attempt(shrunk=shrunk)
        finally:
            self.attempt_at = None

    async def _pause(self, seconds: float) -> None:
        await self._wait(self._clock.sleep_until(self._clock.now() + seconds))

    async def _wait(self, event: Awaitable[None]) -> None:
        self.is_waiting = True
        try:
            await event
        finally:
            self.is_waiting = False
        # While a record waits, its due time comes nearer, and another retry topic is the next.
        gate = self._gate_now()
        if gate is not self.gate:
            self.gate.left(self.record)
            self.gate = gate


class PendingWrites:
    """The tasks that write records of one group and settle them afterwards."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], PendingWrite] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def blocked(self) -> int:
        """The number of records whose write waits or whose gate is closed."""
        return sum(write.is_waiting or not write.gate.is_open for write in self._tasks.values())

    @property
    def is_full(self) -> bool:
        """Whether the worker should take no more records, because too many writes are pending."""
        return len(self._tasks) >= PENDING_MAX

    def records(self) -> list[TakenRecord]:
        """The records that are being written."""
        return [write.record for write in self._tasks.values()]

    def begin(self, write: PendingWrite, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, which awaits the write and then settles its record, in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = write
        task.add_done_callback(self._ended)

    def look(self, now: float) -> None:
        """Close gates whose writes take too long, and end waiting writes of lost records.

        A lost record is delivered again, so without this it could be written twice.
        """
        for task, write in self._tasks.items():
            gate, attempt_at = write.gate, write.attempt_at
            # An attempt under way goes on: a cancellation would not undo what it may have written.
            if attempt_at is None and write.record.is_done:
                task.cancel()
            elif attempt_at is not None and now - attempt_at >= SLOW_SECONDS and gate.is_open:
                text = f"{gate.name}: no acknowledgement for {now - attempt_at:.1f} s"
                gate.failed(write.record, RequestTimedOut(text))

    async def finish(self) -> None:
        """Wait until no write is pending."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def cancel(self) -> None:
        """Cancel all pending writes; their records are not settled."""
        for task in self._tasks:
            task.cancel()
        await self.finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        write = self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "event=writing.failed error=%r action='report this bug of sharegroup'",
                error,
                exc_info=error,
            )
            if write.give_back is not None and not write.record.is_done:
                write.give_back()


def _say_unwritable(record: TakenRecord, name: str, error: Exception, outcome: str) -> None:
    is_ours = not isinstance(error, KafkaError)
    action = (
        "report this bug of sharegroup" if is_ours else "increase max.message.bytes of the topic"
    )
    delivery = record.delivery
    log.error(
        "event=record.unwritable of=%s topic=%s partition=%s offset=%s error=%r action='the "
        "record is %s; %s'",
        name,
        delivery.topic,
        delivery.partition,
        delivery.offset,
        error,
        outcome,
        action,
        exc_info=error if is_ours else None,
    )
