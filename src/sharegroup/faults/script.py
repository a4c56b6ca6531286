"""The script of a broker's faults: which requests fail, wait or lose their connection.

A test adds faults, and each request that arrives from then on takes the first one that matches it
and is not used up.  A request that the broker already holds, such as a fetch that waits for
records, is not affected.

Requests of the client id `EXEMPT_CLIENT_ID` are never affected, so a test can look at the broker
while other clients see its faults.

Faults may be added and removed from any thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from sharegroup.broker.clock import Clock
from sharegroup.errors import BY_CODE, KafkaError
from sharegroup.faults.running_clock import ADVANCE_SECONDS_MAX
from sharegroup.suggestions import did_you_mean
from sharegroup.wire.codec.apis import APIS, Api
from sharegroup.wire.codec.schema import code_name

EXEMPT_CLIENT_ID = "sharegroup-testing"

FAULTS_MAX = 1_000
"""Maximum number of faults of one script; more are a loop in a test that never removes them."""

EVERY_API = "*"


@dataclass(frozen=True, slots=True)
class Fail:
    """Answers the request with an error, and does not apply it."""

    error: type[KafkaError]

    @classmethod
    def named(cls, error: str) -> Self:
        """Return the action for the name of an error code, such as "NOT_LEADER_OR_FOLLOWER"."""
        return cls(error_named(error))


@dataclass(frozen=True, slots=True)
class Delay:
    """Delays the request by seconds of the broker's clock, or only its answer if ``applied``.

    Without ``applied``, later requests of the same connection wait as well, because Kafka keeps
    their order.
    """

    seconds: float
    applied: bool = False

    def __post_init__(self) -> None:
        # Here and not when a request comes: it would fail, and hold up its connection for ever.
        if not 0 <= self.seconds <= ADVANCE_SECONDS_MAX:
            raise ValueError(
                f"a delay must be 0 to {ADVANCE_SECONDS_MAX} seconds, not {self.seconds}"
            )


@dataclass(frozen=True, slots=True)
class Drop:
    """Closes the connection without an answer, before the request is applied or after."""

    applied: bool = False


FaultAction = Fail | Delay | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFilter:
    """The requests that a fault affects; None stands for all."""

    api: Api | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        limits = {"topic": self.topic, "partition": self.partition, "client_id": self.client_id}
        texts = [f"{name}={value!r}" for name, value in limits.items() if value is not None]
        return " ".join([EVERY_API if self.api is None else self.api.name, *texts])


class Fault:
    """A fault of a script; as a context manager it is removed at the end of the block."""

    __slots__ = ("_script", "action", "count", "filter", "number", "times")

    def __init__(
        self,
        script: FaultScript,
        number: int,
        action: FaultAction,
        matching: FaultFilter,
        times: int | None,
    ) -> None:
        self._script = script
        self.number = number
        """The number of the fault in its script; `FaultScript.remove` takes it."""
        self.action = action
        self.filter = matching
        self.times = times
        """How many requests it affects; None: all until it is removed."""
        self.count = 0
        """The number of requests that were affected so far."""

    @property
    def is_used_up(self) -> bool:
        """Whether it affects no more requests."""
        return self.times is not None and self.count >= self.times

    def remove(self) -> None:
        """Remove the fault, so that no more requests are affected."""
        self._script.remove(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        limit = "" if self.times is None else f" of {self.times}"
        return f"<Fault {self.filter}: {_text(self.action)}, {self.count}{limit} times>"


class FaultScript:
    """The faults of one broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thawed: list[asyncio.Future[None]] = []
        self._pauses: set[asyncio.Future[None]] = set()
        self.is_frozen = False
        """Whether the broker answers nothing at the moment."""

    # Adding and removing

    def add(
        self,
        action: FaultAction,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Let an action happen to the next ``times`` requests of an API.

        ``api`` is Kafka's name, such as ``"Produce"``, or ``"*"`` for all.  ``times=None`` affects
        all requests until the fault is removed.
        """
        if times is not None and times < 1:
            raise ValueError(f"times must be at least 1, or None for all requests, not {times}")
        if partition is not None and topic is None:
            raise ValueError(f"partition={partition} needs a topic")
        matching = FaultFilter(
            api=api_named(api), topic=topic, partition=partition, client_id=client_id
        )
        with self._lock:
            # Used up ones, too: they stay until they are removed, so a test can read their counts.
            if len(self._faults) >= FAULTS_MAX:
                raise ValueError(
                    f"the script has {FAULTS_MAX} faults; remove some, or call clear()"
                )
            self._number += 1
            fault = Fault(self, self._number, action, matching, times)
            self._faults[fault.number] = fault
        return fault

    def fail(
        self,
        api: str,
        *,
        error: str,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answer the next ``times`` requests of an API with an error; the broker applies none.

        ``api`` is Kafka's name of a request, such as ``"Produce"``, or ``"*"`` for all.  ``error``
        is Kafka's name of an error code, such as ``"NOT_LEADER_OR_FOLLOWER"``.  ``times=None``
        fails all requests until the fault is removed: use the returned `Fault` as a context
        manager.  ``topic``, ``partition`` and ``client_id`` restrict it.  Errors of partitions
        appear in the answer for the partition, and other partitions are served.

        Requests that the broker holds already, such as a fetch that waits, are not affected.
        """
        action = Fail.named(error)
        return self.add(
            action, api, times=times, topic=topic, partition=partition, client_id=client_id
        )

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        applied: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Delay the next ``times`` requests of an API, by seconds of the broker's clock.

        With ``applied`` the broker applies a request at once, and only its answer is late.  Without
        it, later requests of the same connection wait as well, because Kafka keeps their order.
        """
        action = Delay(seconds, applied)
        return self.add(
            action, api, times=times, topic=topic, partition=partition, client_id=client_id
        )

    def drop(
        self,
        api: str,
        *,
        applied: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Close the connection instead of answering the next ``times`` requests of an API.

        With ``applied`` the broker applies a request first, so its client cannot know whether it
        was applied.
        """
        action = Drop(applied)
        return self.add(
            action, api, times=times, topic=topic, partition=partition, client_id=client_id
        )

    def remove(self, number: int) -> bool:
        """Remove a fault by its number; return whether it was there."""
        with self._lock:
            return self._faults.pop(number, None) is not None

    def clear(self) -> None:
        """Remove all faults, and thaw the broker."""
        with self._lock:
            self._faults.clear()
        self.thaw()

    @property
    def faults(self) -> list[Fault]:
        """The faults that were not removed, also those that are used up."""
        with self._lock:
            return list(self._faults.values())

    # Freezing

    def freeze(self) -> None:
        """Let the broker accept connections and requests, but answer nothing until `thaw`.

        Its clock runs on, so locks and sessions may end meanwhile.
        """
        self.is_frozen = True

    def thaw(self) -> None:
        """End `freeze`; requests that came meanwhile are handled in their order."""
        self.is_frozen = False
        loop = self._loop
        # A test may clear its faults after the broker and its event loop have ended.
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the broker for a block: ``with b.frozen(): ...``."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note the event loop of the broker, on which waiting requests are woken."""
        self._loop = loop

    async def wait_until_thawed(self) -> None:
        """Return at once, or when the broker is not frozen any more."""
        # A loop, because a test may freeze the broker anew before this task runs.
        while self.is_frozen:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Only touched on the event loop, so it needs no lock: `thaw` comes here through the
            # loop.
            self._thawed.append(waiting)
            await waiting

    def pause(self, clock: Clock, seconds: float) -> asyncio.Future[None]:
        """Begin a pause of so many seconds of ``clock``; return a future that ends with it.

        It ends early when the broker stops.
        """
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due_ms = clock.now_ms() + round(seconds * 1_000)
        timer = clock.call_at_ms(due_ms, lambda: _finish(over))
        self._pauses.add(over)

        def ended(_: object) -> None:
            # Also if the request was cancelled: its connection may be gone before the pause is
            # over.
            timer.cancel()
            self._pauses.discard(over)

        over.add_done_callback(ended)
        return over

    def release(self) -> None:
        """End the freeze and all pauses, because the broker stops; the faults stay."""
        self.is_frozen = False
        self._wake()
        for over in list(self._pauses):
            _finish(over)

    def _wake(self) -> None:
        woken, self._thawed = self._thawed, []
        for waiting in woken:
            _finish(waiting)

    # Matching

    def match(
        self, api: Api, client_id: str, request: Any, *, by_partition: tuple[type[KafkaError], ...]
    ) -> tuple[list[Fault], Fault | None]:
        """Return the first fault that affects a request as a whole, or None, and those before it
        that may affect some of its partitions.

        Faults of partitions are failures with an error in ``by_partition``.  They are returned even
        if the request does not name their topic, because a fetch may have named it earlier in its
        session: its handler looks, and counts.
        """
        of_partitions: list[Fault] = []
        # Without the lock: nearly all requests of a test find no fault.
        if not self._faults:
            return of_partitions, None
        # A copy, because a test may add and remove faults on another thread.
        for fault in self.faults:
            action, matching = fault.action, fault.filter
            if fault.is_used_up or matching.api not in (None, api):
                continue
            if matching.client_id not in (None, client_id):
                continue
            if isinstance(action, Fail) and issubclass(action.error, by_partition):
                of_partitions.append(fault)
            elif matching.topic is None or names_topic(request, matching.topic, matching.partition):
                # Without the lock, because only the event loop of the broker counts.
                fault.count += 1
                return of_partitions, fault
        return of_partitions, None


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def api_named(name: str) -> Api | None:
    """Return the API of this name, None for ``"*"``; raise ValueError for other names."""
    if name == EVERY_API:
        return None
    for api in APIS.values():
        if api.name == name:
            return api
    names = sorted(api.name for api in APIS.values())
    raise ValueError(f"there is no API {name!r}{_expected(name, [EVERY_API, *names])}")


def error_named(name: str) -> type[KafkaError]:
    """Return the error class of an error code by Kafka's name for the code."""
    for error in BY_CODE.values():
        if code_name(error) == name:
            return error
    names = sorted(code_name(error) for error in BY_CODE.values())
    raise ValueError(f"there is no error {name!r}{_expected(name, names)}")


def _expected(name: str, names: Sequence[str]) -> str:
    """Return the names that this one may stand for, or all of them."""
    return did_you_mean(name, names) or f"; expected one of: {', '.join(names)}"


def _text(action: FaultAction) -> str:
    match action:
        case Fail(error):
            return f"fail with {code_name(error)}"
        case Delay(seconds, applied):
            return f"delay {'the answer' if applied else 'the request'} by {seconds} s"
        case Drop(applied):
            return f"drop the connection {'after' if applied else 'before'} applying it"


# Whether a request names a topic or a partition, for all APIs alike.
#
# Kafka's messages name topics in a few ways: a structure with ``name``, ``topic`` or ``topic_name``
# that may have partitions, or a list of names. Requests that name topics only by their id are
# recognized by their handlers (`faulty_handlers`).


TOPIC_FIELDS = ("name", "topic", "topic_name", "resource_name")
NAME_LISTS = ("topic_names", "subscribed_topic_names", "topics")
PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes")
PARTITION_FIELDS = ("index", "partition", "partition_index")


def names_topic(message: Any, topic: str, partition: int | None) -> bool:
    """Return whether a message names the topic, and the partition unless it is None."""
    if not dataclasses.is_dataclass(message):
        return False
    if any(getattr(message, field, None) == topic for field in TOPIC_FIELDS):
        return partition is None or _names_partition(message, partition)
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if not isinstance(value, tuple):
            continue
        if partition is None and field.name in NAME_LISTS and topic in value:
            return True
        if any(names_topic(element, topic, partition) for element in value):
            return True
    return False


def _names_partition(message: Any, partition: int) -> bool:
    lists = [getattr(message, field, None) for field in PARTITION_LISTS]
    for numbers in lists:
        for element in numbers or ():
            number = element
            if dataclasses.is_dataclass(element):
                fields = (getattr(element, field, None) for field in PARTITION_FIELDS)
                number = next((value for value in fields if value is not None), None)
            if number == partition:
                return True
    return False
