"""The tasks of these tests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

from django.db import transaction
from django.tasks import TaskContext, task

from sharegroup.worker import Reject

RUNS: Counter[str] = Counter()
GATE = threading.Event()


@task
def add(left: int, right: int = 0) -> int:
    return left + right


@task
async def add_later(left: int, right: int) -> int:
    return left + right


@task(takes_context=True)
def attempt(context: TaskContext, name: str) -> list[Any]:
    return [context.attempt, context.task_result.id, name]


@task
def fail_until(name: str, attempts: int) -> int:
    RUNS[name] += 1
    if RUNS[name] < attempts:
        raise ValueError(f"attempt {RUNS[name]} of {name}")
    return RUNS[name]


@task
def fail_for_good(name: str) -> None:
    RUNS[name] += 1
    raise KeyError(name)


@task
def reject(name: str) -> None:
    RUNS[name] += 1
    raise Reject("not this one")


@task
def give(value: str) -> Any:
    RUNS[value] += 1
    return {"set": {1}, "large": "x" * 2000, "null": "\0", "nan": float("nan"), "none": None}[value]


@task
def count(name: str) -> None:
    RUNS[name] += 1


@task
def note_time(name: str) -> float:
    return time.time()


@task(queue_name="emails", priority=10)
def send_email(to: str) -> str:
    return f"sent to {to}"


@task
def sleep_long() -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        time.sleep(0.01)


@task
def sleep_short() -> None:
    time.sleep(0.15)


@task
def stay_in_transaction() -> None:
    """Be interrupted in the middle of the begin or the end of a transaction."""
    transaction.atomic().__enter__()
    while True:
        time.sleep(0.01)


@task
async def sleep_in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
