"""The child process's side of `processes`: finds the handler, calls it, and sends answers."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import pickle
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from operator import attrgetter
from typing import Any

from sharegroup.dead_letters.story import Story
from sharegroup.worker.decisions.batches import ends_of_returned
from sharegroup.worker.decisions.messages import trace_of
from sharegroup.worker.declarations.handler import HandlerShape, shape_of
from sharegroup.worker.executors.error_copies import Portable, copied, portable
from sharegroup.worker.executors.process_sends import AheadClock, PipeOutbox, Sending, SendReply
from sharegroup.worker.ports import DeliveredRecord, Header, WorkerClock
from sharegroup.worker.records.record import CURRENT, WAY, Record, WayOut
from sharegroup.worker.redaction import TEXT_CHARACTERS_MAX
from sharegroup.worker.telemetry import logs

PR_SET_PDEATHSIG = 1
PARENTS_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals of the worker, which may reach its whole process group; child processes ignore them."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass(slots=True)
class DeliveryCopy:
    """A picklable copy of a delivery.  It cannot settle the record; only the parent does."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    delivery_count: int
    deadline_at_call: float
    is_lost: bool = False
    lock: SharedLock | None = None
    """Set by the child; None while the copy is sent through the pipe."""

    @classmethod
    def of(cls, delivery: DeliveredRecord) -> DeliveryCopy:
        """Return a copy of the delivery."""
        return cls(
            delivery.topic,
            delivery.partition,
            delivery.offset,
            delivery.timestamp_ms,
            delivery.key,
            delivery.value,
            tuple(delivery.headers),
            delivery.delivery_count,
            delivery.deadline,
        )

    @property
    def deadline(self) -> float:
        """The lock deadline that the parent knows; of a batch, the earliest deadline."""
        return max(self.deadline_at_call, self.lock.deadline if self.lock is not None else 0.0)

    def accept(self) -> None: ...
    def release(self, *, delay: timedelta | None = None) -> None: ...
    def reject(self) -> None: ...

    def renew(self) -> None:
        """Ask the parent to renew the lock; it looks every `processes.LOOK_SECONDS`."""
        if self.lock is not None:
            self.lock.ask()


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of the handler, as the parent sends it to the child."""

    payload: Any
    """The payload; for a batch handler, the list of payloads."""
    records: tuple[tuple[DeliveryCopy, Story], ...]
    """Empty if the handler does not take records."""
    is_batch: bool
    place: Mapping[str, Any] | None
    """The record that log lines of this call name (`logs.place_of`)."""
    ahead_ms: int | None = None
    """By how much the worker's wall clock is ahead of the system's; None if it cannot send."""

    @classmethod
    def of(
        cls,
        payload: Any,
        record: Record | Sequence[Record] | None,
        sending: Sending | None = None,
    ) -> HandlerCall:
        """Return the call for a payload, and for its records if the handler takes them."""
        is_batch = isinstance(record, Sequence)
        current = CURRENT.get()
        return cls(
            payload,
            tuple(
                (DeliveryCopy.of(record_in_call.delivery), record_in_call.story)
                for record_in_call in records_of(record)
            ),
            is_batch,
            None if current is None else logs.place_of(current),
            None if sending is None else sending.ahead_ms,
        )


def records_of(record: Record | Sequence[Record] | None) -> Sequence[Record]:
    """Return the second argument of a handler as a sequence of records."""
    if record is None:
        return ()
    return (record,) if isinstance(record, Record) else record


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of a call, as the child sends it to the parent."""

    result: Any = None
    error: Portable | None = None
    traceback: str = ""
    decisions: tuple[Any, ...] = ()
    """The explicit decision of the handler about each record that it took."""


def serve(connection: Connection, lock: SharedLock, module: str, qualified_name: str) -> None:
    """Call the handler for each `HandlerCall` from the pipe until the pipe is closed."""
    _die_with_parent()
    for signal_number in PARENTS_SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)
    logs.configure_as_parent()
    # All processes share the machine's clocks, so the deadlines of the parent are valid here.
    clock = AheadClock()
    # One loop for all calls: what `open` has connected belongs to the loop that it ran on.
    with asyncio.Runner() as runner:
        try:
            shape = _find(module, qualified_name)
            _run(runner, shape.opening)
        except Exception as error:  # noqa: BLE001  The error is sent to the parent.
            connection.send_bytes(_pickled(HandlerResult(error=error, traceback=_trace(error))))
            return
        try:
            connection.send_bytes(_pickled(HandlerResult()))
            outbox = PipeOutbox(connection, runner)
            while True:
                call = _read(connection.recv_bytes())
                if isinstance(call, SendReply):
                    outbox.answered(call)  # The handler has returned without it.
                    continue
                if isinstance(call, HandlerCall):
                    clock.ahead_ms = call.ahead_ms or 0
                    WAY.set(None if call.ahead_ms is None else WayOut(outbox, clock, outbox.run))
                    call = _answer(runner, shape, call, clock, lock)
                connection.send_bytes(_pickled(call))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # The worker has closed the pipe, or was killed.
        finally:
            _run(runner, shape.closing)


def _read(pickled: bytes) -> HandlerCall | SendReply | HandlerResult:
    """Return a message of the worker; a result that says why it cannot be read, otherwise."""
    try:
        call: HandlerCall | SendReply = pickle.loads(pickled)  # noqa: S301  The parent has pickled it.
    except Exception as error:  # noqa: BLE001  A class of the payload may raise anything.
        return HandlerResult(error=error, traceback=_trace(error))
    return call


def _answer(
    runner: asyncio.Runner,
    shape: HandlerShape,
    call: HandlerCall,
    clock: WorkerClock,
    lock: SharedLock,
) -> HandlerResult:
    CURRENT.set(call.place)
    for copy, _ in call.records:
        copy.lock = lock
    records = [Record(delivery, story, clock) for delivery, story in call.records]
    # Before the call: a batch handler may empty the list that it gets.
    count = len(call.payload) if shape.is_batch else 1
    arguments = [call.payload]
    if records:
        arguments.append(records if call.is_batch else records[0])
    try:
        result = _run(runner, lambda: shape.call(*arguments))
    except BaseException as error:  # noqa: BLE001  The parent decides what to do with it.
        return HandlerResult(error=error, traceback=_trace(error), decisions=_decisions(records))
    if shape.is_batch and copied(result) is None:
        result = ends_of_returned(result, count)
    return HandlerResult(result=result, decisions=_decisions(records))


def _trace(error: BaseException) -> str:
    return trace_of(error)[-TEXT_CHARACTERS_MAX:]


def _decisions(records: Sequence[Record]) -> tuple[Any, ...]:
    return tuple(record.decision for record in records)


def _run(runner: asyncio.Runner, function: Callable[[], Any] | None) -> Any:
    if function is None:
        return None
    result = function()
    if inspect.iscoroutine(result):
        return runner.run(_placed(result, CURRENT.get(), WAY.get()))
    return result


async def _placed(work: Coroutine[Any, Any, Any], place: Any, way: WayOut | None) -> Any:
    """Run the coroutine with `CURRENT` and `WAY` set.

    The runner has its own context, which keeps the context variables that `open` has set.
    """
    CURRENT.set(place)
    WAY.set(way)
    return await work


def _pickled(answer: HandlerResult) -> bytes:
    """Return the pickled answer; objects that cannot be pickled are replaced by a description."""
    pickled = copied(answer)
    errors = [form for form in (answer.error, *answer.decisions) if isinstance(form, BaseException)]
    if pickled is not None and all(portable(error) is error for error in errors):
        return pickled
    ends = answer.result if isinstance(answer.result, list | tuple) else ()
    answer = replace(
        answer,
        # Only the failures in a result matter: they say which records of a batch failed.
        result=[portable(end) for end in ends] or None,
        error=portable(answer.error),
        decisions=tuple(portable(form) or form for form in answer.decisions),
    )
    return pickle.dumps(answer)


def _find(module: str, qualified_name: str) -> HandlerShape:
    handler = attrgetter(qualified_name)(importlib.import_module(module))
    return shape_of(handler)


def _die_with_parent() -> None:
    # Other systems have no such request; there the end of the pipe ends the child after its call.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# The lock deadline of a record is shared between the worker and the process that handles it.
#
# The worker renews the lock; the process reads the deadline and may ask for a renewal. Both use two
# numbers in shared memory. The pipe between them cannot be used for this, because the process does
# not read it while it runs a handler.
#
#     worker    tell(deadline) --->  deadline       process
#               asked()        <---  ask()          (`Record.renew`)
#
# Each number is written and read atomically. Only one side writes it, except that the worker resets
# the request of `ask`.


DEADLINE, ASKED = 0, 1


class SharedLock:
    """The lock deadline of the record that one handler process handles now, in shared memory."""

    __slots__ = ("_numbers",)

    def __init__(self, context: SpawnContext) -> None:
        self._numbers: Any = context.RawArray("d", 2)

    @property
    def deadline(self) -> float:
        """The lock deadline in seconds of the monotonic clock; 0.0 until the worker has set it."""
        deadline: float = self._numbers[DEADLINE]
        return deadline

    def begin(self) -> None:
        """Reset both numbers, because another record is handled."""
        self._numbers[DEADLINE] = self._numbers[ASKED] = 0.0

    def tell(self, deadline: float) -> None:
        """Set the lock deadline; called by the worker."""
        self._numbers[DEADLINE] = deadline

    def ask(self) -> None:
        """Ask the worker to renew the lock; called by the process."""
        self._numbers[ASKED] = 1.0

    def asked(self) -> bool:
        """Whether the process has asked for a renewal since the last call."""
        is_asked: bool = self._numbers[ASKED] > 0
        self._numbers[ASKED] = 0.0
        return is_asked
