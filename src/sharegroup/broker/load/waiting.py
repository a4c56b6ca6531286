"""Long polls: requests that wait for an event.

A parked request is a function that is tried again whenever one of its keys is woken, and a last
time at its deadline.  Wake-ups within one turn of the event loop cause one try.  Requests are
tried in the order in which they were parked, so the one that waits longest is served first.

If thousands of requests are woken, they take more than one turn: after a few milliseconds the
rest waits for the next turn.

New requests in that turn must not overtake the woken ones: `serve_woken` tries those first.
Without it, a member that settles records and fetches more by the same request would always take
the room that it made, and a member that waits for room would wait forever.

A share fetch waits for thousands of partitions.  It is parked under its session's key alone, and
`Watches` returns the sessions that an event concerns.

If fetches of several members of a group wait for a share partition, the first may take all of its
records.  They are a queue: the fetch that waits longest is tried, and the next ones only while
records remain.  So an event costs the same with a thousand waiting members as with one, apart from
finding the first.  The others are not touched; they wait for the next event.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Container, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.core.sessions.session_partitions import Owner, Watches
from sharegroup.ids import SharePartitionKey

T = TypeVar("T")

WAIT_MS_MAX = 5 * 60 * 1000
"""The longest time that a request is parked, even if it asks for more."""

ANSWERED_MIN = 256
"""The heap of deadlines is not cleaned up below this number of answered requests."""

SLICE_SECONDS = 0.005
"""Time for which woken requests are tried before the event loop serves other requests."""


class OfConnection(NamedTuple):
    """The key of all requests that came through one connection."""

    connection_id: int


class Parked(Generic[T]):
    """One waiting request; ``answer`` is done when the wait is over."""

    __slots__ = ("_attempt", "_woken", "answer", "deadline_ms", "keys", "order", "woken_keys")

    def __init__(
        self,
        attempt: Callable[[bool], T | None],
        answer: asyncio.Future[T],
        *,
        keys: list[Hashable],
        deadline_ms: int,
        order: int,
        woken: Callable[[Hashable], None] | None,
    ) -> None:
        self._attempt = attempt
        self._woken = woken
        self.woken_keys: set[Hashable] | None = None if woken is None else set()
        """Keys that were woken since the last attempt; None if the request does not need them."""
        self.answer = answer
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.order = order

    def try_now(self, *, last: bool) -> bool:
        """Try the request; return whether it is answered.  The ``last`` try always answers it."""
        # `_forget` is called a turn after the answer, so an answered request may be here still.
        if self.answer.done():
            return True
        try:
            if self._woken is not None and self.woken_keys:
                for key in self.woken_keys:
                    self._woken(key)
                self.woken_keys.clear()
            result = self._attempt(last)
        except Exception as error:  # noqa: BLE001  Raised where the answer is awaited.
            self.answer.set_exception(error)
            return True
        if result is None:
            assert not last, "the last attempt must give an answer"
            return False
        self.answer.set_result(result)
        return True


class WaitingRoom:
    """All parked requests of the broker."""

    __slots__ = (
        "_alarm",
        "_by_key",
        "_clock",
        "_deadlines",
        "_is_due",
        "_lines",
        "_loop",
        "_order",
        "_parked_count",
        "_queues",
        "_remains",
        "_to_queue",
        "_to_wake",
        "_woken",
        "_woken_keys",
        "seconds",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarm = Alarm(clock, self._on_deadline)
        self._loop = asyncio.get_running_loop()
        self._order = 0
        self._is_due = False
        self.seconds: Callable[[], float] = time.perf_counter
        """The clock that measures the slices, only to compare times."""
        self._queues = Watches()
        self._remains: Callable[[SharePartitionKey], bool] = lambda _: False
        self._parked_count = 0
        self._by_key: dict[Hashable, dict[int, Parked[object]]] = {}
        self._deadlines: list[tuple[int, int, Parked[object]]] = []
        self._to_wake: dict[Hashable, int] = {}
        """Woken keys, each with the number of the last request that was parked at that time."""
        self._woken: dict[int, Parked[object]] = {}
        self._to_queue: dict[SharePartitionKey, None] = {}
        """Queues with an event since the last try."""
        self._lines: dict[SharePartitionKey, list[Owner]] = {}
        """The sessions of these queues that are to be tried yet; the first is the last one."""
        self._woken_keys: set[Hashable] = set()

    def __len__(self) -> int:
        return self._parked_count

    def use_queues(self, queues: Watches, remains: Callable[[SharePartitionKey], bool]) -> None:
        """Let events also wake the share fetches that wait for them, while records remain."""
        self._queues, self._remains = queues, remains

    def park(
        self,
        attempt: Callable[[bool], T | None],
        *,
        keys: Iterable[Hashable],
        deadline_ms: int,
        woken: Callable[[Hashable], None] | None = None,
    ) -> asyncio.Future[T]:
        """Try ``attempt(False)`` at every wake-up of a key, ``attempt(True)`` at the deadline.

        An attempt returns None to continue waiting.  Before it, ``woken`` is called for each key
        that was woken.  Cancel the future to end the wait.
        """
        return self.park_open(attempt, keys=keys, deadline_ms=deadline_ms, woken=woken).answer

    def park_open(
        self,
        attempt: Callable[[bool], T | None],
        *,
        keys: Iterable[Hashable],
        deadline_ms: int,
        woken: Callable[[Hashable], None] | None = None,
    ) -> Parked[T]:
        """Park a request like `park`; more keys can be added with `watch`."""
        self._order += 1
        answer: asyncio.Future[T] = self._loop.create_future()
        parked = Parked(
            attempt,
            answer,
            keys=list(keys),
            deadline_ms=deadline_ms,
            order=self._order,
            woken=woken,
        )
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked.order] = parked  # type: ignore[assignment]
        # The order decides between equal deadlines, because requests cannot be compared.
        heapq.heappush(self._deadlines, (deadline_ms, parked.order, parked))  # type: ignore[misc]
        self._parked_count += 1
        answer.add_done_callback(lambda _: self._forget(parked))
        self._set_alarm()
        return parked

    def watch(self, parked: Parked[T], key: Hashable) -> None:
        """Let a parked request wait for one more key."""
        if not parked.answer.done():
            self._by_key.setdefault(key, {})[parked.order] = parked  # type: ignore[assignment]
            parked.keys.append(key)

    def wake(self, key: Hashable) -> None:
        """Let the requests that wait for ``key`` try again soon, because its state has changed."""
        self._wake(key, key)
        for concerned in self._queues.happened(key, self._by_key):
            if isinstance(concerned, SharePartitionKey):
                self._to_queue[concerned] = None
                self._note(key)
            else:
                self._wake(concerned, key)

    def _wake(self, concerned: Hashable, key: Hashable) -> None:
        if concerned in self._by_key:
            # With the newest request so far: one that is parked later sees the new state by itself.
            self._to_wake[concerned] = self._order
            self._note(key)

    def _note(self, key: Hashable) -> None:
        self._woken_keys.add(key)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._on_due)

    def serve_woken(self, keys: Container[Hashable]) -> bool:
        """Try the woken requests now if one of ``keys`` was woken in this turn.

        Returns False if there were too many for a slice, so some of them still wait for their try.
        """
        if self._woken_keys and any(key in keys for key in self._woken_keys):
            return self._try_woken()
        return True

    def give_up(self, key: Hashable) -> None:
        """Cancel the requests that wait for ``key``, because their answers will not be read."""
        for parked in list(self._by_key.get(key, {}).values()):
            parked.answer.cancel()

    def _on_due(self) -> None:
        self._is_due = False
        if not self._try_woken():
            self._is_due = True
            self._loop.call_soon(self._on_due)

    def _try_woken(self) -> bool:
        """Try woken requests for a slice of time; return whether all were tried."""
        self._find_woken()
        end = self.seconds() + SLICE_SECONDS
        for order in sorted(self._woken):
            parked = self._woken.pop(order)
            parked.try_now(last=False)
            if (self._woken or self._lines) and self.seconds() >= end:
                return False
        while self._lines:
            self._try_first(next(iter(self._lines)))
            if self._lines and self.seconds() >= end:
                return False
        # An attempt may have woken more requests, which have their turn, too.
        if not (self._to_wake or self._to_queue):
            self._woken_keys.clear()
        return not (self._to_wake or self._to_queue)

    def _try_first(self, queue: SharePartitionKey) -> None:
        """Try the first request of a queue; nobody is next if no records remain."""
        line = self._lines[queue]
        waiter = line.pop()
        # By its key: it may have been answered and parked again since it was queued.
        if self._queues.tell(queue, waiter):
            for parked in list(self._by_key.get(waiter, {}).values()):
                parked.try_now(last=False)
        if not line or not self._remains(queue):
            del self._lines[queue]

    def _find_woken(self) -> None:
        """Look up the requests that had waited for a key when it was woken."""
        to_wake, self._to_wake = self._to_wake, {}
        for key, last_order in to_wake.items():
            for order, parked in self._by_key.get(key, {}).items():
                # A request that was parked after the wake-up has seen the new state already.
                if order <= last_order:
                    self._woken[order] = parked
                    if parked.woken_keys is not None:
                        parked.woken_keys.add(key)
        to_queue, self._to_queue = self._to_queue, {}
        for queue in to_queue:
            orders: list[tuple[int, Owner]] = []
            for waiter in self._queues.queue(queue):
                if waiter in self._by_key:
                    orders.append((min(self._by_key[waiter]), waiter))
                else:
                    # Its next fetch looks by itself.
                    self._queues.tell(queue, waiter)
            self._lines.pop(queue, None)
            if orders:
                orders.sort(reverse=True)
                self._lines[queue] = [waiter for _, waiter in orders]

    def _forget(self, parked: Parked[T]) -> None:
        self._parked_count -= 1
        for key in parked.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(parked.order, None)
                if not waiting:
                    del self._by_key[key]

    def _drop_answered(self) -> None:
        """Drop the deadlines of answered requests once they are the majority."""
        if len(self._deadlines) > 2 * self._parked_count + ANSWERED_MIN:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].answer.done()]
            heapq.heapify(self._deadlines)

    def _set_alarm(self) -> None:
        self._drop_answered()
        while self._deadlines and self._deadlines[0][2].answer.done():
            heapq.heappop(self._deadlines)
        if self._deadlines:
            self._alarm.set(self._deadlines[0][0])

    def _on_deadline(self) -> None:
        now_ms = self._clock.now_ms()
        end = self.seconds() + SLICE_SECONDS
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            heapq.heappop(self._deadlines)[2].try_now(last=True)
            # The alarm is set to a time that is over, so the rest follows in the next turn.
            if self.seconds() >= end:
                break
        self._set_alarm()
