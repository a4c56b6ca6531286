"""The protocol of an application that a program can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sharegroup.worker.application import Application
from sharegroup.worker.durations import Duration

if TYPE_CHECKING:
    from sharegroup.worker.running.worker import StopReport, Worker


class Runnable(Application, Protocol):
    """An application that can be started and stopped, as `App`."""

    @property
    def worker(self) -> Worker | None:
        """The running worker; None before `start` and after `stop`."""

    async def start(self) -> None:
        """Start the worker; returns when its members are started."""

    async def stop(self, grace: Duration | None = None) -> StopReport | None:
        """Stop: handlers get ``grace`` to finish, others are released; a second call ends it."""
