"""The child process's side of `processes`: finds the handler, calls it, and sends answers."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

from sharegroup.dead_letters.story import Story
from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.declarations.handler import HandlerShape, shape_of
from sharegroup.worker.ports import DeliveredRecord, Header
from sharegroup.worker.records.outcomes import SomeFailed
from sharegroup.worker.records.record import Record
from sharegroup.worker.running.shared_lock import SharedLock
from sharegroup.worker.telemetry import logs
from sharegroup.worker.telemetry.current import CURRENT

PR_SET_PDEATHSIG = 1
MESSAGE_CHARACTERS_MAX = 4_000
PARENTS_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that a terminal sends to the whole process group; child processes ignore them."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class RemoteError(Exception):
    """The class and text of a handler's exception that cannot be pickled."""


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
    def release(self) -> None: ...
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

    @classmethod
    def of(cls, payload: Any, record: Record | Sequence[Record] | None) -> HandlerCall:
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
    error: BaseException | None = None
    traceback: str = ""
    decisions: tuple[Any, ...] = ()
    """The explicit decision of the handler about each record that it took."""


class ChildClock:
    """The machine's clock.  All processes share it, so the parent's deadlines are valid here."""

    def now(self) -> float:
        """Seconds of ``time.monotonic()``."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        """Wait until `now` has reached ``when``."""
        await asyncio.sleep(max(0.0, when - self.now()))


def serve(connection: Connection, lock: SharedLock, module: str, qualified_name: str) -> None:
    """Call the handler for each `HandlerCall` from the pipe until the pipe is closed."""
    _die_with_parent()
    for signal_number in PARENTS_SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)
    logs.configure_as_parent()
    clock = ChildClock()
    with asyncio.Runner() as runner:
        try:
            shape = _find(module, qualified_name)
            _run(runner, shape.opening)
        except Exception as error:  # noqa: BLE001  The error is sent to the parent.
            text = "".join(traceback.format_exception(error))
            connection.send_bytes(_pickled(HandlerResult(error=error, traceback=text)))
            return
        try:
            connection.send_bytes(_pickled(HandlerResult()))
            while True:
                call = connection.recv()
                for copy, _ in call.records:
                    copy.lock = lock
                answer = _answer(runner, shape, call, clock)
                connection.send_bytes(_pickled(answer))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # The worker has closed the pipe, or was killed.
        finally:
            _run(runner, shape.closing)


def _answer(
    runner: asyncio.Runner, shape: HandlerShape, call: HandlerCall, clock: ChildClock
) -> HandlerResult:
    CURRENT.set(call.place)
    records = [Record(delivery, story, clock) for delivery, story in call.records]
    arguments = [call.payload]
    if records:
        arguments.append(records if call.is_batch else records[0])
    try:
        result = _run(runner, lambda: shape.call(*arguments))
    except BaseException as error:  # noqa: BLE001  The parent decides what to do with it.
        text = "".join(traceback.format_exception(error))
        return HandlerResult(error=error, traceback=text, decisions=_decisions(records))
    return HandlerResult(result=result, decisions=_decisions(records))


def _decisions(records: Sequence[Record]) -> tuple[Any, ...]:
    return tuple(record.decision for record in records)


def _run(runner: asyncio.Runner, function: Callable[[], Any] | None) -> Any:
    if function is None:
        return None
    result = function()
    if inspect.iscoroutine(result):
        return runner.run(_placed(result, CURRENT.get()))
    return result


async def _placed(work: Coroutine[Any, Any, Any], place: Any) -> Any:
    """Run the coroutine with `CURRENT` set.

    The runner has its own context, which keeps the context variables that `open` has set.
    """
    CURRENT.set(place)
    return await work


def _pickled(answer: HandlerResult) -> bytes:
    """Return the pickled answer; objects that cannot be pickled are replaced by a description."""
    data, failure = _copied(answer)
    if failure is not None:
        error, result = answer.error, answer.result
        answer = replace(
            answer,
            # Only the failures in a result matter: they say which records of a batch failed.
            result=[_portable(item) for item in result]
            if isinstance(result, list | tuple)
            else None,
            error=_portable(error),
        )
        data = pickle.dumps(answer)
    return data


def _copied(thing: object) -> tuple[bytes, Exception | None]:
    """Return the pickled object and, if it cannot be pickled and unpickled, the error."""
    try:
        data = pickle.dumps(thing)
        pickle.loads(data)  # noqa: S301  Pickled a line above.  Many exceptions fail only here.
    except Exception as error:  # noqa: BLE001  Application classes may raise anything.
        return b"", error
    return data, None


def _portable(thing: object) -> BaseException | None:
    """Return an exception that can be pickled; None if the object is not an exception."""
    if not isinstance(thing, BaseException):
        return None
    _, failure = _copied(thing)
    if failure is None:
        return thing
    if isinstance(thing, SomeFailed):
        failed = {index: _portable(error) for index, error in thing.errors.items()}
        return SomeFailed({index: error for index, error in failed.items() if error is not None})
    message = message_of(thing, MESSAGE_CHARACTERS_MAX)
    return RemoteError(f"{class_name(thing)}: {message} (not picklable: {type(failure).__name__})")


def _find(module: str, qualified_name: str) -> HandlerShape:
    handler = attrgetter(qualified_name)(importlib.import_module(module))
    return shape_of(handler)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
