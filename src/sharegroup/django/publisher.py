"""Publishes tasks from a process that enqueues them, such as a web server: after the commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from sharegroup.django.outbox import WaitingTask, give_back, remove
from sharegroup.django.sending import SEND_SECONDS, send_all
from sharegroup.django.task_app import TaskApp
from sharegroup.worker.client_thread import ClientThread, PerProcess

PAUSE_SECONDS = 10.0
"""After a failure the process leaves its tasks to the relay for this time, and no caller waits."""
TASKS_MAX = 1_000
"""The tasks of one transaction that its process publishes; it leaves the others to the relay."""


class Publisher:
    """Publishes tasks on an event loop in a thread of its own, for all threads of the process."""

    def __init__(self, task_app: TaskApp) -> None:
        self._task_app = task_app
        self._client = ClientThread(task_app.app, "sharegroup-django")
        self._paused_until = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether the last tasks could not be published a moment ago."""
        return time.monotonic() < self._paused_until

    def publish(self, tasks: Sequence[WaitingTask]) -> None:
        """Write the records of tasks and delete their rows; blocks for some seconds at most."""
        database = self._task_app.options.database
        try:
            published, failed = self._client.run(self._send(tasks))
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
        self._client.close()

    async def _send(
        self, tasks: Sequence[WaitingTask]
    ) -> tuple[list[WaitingTask], list[WaitingTask]]:
        async with asyncio.timeout(SEND_SECONDS):
            await self._client.connected()
        return await send_all(self._task_app.senders, tasks)


class Publishers:
    """The publishers of this process, by backend and its options."""

    def __init__(self) -> None:
        self._of_process: PerProcess[Publisher] = PerProcess()

    def of(self, task_app: TaskApp) -> Publisher:
        """Return the publisher of a backend in this process."""
        # An application of its own: one that a parent process connected stays so here.
        return self._of_process.of(task_app.identity, lambda: Publisher(task_app.another()))

    def is_paused(self, task_app: TaskApp) -> bool:
        """Whether the last tasks could not be published a moment ago; makes no publisher."""
        publisher = self._of_process.get(task_app.identity)
        return publisher is not None and publisher.is_paused

    def close(self) -> None:
        """Close all publishers; the next use makes new ones."""
        self._of_process.close()


PUBLISHERS = Publishers()
