"""Publishes tasks from a process that enqueues them, such as a web server: after the commit.

Producers belong to a process.  One that was forked off makes its own: it has neither the threads
nor the connections of its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from sharegroup.client.loop_thread import LoopThread
from sharegroup.django.outbox import WaitingTask, give_back, remove
from sharegroup.django.sending import SEND_SECONDS, send_all
from sharegroup.django.task_app import TaskApp

log = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0
"""After a failure the process leaves its tasks to the relay for this time, and no caller waits."""
CLOSE_SECONDS = 5.0
TASKS_MAX = 1_000
"""The tasks of one transaction that its process publishes; it leaves the others to the relay."""


class Publisher:
    """Publishes tasks on an event loop in a thread of its own, for all threads of the process."""

    def __init__(self, task_app: TaskApp) -> None:
        self._task_app = task_app
        self._loop_thread = LoopThread("sharegroup-django")
        self._loop_thread.enter()
        self._ready: Future[asyncio.Event] = Future()
        self._serving = self._loop_thread.submit(self._serve())
        self._paused_until = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether the last tasks could not be published a moment ago."""
        return time.monotonic() < self._paused_until

    def publish(self, tasks: Sequence[WaitingTask]) -> None:
        """Write the records of tasks and delete their rows; blocks for some seconds at most."""
        database = self._task_app.options.database
        try:
            published, failed = self._loop_thread.run(self._send(tasks))
        except Exception:
            # As by wrong options of the client: the relay reports it as well, again and again.
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            give_back(database, tasks, 0.0)
            raise
        remove(database, published)
        if failed:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            give_back(database, failed, 0.0)

    def close(self) -> None:
        """Close the producer."""
        try:
            stop = self._ready.result(CLOSE_SECONDS)
            self._loop_thread.submit(_set(stop)).result(CLOSE_SECONDS)
            self._serving.result(CLOSE_SECONDS)
        # The end of a process must not wait for a broker, and closes the other publishers, too.
        except Exception as error:  # noqa: BLE001  `publish` has raised why it is not connected.
            app = self._task_app.app.name
            log.warning("event=publisher_not_closed app=%s error=%r", app, error)
        finally:
            self._loop_thread.leave()

    async def _serve(self) -> None:
        """Keep the application's senders connected; one task enters and leaves their contexts."""
        try:
            async with self._task_app.app.client():
                stop = asyncio.Event()
                self._ready.set_result(stop)
                await stop.wait()
        except Exception as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                return  # `publish` raises it.
            raise

    async def _send(
        self, tasks: Sequence[WaitingTask]
    ) -> tuple[list[WaitingTask], list[WaitingTask]]:
        async with asyncio.timeout(SEND_SECONDS):
            # Shielded, because an interrupt of one caller must not cancel what all wait for.
            await asyncio.shield(asyncio.wrap_future(self._ready))
        return await send_all(self._task_app.senders, tasks)


async def _set(event: asyncio.Event) -> None:
    event.set()


class Publishers:
    """The publishers of this process, by backend and its options."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._by_backend: dict[str, Publisher] = {}
        self._of_parents: list[Publisher] = []
        """Kept, because the end of a producer would touch what the parent still uses."""

    def of(self, task_app: TaskApp) -> Publisher:
        """Return the publisher of a backend in this process."""
        self._notice_fork()
        with self._lock:
            publisher = self._by_backend.get(task_app.identity)
            if publisher is None:
                # An application of its own: one that a parent process connected stays so here.
                publisher = self._by_backend[task_app.identity] = Publisher(task_app.another())
            return publisher

    def is_paused(self, task_app: TaskApp) -> bool:
        """Whether the last tasks could not be published a moment ago; makes no publisher."""
        self._notice_fork()
        publisher = self._by_backend.get(task_app.identity)
        return publisher is not None and publisher.is_paused

    def close(self) -> None:
        """Close all publishers; the next use makes new ones."""
        self._notice_fork()
        with self._lock:
            publishers = list(self._by_backend.values())
            self._by_backend.clear()
        for publisher in publishers:
            publisher.close()

    def _notice_fork(self) -> None:
        """In a forked process, begin anew; another thread of the parent may hold the lock."""
        if self._process_id != os.getpid():
            self._lock = threading.Lock()
            self._of_parents += self._by_backend.values()
            self._by_backend = {}
            self._process_id = os.getpid()


PUBLISHERS = Publishers()
atexit.register(PUBLISHERS.close)
if hasattr(os, "register_at_fork"):  # While the child has one thread: none can race it.
    os.register_at_fork(after_in_child=PUBLISHERS._notice_fork)
