"""Runs a real broker, with sockets and storage, inside the process of a test.

    async with broker() as b:                 # in a coroutine
        ... AdminClient(bootstrap_servers=b.bootstrap_servers) ...

    with run_broker() as b:                   # in other code: the broker has its own thread
        ... confluent_kafka.Producer({"bootstrap.servers": b.bootstrap_servers}) ...

The data is in a temporary folder, which is removed at the end, unless a folder is given.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from sharegroup.broker.app import Running, start
from sharegroup.broker.clock import Clock
from sharegroup.broker.configuration.config import Config
from sharegroup.storage.disk.files import Files

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class TestBroker:
    """A broker that runs while its context manager is open."""

    __test__ = False  # Without this, pytest would collect the class because of its name.

    bootstrap_servers: str
    """The address of the broker, for the option ``bootstrap_servers`` of clients."""
    cluster_id: str
    data: str
    """The path of the data directory."""
    running: Running
    """The parts of the broker, for tests of its internals; use it on the broker's thread."""


@asynccontextmanager
async def broker(
    settings: Mapping[str, str] | None = None,
    *,
    data: str | None = None,
    port: int = 0,
    clock: Clock | None = None,
    files: Files | None = None,
) -> AsyncIterator[TestBroker]:
    """Run a broker on the running event loop while the context is open.

    ``settings`` are broker settings by Kafka's names. ``clock`` may be a `ManualClock`, ``files``
    a `PowerLossDisk`.

    >>> import asyncio
    >>> from sharegroup.client import AdminClient, NewTopic
    >>> async def topics() -> list[str]:
    ...     async with broker() as b, AdminClient(bootstrap_servers=b.bootstrap_servers) as admin:
    ...         await admin.create_topics([NewTopic("orders", num_partitions=3)])
    ...         return await admin.list_topics()
    >>> asyncio.run(topics())
    ['orders']
    """
    with tempfile.TemporaryDirectory(prefix="sharegroup-") as folder:
        values = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": data or folder,
            **(settings or {}),
        }
        running = await start(Config.parse(values), clock=clock, files=files)
        try:
            yield TestBroker(
                running.bootstrap_servers, running.cluster_id, values["log.dirs"], running
            )
        finally:
            await running.stop()


@contextmanager
def run_broker(
    settings: Mapping[str, str] | None = None, *, data: str | None = None, port: int = 0
) -> Iterator[TestBroker]:
    """Run a broker on its own thread while the context is open, for synchronous code.

    >>> with run_broker() as b:
    ...     b.bootstrap_servers.startswith("127.0.0.1:")
    True
    """
    started: list[TestBroker] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with broker(settings, data=data, port=port) as running:
            started.append(running)
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001  Raised again in the caller's thread.
            failed.append(error)
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run, name="sharegroup-broker", daemon=True)
    thread.start()
    assert ready.wait(START_SECONDS_MAX), "the broker did not start"
    try:
        if failed:
            raise failed[0]
        yield started[0]
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(STOP_SECONDS_MAX)
        assert not thread.is_alive(), f"the broker did not stop within {STOP_SECONDS_MAX} s"
        if failed and started:
            raise failed[0]
