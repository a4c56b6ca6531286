"""A proxy on loopback before one broker, which changes what the broker answers.

    lies = {SHARE_GROUP_DESCRIBE: lambda response: replace(response, groups=...)}
    with LyingBroker(broker.bootstrap_servers, lies) as bootstrap_servers:
        AdminClient(bootstrap_servers=bootstrap_servers)

A client that bootstraps here stays here: the addresses in answers are those of the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_response_chunks
from sharegroup.wire.codec.headers import decode_request_header, decode_response_header

METADATA, FIND_COORDINATOR, LIST_GROUPS, DESCRIBE_ACLS, DESCRIBE_CONFIGS = 3, 10, 16, 29, 32
DESCRIBE_QUOTAS, DESCRIBE_USERS, DESCRIBE_CLUSTER = 48, 50, 60
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE = 69, 77

Lie = Callable[[Any], Any]
"""Returns the response that is sent in place of another one of the same version."""


class LyingBroker:
    """A context manager that yields the bootstrap servers; its thread ends with it."""

    def __init__(self, target: str, lies: Mapping[int, Lie]) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._lies = {api: (lie,) for api, lie in lies.items()}
        for api in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
            self._lies[api] = (self._with_own_address, *self._lies.get(api, ()))
        self._address: tuple[str, int] = ("", 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._address = self._server.sockets[0].getsockname()
        return f"127.0.0.1:{self._address[1]}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(*self._target)
        asked: dict[int, tuple[int, int]] = {}
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._requests(reader, broker_writer, asked))
                    tasks.create_task(self._responses(broker_reader, writer, asked))
        except* (asyncio.IncompleteReadError, ConnectionError):
            pass  # Either side has closed its connection.
        finally:
            broker_writer.close()
            writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        while True:
            frame = await _frame(reader)
            header = decode_request_header(frame)
            asked[header.correlation_id] = header.api_key, header.api_version
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()

    async def _responses(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, version = asked.pop(int.from_bytes(frame[:4], "big"))
            if key in self._lies:
                header_version = response_header_version(key, version)
                correlation_id, position = decode_response_header(frame, header_version)
                message, _ = decode(response_class(key, version), frame, position)
                for lie in self._lies[key]:
                    message = lie(message)
                writer.writelines(encode_response_chunks(correlation_id, message))
            else:
                writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()

    def _with_own_address(self, message: Any) -> Any:
        """Name the proxy in place of the broker."""
        host, port = self._address[:2]
        if hasattr(message, "brokers"):
            brokers = (replace(broker, host=host, port=port) for broker in message.brokers)
            return replace(message, brokers=tuple(brokers))
        if hasattr(message, "coordinators"):
            coordinators = (replace(found, host=host, port=port) for found in message.coordinators)
            return replace(message, coordinators=tuple(coordinators))
        return replace(message, host=host, port=port)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
