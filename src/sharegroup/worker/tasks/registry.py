"""The tasks of `shared_task` and the applications of this process."""

from __future__ import annotations

from typing import Any

from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.request import CURRENT_APP

SHARED: dict[str, Any] = {}
"""The tasks of `shared_task`, by their names; all applications have them."""
MADE: list[Tasks] = []
"""The applications of this process; the last one is the current one."""


def current_app(task_name: str) -> Tasks:
    """Return the application that runs the current task, otherwise the one that was made last.

    Raises RuntimeError without one.
    """
    running = CURRENT_APP.get()
    if running is not None:
        return running
    if not MADE:
        raise RuntimeError(
            f"task {task_name!r} is shared, and no TaskApp was made in this process: import the "
            f"module that makes it in the package's __init__.py: from .celery import app"
        )
    return MADE[-1]
