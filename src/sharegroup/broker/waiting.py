"""Long polls: requests that wait for something to happen.

A parked request is a function that is tried again whenever one of its keys is woken, and a
last time at its deadline.  Wake-ups within one turn of the event loop are tried once, in the
order in which the requests were parked, so that whoever waits longest is served first.

Who comes in that turn must not be faster than those who wait: `serve_woken` gives these theirs.
Without it a member that settles records and fetches more by one request always takes the room
that it made, and a member that waits for room waits for ever.

A share fetch waits for thousands of partitions.  It is parked under its session's key alone, and
`on_wake` says which sessions what happened concerns.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Container, Hashable, Iterable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from sharegroup.broker.clock import Alarm, Clock

T = TypeVar("T")

ANSWERED_MIN = 256
"""Below this number of answered requests the heap of deadlines is left as it is."""


class OfConnection(NamedTuple):
    """The key of all requests that came through one connection."""

    connection_id: int


class Parked(Generic[T]):
    """One waiting request; ``answer`` is done when it has waited long enough."""

    __slots__ = ("_attempt", "answer", "deadline_ms", "keys", "order")

    def __init__(
        self,
        attempt: Callable[[bool], T | None],
        answer: asyncio.Future[T],
        *,
        keys: tuple[Hashable, ...],
        deadline_ms: int,
        order: int,
    ) -> None:
        self._attempt = attempt
        self.answer = answer
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.order = order

    def try_now(self, *, last: bool) -> bool:
        """Whether the request is answered; on the ``last`` try it always is."""
        if self.answer.done():
            return True
        try:
            result = self._attempt(last)
        except Exception as error:  # noqa: BLE001  The one who waits gets whatever went wrong.
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
        "_concerned",
        "_deadlines",
        "_loop",
        "_order",
        "_parked_count",
        "_woken",
        "_woken_keys",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarm = Alarm(clock, self._on_deadline)
        self._loop = asyncio.get_running_loop()
        self._order = count()
        self._concerned: Callable[[Hashable], Iterable[Hashable]] = lambda _: ()
        self._parked_count = 0
        self._by_key: dict[Hashable, dict[int, Parked[object]]] = {}
        self._deadlines: list[tuple[int, int, Parked[object]]] = []
        self._woken: dict[int, Parked[object]] = {}
        self._woken_keys: set[Hashable] = set()

    def __len__(self) -> int:
        return self._parked_count

    def on_wake(self, concerned: Callable[[Hashable], Iterable[Hashable]]) -> None:
        """Have whoever waits for one of ``concerned(key)`` woken with those that wait for it."""
        self._concerned = concerned

    def park(
        self,
        attempt: Callable[[bool], T | None],
        *,
        keys: Iterable[Hashable],
        deadline_ms: int,
    ) -> asyncio.Future[T]:
        """Try ``attempt(False)`` at every wake-up of a key, ``attempt(True)`` at the deadline.

        An attempt returns None to go on waiting.  Cancelling the future gives up.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        parked = Parked(
            attempt,
            answer,
            keys=tuple(keys),
            deadline_ms=deadline_ms,
            order=next(self._order),
        )
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked.order] = parked  # type: ignore[assignment]
        heapq.heappush(self._deadlines, (deadline_ms, parked.order, parked))  # type: ignore[misc]
        self._parked_count += 1
        answer.add_done_callback(lambda _: self._forget(parked))
        self._set_alarm()
        return answer

    def wake(self, key: Hashable) -> None:
        """Something happened to ``key``: whoever waits for it tries again soon."""
        for each in (key, *self._concerned(key)):
            waiting = self._by_key.get(each)
            if waiting:
                if not self._woken:
                    self._loop.call_soon(self._try_woken)
                self._woken.update(waiting)
                self._woken_keys.add(key)

    def serve_woken(self, keys: Container[Hashable]) -> None:
        """If somebody was woken for one of ``keys`` in this turn, let the woken try now."""
        if self._woken_keys and any(key in keys for key in self._woken_keys):
            self._try_woken()

    def give_up(self, key: Hashable) -> None:
        """Nobody will read the answers of those that wait for ``key``: cancel them."""
        for parked in list(self._by_key.get(key, {}).values()):
            parked.answer.cancel()

    def _try_woken(self) -> None:
        woken, self._woken = self._woken, {}
        self._woken_keys.clear()
        for order in sorted(woken):
            woken[order].try_now(last=False)

    def _forget(self, parked: Parked[T]) -> None:
        self._parked_count -= 1
        for key in parked.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(parked.order, None)
                if not waiting:
                    del self._by_key[key]

    def _drop_answered(self) -> None:
        """Forget answered requests whose deadlines lie far ahead, once they are the most."""
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
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            heapq.heappop(self._deadlines)[2].try_now(last=True)
        self._set_alarm()
