"""Results of tasks as Django has them, and as rows of the table."""

from __future__ import annotations

import uuid
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.tasks.base import Task, TaskError, TaskResult, TaskResultStatus
from django.utils import timezone
from django.utils.module_loading import import_string

from sharegroup.django.json_values import storable
from sharegroup.django.models import ID_CHARACTERS, StoredResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARGUMENTS_BYTES_MAX = 1024 * 1024
TRACEBACK_CHARACTERS_MAX = 10_000
ERRORS_MAX = 20
"""The latest errors are kept."""
WORKER_IDS_MAX = 1_000
"""Deliveries after crashes add one each, too; then the number of attempts stays."""


def new_result(
    task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], backend: str
) -> TaskResult:
    """Return a READY result with a new id; raises TypeError or ValueError for bad arguments."""
    result = TaskResult(
        task=task,
        id=uuid.uuid4().hex,
        status=TaskResultStatus.READY,
        enqueued_at=timezone.now(),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )
    what = f"arguments of {task.module_path}"
    storable([result.args, result.kwargs], what, ARGUMENTS_BYTES_MAX)
    return result


def row_of(result: TaskResult) -> StoredResult:
    """Return the row of a new result."""
    return StoredResult(
        id=result.id,
        backend=result.backend,
        task_path=result.task.module_path,
        queue_name=result.task.queue_name,
        priority=result.task.priority,
        run_after=result.task.run_after,
        args=result.args,
        kwargs=result.kwargs,
        status=result.status,
        enqueued_at=result.enqueued_at,
    )


def result_of(row: StoredResult) -> TaskResult:
    """Return the result of a row; imports the task, and raises ImportError without it."""
    task = import_string(row.task_path)
    if not isinstance(task, Task):
        text = f"{row.task_path}: expected a task, found {task!r}"
        raise ImportError(text, path=row.task_path)  # noqa: TRY004  As if it were missing.
    result = TaskResult(
        task=task.using(
            priority=row.priority,
            queue_name=row.queue_name,
            run_after=row.run_after,
            backend=row.backend,
        ),
        id=row.id,
        status=TaskResultStatus(row.status),
        enqueued_at=row.enqueued_at,
        started_at=row.started_at,
        last_attempted_at=row.last_attempted_at,
        finished_at=row.finished_at,
        args=row.args,
        kwargs=row.kwargs,
        backend=row.backend,
        errors=[TaskError(**error) for error in row.errors],
        worker_ids=list(row.worker_ids),
    )
    object.__setattr__(result, "_return_value", row.return_value)
    return result


def is_id(text: str) -> bool:
    """Whether a text can be the id of a result; PostgreSQL refuses a query for U+0000."""
    return 0 < len(text) <= ID_CHARACTERS and text.isalnum()


def with_error(errors: list[dict[str, str]], error: BaseException) -> list[dict[str, str]]:
    """Return the errors of a row and this one; the oldest are left out if there are many."""
    kind = type(error)
    # The end says what failed.  PostgreSQL can store neither U+0000 nor halves of surrogate pairs.
    text = "".join(format_exception(error))[-TRACEBACK_CHARACTERS_MAX:].replace("\0", "?")
    text = text.encode("utf-8", "replace").decode()
    entry = {
        "exception_class_path": f"{kind.__module__}.{kind.__qualname__}",
        "traceback": text,
    }
    return [*errors, entry][-ERRORS_MAX:]


def with_worker(worker_ids: list[str], worker_id: str) -> list[str]:
    """Return the worker ids of a row and this one."""
    return [*worker_ids, worker_id][:WORKER_IDS_MAX]
