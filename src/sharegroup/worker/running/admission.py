"""Looks at the records of a route before they wait for its handler: expiry, filters, breakers.

    taken --> expired? --> wanted? --> breaker open? --> waits, in its order, for a slot
                 |            |             '----------> parked in a retry topic
                 |            '------> accepted without a run (`only`)
                 '-------------------> a dead letter, or accepted (`expires_after`)

A record that is skipped here takes no slot, no token of the rate limit and no place in the order
of its key.  Only routes with one of these options have an `Admission` (`Route.is_selective`).
"""

from __future__ import annotations

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.worker.decisions.decide import ACCEPT, expired
from sharegroup.worker.decisions.expiring import expires_at_ms
from sharegroup.worker.declarations.policies import takes_payload
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.records.record import Record
from sharegroup.worker.running.breaker import Breaker
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.record_queue import RecordQueue
from sharegroup.worker.running.returned import FILTERED
from sharegroup.worker.running.settlement import Settlement
from sharegroup.worker.running.taken_record import NOT_DECODED, OrderByFailure, TakenRecord
from sharegroup.worker.telemetry.state import HandlerCounts


class Admission:
    """Admits the records of a route that its handler wants, and settles the others."""

    __slots__ = (
        "_breaker", "_counts", "_expiry", "_only", "_parts", "_queue", "_route", "_settlement",
        "_takes_payload",
    )  # fmt: skip

    def __init__(
        self,
        queue: RecordQueue,
        settlement: Settlement,
        counts: HandlerCounts,
        parts: GroupParts,
        *,
        breaker: Breaker | None,
    ) -> None:
        route = settlement.route
        self._breaker = breaker
        self._route: Route = route
        self._queue = queue
        self._settlement = settlement
        self._counts = counts
        self._parts = parts
        self._expiry = route.expiry
        self._only = route.only
        self._takes_payload = route.only is not None and takes_payload(route.only)

    def admits(self, record: TakenRecord) -> bool:
        """Whether a record is to run; otherwise it is settled.

        If the filter fails, the record is admitted, and fails when its handler would run.
        """
        if self.has_expired(record):
            return False
        # A filter may have ended the process that had the record before.  So `HandlerRuns` asks it,
        # when the record may run, and perhaps alone.
        is_first = record.delivery.delivery_count == 1 and not record.story.suspicions
        if is_first and not self.wants(record):
            return False
        if self._breaker is None or not self._breaker.is_parking:
            return True
        self._breaker.park(record)
        return False

    def wants(self, record: TakenRecord) -> bool:
        """Whether the filter wants a record; otherwise it is settled."""
        if self._only is None or self._is_wanted(record):
            return True
        self._counts.filtered += 1
        self._parts.events.tell("record.filtered", record)
        self._settlement.skip(record, FILTERED)  # 28
        return False

    def add_due(self, record: TakenRecord) -> None:
        """Add a held record that is due to the queue, unless it has expired meanwhile.

        A filter that has failed is asked again here, also about a record that was delivered before:
        it has not ended this process.  An open breaker parks what is in the queue.
        """
        if record.is_done:
            return
        if self._only is not None and type(record.payload) is OrderByFailure:
            # Nothing is known of it: the filter, or `order_by`, has failed.
            record.payload = NOT_DECODED
            if not self.has_expired(record) and self.wants(record):
                self._queue.add(record)
                self._queue.wake_one()
        elif not self.has_expired(record):
            self._queue.add_due(record)

    def has_expired(self, record: TakenRecord) -> bool:
        """Whether a record has expired; then it is settled."""
        if self._expiry is None:
            return False
        at_ms = expires_at_ms(self._expiry, record.delivery, record.story)
        if at_ms is None or self._parts.clock.wall_ms() < at_ms:
            return False
        self._counts.expired += 1
        self._parts.events.tell("record.expired", record, None, {"expired_at_ms": at_ms})
        step = expired(record.story, self._expiry)
        if step is ACCEPT:
            self._settlement.skip(record, DeadLetterReason.EXPIRED)
        else:
            self._settlement.carry_out(record, step)
        return True

    def _is_wanted(self, record: TakenRecord) -> bool:
        assert self._only is not None
        handler_record = Record(record.delivery, record.story, self._parts.clock)
        try:
            if not self._takes_payload:
                return bool(self._only(handler_record))
            record.payload = self._route.codec.decode(record.delivery.value)
            return bool(self._only(record.payload, handler_record))
        except KeyboardInterrupt:
            raise
        # As for `order_by`: it would end the task that takes records.
        except BaseException as error:  # noqa: BLE001  The application's function may raise anything.
            record.payload = OrderByFailure(error)
            return True
