"""Writes the records of waiting tasks, with the senders of an application that runs or sends."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone

from sharegroup.django.outbox import WaitingTask
from sharegroup.django.priorities import Level, level_of
from sharegroup.worker.sender import Sender

log = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""How long the records of one call may take, all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """The value of a record: run this task.  Only the database has its function and arguments."""

    id: str
    publication: str
    """Another one for each record, so that of two records of a task one is known as a duplicate."""
    priority: int


Senders = Mapping[tuple[str, Level], Sender[TaskOrder]]
"""The sender for each queue and level."""


async def send_all(
    senders: Senders, tasks: Sequence[WaitingTask]
) -> tuple[list[WaitingTask], list[WaitingTask]]:
    """Write records, and return the tasks whose records are durable and those that failed."""
    outcomes = await asyncio.gather(
        *(_send(senders, task) for task in tasks), return_exceptions=True
    )
    failed = []
    published = []
    last_error: BaseException | None = None
    for task, error in zip(tasks, outcomes, strict=True):
        if error is None:
            published.append(task)
        elif isinstance(error, Exception):
            failed.append(task)
            last_error = error
        else:
            raise error
    if last_error is not None:
        log.warning(
            "event=tasks_not_published count=%s of=%s first=%s error=%r "
            "action='the relay of a worker tries again'",
            len(failed),
            len(tasks),
            failed[0].id,
            last_error,
        )
    return published, failed


async def _send(senders: Senders, task: WaitingTask) -> None:
    sender = senders[task.queue_name, level_of(task.priority)]
    order = TaskOrder(id=task.id, publication=uuid.uuid4().hex, priority=task.priority)
    at = task.run_after
    if at is not None and at <= timezone.now():  # Both are naive with USE_TZ=False.
        at = None
    if at is not None and timezone.is_naive(at):
        at = timezone.make_aware(at, timezone.get_default_timezone())
    async with asyncio.timeout(SEND_SECONDS):
        await sender(order, key=task.id, at=at)
