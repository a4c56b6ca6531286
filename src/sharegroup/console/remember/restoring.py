"""Puts what was written by an earlier console before what this one has seen since its start."""

from __future__ import annotations

import asyncio

from sharegroup.console.remember.blocks import Block
from sharegroup.console.watch.history import History

SLICE_GROUPS = 100
"""Groups that are handled before other tasks have their turn: a millisecond or two."""


class Restoring:
    """Gathers blocks in the order in which they were written, minutes before seconds."""

    __slots__ = ("_earlier", "points")

    def __init__(self) -> None:
        self._earlier = History()
        self.points = 0
        """The points in the blocks, those included that are there twice."""

    async def take(self, block: Block) -> None:
        """Take the points of a block; the same block a second time changes nothing."""
        for number, (group_id, points) in enumerate(block.groups):
            self._earlier.extend(group_id, block.tier, points)
            self.points += len(points.times)
            if number % SLICE_GROUPS == SLICE_GROUPS - 1:
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def restore(self, history: History) -> None:
        """Put everything that was taken into a history; there is nothing left afterwards."""
        for number, group_id in enumerate(self._earlier.group_ids()):
            history.restore(group_id, self._earlier.of(group_id))
            if number % SLICE_GROUPS == SLICE_GROUPS - 1:
                await asyncio.sleep(0)
        self._earlier = History()
