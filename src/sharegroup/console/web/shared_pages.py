"""What is made once for all browsers that look at the same address within a second.

Ten browsers on one page cost as many requests to the cluster as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FRESH_SECONDS = 0.9
"""How long a result is fresh from its begin: a little less than a second, when parts are due."""
KEPT_MAX = 500
"""Results that are kept; streams and pages of more addresses make their own."""


class Shared(Generic[T]):
    """Fresh results by key; a caller waits if the result of its key is being made."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept: dict[Hashable, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the fresh result of a key, or make it."""
        now = self._monotonic()
        self._kept = {
            kept_key: (began_at, task)
            for kept_key, (began_at, task) in self._kept.items()
            if not task.done() or now - began_at < FRESH_SECONDS
        }
        if key in self._kept:
            task = self._kept[key][1]
        else:
            task = asyncio.create_task(make())
            if len(self._kept) < KEPT_MAX:
                self._kept[key] = (now, task)
        # Others may wait for it, too, when this one's browser goes away.
        return await asyncio.shield(task)
