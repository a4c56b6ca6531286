"""The page ``/metrics``: the worker's metrics and those that the application registers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY, generate_latest

from sharegroup.http_endpoint import PROMETHEUS_TEXT, HttpResponse, Page
from sharegroup.worker.application import Application
from sharegroup.worker.ports import RealTimeClock
from sharegroup.worker.telemetry.lag import GroupBacklog
from sharegroup.worker.telemetry.prometheus import WorkerCollector
from sharegroup.worker.telemetry.state import Observed
from sharegroup.worker.transport.kafka import open_admin

PATH = "/metrics"


def metrics_page(
    app: Application, worker: Callable[[], Observed | None], stack: AsyncExitStack
) -> dict[str, Page]:
    """The page ``/metrics``; ``stack`` closes its resources.

    ``worker`` returns None before the worker exists.
    """
    admin = open_admin(app)
    stack.push_async_callback(admin.close)
    share_groups = {route.group for route in app.route_list if route.is_share}
    consumed: dict[str, set[str]] = {}
    for route in app.route_list:
        if not route.is_share:
            consumed.setdefault(route.group, {route.own_topic}).update(route.topics)
    waiting = GroupBacklog(admin, RealTimeClock(), sorted(share_groups), consumed)
    asking = asyncio.ensure_future(waiting.run())
    stack.callback(asking.cancel)
    collector = WorkerCollector(worker, lambda: waiting)
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)

    async def page() -> HttpResponse:
        if asking.done():
            asking.result()  # Raises its error: a failed scrape is better than outdated lag.
        return HttpResponse(200, generate_latest(REGISTRY), PROMETHEUS_TEXT)

    return {PATH: page}
