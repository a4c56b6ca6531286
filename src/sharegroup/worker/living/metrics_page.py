"""The page ``/metrics`` of a worker: its own numbers beside whatever the application registers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sharegroup.worker.living.endpoint import Answer, Page
from sharegroup.worker.seeing.lag import Waiting
from sharegroup.worker.seeing.prometheus import WorkerCollector
from sharegroup.worker.transport.kafka import SystemClock, open_admin

if TYPE_CHECKING:
    from sharegroup.worker.living.runnable import Runnable

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(app: Runnable, stack: AsyncExitStack) -> dict[str, Page]:
    """The page; what it needs is let go of with the stack."""
    from prometheus_client import REGISTRY, generate_latest

    admin = open_admin(app)
    stack.push_async_callback(admin.close)
    waiting = Waiting(admin, SystemClock(), sorted({route.group for route in app.route_list}))
    asking = asyncio.ensure_future(waiting.run())
    stack.callback(asking.cancel)
    collector = WorkerCollector(lambda: app.worker, lambda: waiting)
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)

    async def page() -> Answer:
        if asking.done():
            asking.result()  # It failed, and what was last heard grows old: who scrapes is told.
        return Answer(200, generate_latest(REGISTRY), CONTENT_TYPE)

    return {PATH: page}
