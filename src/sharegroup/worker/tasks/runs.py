"""Runs the tasks of a queue in a worker: the handler of its topics.

    returns                       done; the value is its result
    raises, and is tried again    RetryAfter: autoretry_for, or self.retry
    raises                        a dead letter, and the state FAILURE
    raises Ignore                 done; its result is None
    is not known here             a dead letter: it is redriven when a worker knows it

Coroutines run on the event loop, and plain functions in threads.  A task that runs longer than its
time limit is interrupted: a coroutine is cancelled, and a thread gets an exception at its next step
in Python.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from typing import TYPE_CHECKING, Any

from sharegroup.suggestions import did_you_mean
from sharegroup.worker.declarations.options import CONCURRENCY_MAX
from sharegroup.worker.executors.threads import HandlerThreads
from sharegroup.worker.records.outcomes import HandlerDecision, HandlingTimeout, Reject
from sharegroup.worker.records.record import Record
from sharegroup.worker.results.result import id_of, is_kept
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.failures import Ignore
from sharegroup.worker.tasks.message import NotJson, TaskMessage, plain
from sharegroup.worker.tasks.request import CURRENT_APP, CURRENT_REQUEST, TaskRequest
from sharegroup.worker.tasks.task import Task
from sharegroup.worker.time_limit import time_limit

if TYPE_CHECKING:
    from sharegroup.worker.routed import Routed

HOSTNAME = socket.gethostname()[:100]


class QueueRuns:
    """Runs the tasks of a queue."""

    def __init__(self, tasks: Tasks, queue: str) -> None:
        self._tasks = tasks
        self._queue = queue
        self._threads: HandlerThreads | None = None
        self.routed: Routed[TaskMessage, Any] | None = None
        """Its handler; set when that is declared."""

    async def open(self) -> None:
        """Prepare threads for plain functions; each starts when it is first needed."""
        assert self.routed is not None, "declared before it is opened"
        concurrency = self.routed.route.concurrency
        count = CONCURRENCY_MAX if concurrency == "auto" else concurrency
        assert isinstance(count, int)
        self._threads = HandlerThreads(count)

    async def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.close()

    async def handle(self, message: TaskMessage, record: Record) -> Any:
        """Run a task."""
        task = self._known(message)
        request = self._request(message, record)
        # Needs no reset: the context belongs to the slot, which runs tasks of this application.
        CURRENT_APP.set(self._tasks)
        token = CURRENT_REQUEST.set(request)
        try:
            value = await self._limited(task, message)
        except HandlerDecision:
            raise
        except Ignore:
            return None
        except Exception as error:
            chance = random.random()  # noqa: S311  For the jitter.
            outcome = task.after_failure(error, request, chance)
            if outcome is error:
                raise
            raise outcome from error
        finally:
            CURRENT_REQUEST.reset(token)
        return self._returned(task, value, record)

    def _known(self, message: TaskMessage) -> Task[..., Any]:
        tasks = self._tasks.tasks
        task: Task[..., Any] | None = tasks.get(message.task)
        if task is None:
            raise Reject(
                f"this worker has no task {message.task!r:.200}"
                f"{did_you_mean(message.task[:200], tasks)}; import its module: "
                f"TaskApp(..., include=['module']), then redrive this letter"
            )
        try:
            task.check_arguments(message)
        except TypeError as error:
            raise Reject(str(error)) from error
        return task

    def _request(self, message: TaskMessage, record: Record) -> TaskRequest:
        assert self.routed is not None, "declared before it runs"
        headers = {
            name: content.decode(errors="replace")
            for name, content in record.headers
            if content is not None
        }
        return TaskRequest(
            id=id_of(record.headers, record.delivery, record.story),
            task=message.task,
            args=tuple(message.args),
            kwargs=message.kwargs,
            retries=record.attempt - 1,
            hostname=HOSTNAME,
            delivery_info={
                "routing_key": self._queue,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "redelivered": record.redelivered,
            },
            headers=headers,
            called_directly=False,
            now_ms=self.routed.send.connected()[1].wall_ms,
            record=record,
        )

    async def _limited(self, task: Task[..., Any], message: TaskMessage) -> Any:
        limit = task.options.time_limit
        limit = self._tasks.conf.task_time_limit if limit is None else limit
        if limit is None:
            return await self._run(task, message)
        late = f"{task.name} ran for more than {limit:g} s"
        async with time_limit(limit, lambda: HandlingTimeout(late)):
            return await self._run(task, message)

    async def _run(self, task: Task[..., Any], message: TaskMessage) -> Any:
        if task.is_coroutine:
            return await task(*message.args, **message.kwargs)
        assert self._threads is not None, "the worker has opened it"
        running = asyncio.ensure_future(self._threads.call(_in_thread, task, message))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()  # Interrupts the thread; ends when that has ended.
            running.add_done_callback(_looked_at)
            # Shielded, so a second cancellation, by a worker that has given this run up, does not
            # wait for a thread that may never end.
            await asyncio.shield(running)
            raise

    def _returned(self, task: Task[..., Any], value: Any, record: Record) -> Any:
        """Return the value as its result; None if nobody keeps it."""
        assert self.routed is not None, "declared before it runs"
        if not self.routed.route.result_seconds or not is_kept(record.headers):
            return None
        try:
            return plain(value, f"{task.name}: what it returned")
        except NotJson as error:
            # After the work, so it must not run again.
            raise Reject(f"{error}; or declare it with ignore_result=True") from error


def _looked_at(running: asyncio.Future[Any]) -> None:
    """Take note of how an interrupted run ended, so asyncio does not log it."""
    if not running.cancelled():
        running.exception()


def _in_thread(task: Task[..., Any], message: TaskMessage) -> Any:
    """Call a plain function, with fresh connections of Django's if the application uses it."""
    _close_old_connections()
    try:
        return task(*message.args, **message.kwargs)
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    """Close connections of Django's that are too old or broken, as at a request."""
    if (django_db := sys.modules.get("django.db")) is not None:
        django_db.close_old_connections()
