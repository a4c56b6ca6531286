"""An application that a program can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sharegroup.worker.application import Application
from sharegroup.worker.durations import Duration

if TYPE_CHECKING:
    from sharegroup.worker.running.worker import StopReport, Worker


class Runnable(Application, Protocol):
    """What `App` is besides."""

    @property
    def worker(self) -> Worker | None:
        """The worker, from `start` to `stop`."""

    async def start(self) -> None:
        """Begin to work; returns when the members run."""

    async def stop(self, grace: Duration | None = None) -> StopReport | None:
        """Finish what fits in ``grace``, give back the rest; a second call hurries."""
