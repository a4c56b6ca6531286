"""A relay between clients and a broker that notes when each request and its answer passed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from sharegroup.wire.codec.apis import APIS


class Passed(NamedTuple):
    """A request, and when it and its answer passed, in nanoseconds of the monotonic clock."""

    api: str
    sent_ns: int
    answered_ns: int


class Relay:
    """Forwards connections on one port to another, and notes the requests that are answered."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.passed: list[Passed] = []
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        listening = asyncio.start_server(self._forward, "127.0.0.1", self.port)
        asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_all(self) -> None:
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: dict[bytes, tuple[str, int]] = {}
        of_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)

        def request(frame: bytes) -> None:
            api = APIS.get(int.from_bytes(frame[:2], "big"))
            under_way[frame[4:8]] = "?" if api is None else api.name, time.monotonic_ns()

        def answer(frame: bytes) -> None:
            name, sent_ns = under_way.pop(frame[:4])
            self.passed.append(Passed(name, sent_ns, time.monotonic_ns()))

        await asyncio.gather(_pump(reader, to_broker, request), _pump(of_broker, writer, answer))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]
) -> None:
    """Forward frames until the peer closes the connection."""
    try:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            note(frame)
            writer.write(size + frame)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # The end of a connection is no failure.
    finally:
        writer.close()
