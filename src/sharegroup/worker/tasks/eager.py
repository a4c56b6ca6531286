"""Runs a task here and now, with its retries but without their delays: ``task_always_eager``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sharegroup.worker.decisions.messages import trace_of
from sharegroup.worker.records.outcomes import HandlerDecision, Release, RetryAfter
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.failures import Ignore
from sharegroup.worker.tasks.message import plain
from sharegroup.worker.tasks.request import CURRENT_REQUEST, TaskRequest
from sharegroup.worker.tasks.results import AsyncResult, EagerResult
from sharegroup.worker.tasks.task import Task, TaskCall

RUNS_MAX = 1_000
"""The runs of an eager task that is retried without a limit."""


def run(
    app: Tasks, task: Task[..., Any], call: TaskCall, chance: Callable[[], float]
) -> AsyncResult:
    """Run a task until it returns or fails finally, and return its result.

    With ``task_eager_propagates`` its error is raised.
    """
    value, error = None, None
    for retries in range(RUNS_MAX):
        value, error = _once(task, call, retries, chance)
        if not isinstance(error, RetryAfter | Release):
            break
    if error is not None and app.conf.task_eager_propagates:
        raise error
    trace = "" if error is None else trace_of(error)
    return EagerResult(call.id, app, value, error, trace)


def _once(
    task: Task[..., Any], call: TaskCall, retries: int, chance: Callable[[], float]
) -> tuple[Any, Exception | None]:
    message = call.message
    request = TaskRequest(
        id=call.id,
        task=task.name,
        args=tuple(message.args),
        kwargs=message.kwargs,
        retries=retries,
        hostname="eager",
        delivery_info={"routing_key": call.queue, "redelivered": retries > 0},
        headers=call.headers,
        called_directly=False,
    )
    token = CURRENT_REQUEST.set(request)
    try:
        value = task(*message.args, **message.kwargs)
        if task.is_coroutine:
            value = asyncio.run(value)
        return plain(value, f"{task.name}: what it returned"), None
    except HandlerDecision as decision:
        return None, decision
    except Ignore:
        return None, None
    except Exception as error:  # noqa: BLE001  It is the result.
        return None, task.after_failure(error, request, chance())
    finally:
        CURRENT_REQUEST.reset(token)
