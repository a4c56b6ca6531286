"""Requests of transactional producers that wait: for a sync, or for the markers of a transaction.

While the markers of a decided transaction are written, the requests for its transactional id wait
in their order.  One of them may decide the next transaction; the others go on waiting then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.coordinator_log import Durable
from sharegroup.errors import ConcurrentTransactions, KafkaError

T = TypeVar("T")

WAIT_MS_MAX = 5_000
"""How long a request waits for the markers of the previous transaction of its transactional id."""


async def when_durable(deciding: asyncio.Future[Durable[T]]) -> T:
    """Return a result when it was decided and is durable."""
    return await (await deciding)


class _Waiting(NamedTuple):
    """A request that waits for the end of a transaction, and the future of its result."""

    action: Callable[[], Any]
    result: asyncio.Future[Any]

    def run(self) -> None:
        """Do what the request asks for, unless nobody waits for its result any more."""
        if self.result.done():
            return
        try:
            self.result.set_result(self.action())
        except KafkaError as error:
            self.result.set_exception(error)


class WaitingRequests:
    """The requests that wait for the end of a transaction, by transactional id."""

    __slots__ = ("_clock", "_is_settled", "_queues")

    def __init__(self, clock: Clock, is_settled: Callable[[str], bool]) -> None:
        """``is_settled`` returns whether no decided transaction of an id waits for its markers."""
        self._clock = clock
        self._is_settled = is_settled
        self._queues: dict[str, deque[_Waiting]] = {}

    def when_settled(self, transactional_id: str, action: Callable[[], T]) -> asyncio.Future[T]:
        """Call ``action`` at once, or when the id's decided transaction is complete, in order.

        The future has its result or its exception; ConcurrentTransactions after `WAIT_MS_MAX`.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(action, result)
        # Never past a request that waits already: they are decided in their order of arrival.
        if transactional_id not in self._queues and self._is_settled(transactional_id):
            waiting.run()
            return result
        self._queues.setdefault(transactional_id, deque()).append(waiting)
        # Not cancelled when the request is served: `_give_up` finds nothing then.
        self._clock.call_at_ms(
            self._clock.now_ms() + WAIT_MS_MAX,
            lambda: self._give_up(transactional_id, waiting),
        )
        return result

    def run(self, transactional_id: str) -> None:
        """Run the requests that waited, until one of them decides the next transaction."""
        queue = self._queues.get(transactional_id)
        while queue:
            if not self._is_settled(transactional_id):
                return
            # One at a time, because the action may decide the next transaction; then the rest waits
            # for that.
            queue.popleft().run()
        self._queues.pop(transactional_id, None)

    def run_all(self) -> None:
        """Run the requests of all ids whose transaction is complete."""
        for transactional_id in tuple(self._queues):
            self.run(transactional_id)

    def cancel(self) -> None:
        """Cancel all requests, because the broker stops."""
        for queue in self._queues.values():
            for waiting in queue:
                waiting.result.cancel()

    def _give_up(self, transactional_id: str, waiting: _Waiting) -> None:
        queue = self._queues.get(transactional_id)
        if queue is None or waiting not in queue:
            return
        # Only this request: those behind it have deadlines of their own.
        queue.remove(waiting)
        if not queue:
            del self._queues[transactional_id]
        if not waiting.result.done():
            waiting.result.set_exception(
                ConcurrentTransactions(
                    f"transactional id {transactional_id!r}: the markers of the previous "
                    f"transaction could not be written for {WAIT_MS_MAX} ms; try again"
                )
            )
