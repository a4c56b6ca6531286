"""Connects an `Announcer` to a running application and its cluster."""

from __future__ import annotations

import asyncio
import functools
import logging
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from sharegroup import __version__
from sharegroup.client.fetch.followed_partition import FollowedPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.fleet.commands import Intent, parsed
from sharegroup.fleet.fleet import heard
from sharegroup.fleet.fleet_topics import PARTITION, commands_topic, workers_topic
from sharegroup.fleet.heartbeats import Identity, Versions
from sharegroup.worker.application import Application
from sharegroup.worker.infrastructure.rights import announcing_refusal, divides_rates
from sharegroup.worker.lifecycle.announcer import Announcer, announcing
from sharegroup.worker.parts import WorkerParts
from sharegroup.worker.transport.kafka import client_options

if TYPE_CHECKING:
    from sharegroup.durations import Duration
    from sharegroup.worker.running.worker import StopReport, Worker

log = logging.getLogger(__name__)


class Announced(Application, Protocol):
    """An application that takes commands, as `App`."""

    obey: Callable[[Intent], None] | None

    async def stop(self, grace: Duration | None = None) -> StopReport | None: ...


@asynccontextmanager
async def announced(app: Announced, worker: Worker, parts: WorkerParts) -> AsyncIterator[None]:
    """Announce this worker of an application within the block; without a cluster, do nothing."""
    if parts.admin is None:
        yield
        return
    groups = tuple(sorted({route.group for route in app.route_list}))
    versions = Versions(__version__, platform.python_version())
    cluster = Cluster(config_from(ReadingConfig, client_options(app)))
    identity = Identity.of_this_process(app.name, groups, versions, parts.clock.wall_ms())
    announcer = Announcer(
        identity,
        lambda: worker.state,
        app.obey or _Obedient(app, worker),
        outbox=parts.outbox,
        clock=parts.clock,
        commands=FollowedPartition(
            cluster,
            TopicPartition(commands_topic(app.name), PARTITION),
            lambda record: parsed(record.key, record.value),
        ),
    )
    refusal = functools.partial(announcing_refusal, app.name, parts.admin)
    try:
        async with announcing(announcer, refusal, parts.clock), AsyncExitStack() as stack:
            if divides_rates(app.route_list):
                # Imported here, because only limits that the fleet shares need it.
                from sharegroup.worker.lifecycle.peers import Peers, watching

                peers = Peers(identity.worker_id, parts.clock)
                beats = FollowedPartition(
                    cluster, TopicPartition(workers_topic(app.name), PARTITION), heard
                )
                await stack.enter_async_context(watching(peers, beats, parts.clock))
                worker.processes_of = peers.processes_of
            yield
    finally:
        cluster.close()


class _Obedient:
    """Carries out commands for a worker that runs in the event loop of another program."""

    def __init__(self, app: Announced, worker: Worker) -> None:
        self._app = app
        self._worker = worker
        self._stopping: set[asyncio.Task[None]] = set()

    def __call__(self, intent: Intent) -> None:
        match intent:
            case Intent.QUIET:
                self._worker.quiet()
            case Intent.RESUME:
                self._worker.resume()
            case Intent.STOP:
                # Not awaited: the stop ends the task that took the command.
                task = asyncio.ensure_future(self._stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    async def _stop(self) -> None:
        try:
            await self._app.stop()
        except Exception:  # Of a shutdown hook; nobody waits for this stop who could be told.
            log.exception("event=stop_failed app=%s", self._app.name)
