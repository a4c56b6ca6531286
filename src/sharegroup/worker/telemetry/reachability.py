"""Reports that no broker can be reached while an application runs or sends.

Clients try again until their timeouts, because a broker may be restarting.  Without these lines a
wrong address would look like a minute of silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from sharegroup.worker.ports import WorkerClock

if TYPE_CHECKING:
    from sharegroup.client.net.cluster import Reachability

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 1.0
"""Time without a broker, after the first failed attempt, until the first line."""
REPEAT_SECONDS = 10.0


@asynccontextmanager
async def reporting_unreachable(
    app_name: str, where: str, reachability: Callable[[], Reachability], clock: WorkerClock
) -> AsyncIterator[None]:
    """Log, while the body runs, that no broker can be reached; ``where`` names the cluster."""
    task = asyncio.create_task(_watch(app_name, where, reachability, clock))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(
    app_name: str, where: str, reachability: Callable[[], Reachability], clock: WorkerClock
) -> None:
    lost_since: float | None = None
    is_reported = False
    while True:
        now = clock.now()
        is_connected, lost = reachability()
        if is_connected or not lost:
            if is_reported:
                log.info("event=cluster.reached app=%s bootstrap=%r", app_name, where)
            lost_since, is_reported = None, False
        elif lost_since is None:
            lost_since = now
        elif now - lost_since >= (REPEAT_SECONDS if is_reported else PATIENCE_SECONDS):
            log.warning(
                "event=cluster.unreachable app=%s bootstrap=%r error=%r action='check that a "
                "broker listens there, or name another one: --bootstrap-server, "
                "SHAREGROUP_BOOTSTRAP'",
                *(app_name, where, "; ".join(lost.values())),
            )
            lost_since, is_reported = now, True
        await clock.sleep_until(now + LOOK_SECONDS)
