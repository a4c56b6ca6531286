"""The slots of a route that wait for records, and how they are woken.

A slot that finds more ready records than it takes wakes idle slots, and these wake others.  So as
many slots run as there is work for, and one or two slots run a handler that never waits.
"""

from __future__ import annotations

import asyncio

from sharegroup.worker.ports import WorkerClock


class IdleSlots:
    """Wakes the idle slots of a route, and the slot that gathers a batch."""

    __slots__ = ("_batch_size", "_is_full", "is_gathering", "waiters", "waking")

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._is_full: asyncio.Future[None] | None = None
        """Set when a whole batch is ready; None unless a slot waits for that."""
        self.is_gathering = False
        """Whether a slot gathers a batch."""
        self.waiters: list[asyncio.Future[None]] = []
        """The futures that the idle slots wait for."""
        self.waking = 0
        """The number of slots that were woken and have not run yet."""

    async def wait(self) -> None:
        """Wait until woken."""
        woken = asyncio.get_running_loop().create_future()
        self.waiters.append(woken)
        try:
            await woken
        finally:
            if woken in self.waiters:  # The slot was cancelled, not woken.
                self.waiters.remove(woken)
            else:
                self.waking -= 1

    async def wait_for_batch(self, clock: WorkerClock, deadline: float) -> None:
        """Wait until `wake_one` finds a whole batch ready, or until the deadline."""
        self._is_full = asyncio.get_running_loop().create_future()
        sleeping = asyncio.ensure_future(clock.sleep_until(deadline))
        try:
            await asyncio.wait({self._is_full, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_full = None
            sleeping.cancel()

    def wake_one(self, ready: int) -> None:
        """Wake an idle slot if records are ready, unless a slot was woken already.

        While a slot gathers a batch, only that slot is woken, when the batch is whole.
        """
        if self.is_gathering:
            if ready >= self._batch_size and self._is_full is not None:
                _wake(self._is_full)
        elif ready and self.waiters and not self.waking:
            self.wake(1, ready)

    def wake(self, slots: int, ready: int) -> None:
        """Wake up to ``slots`` idle slots, but not more than records are ready."""
        for _ in range(min(slots, len(self.waiters), ready)):
            self.waking += 1
            _wake(self.waiters.pop())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
