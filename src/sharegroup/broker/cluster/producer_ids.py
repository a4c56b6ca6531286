"""Ids for idempotent producers: unique for ever, handed out from blocks that are durable.

Only the end of the current block is written, so an id costs a disk write once in a thousand
times; what is left of a block at a crash is never used.
"""

from __future__ import annotations

import asyncio

from sharegroup.broker.cluster.topics import Topics

BLOCK_IDS = 1_000


class ProducerIds:
    """See the module's text."""

    __slots__ = ("_lock", "_next", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._next = topics.catalog.producer_ids_end
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """An id that no producer ever had."""
        async with self._lock:
            if self._next >= self._topics.catalog.producer_ids_end:
                end = self._next + BLOCK_IDS
                await self._topics.alter(lambda: {"event": "producer_ids", "end": end})
            taken, self._next = self._next, self._next + 1
        return taken
