"""Signals of the worker process, handled on its event loop.

    SIGTERM, SIGINT, SIGHUP   stop: handlers get `grace` to finish, other records are released
                              a second one ends the grace (SIGHUP not under ``nohup``)
    SIGUSR1                   quiet: take no more records, finish the records taken
    SIGUSR2                   take records again

In a supervisor, SIGHUP replaces the processes instead; its processes ignore it.

A signal only adds a wish to a queue that the program reads.  Nothing else runs in a signal handler.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto

from sharegroup import stop_signals
from sharegroup.fleet.commands import Intent

QUIET = signal.SIGUSR1
RESUME = signal.SIGUSR2


class Wish(Enum):
    """A request to the worker, made by a signal or by a command (`sharegroup.fleet`)."""

    STOP = auto()
    HURRY = auto()
    QUIET = auto()
    RESUME = auto()


class Wishes:
    """The queue of wishes, in the order of their signals; read it with `next_wish`."""

    __slots__ = ("_arrived", "_queue", "_signalled", "_stopping")

    def __init__(self) -> None:
        self._queue: list[Wish] = []
        self._arrived = asyncio.Event()
        self._stopping = False
        self._signalled = False
        """Whether `stop` was called, which the supervisor does not do."""

    def stop(self) -> None:
        """Request a stop; a second call requests to hurry."""
        if self._signalled:
            self._add(Wish.HURRY)
        else:
            self.stop_with_supervisor()
        self._signalled = True

    def stop_with_supervisor(self) -> None:
        """Request a stop, unless one was requested.

        Ctrl-C and systemd signal a supervisor and its processes.  If the supervisor's request and
        such a signal were counted together, they would end the grace.
        """
        if not self._stopping:
            self._add(Wish.STOP)
        self._stopping = True

    def hurry(self) -> None:
        """Request the end of the grace."""
        self._add(Wish.HURRY)

    def quiet(self) -> None:
        """Request to take no more records."""
        self._add(Wish.QUIET)

    def resume(self) -> None:
        """Request to take records again."""
        self._add(Wish.RESUME)

    def obey(self, intent: Intent) -> None:
        """Request what a command asks for."""
        {Intent.STOP: self.stop, Intent.QUIET: self.quiet, Intent.RESUME: self.resume}[intent]()

    def again(self, wishes: Sequence[Wish]) -> None:
        """Put these wishes back, before all others."""
        self._queue[:0] = wishes
        self._arrived.set()

    async def next_wish(self) -> Wish:
        """Wait for the next wish and return it."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.pop(0)

    def _add(self, wish: Wish) -> None:
        self._queue.append(wish)
        self._arrived.set()


@contextmanager
def listening(
    wishes: Wishes, *, to_interrupts: bool = True, on_hangup: Callable[[], None] | None = None
) -> Iterator[None]:
    """Convert the signals of this process to wishes within the block.

    With ``to_interrupts=False``, SIGINT is ignored: Ctrl-C is for the watcher (``--reload``).
    ``on_hangup`` is called for SIGHUP in place of a stop.
    """
    loop = asyncio.get_running_loop()
    handled = {QUIET: wishes.quiet, RESUME: wishes.resume}
    handled |= dict.fromkeys(stop_signals.heeded(), wishes.stop)
    if on_hangup is not None and signal.SIGHUP in handled:
        handled[signal.SIGHUP] = on_hangup
    if not to_interrupts:
        handled[signal.SIGINT] = lambda: None
    for number, call in handled.items():
        loop.add_signal_handler(number, call)
    stop_signals.release()  # A supervisor and its processes hold them from their begin.
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
