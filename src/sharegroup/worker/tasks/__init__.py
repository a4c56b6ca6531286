"""Tasks with the interface of Celery, run by the worker: ``@app.task``, ``delay``, ``AsyncResult``.

    from sharegroup.worker.tasks import TaskApp as Celery, crontab, shared_task

docs/tasks.md lists what is the same, what is not, and what to do in place of what is not there.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.worker.tasks.beat import crontab as crontab
    from sharegroup.worker.tasks.failures import (
        Ignore as Ignore,
        MaxRetriesExceededError as MaxRetriesExceededError,
        TaskFailed as TaskFailed,
        TaskRevokedError as TaskRevokedError,
    )
    from sharegroup.worker.tasks.message import NotJson as NotJson
    from sharegroup.worker.tasks.request import TaskRequest as TaskRequest
    from sharegroup.worker.tasks.results import (
        AsyncResult as AsyncResult,
        EagerResult as EagerResult,
    )
    from sharegroup.worker.tasks.task import Task as Task
    from sharegroup.worker.tasks.task_app import TaskApp as TaskApp, shared_task as shared_task

if not TYPE_CHECKING:
    _names, __dir__, __all__ = lazy_names(
        __name__,
        {
            "worker.tasks.beat": "crontab",
            "worker.tasks.failures": "Ignore MaxRetriesExceededError TaskFailed TaskRevokedError",
            "worker.tasks.message": "NotJson",
            "worker.tasks.request": "TaskRequest",
            "worker.tasks.results": "AsyncResult EagerResult",
            "worker.tasks.task": "Task",
            "worker.tasks.task_app": "TaskApp shared_task",
        },
    )

    def __getattr__(name: str) -> object:
        """Return a public name, or raise what to use in place of one of Celery's."""
        # Imported here, because a name that is there does not need it.
        from sharegroup.worker.tasks.elsewhere import refuse_import

        return _names(name) if name in __all__ else refuse_import(name)
