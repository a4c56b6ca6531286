"""What handlers saw, for a test that waits until they saw enough."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.limits import HANGING_SECONDS

LIMIT_SECONDS = HANGING_SECONDS


class Collected:
    """Filled from any thread."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self._changed = threading.Condition()

    def add(self, name: str, *what: Any) -> None:
        """Something happened."""
        with self._changed:
            self.all.append((name, *what))
            self._changed.notify_all()

    def seen(self, name: str) -> list[tuple[Any, ...]]:
        """All of one name, without it."""
        return [tuple(rest) for event, *rest in self.all if event == name]

    async def wait_for(self, count: int) -> None:
        """Until there are so many."""

        def enough() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: len(self.all) >= count, LIMIT_SECONDS)

        if not await asyncio.to_thread(enough):
            raise TimeoutError(f"expected {count}, got {self.all}")


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine function, as pytest takes it."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run
