"""The child's side of `processes`: find the handler, call it for what comes, answer."""

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

from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.declared.handler import HandlerShape, shape_of
from sharegroup.worker.ports import Delivery, Header
from sharegroup.worker.records.outcomes import SomeFailed
from sharegroup.worker.records.record import Record
from sharegroup.worker.records.story import Story
from sharegroup.worker.running.shared_lock import SharedLock
from sharegroup.worker.seeing import logs
from sharegroup.worker.seeing.current import CURRENT

PR_SET_PDEATHSIG = 1
MESSAGE_CHARACTERS_MAX = 4_000
PARENTS_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
"""A terminal sends them to the whole group of processes; only the worker's own listens."""


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class RemoteError(Exception):
    """A handler's exception that can't be sent from process to process: its class and text."""


@dataclass(slots=True)
class Copy:
    """What a delivery is, without its lock: settling it is the parent's business."""

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
    """None while it is on its way."""

    @classmethod
    def of(cls, delivery: Delivery) -> Copy:
        """The copy of a delivery."""
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
        """When the lock ends, as far as the parent knows; of a batch, when the first one does."""
        return max(self.deadline_at_call, self.lock.deadline if self.lock is not None else 0.0)

    def accept(self) -> None: ...
    def release(self) -> None: ...
    def reject(self) -> None: ...

    def renew(self) -> None:
        """Ask the parent, who looks some times in a second."""
        if self.lock is not None:
            self.lock.ask()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the handler."""

    payload: Any
    """Of a batch handler the list of them."""
    records: tuple[tuple[Copy, Story], ...]
    """None, if the handler does not take them."""
    is_batch: bool
    place: Mapping[str, Any] | None
    """Which record the log is to say that it is about."""

    @classmethod
    def of(cls, payload: Any, record: Record | Sequence[Record] | None) -> Call:
        """Of a payload, and of the record or records where the handler takes them."""
        is_batch = isinstance(record, Sequence)
        current = CURRENT.get()
        return cls(
            payload,
            tuple((Copy.of(one.delivery), one.story) for one in records_of(record)),
            is_batch,
            None if current is None else logs.place_of(current),
        )


def records_of(record: Record | Sequence[Record] | None) -> Sequence[Record]:
    """What a handler takes as its second parameter, as a sequence."""
    if record is None:
        return ()
    return (record,) if isinstance(record, Record) else record


@dataclass(frozen=True, slots=True)
class Answer:
    """How it ended."""

    result: Any = None
    error: BaseException | None = None
    traceback: str = ""
    decisions: tuple[Any, ...] = ()
    """Of each record that it took, what was decided by hand."""


class ChildClock:
    """The clock of this machine, which all its processes share."""

    def now(self) -> float:
        """As ``time.monotonic()``."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        """Wait."""
        await asyncio.sleep(max(0.0, when - self.now()))


def serve(connection: Connection, lock: SharedLock, module: str, qualified_name: str) -> None:
    """Call the handler for what comes, until the pipe ends."""
    _die_with_parent()
    for one in PARENTS_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    logs.configure_as_parent()
    clock = ChildClock()
    with asyncio.Runner() as runner:
        try:
            shape = _find(module, qualified_name)
            _run(runner, shape.opening)
        except Exception as error:  # noqa: BLE001  The parent is told.
            text = "".join(traceback.format_exception(error))
            connection.send_bytes(_pickled(Answer(error=error, traceback=text)))
            return
        connection.send_bytes(_pickled(Answer()))
        try:
            while True:
                try:
                    call = connection.recv()
                except EOFError:
                    return
                for copy, _ in call.records:
                    copy.lock = lock
                answer = _answer(runner, shape, call, clock)
                connection.send_bytes(_pickled(answer))
        finally:
            _run(runner, shape.closing)


def _answer(runner: asyncio.Runner, shape: HandlerShape, call: Call, clock: ChildClock) -> Answer:
    CURRENT.set(call.place)
    records = [Record(delivery, story, clock) for delivery, story in call.records]
    arguments = [call.payload]
    if records:
        arguments.append(records if call.is_batch else records[0])
    try:
        result = _run(runner, lambda: shape.call(*arguments))
    except BaseException as error:  # noqa: BLE001  It is the parent's to decide about.
        text = "".join(traceback.format_exception(error))
        return Answer(error=error, traceback=text, decisions=_decisions(records))
    return Answer(result=result, decisions=_decisions(records))


def _decisions(records: Sequence[Record]) -> tuple[Any, ...]:
    return tuple(one.decision for one in records)


def _run(runner: asyncio.Runner, function: Callable[[], Any] | None) -> Any:
    if function is None:
        return None
    result = function()
    if inspect.iscoroutine(result):
        return runner.run(_placed(result, CURRENT.get()))
    return result


async def _placed(work: Coroutine[Any, Any, Any], place: Any) -> Any:
    """The runner has a context of its own, in which what `open` set stays."""
    CURRENT.set(place)
    return await work


def _pickled(answer: Answer) -> bytes:
    """The answer as bytes that can be read again; what can't be is said in words."""
    data, why = _copied(answer)
    if why is not None:
        error, result = answer.error, answer.result
        answer = replace(
            answer,
            # Of a result only its failures matter: which of a batch's records are not done.
            result=[_portable(one) for one in result] if isinstance(result, list | tuple) else None,
            error=_portable(error),
        )
        data = pickle.dumps(answer)
    return data


def _copied(thing: object) -> tuple[bytes, Exception | None]:
    """Its bytes, and why they are none that can be read again."""
    try:
        data = pickle.dumps(thing)
        pickle.loads(data)  # noqa: S301  Our own, a line ago.  Many exceptions fail only here.
    except Exception as error:  # noqa: BLE001  A class of the application's may do anything.
        return b"", error
    return data, None


def _portable(thing: object) -> BaseException | None:
    """An exception, or what can be said of it; None of anything else."""
    if not isinstance(thing, BaseException):
        return None
    _, why = _copied(thing)
    if why is None:
        return thing
    if isinstance(thing, SomeFailed):
        failed = {index: _portable(error) for index, error in thing.errors.items()}
        return SomeFailed({index: error for index, error in failed.items() if error is not None})
    said = message_of(thing, MESSAGE_CHARACTERS_MAX)
    return RemoteError(f"{class_name(thing)}: {said} (not picklable: {type(why).__name__})")


def _find(module: str, qualified_name: str) -> HandlerShape:
    found = attrgetter(qualified_name)(importlib.import_module(module))
    return shape_of(found)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
