"""Counts and reports the runs of a route's handler, and decides about each record afterwards.

`Settlement` carries out the decision.

handler returned              accepted
handler decided explicitly    as it decided, even if it raised an exception afterwards
handler raised                as `decide` says
handler was interrupted       timeout: a failure; lock lost: nothing; worker stops: released
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.worker.consuming.owned_partition import ConsumedRecord
from sharegroup.worker.decisions.decide import (
    Bury,
    Hold,
    Postpone,
    Redeliver,
    Step,
    decide,
    may_run,
)
from sharegroup.worker.decisions.messages import class_name
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.payloads.codec import UnreadablePayload
from sharegroup.worker.records.outcomes import (
    GivenUp,
    HandlingTimeout,
    LockLost,
    Reject,
    Release,
    Stopped,
    Verdict,
)
from sharegroup.worker.running.admission import Admission
from sharegroup.worker.running.breaker import Breaker
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.settlement import Settlement
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.telemetry.state import HandlerCounts

RELEASED_MS = 1_000
"""The time after which a released record of a consumer group runs again, in this process."""
NO_FAILURES = (Reject, Release, UnreadablePayload)


class HandlerRuns:
    """The runs of one route's handler, from their begin to the settlement of their records."""

    __slots__ = (
        "_admission", "_breaker", "_counts", "_parts", "_route", "_settlement", "done", "given_up",
    )  # fmt: skip

    def __init__(
        self,
        route: Route,
        settlement: Settlement,
        counts: HandlerCounts,
        parts: GroupParts,
        *,
        admission: Admission | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._breaker = breaker
        self._admission = admission
        self._route = route
        self._settlement = settlement
        self._counts = counts
        self._parts = parts
        self.done = 0
        """The number of runs that have ended."""
        self.given_up = 0
        """The number of handlers that were given up and have not ended."""

    def begin(self, record: TakenRecord, now: float) -> bool:
        """Count a run as begun.  False if the record must not run: it is dropped or buried."""
        delivery, parts = record.delivery, self._parts
        # `Watch` looks only several times per lock duration, so it may not have noticed.
        if delivery.is_lost or now >= delivery.deadline:
            self._settlement.lost(record)
            return False
        # Also if it has expired: one that has the turn to run alone must take it, or `Alone` would
        # have it put aside beside its dead letter.
        is_again = (
            (delivery.delivery_count > 1 or record.story.suspicions)
            and record.handler_record is None  # Not a held retry.
        )
        if is_again and not self.may_run_again(record):
            return False
        admission = self._admission
        # It may have expired while it waited.
        if admission is not None and (
            admission.has_expired(record) or (is_again and not admission.wants(record))
        ):
            return False
        counts = self._counts
        counts.running += 1
        queued_seconds = now + parts.wall_time.difference - delivery.timestamp_ms / 1000
        if queued_seconds < 0.0:  # The clock of the producer is ahead of ours.
            queued_seconds = 0.0
        counts.queued.observe(queued_seconds)
        if "record.started" in parts.events.listened:
            parts.events.tell("record.started", record)
        return True

    def may_run_again(self, record: TakenRecord) -> bool:
        """Whether a record that was delivered before, or is a suspect, may run now.

        Otherwise it waits to run alone, is put aside, or becomes a dead letter.
        """
        parts = self._parts
        limits = parts.limits
        count = record.delivery.delivery_count
        if not may_run(
            record.story,
            delivery_count=count,
            suspected_from=limits.suspected_from,
            in_place=self._route.blocks,
        ):
            self._settlement.put_aside(record)
            return False
        if (caution := parts.cautions.get(record.delivery.topic)) is not None:
            caution.saw(record, limits)
        if not record.runs_alone(limits.alone_from) or parts.alone.begins(record):
            return True
        self._settlement.run_alone(record)
        return False

    def ended(
        self, record: TakenRecord, error: BaseException | None, seconds: float, now: float
    ) -> None:
        """Settle the record of a run that returned, raised, or was interrupted by a verdict."""
        if type(error) is GivenUp:
            # `give_up` has settled it, so only the numbers of running handlers are left to correct.
            self._ended_late(record, seconds)
            return
        counts = self._counts
        counts.running -= 1
        counts.handling.observe(seconds)
        self.done += 1
        if error is None and record.handler_record.decision is None:
            if self._breaker is not None:
                self._breaker.succeeded(now - seconds)
            self._settlement.accept(record, seconds)
        else:
            self._decide(record, error, seconds, now)
        if not self._parts.room.is_set:
            self._parts.room.notify()

    def lost(self, record: TakenRecord) -> None:
        """Drop a record whose lock ended while the handler of its batch ran."""
        self._counts.running -= 1
        self.done += 1
        self._settlement.lost(record)

    def give_up(self, record: TakenRecord, verdict: Verdict, seconds: float, now: float) -> None:
        """Settle the record of a handler that does not end after its interruption."""
        # `counts.running` stays: the handler occupies its slot until `_ended_late`.
        self.given_up += 1
        text = (
            f"seconds={seconds:.1f} action='the handler did not end when cancelled; it still "
            "occupies its slot'"
        )
        self._parts.events.say(logging.ERROR, "handler.stuck", record, text)
        self._decide(record, verdict, seconds, now, may_hold=False)

    def _ended_late(self, record: TakenRecord, seconds: float) -> None:
        self._counts.running -= 1
        self.given_up -= 1
        self.done += 1
        text = f"seconds={seconds:.1f}"
        self._parts.events.say(logging.WARNING, "handler.ended_late", record, text)
        self._parts.room.notify()

    def _decide(
        self,
        record: TakenRecord,
        error: BaseException | None,
        seconds: float,
        now: float,
        *,
        may_hold: bool = True,
    ) -> None:
        """Decide about a record and have the decision carried out.

        ``may_hold`` is False if the handler is still running because it ignored its cancellation.
        """
        settlement, parts = self._settlement, self._parts
        decision = record.handler_record.decision
        record.story = record.handler_record.story  # Tracing has stored the run's span there.
        # Not `isinstance`, which would ask an error of the application for its class.
        if type(error) is LockLost:
            settlement.lost(record, error)
            return
        if type(error) is Stopped:
            self._stopped(record)
            return
        # Row 16 of «Outcomes of a record»: the decision counts, and the exception is reported only.
        if decision is not None:
            if error is not None:
                parts.events.tell("record.failed", record, error, {"step": "decided by hand"})
            error = None if decision == "accept" else decision
        if error is None:
            if self._breaker is not None:
                self._breaker.succeeded(now - seconds)
            settlement.accept(record, seconds)
            return
        if isinstance(record.delivery, ConsumedRecord):
            record.delivery.drop_outputs()  # Its retry or its letter goes into the transaction.
        # One that blocks is held in any case: records of its key must not overtake it.
        may_hold = may_hold or self._route.blocks
        holding_seconds = settlement.may_hold_seconds(record, now) if may_hold else 0
        try:
            step = self._judge(record, error, holding_seconds, begun_at=now - seconds)
        except BaseException as broken:  # noqa: BLE001  An application's exception may raise anything.
            text = f"error={class_name(error)} reason={class_name(broken)!r}"
            parts.events.say(logging.ERROR, "record.unjudged", record, text)
            parts.events.tell("record.failed", record, error, {"step": Bury.__name__})
            step = Bury(record.story, DeadLetterReason.NOT_RETRIED, error)
        if type(step) is Postpone and self._route.blocks:  # The worker stops, so none is held.
            step = Redeliver()
        if type(step) is Redeliver and not self._route.is_share and parts.may_hold:
            # In its order: records behind it must not overtake it.
            due_ms = parts.clock.wall_ms() + max(step.delay_ms or 0, RELEASED_MS)
            step = Hold(replace(record.story, due_ms=due_ms))
            self._counts.released += 1
            parts.events.tell("record.released", record)
        settlement.carry_out(record, step)

    def _stopped(self, record: TakenRecord) -> None:
        """Release a record that a stop has interrupted, or put it aside."""
        # A release would cost a delivery, and the next one may be that of a verdict (ADR 0035).  It
        # would also forget the failures of a held record (ADR 0055).
        if record.runs_alone(self._parts.limits.alone_from) or (
            record.has_unsaved_failures and not self._route.blocks
        ):
            if isinstance(record.delivery, ConsumedRecord):
                record.delivery.drop_outputs()  # The run that was interrupted sent them.
            self._settlement.put_aside(record, by_stop=True)
        else:
            self._settlement.carry_out(record, Redeliver(), at_close=True)

    def _judge(
        self,
        record: TakenRecord,
        error: BaseException,
        holding_seconds: float,
        *,
        begun_at: float,
    ) -> Step:
        """Count and report a failure, and decide what becomes of its record."""
        parts, breaker = self._parts, self._breaker
        self._count_failure(record, error)
        if breaker is not None:  # It may open, and then no record is held.
            breaker.ended(error, begun_at)
            holding_seconds = 0.0 if breaker.is_parking else holding_seconds
        step = decide(
            self._route,
            error,
            record.story,
            now_ms=parts.clock.wall_ms(),
            chance=random.random(),  # noqa: S311  Jitter.
            holding_allowed_seconds=holding_seconds,
            member=parts.members.id,
        )
        if not isinstance(error, NO_FAILURES):
            parts.events.tell("record.failed", record, error, {"step": type(step).__name__})
        return step if breaker is None else breaker.later(step)

    def _count_failure(self, record: TakenRecord, error: BaseException) -> None:
        counts, events = self._counts, self._parts.events
        match error:
            case Reject():
                counts.rejected += 1
                events.tell("record.rejected", record, error)
            case Release():
                pass  # `Settlement.carry_out` counts it.
            case UnreadablePayload():
                counts.unreadable += 1
                events.tell("record.unreadable", record, error)
            case _:
                counts.failed_with(class_name(error))
                if isinstance(error, HandlingTimeout):
                    counts.timed_out += 1
                    events.tell("record.timed_out", record, error)
