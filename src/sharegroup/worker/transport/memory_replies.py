"""Reads replies from the in-memory topics of `App.test`; a `ReplyLog`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharegroup.worker.results.reply import Reply, parsed_reply
from sharegroup.worker.transport.memory_log import MemoryLog

READ_PARTITION = 0


class MemoryReplyLog:
    """Reads the first partition of a topic for replies."""

    __slots__ = ("_arrived", "_is_cut", "_log", "_next", "_topic")

    def __init__(self, topic: str, log: MemoryLog) -> None:
        self._topic = topic
        self._log = log
        self._next = 0
        self._arrived = asyncio.Event()
        self._is_cut = False

    async def start(self) -> int:
        """Go to the end of the partition."""
        self._next = len(self._log.partitions(self._topic)[READ_PARTITION])
        self._log.on_append(self._appended)
        return READ_PARTITION

    async def read(self) -> Sequence[Reply]:
        """Wait for replies and return them; the others in the topic are left out."""
        while True:
            self._arrived.clear()
            records = self._log.partitions(self._topic)[READ_PARTITION][self._next :]
            self._next += len(records)
            replies = []
            for record in records:
                try:
                    replies.append(parsed_reply(record.key, record.value, record.headers))
                except ValueError:
                    continue  # A test may write anything.
            if replies and not self._is_cut:
                return replies
            await self._arrived.wait()

    async def close(self) -> None:
        """Do nothing."""

    def cut(self) -> None:
        """Simulate the death of the process: no reply arrives any more."""
        self._is_cut = True

    def _appended(self, topic: str) -> None:
        if topic == self._topic:
            self._arrived.set()
