"""The protocols through which the modules of tasks use their application.

`task_app.TaskApp` and `connected.Connected` implement them and connect the modules.  None of them
imports those two, so each can be read without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from sharegroup.errors import InvalidConfig
from sharegroup.worker.app import App
from sharegroup.worker.routed import Routed
from sharegroup.worker.sender import Sender
from sharegroup.worker.tasks.options import TaskOptions
from sharegroup.worker.tasks.settings import Settings

T = TypeVar("T")


class Connection(Protocol):
    """An application that sends or runs tasks, as results use it."""

    @property
    def app(self) -> App: ...

    @property
    def queues(self) -> Mapping[str, Routed[Any, Any]]:
        """The handler of each queue."""

    def any_sender(self) -> Sender[Any]:
        """Return the sender of one of the queues."""

    async def revoke(self, queue: str, task_id: str) -> bool:
        """Cancel the records of a task that wait."""

    async def forget(self, queue: str, task_id: str) -> None:
        """Let the result of a task expire."""


class Tasks(Protocol):
    """An application of tasks, as they and their results use it."""

    main: str
    conf: Settings
    app_options: dict[str, Any]

    @property
    def tasks(self) -> Mapping[str, Any]:
        """The tasks by their names."""

    def queue_of(
        self, name: str, options: TaskOptions | None = None, queue: str | None = None
    ) -> str:
        """Return the queue of a call."""

    def no_queue(self, queue: str) -> InvalidConfig:
        """Return the error for a queue that is not known."""

    def send(self, call: Any) -> None:
        """Write the record of a task; blocks."""

    async def asend(self, call: Any) -> None:
        """Write the record of a task, in a coroutine."""

    def call(self, make: Callable[[Connection], Coroutine[Any, Any, T]], seconds: float = 0.0) -> T:
        """Run a coroutine where senders are connected, and wait for it in this thread."""

    async def acall(
        self, make: Callable[[Connection], Coroutine[Any, Any, T]], seconds: float = 0.0
    ) -> T:
        """Run a coroutine where senders are connected, and await it."""

    def run_eagerly(self, task: Any, call: Any) -> Any:
        """Run a task here and now, with its retries."""
