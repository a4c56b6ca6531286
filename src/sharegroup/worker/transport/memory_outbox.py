"""A process's way to write to topics in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from sharegroup.errors import KafkaError
from sharegroup.worker.ports import Header, Written
from sharegroup.worker.transport.memory_log import MemoryLog


class MemoryOutbox:
    """A `ports.Outbox`: what is sent lies in its topic at once."""

    __slots__ = ("_is_cut", "_log")

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_cut = False

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Awaitable[Written]:
        """Write one record; awaiting it gives where it lies."""
        answer: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        if self._is_cut:
            return answer  # Nobody will ever answer.
        try:
            written = self._log.append(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        except KafkaError as error:
            answer.set_exception(error)
        else:
            answer.set_result(written)
        return answer

    def cut(self) -> None:
        """The process is dead."""
        self._is_cut = True
