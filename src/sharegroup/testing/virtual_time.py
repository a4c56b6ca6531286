"""Virtual time for asyncio: a loop that jumps to the next timer instead of sleeping.

It is for code that waits only for timers and other tasks, without sockets and threads. If every
task waits and no timer is set, the program could never continue. The loop then raises `Stuck`
instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Every task waits and no timer is set, so the program would hang for ever."""


class _TimeTravel(selectors.BaseSelector):
    """A selector that advances the clock by ``timeout`` seconds instead of sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        entry = self._keys[fileobj] = selectors.SelectorKey(fileobj, descriptor, events, data)
        return entry

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("every task waits and no timer is set")
        # ``timeout`` is the time until the next timer, or 0 if callbacks are ready.
        self.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time; ``loop.time()`` starts at 0."""

    def __init__(self) -> None:
        self._travel = _TimeTravel()
        super().__init__(self._travel)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._travel.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end without waiting for anything.

    >>> import asyncio
    >>> run(asyncio.sleep(3600, "an hour later"))
    'an hour later'
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
