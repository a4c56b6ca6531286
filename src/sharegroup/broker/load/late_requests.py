"""Keeps requests in order while an earlier request of the same connection is decoded in slices.

A large request is decoded in slices (`broker.load.slices`).  Requests of one connection are decided
in the order in which they came (ADR 0006), so later requests wait here, undecoded.  The connection
bounds their number, because each has a place in its queue of answers.

As in Kafka, what was received is decided even if the connection closes meanwhile: a producer with
``acks=0`` waits for nothing, and records would be lost without a sign.  Until then the connection
keeps its place among all connections and its bytes in the budget of requests, so peers that send
and close are bounded like others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sharegroup.broker.clock import Clock
from sharegroup.wire.codec.encoder import Chunk

T = TypeVar("T")

Reply = list[Chunk]


TURN_REQUESTS = 32
"""Number of requests of one connection that are decided in one turn of the event loop."""

TURN_MS = 2
"""Time after which the other requests wait for the next turn, because each may take long."""


class Decoding(NamedTuple):
    """A request that is being prepared or decoded; ``start`` decides it and returns its reply."""

    request: asyncio.Future[Any]
    start: Callable[[Any], Reply | asyncio.Future[Reply] | Decoding]


Take = Callable[[], Reply | asyncio.Future[Reply] | Decoding]
"""Takes a waiting request: decodes and decides it, or begins to decode it."""


ServedFrom = Callable[[], int]
"""Returns the time from which the client is served, which is later if it was over a quota."""


def served_now() -> int:
    """Return a time that is over: the first request of the queue has begun already."""
    return 0


class _Queue:
    """The undecided requests of one connection."""

    __slots__ = ("decided", "pause", "requests", "task")

    def __init__(self) -> None:
        self.requests: deque[tuple[Take, ServedFrom, asyncio.Future[Reply]]] = deque()
        """The requests behind the one that is being decoded."""
        self.task: asyncio.Task[None]
        self.pause: asyncio.Future[None] | None = None
        """Done when the client may be served; None while it is."""
        self.decided: Callable[[], None] | None = None
        """Called when all is decided; None while the connection is open."""


class LateRequests:
    """The connections with a request that is being decoded, and the requests behind it."""

    __slots__ = ("_clock", "waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: dict[int, _Queue] = {}
        """The undecided requests, by connection."""

    def wait(
        self, connection_id: int, take: Take, served_from: ServedFrom
    ) -> asyncio.Future[Reply]:
        """Take a request after those before it; its connection must be in ``waiting``."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.waiting[connection_id].requests.append((take, served_from, reply))
        return reply

    def begin(self, connection_id: int, decoding: Decoding) -> asyncio.Future[Reply]:
        """Decide a request when it is decoded, and then the requests that came after it."""
        assert connection_id not in self.waiting
        # From now on `dispatch` puts later requests of the connection behind this one (ADR 0006).
        self.waiting[connection_id] = queue = _Queue()
        reply = self.wait(connection_id, lambda: decoding, served_now)
        queue.task = asyncio.get_running_loop().create_task(self._run(connection_id, queue))
        return reply

    def finish(self, connection_id: int, decided: Callable[[], None]) -> None:
        """Decide the requests of a closed connection, then call ``decided``."""
        queue = self.waiting[connection_id]
        queue.decided = decided
        # A throttle time holds back a client; this one has gone.
        _end(queue.pause)

    def drop(self, connection_id: int) -> None:
        """Drop the undecided requests of a closed connection, because it holds too much memory."""
        queue = self.waiting.get(connection_id)
        if queue is not None:
            queue.task.cancel()

    async def _run(self, connection_id: int, queue: _Queue) -> None:
        try:
            remaining, end_ms = TURN_REQUESTS, self._clock.now_ms() + TURN_MS
            while queue.requests:
                # One request in each turn of the event loop would never reach the end: a client
                # that sends ahead has sent the next one by then, and all its requests would go the
                # long way through this queue for as long as it is busy.
                if not remaining or self._clock.now_ms() >= end_ms:
                    await asyncio.sleep(0)
                    remaining, end_ms = TURN_REQUESTS, self._clock.now_ms() + TURN_MS
                remaining -= 1
                take, served_from, reply = queue.requests.popleft()
                if not await self._is_decided(queue, take, served_from, reply):
                    break
        finally:
            for _, _, reply in queue.requests:
                reply.cancel()
            # The task and the queue refer to each other: the frames must not wait for the garbage
            # collector (ADR 0025).
            queue.requests.clear()
            del self.waiting[connection_id]
            if queue.decided is not None:
                queue.decided()

    async def _is_decided(
        self, queue: _Queue, take: Take, served_from: ServedFrom, reply: asyncio.Future[Reply]
    ) -> bool:
        """Decide a request; return False if the connection ends with it."""
        try:
            await self._until(queue, served_from)
            answer = take()
            while isinstance(answer, Decoding):  # First it is prepared, then decoded.
                answer = answer.start(await answer.request)
        except asyncio.CancelledError:
            reply.cancel()
            raise
        except Exception as error:  # noqa: BLE001  The connection gets the error.
            reply.set_exception(error)
            return False
        _pass_on(answer, reply)
        return True

    async def _until(self, queue: _Queue, served_from: ServedFrom) -> None:
        """Wait until the client is served, or has gone."""
        while queue.decided is None and (until_ms := served_from()) > self._clock.now_ms():
            queue.pause = pause = asyncio.get_running_loop().create_future()
            timer = self._clock.call_at_ms(until_ms, partial(_end, pause))
            try:
                await pause
            finally:
                timer.cancel()
                queue.pause = None


def _end(pause: asyncio.Future[None] | None) -> None:
    if pause is not None and not pause.done():
        pause.set_result(None)


def _pass_on(taken: Reply | asyncio.Future[Reply], reply: asyncio.Future[Reply]) -> None:
    """Set the result of ``reply`` from a reply or a future of it."""
    if isinstance(taken, list):
        reply.set_result(taken)
        return

    def done(source: asyncio.Future[Reply]) -> None:
        if reply.done():
            return
        if source.cancelled():
            reply.cancel()
        elif (error := source.exception()) is not None:
            reply.set_exception(error)
        else:
            reply.set_result(source.result())

    taken.add_done_callback(done)
