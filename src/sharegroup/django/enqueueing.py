"""Enqueues a task: its rows in the caller's transaction, its record after the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import connections, transaction
from django.tasks.base import Task, TaskResult
from django.tasks.signals import task_enqueued

from sharegroup.django.outbox import WaitingTask, put
from sharegroup.django.publisher import PUBLISHERS, TASKS_MAX
from sharegroup.django.results import new_result
from sharegroup.django.task_app import TaskApp


def enqueue(
    task_app: TaskApp, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TaskResult:
    """Store a task, and publish it when the transaction commits."""
    result = new_result(task, args, kwargs, task_app.backend)
    database = task_app.options.database
    # Without a savepoint: the caller's transaction has its tasks, or is rolled back.
    with transaction.atomic(using=database, savepoint=False):
        publication = _publication(task_app, database)
        is_claimed = not PUBLISHERS.is_paused(task_app) and len(publication.tasks) < TASKS_MAX
        waiting = put(result, database, is_claimed=is_claimed)
        if is_claimed:
            publication.tasks.append(waiting)
        # Before the commit, so before a worker can start it.
        task_enqueued.send(sender=task_app.sender, task_result=result)
    return result


class Publication:
    """Publishes the tasks of one transaction or savepoint, when it is committed."""

    def __init__(self, task_app: TaskApp) -> None:
        self.task_app = task_app
        self.tasks: list[WaitingTask] = []

    def __call__(self) -> None:
        """Publish the tasks; called by Django after the commit."""
        if self.tasks:
            PUBLISHERS.of(self.task_app).publish(self.tasks)


def _publication(task_app: TaskApp, database: str) -> Publication:
    """Return the publication that the next commit calls, a new one if there is none.

    Django drops the functions of a savepoint that is rolled back, and so those tasks.
    """
    connection = connections[database]
    last: Sequence[tuple[set[str], Callable[[], object], bool]] = connection.run_on_commit[-1:]
    for savepoints, function, _ in last:
        if (
            isinstance(function, Publication)
            and function.task_app.identity == task_app.identity
            and savepoints == set(connection.savepoint_ids)
        ):
            return function
    publication = Publication(task_app)
    # Robust: the tasks are stored, so an error here must not be one of the caller's commit.
    transaction.on_commit(publication, using=database, robust=True)
    return publication
