"""What the signals mean to a worker, on the event loop that runs it.

    SIGTERM, SIGINT, SIGHUP   stop: finish what fits in `grace`, give back the rest
                              the second one: give back everything now
    SIGUSR1                   quiet: take no more records, finish what is here
    SIGUSR2                   take records again

The numbers only set what the worker's own task looks at; nothing runs inside of a handler of
the operating system's.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
QUIET = signal.SIGUSR1
RESUME = signal.SIGUSR2


class Wish(Enum):
    """What somebody wants of the worker."""

    STOP = auto()
    HURRY = auto()
    QUIET = auto()
    RESUME = auto()


class Wishes:
    """Signals in the order in which they came; iterate with `next_wish`."""

    __slots__ = ("_arrived", "_queue", "_stopping")

    def __init__(self) -> None:
        self._queue: list[Wish] = []
        self._arrived = asyncio.Event()
        self._stopping = False

    def stop(self) -> None:
        """Stop; a second call hurries."""
        self._add(Wish.HURRY if self._stopping else Wish.STOP)
        self._stopping = True

    def quiet(self) -> None:
        """Take no more records."""
        self._add(Wish.QUIET)

    def resume(self) -> None:
        """Take records again."""
        self._add(Wish.RESUME)

    def again(self, wishes: Sequence[Wish]) -> None:
        """Hear these once more, before all others."""
        self._queue[:0] = wishes
        self._arrived.set()

    async def next_wish(self) -> Wish:
        """The next one, as soon as there is one."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.pop(0)

    def _add(self, wish: Wish) -> None:
        self._queue.append(wish)
        self._arrived.set()


@contextmanager
def listening(wishes: Wishes, *, to_interrupts: bool = True) -> Iterator[None]:
    """Let this process's signals be wishes.

    ``to_interrupts`` False: a Ctrl-C is for the process that watches this one (``--reload``).
    """
    loop = asyncio.get_running_loop()
    handled = {QUIET: wishes.quiet, RESUME: wishes.resume}
    handled |= dict.fromkeys(STOP, wishes.stop)
    if not to_interrupts:
        handled[signal.SIGINT] = lambda: None
    for number, call in handled.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
