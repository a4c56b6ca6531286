"""Calls tasks so that they can be interrupted, plain functions and coroutines."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.tasks.base import Task

from sharegroup.worker.executors.threads import Interrupted, also_interrupting


def call_task(task: Task, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Call a task, as `Task.call` does, and cancel a coroutine whose thread is interrupted.

    `Task.call` runs a coroutine on an event loop in another thread, and waits for it in a call of
    C, where no interruption arrives.
    """
    if not iscoroutinefunction(task.func):
        return task.call(*arguments, **keywords)
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    is_interrupted = False

    def cancel() -> None:
        nonlocal is_interrupted
        is_interrupted = True
        for loop, coroutine in running:
            with suppress(RuntimeError):  # The loop is closed, because the coroutine has ended.
                loop.call_soon_threadsafe(coroutine.cancel)

    async def run() -> Any:
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        running.append((asyncio.get_running_loop(), current))
        return await task.func(*arguments, **keywords)

    with also_interrupting(cancel):
        try:
            return async_to_sync(run)()
        except BaseException as error:
            if is_interrupted:
                raise Interrupted from error
            raise
