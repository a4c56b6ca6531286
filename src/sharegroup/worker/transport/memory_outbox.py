"""An outbox that writes to in-memory topics, for `App.test`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from sharegroup.errors import KafkaError
from sharegroup.worker.ports import Header, WrittenRecord
from sharegroup.worker.transport.memory_log import MemoryLog


class MemoryOutbox:
    """Writes records of one process to in-memory topics immediately; a `ports.Outbox`."""

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
    ) -> Awaitable[WrittenRecord]:
        """Write one record; awaiting the result returns where it was written."""
        answer: asyncio.Future[WrittenRecord] = asyncio.get_running_loop().create_future()
        if self._is_cut:
            return answer  # Never completed, because the process is dead.
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
        """Simulate the death of the process: ignore all later records."""
        self._is_cut = True
