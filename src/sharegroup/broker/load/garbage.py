"""Controls when the garbage collector of `sharegroup serve` examines which objects (ADR 0025).

Python's full collection examines every object, 0.2 us each, and no client is served meanwhile.
Almost all old objects are in use, because reference counting has freed most of the others.

    young ──▶ middle ──▶ oldest ──▶ frozen ──┐
                           ▲                 │  review: much more memory is in use
                           └─────────────────┘

So the survivors of each collection of the oldest generation are frozen: collections ignore them.
A review, a collection of all objects, finds cycles of frozen objects that are no longer in use.
It is due when the process uses a quarter and `GROWTH_BLOCKS` more blocks of memory than after the
last one.  So the memory of such cycles is bounded, and a broker that does not grow makes no
reviews.

The collector belongs to the whole process, so an embedded broker leaves it as it is.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Literal, NoReturn, Protocol

log = logging.getLogger(__name__)

THRESHOLDS = (700, 10, 2)
"""New objects, and collections of the younger generation, that make a collection due.  The oldest
generation has at least 23,000 new objects then, and its collection takes about 2 ms."""

GROWTH_BLOCKS = 250_000
"""Blocks of memory, about 80 bytes each, that the process may gain before a review: 20 MB."""

LOOK_SECONDS = 1.0
"""The interval at which the blocks are counted, which takes 0.4 ms for two million."""


class Collector(Protocol):
    """The functions of the module `gc` that the policy uses."""

    callbacks: list[Callable[[Literal["start", "stop"], dict[str, int]], object]]

    def collect(self) -> int: ...
    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...
    def set_threshold(self, young: int, middle: int, oldest: int, /) -> None: ...


class GarbagePolicy:
    """Freezes what survives collections, and reviews all objects when the process has grown."""

    __slots__ = ("_blocks", "_blocks_max", "_clock", "_collector")

    def __init__(
        self,
        collector: Collector = gc,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._collector = collector
        self._blocks = blocks
        self._blocks_max = 0
        self._clock = clock

    def start(self) -> None:
        """Freeze all objects, and from now on the survivors of each collection."""
        self._collector.set_threshold(*THRESHOLDS)
        self._collector.callbacks.append(self._collected)
        self.settle()

    def settle(self) -> None:
        """Freeze all objects, and compare later growth with the memory that is in use now."""
        self._collector.freeze()
        blocks = self._blocks()
        self._blocks_max = blocks + blocks // 4 + GROWTH_BLOCKS

    def look(self) -> None:
        """Review all objects if the process has grown much since the last review."""
        blocks = self._blocks()
        if blocks <= self._blocks_max:
            return
        began = self._clock()
        self._collector.unfreeze()
        found = self._collector.collect()
        self.settle()
        # Python makes no full collection until the number of new objects is a quarter of those that
        # the last collection looked at.  This collection looks at none, so that condition ends.
        self._collector.collect()
        log.info(
            "event=garbage_reviewed ms=%d blocks=%d blocks_before=%d found=%d",
            (self._clock() - began) * 1000,
            self._blocks(),
            blocks,
            found,
        )

    async def run(self) -> NoReturn:
        """Call `look` every `LOOK_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def _collected(self, phase: str, details: dict[str, int]) -> None:
        if phase == "stop" and details["generation"] == len(THRESHOLDS) - 1:
            self._collector.freeze()
