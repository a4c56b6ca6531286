"""The circuit breaker of a route: while it is open, its records wait in retry topics.

    opened      no record is taken, no handler begins; records that this process has are parked
    half-open   one record is taken, and its run decides
    closed      all others are taken

Parked records are written to the retry topics, due when the breaker tries again, with their
failures unchanged.  They are not released, because a release costs a delivery, and another process
would only fail as well.  In a consumer group that keeps an order they stay in the process instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from sharegroup.worker.decisions.circuit import Circuit, CircuitState
from sharegroup.worker.decisions.decide import Postpone, Step, decisive, put_aside
from sharegroup.worker.declarations.policies import CircuitBreaker
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.payloads.codec import UnreadablePayload
from sharegroup.worker.records.outcomes import HandlerDecision, HandlingTimeout
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.record_queue import RecordQueue
from sharegroup.worker.running.settlement import Settlement
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.telemetry.state import HandlerCounts

NEUTRAL = (HandlerDecision, UnreadablePayload)
"""Ends of runs that say nothing about what the handler depends on."""


class Breaker:
    """Observes the runs of a route, and parks its records while too many of them fail."""

    __slots__ = (
        "_circuit", "_counts", "_declared", "_parts", "_queue", "_route", "_settlement",
        "opened", "tries_at", "tries_at_ms",
    )  # fmt: skip

    def __init__(
        self,
        declared: CircuitBreaker,
        queue: RecordQueue,
        settlement: Settlement,
        counts: HandlerCounts,
        parts: GroupParts,
    ) -> None:
        self._declared = declared
        self._circuit = Circuit(failures=declared.failures, of=declared.of)
        self._queue = queue
        self._route: Route = settlement.route
        self._settlement = settlement
        self._counts = counts
        self._parts = parts
        self.opened = asyncio.Event()
        """Set when it opens; `Breakers` clears it, and does what takes time."""
        self.tries_at = 0.0
        """When an open breaker tries again, in seconds of the clock."""
        self.tries_at_ms = 0
        counts.circuit = self.state

    @property
    def state(self) -> CircuitState:
        """The state of the breaker."""
        return self._circuit.state

    @property
    def is_parking(self) -> bool:
        """Whether records of the route are to wait in retry topics now."""
        return self.state is CircuitState.OPEN and not self._route.blocks

    # Runs.

    def succeeded(self, begun_at: float) -> None:
        """Note a run that succeeded."""
        if self._circuit.observe(has_failed=False, begun_at=begun_at):
            self._tell("breaker.closed")
            self._queue.wake_one()

    def ended(self, error: BaseException, begun_at: float) -> None:
        """Note a run that raised, or was interrupted because it took too long."""
        error = decisive(error, self._route.retry)
        kind = type(error)  # Not `isinstance`, which would ask the error for its class.
        if issubclass(kind, NEUTRAL):
            return
        # A service that hangs is down, too, whatever classes are declared.
        if not issubclass(kind, (*self._declared.classes, HandlingTimeout)):
            return
        if self._circuit.observe(has_failed=True, begun_at=begun_at):
            self._open(error)

    def _open(self, error: BaseException) -> None:
        clock, seconds = self._parts.clock, self._declared.open_seconds
        self.tries_at = clock.now() + seconds
        self.tries_at_ms = clock.wall_ms() + round(seconds * 1000)
        self._counts.opened += 1
        self._tell("breaker.opened", error)
        self.opened.set()

    def half_open(self) -> None:
        """Let the next run decide."""
        self._circuit.half_open(self._parts.clock.now())
        self._tell("breaker.half_open")
        self._queue.wake_one()

    def _tell(self, event: str, error: BaseException | None = None) -> None:
        self._counts.circuit = self.state
        details = {"tries_at_ms": self.tries_at_ms} if self.state is CircuitState.OPEN else {}
        self._parts.events.tell_handler(event, self._route, error, details)

    # Records.

    def room(self, room: int, *, running: int) -> int:
        """How many of ``room`` records to take."""
        match self.state:
            case CircuitState.CLOSED:
                return room
            case CircuitState.HALF_OPEN:
                return max(0, min(room, 1 - running - self._queue.waiting))
            case CircuitState.OPEN:
                return 0

    def may_begin(self, running: int) -> bool:
        """Whether a handler may begin while this number of records are in handlers."""
        state = self.state
        return state is CircuitState.CLOSED or (state is CircuitState.HALF_OPEN and not running)

    def later(self, step: Step) -> Step:
        """Return the step, with a retry that is not due before an open breaker tries again."""
        if self.is_parking and type(step) is Postpone:
            due_ms = max(step.story.due_ms or 0, self.tries_at_ms)
            return Postpone(replace(step.story, due_ms=due_ms))
        return step

    def park(self, record: TakenRecord) -> None:
        """Write a record that no handler has begun to a retry topic."""
        self._counts.parked += 1
        step = put_aside(
            record.story,
            delivery_count=record.delivery.delivery_count,
            suspected_from=self._parts.limits.suspected_from,
            now_ms=self.tries_at_ms,
            by_stop=True,  # It is no suspect because of this.
        )
        self._settlement.carry_out(record, step)

    def park_all(self, held: Iterable[tuple[float, TakenRecord]]) -> None:
        """Park the records that wait, and those that are ``held`` with the times of their retry."""
        # All of them, because each has been delivered at least once, but for those that run alone.
        for record in self._queue.take_ready(alone_from=1, but=self._parts.alone.spared):
            self.park(record)
        now = self._parts.clock.now()
        for due, record in held:
            if not record.is_done:
                self._counts.parked += 1
                due_ms = self._parts.clock.wall_ms() + max(0, round((due - now) * 1000))
                step = Postpone(replace(record.story, due_ms=due_ms))
                self._settlement.carry_out(record, self.later(step))
