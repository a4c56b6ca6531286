"""A worker: runs all share groups of an application in this process, from start to stop.

    start --> running <--quiet, resume--> quiet
                 |                          |
                 '-------- stop ------------'--> stopped      a second stop skips the grace
                 '-- a part ended with an error --> failed; stop still cleans up

Each group has a `GroupRunner`, which takes and handles records, and, if one of its routes retries,
a retry scheduler, which moves records through the retry topics (`retrying`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sharegroup.client.records import IllegalStateError
from sharegroup.errors import KafkaError, first_error
from sharegroup.worker.consuming.consumed_partitions import ConsumedPartitions
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.events import Event
from sharegroup.worker.middleware import Middleware
from sharegroup.worker.parts import (
    CONSUMER_GROUP_LIMITS,
    ShareGroupLimits,
    WorkerParts as WorkerParts,
)
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.scheduler import Scheduler
from sharegroup.worker.retrying.tier_mover import Moving
from sharegroup.worker.running.alone import Alone
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.group_runner import GroupRunner
from sharegroup.worker.running.once import run_once
from sharegroup.worker.running.returned import Around, Returned
from sharegroup.worker.running.shared_rates import ProcessesOf, shared_limiter
from sharegroup.worker.stores.store import TransactionalStore
from sharegroup.worker.telemetry.state import AskFigures, HandlerCounts, Phase, WorkerState

if TYPE_CHECKING:
    from sharegroup.worker.application import Application
    from sharegroup.worker.scheduling.schedule_owner import ScheduleOwner

log = logging.getLogger(__name__)


END_SECONDS = 5.0
"""Maximum time that a stop waits for a handler that swallows its cancellation."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """The result of a stop."""

    handled: int = 0
    """Records that handlers processed since the start, with success or not, over all attempts."""
    finished: int = 0
    """Handlers that ended while the stop waited for them."""
    interrupted: int = 0
    """Handlers that were cancelled because the grace was over."""
    released: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The number of records that were released, begun or not, by topic and partition."""
    error: BaseException | None = None
    """The error that ended the worker; None if it was stopped normally."""

    def __str__(self) -> str:
        released = ",".join(
            f"{topic}-{partition}:{count}"
            for (topic, partition), count in sorted(self.released.items())
        )
        return (
            f"handled={self.handled} finished={self.finished} interrupted={self.interrupted} "
            f"released={sum(self.released.values())}" + (f" of={released}" if released else "")
        )


class Worker:
    """Runs all share groups of an application in this process, from `start` to `stop`."""

    def __init__(self, app: Application, parts: WorkerParts) -> None:
        self._app = app
        self._parts = parts
        self._phase = Phase.STARTING
        self._alone = Alone(parts.clock)
        self._groups: list[GroupRunner] = []
        self._schedulers: list[Scheduler] = []
        self._schedules: list[ScheduleOwner] = []
        """The owner of schedules; none if the application has no schedules."""
        self._runner: asyncio.Task[None] | None = None
        self.processes_of: ProcessesOf = lambda _: 1 if parts.admin is None else None
        """Returns how many live processes a group has; `announced` replaces it."""
        self._failed: asyncio.Future[BaseException] | None = None
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Future[StopReport] | None = None

    # State.

    @property
    def state(self) -> WorkerState:
        """The phase of the worker and the state of its groups, for health checks and gauges."""
        schedules = (figures for owner in self._schedules for figures in owner.figures())
        groups = tuple(group.state for group in self._groups)
        asks = self._app.outlet.asks
        asked = None if asks is None else AskFigures(asks.waiting, asks.unawaited)
        return WorkerState(self._phase, groups, tuple(schedules), asked)

    @property
    def counts(self) -> tuple[HandlerCounts, ...]:
        """The counts of each handler, by group and in the order of the group's routes."""
        return tuple(runner.counts for group in self._groups for runner in group.runners)

    @property
    def schedulers(self) -> tuple[Scheduler, ...]:
        """The retry scheduler of each group that retries."""
        return tuple(self._schedulers)

    @property
    def reading(self) -> int:
        """The number of records whose key is being determined in a thread."""
        return sum(len(runner.queue.unread) for group in self._groups for runner in group.runners)

    @property
    def starting(self) -> int:
        """The number of handlers that are not started, such as while their processes start."""
        return sum(not runner.slots for group in self._groups for runner in group.runners)

    def partitions(self, group: str) -> ConsumedPartitions:
        """The partitions that this process owns of a consumer group."""
        for runner in self._groups:
            if runner.group == group and not runner.is_share:
                return runner.partitions
        raise IllegalStateError(
            f"this worker runs no consumer group {group!r}; its groups are "
            f"{', '.join(sorted(runner.group for runner in self._groups)) or 'none'}"
        )

    async def wait_failed(self) -> BaseException:
        """Wait for the error that makes the worker fail; never returns without one."""
        assert self._failed is not None, "it was started"
        # The future is shared: one waiter that is cancelled must not cancel it for the others.
        return await asyncio.shield(self._failed)

    # Life.

    async def start(self) -> None:
        """Start the groups in the background; returns before their members have joined."""
        self._failed = asyncio.get_running_loop().create_future()
        by_group: dict[str, list[Route]] = {}
        for route in self._app.route_list:
            by_group.setdefault(route.group, []).append(route)
        for group, routes in by_group.items():
            self._groups.append(
                GroupRunner(
                    routes,
                    self._parts,
                    self._app.events,
                    limits=await self._limits(group)
                    if routes[0].is_share
                    else CONSUMER_GROUP_LIMITS,
                    alone=self._alone,
                    around_of=self._around_of,
                )
            )
            self._share_rates(self._groups[-1])
            if any(route.retry is not None for route in routes):  # Others have no retry topics.
                self._schedulers.append(self._scheduler(self._groups[-1], routes[0]))
        if self._app.schedule_list:
            self._schedules.append(self._schedule_owner())
        self._runner = asyncio.create_task(self._run(), name=f"worker-{self._app.name}")
        self._phase = Phase.RUNNING
        self._tell("worker.started")

    def _share_rates(self, group: GroupRunner) -> None:
        for runner in group.runners:
            limiter = shared_limiter(
                runner.route,
                runner.counts,
                self._parts.clock,
                # `announced` sets it later.
                processes_of=lambda of_group: self.processes_of(of_group),  # noqa: PLW0108
                store=self._app.outlet.store,
            )
            if limiter is not None:
                runner.queue.limiter = limiter

    def _around_of(self, route: Route, parts: GroupParts) -> Around:
        """The middleware around a route's handler, and what is done with its return values."""
        app = self._app
        returned = Returned(route, app.outlet, parts) if route.to or route.is_reported else None
        inside: list[Middleware] = []
        if returned is not None and route.is_reported:
            inside.append(returned.report)
        if route.once_by is not None:
            store = app.outlet.store
            assert isinstance(store, TransactionalStore), "checked when the route was declared"
            inside.append(run_once(route, store))
        if returned is not None and route.to is not None:
            # In the transaction of `once_by`: once the mark is there, the handler runs no more.
            inside.append(returned.send_on)
        return Around((*app.middlewares, *inside), returned)

    def quiet(self) -> None:
        """Stop taking records, release those not begun, and finish those begun."""
        if self._phase is Phase.RUNNING:
            self._phase = Phase.QUIET
            for group in self._groups:
                group.quiet()
            self._tell("worker.quiet")

    def resume(self) -> None:
        """Take records again."""
        if self._phase is Phase.QUIET:
            for group in self._groups:
                group.resume()
            self._phase = Phase.RUNNING
            self._tell("worker.started")

    async def stop(self, grace_seconds: float) -> StopReport:
        """Let handlers finish for ``grace_seconds``, release all other records, and stop.

        A second call ends the grace at once.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(grace_seconds))
        else:
            self.hurry()
        # A caller that is cancelled does not leave the groups half stopped.
        return await asyncio.shield(self._stopping)

    def hurry(self) -> None:
        """End the grace of a stop at once."""
        self._hurry.set()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as outer:
                alone = outer.create_task(self._alone.run(), name="alone")
                # `Alone.run` never ends by itself, so an inner group waits for the others.
                async with asyncio.TaskGroup() as tasks:
                    for group in self._groups:
                        tasks.create_task(group.run(), name=f"group-{group.group}")
                    for scheduler in self._schedulers:
                        tasks.create_task(scheduler.run())
                    for owner in self._schedules:
                        tasks.create_task(owner.run(), name="schedules")
                alone.cancel()
        except BaseExceptionGroup as errors:
            self._fail(first_error(errors))

    def _fail(self, error: BaseException) -> None:
        assert self._failed is not None
        # A broker's error names its cause; a traceback through our code adds nothing.
        trace = None if isinstance(error, KafkaError) else error
        log.error("event=worker.failed app=%s error=%r", self._app.name, error, exc_info=trace)
        self._phase = Phase.FAILED
        if not self._failed.done():
            self._failed.set_result(error)

    async def _stop(self, grace_seconds: float) -> StopReport:
        error = self._failed.result() if self._failed is not None and self._failed.done() else None
        if error is None:
            self._phase = Phase.STOPPING
        self._tell("worker.stopping")
        if error is not None:
            # The task groups of `_run` have cancelled all handlers, so none is left to finish.
            grace_seconds = 0.0
        # Beside the groups: the retries that they write while they stop go to the retry topics
        # through the outbox, and the scheduler of any process moves them.
        scheduling = [
            *(asyncio.ensure_future(part.stop()) for part in self._schedulers),
            *(asyncio.ensure_future(part.stop()) for part in self._schedules),
        ]
        reports = await asyncio.gather(
            *(group.stop(grace_seconds, self._hurry) for group in self._groups)
        )
        await asyncio.gather(*scheduling)
        if self._runner is not None:
            await self._wait_ended(self._runner)
        released: Counter[tuple[str, int]] = Counter()
        for part in reports:
            released.update(part.released)
        report = StopReport(
            sum(part.handled for part in reports),
            sum(part.finished for part in reports),
            sum(part.interrupted for part in reports),
            dict(released),
            error,
        )
        if error is None:
            self._phase = Phase.STOPPED
        self._tell("worker.stopped", {"report": report})
        return report

    def _scheduler(self, runner: GroupRunner, route: Route) -> Scheduler:
        parts, group = self._parts, runner.group
        tier_log = parts.open_tier_log(group)
        return Scheduler(
            Moving(
                group,
                parts.clock,
                parts.outbox,
                tier_log,
                Tiers.of(route.retry_tiers),
                self._app.events,
                parts.open_tier_moves(group, tier_log) if route.steering else None,
                runner.holder_of,
            )
        )

    def _schedule_owner(self) -> ScheduleOwner:
        # Imported here, because only an application with schedules needs it.
        from sharegroup.worker.scheduling.partition_owner import SchedulingParts
        from sharegroup.worker.scheduling.schedule_owner import ScheduleOwner

        app, parts = self._app, self._parts
        access = parts.open_schedules()

        def add_headers(topic: str, headers: list[Header]) -> None:
            for add in app.outlet.before_send:
                add(topic, headers)

        shared = SchedulingParts(app.name, parts.clock, access.open_store, add_headers, app.events)
        return ScheduleOwner(shared, app.schedule_list, access=access, outbox=parts.outbox)

    async def _wait_ended(self, runner: asyncio.Task[None]) -> None:
        _, pending = await asyncio.wait({runner}, timeout=END_SECONDS)
        if pending:
            log.error(
                "event=worker.not_ended app=%s seconds=%s reason='a handler did not end when "
                "cancelled'",
                self._app.name,
                END_SECONDS,
            )

    async def _limits(self, group: str) -> ShareGroupLimits:
        try:
            return await self._parts.group_limits(group)
        except KafkaError as error:
            log.warning(
                "event=limits.unknown group=%s error=%r action='the defaults of Kafka are used'",
                group,
                error,
            )
            return ShareGroupLimits()

    def _tell(self, name: str, details: Mapping[str, object] | None = None) -> None:
        if self._app.events.wants(name):
            self._app.events.tell(Event(name, details=details or {}))
