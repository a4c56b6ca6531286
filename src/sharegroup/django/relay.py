"""Publishes, in a worker, tasks that their own processes did not publish, and notes dead letters.

It looks every `TURN_SECONDS`; several workers share the rows.  A record that becomes a dead letter
without an outcome of its task, because the task ran too long or ended its process, makes the
result FAILED before the letter is written: if the process dies then, the record is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import Error as DatabaseError, connections

from sharegroup.backoff import Backoff
from sharegroup.django.connections import AWAY, PAUSE_MS, PAUSE_MS_MAX, renew_connections
from sharegroup.django.outbox import ROWS_PER_TURN_MAX, claim, give_back, remove
from sharegroup.django.results import is_id
from sharegroup.django.runs import TaskRuns
from sharegroup.django.sending import Senders, send_all
from sharegroup.worker import Event

log = logging.getLogger(__name__)

Result = TypeVar("Result")

TURN_SECONDS = 1.0
RETRY_SECONDS = 5.0
"""The time after which rows are tried again that could not be published, as while no broker is."""
LAST_SECONDS = 5.0
"""The time to close the connections when the worker stops."""


class Relay:
    """Publishes tasks that were left in the outbox, from the start of a worker to its stop."""

    def __init__(self, backend: str, database: str, senders: Senders, runs: TaskRuns) -> None:
        self._backend = backend
        self._database = database
        self._senders = senders
        self._queues = frozenset(queue for queue, _ in senders)
        self._runs = runs
        # One thread, so one connection to the database.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sharegroup-relay")
        self._task: asyncio.Task[None] | None = None

    async def note_letter(self, event: Event) -> None:
        """Make the result of a record FAILED that becomes a dead letter, if it has no outcome.

        While the database is away it waits, as for a dead-letter topic that cannot be written.
        """
        key, redrives = event.details["key"], event.details["redrives"]
        if not is_id(name := (key or b"").decode("utf-8", "replace")):
            return None  # Not a record of this backend.
        why = event.error or RuntimeError(f"dead letter: {event.details['reason']}")
        backoff = Backoff(PAUSE_MS, PAUSE_MS_MAX, chance=random.random)
        while True:
            try:
                return await self._in_thread(lambda: self._runs.fail(name, redrives, why))
            except AWAY as error:
                log.warning(
                    "event=database_away database=%s of=%r error=%r", self._database, name, error
                )
            # The letter has all of it, so a fault of ours must not keep the record from it.
            except Exception:
                log.exception("event=letter_not_noted task=%s", name)
                return None
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def start(self) -> None:
        """Start to look for tasks."""
        self._task = asyncio.create_task(self._run(), name="sharegroup-relay")

    async def stop(self) -> None:
        """Stop after the current turn is cancelled; rows that it has claimed are free soon."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._in_thread(self._close_connections)
        except (TimeoutError, DatabaseError) as error:
            log.warning("event=relay_not_ended error=%r", error)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            try:
                is_more = await self._turn()
            except DatabaseError as error:
                is_more = False
                log.warning("event=relay_waits database=%s error=%r", self._database, error)
            # A fault of ours or of a database's driver must not end the relay for good.
            except Exception:
                is_more = False
                log.exception("event=relay_failed database=%s", self._database)
            if not is_more:
                await asyncio.sleep(TURN_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311

    async def _turn(self) -> bool:
        """Publish some rows; returns whether there may be more to publish at once."""
        tasks = await self._in_thread(lambda: claim(self._database, self._backend, self._queues))
        if not tasks:
            return False
        published, failed = await send_all(self._senders, tasks)
        await self._in_thread(lambda: remove(self._database, published))
        if failed:
            await self._in_thread(lambda: give_back(self._database, failed, RETRY_SECONDS))
        return len(tasks) == ROWS_PER_TURN_MAX and not failed

    def _close_connections(self) -> None:
        connections.close_all()
        self._runs.connections.close()

    async def _in_thread(self, function: Callable[[], Result]) -> Result:
        def call() -> Result:
            renew_connections()
            return function()

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
