"""The run of a task, as the task sees it: ``self.request``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sharegroup.worker.ports import RealTimeClock
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.elsewhere import OF_A_REQUEST, lacks

if TYPE_CHECKING:
    from sharegroup.worker.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """A run of a task: its id, its arguments, and how often it was tried again."""

    id: str | None = None
    """None if the function was called as a plain one."""
    task: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    """The runs that failed before this one; a worker that died in a run counts none."""
    hostname: str = ""
    delivery_info: Mapping[str, Any] = field(default_factory=dict)
    """Where the record is: ``routing_key`` (the queue), topic, partition, offset, redelivered."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of the record that are text."""
    called_directly: bool = True
    """Whether the function was called as a plain one."""
    now_ms: Callable[[], int] = RealTimeClock().wall_ms
    """The time since 1970, by the clock of the worker."""
    record: Record | None = None
    """The record, to renew its lock or to see its failures; None without a worker."""

    if not TYPE_CHECKING:  # So a type checker reports an unknown name.

        def __getattr__(self, name: str) -> Any:
            raise lacks("self.request", name, OF_A_REQUEST)


DIRECTLY = TaskRequest()
CURRENT_REQUEST: ContextVar[TaskRequest] = ContextVar("sharegroup_task", default=DIRECTLY)
"""The run of the task that is running in this coroutine or thread."""
CURRENT_APP: ContextVar[Tasks | None] = ContextVar("sharegroup_task_app", default=None)
"""The application that runs the task of this coroutine or thread; shared tasks belong to it."""
