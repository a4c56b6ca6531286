"""A broker process as `tests.faults.in_process.ShareMember` asks it: one socket per client."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from tests.faults.raw_connection import RawConnection
from tests.support.processes import ServeProcess


class ServedBroker:
    """Asks in a thread, so that other clients go on meanwhile.

    A connection that broke is forgotten, and the error is the caller's; the next request opens
    another one.
    """

    def __init__(self, broker: ServeProcess) -> None:
        self._broker = broker
        self._connections: dict[int, RawConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.socket.close()

    async def ask(self, message: Any, connection_id: int = 1) -> Any:
        return await asyncio.to_thread(self._ask, message, connection_id)

    def _ask(self, message: Any, connection_id: int) -> Any:
        connection = self._connections.get(connection_id)
        if connection is None:
            connection = self._connections[connection_id] = RawConnection(self._broker.port)
        try:
            return connection.ask(message)
        except (OSError, ConnectionError):
            self._connections.pop(connection_id).socket.close()
            raise
