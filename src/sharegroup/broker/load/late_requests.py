"""Keeps requests in order while an earlier request of the same connection is decoded in slices.

A large request is decoded in slices (`broker.load.slices`).  Requests of one connection are decided
in the order in which they came (ADR 0006), so later requests wait here, undecoded.  The connection
bounds their number, because each has a place in its queue of answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from sharegroup.wire.codec.encoder import Chunk

T = TypeVar("T")

Reply = list[Chunk]


class Decoding(NamedTuple):
    """A request that is being prepared or decoded; ``start`` decides it and returns its reply."""

    request: asyncio.Future[Any]
    start: Callable[[Any], Reply | asyncio.Future[Reply] | Decoding]


Take = Callable[[], Reply | asyncio.Future[Reply] | Decoding]
"""Takes a waiting request: decodes and decides it, or begins to decode it."""


Pause = Callable[[], Awaitable[None]]
"""Waits until the client may be served, which is later if its earlier request was over a quota."""


async def no_pause() -> None:
    """Do not wait: the first request of the queue has begun already."""


class LateRequests:
    """The connections with a request that is being decoded, and the requests behind it."""

    __slots__ = ("_tasks", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, deque[tuple[Take, Pause, asyncio.Future[Reply]]]] = {}
        """The requests behind the one that is being decoded, by connection."""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def wait(self, connection_id: int, take: Take, pause: Pause) -> asyncio.Future[Reply]:
        """Take a request after those before it; its connection must be in ``waiting``."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.waiting[connection_id].append((take, pause, reply))
        return reply

    def begin(self, connection_id: int, decoding: Decoding) -> asyncio.Future[Reply]:
        """Decide a request when it is decoded, and then the requests that came after it."""
        assert connection_id not in self.waiting
        # From now on `dispatch` puts later requests of the connection behind this one (ADR 0006).
        self.waiting[connection_id] = deque()
        reply = self.wait(connection_id, lambda: decoding, no_pause)
        task = asyncio.get_running_loop().create_task(self._run(connection_id))
        self._tasks[connection_id] = task
        return reply

    def drop(self, connection_id: int) -> None:
        """Drop the undecided requests of a closed connection."""
        task = self._tasks.pop(connection_id, None)
        if task is not None:
            task.cancel()
            for _, _, reply in self.waiting.pop(connection_id):
                reply.cancel()

    async def _run(self, connection_id: int) -> None:
        waiting = self.waiting[connection_id]
        while waiting:
            take, pause, reply = waiting.popleft()
            try:
                await pause()
                answer = take()
                while isinstance(answer, Decoding):  # First it is prepared, then decoded.
                    answer = answer.start(await answer.request)
            except asyncio.CancelledError:
                reply.cancel()
                raise
            except Exception as error:  # noqa: BLE001  The connection gets the error.
                reply.set_exception(error)
            else:
                _pass_on(answer, reply)
            await asyncio.sleep(0)  # The next request may take long, too.
        del self.waiting[connection_id], self._tasks[connection_id]


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
