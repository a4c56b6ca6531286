"""Connects an application's senders for threads: an event loop in a thread of its own.

    thread of a web server ── run(coroutine) ──▶ loop of the thread: `async with app.client()`

Clients belong to a process.  One that was forked off makes its own: it has neither the threads nor
the connections of its parent (`PerProcess`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from sharegroup.client.loop_thread import LoopThread

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0

T = TypeVar("T")


class Sending(Protocol):
    """An application whose senders are to be connected."""

    name: str

    def client(self) -> AbstractAsyncContextManager[object]:
        """Connect the senders, and run no handler."""


class ClientThread:
    """Keeps the senders of an application connected, for all threads of the process."""

    def __init__(self, app: Sending, name: str) -> None:
        self._app = app
        self._loop_thread = LoopThread(name)
        self._loop_thread.enter()
        self._ready: Future[asyncio.Event] = Future()
        self._serving = self._loop_thread.submit(self._serve())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupt cancels it."""
        return self._loop_thread.run(coroutine)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return self._loop_thread.submit(coroutine)

    async def connected(self) -> None:
        """Wait, on the loop, until the senders are connected; raises why they cannot be."""
        # Shielded, because an interrupt of one caller must not cancel what all wait for.
        await asyncio.shield(asyncio.wrap_future(self._ready))

    @property
    def has_failed(self) -> bool:
        """Whether the senders could not be connected."""
        return self._ready.done() and self._ready.exception() is not None

    def close(self) -> None:
        """Close the clients."""
        try:
            stop = self._ready.result(CLOSE_SECONDS)
            self._loop_thread.submit(_set(stop)).result(CLOSE_SECONDS)
            self._serving.result(CLOSE_SECONDS)
        # The end of a process must not wait for a broker, and closes the other clients, too.
        except Exception as error:  # noqa: BLE001  `connected` has raised why there are none.
            log.warning("event=client_not_closed app=%s error=%r", self._app.name, error)
        finally:
            self._loop_thread.leave()

    async def _serve(self) -> None:
        """Keep the senders connected; one task enters and leaves their contexts."""
        try:
            async with self._app.client():
                stop = asyncio.Event()
                self._ready.set_result(stop)
                await stop.wait()
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                return  # `connected` raises it.
            raise


async def _set(event: asyncio.Event) -> None:
    event.set()


class Closable(Protocol):
    """An object with connections, as `PerProcess` keeps it."""

    def close(self) -> None:
        """Close its connections."""


Kept = TypeVar("Kept", bound=Closable)


class PerProcess(Generic[Kept]):
    """The objects with connections that this process has made, by a key; closed at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._by_key: dict[str, Kept] = {}
        self._of_parents: list[Kept] = []
        """Kept, because the end of a producer would touch what the parent still uses."""
        _ALL.add(self)

    def get(self, key: str) -> Kept | None:
        """Return the object of this process; None if it has made none."""
        self._notice_fork()
        return self._by_key.get(key)

    def of(self, key: str, make: Callable[[], Kept]) -> Kept:
        """Return the object of this process; makes one if there is none."""
        self._notice_fork()
        with self._lock:
            kept = self._by_key.get(key)
            if kept is None:
                kept = self._by_key[key] = make()
            return kept

    def close(self) -> None:
        """Close all objects; the next use makes new ones."""
        self._notice_fork()
        with self._lock:
            every = list(self._by_key.values())
            self._by_key.clear()
        for kept in every:
            kept.close()

    def close_one(self, key: str) -> None:
        """Close the object with this key, if this process has made one."""
        self._notice_fork()
        with self._lock:
            kept = self._by_key.pop(key, None)
        if kept is not None:
            kept.close()

    def _notice_fork(self) -> None:
        """In a forked process, begin anew; another thread of the parent may hold the lock."""
        if self._process_id != os.getpid():
            self._lock = threading.Lock()
            self._of_parents += self._by_key.values()
            self._by_key = {}
            self._process_id = os.getpid()


def _close_all() -> None:
    for kept in list(_ALL):
        kept.close()


def _notice_forks() -> None:
    for kept in list(_ALL):
        kept._notice_fork()


_ALL: WeakSet[PerProcess[Any]] = WeakSet()
# Not with `atexit`, whose functions run after those that end the threads of executors: what closes
# in such a thread, as a store in SQLite, could not.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
if hasattr(os, "register_at_fork"):  # While the child has one thread: none can race it.
    os.register_at_fork(after_in_child=_notice_forks)
