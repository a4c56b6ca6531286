"""Carries out the steps that `decide` chose, for the records of one route.

accept, redeliver     immediately; the acknowledgement is sent with the next request
hold                  the record waits in memory (`held_retries`), if there is room for it
postpone, bury        the record is written first (`pending_writes`), then accepted or rejected
lost                  nothing: the lock ended, and another member may have the record
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, assert_never

from sharegroup.client import IllegalStateError
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Story, identified
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker.consuming.owned_partition import ConsumedRecord
from sharegroup.worker.dead_letters import Burier
from sharegroup.worker.decisions.decide import (
    ACCEPT,
    Accept,
    Bury,
    Hold,
    Postpone,
    Redeliver,
    Step,
    put_aside,
    stay,
)
from sharegroup.worker.decisions.expiring import aged
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import Outbox
from sharegroup.worker.retrying.waiting import Moment
from sharegroup.worker.running.alone import AloneRun
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.pending_writes import PendingWrite, TopicGate
from sharegroup.worker.running.record_queue import RecordQueue
from sharegroup.worker.running.returned import Returned
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.telemetry.state import HandlerCounts

HELD_OF_LOCKS = 2
"""At most 1/HELD_OF_LOCKS of a partition's locks may be held; the rest serve new records."""
WITHOUT_RENEWAL = 1 / 4
"""The part of a lock's duration that is left for a held record to run, if locks are not renewed."""
NO_TOPIC = "(none)"
"""The gate of a record that is reported and then rejected without a letter; it never closes."""


class Settlement:
    """Settles, holds, postpones or dead-letters the records of one route."""

    __slots__ = ("_burier", "_counts", "_is_manual", "_parts", "_queue", "_returned", "route")

    def __init__(
        self,
        route: Route,
        queue: RecordQueue,
        counts: HandlerCounts,
        parts: GroupParts,
        returned: Returned | None = None,
    ) -> None:
        self.route = route
        """The route whose records it settles."""
        self._queue = queue
        self._counts = counts
        self._parts = parts
        self._is_manual = route.commit == "manual"
        self._returned = returned if route.is_reported else None
        """Writes the result of a record that did not succeed; None if nobody is told."""
        self._burier: Burier | None = None
        """Made for the first dead letter, because the member id is known by then."""

    def accept(self, record: TakenRecord, seconds: float) -> None:
        """Count and accept a record whose handler returned after ``seconds``; the hot path."""
        self._counts.succeeded += 1
        if self._is_manual and record.handler_record.decision is None:
            record.handler_record.decision = "later"
        else:
            try:
                record.delivery.accept()
            except IllegalStateError as error:
                self._say_not_held(record, error)
        # Without keys no record waits for this one, so the call is spared.
        if self._queue.keys is None:
            record.is_done = True
        else:
            self._queue.settled(record)
        parts = self._parts
        if "record.succeeded" in parts.events.listened:
            taken_at = record.taken_at + parts.wall_time.difference
            queued_seconds = max(0.0, taken_at - record.delivery.timestamp_ms / 1000)
            details = {"seconds": seconds, "queued_seconds": queued_seconds}
            parts.events.tell("record.succeeded", record, None, details)

    def carry_out(self, record: TakenRecord, step: Step, *, at_close: bool = False) -> None:
        """Carry out a step.  With ``at_close`` a record to redeliver is released by the close."""
        match step:
            case Accept():
                self._settle(record, record.delivery.accept)
            case Redeliver():
                self._counts.released += 1
                if at_close:
                    self._parts.released_at_close.append(record)
                    self._queue.settled(record)
                else:
                    delay_ms = step.delay_ms
                    delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
                    self._settle(record, partial(record.delivery.release, delay=delay))
                self._parts.events.tell("record.released", record)
            case Hold():
                self._hold(record, step)
            case Postpone():
                self._postpone(record, step)
            case Bury():
                self._bury(record, step)
            case _:
                assert_never(step)

    def skip(self, record: TakenRecord, reason: str) -> None:
        """Accept a record without a run; a sender that asked for its outcome is told why."""
        if self._returned is None or not self._returned.tells_skipped(record, reason):
            self.carry_out(record, ACCEPT)
        else:
            self._begin_report(record, self._accept_reported(record, reason))

    def run_alone(self, record: TakenRecord) -> None:
        """Have a record run while no other handler of the process runs, or put it aside."""
        run = AloneRun(record, self._queue, self.put_aside, stays=self.route.blocks)
        if not self._parts.alone.ask(run):
            self.put_aside(record)

    def put_aside(self, record: TakenRecord, *, by_stop: bool = False) -> None:
        """Move a record that no handler has begun, or that a stop has interrupted, to be run anew.

        Its delivery count starts again, so that it is not judged for what others did.  One whose
        order counts stays in its place instead.
        """
        if record.is_done:
            return
        parts = self._parts
        stays = self.route.blocks and not record.story.suspicions
        step = (stay if stays else put_aside)(
            record.story,
            delivery_count=record.delivery.delivery_count,
            suspected_from=parts.limits.suspected_from,
            now_ms=parts.clock.wall_ms(),
            by_stop=by_stop or (stays and not parts.may_hold),
        )
        if isinstance(step, Postpone):
            suspicions = step.story.suspicions
            text = f"delivery_count={record.delivery.delivery_count} suspicions={suspicions} "
            text += f"action='it is delivered anew{', and runs alone' if suspicions else ''}'"
            parts.events.say(logging.INFO, "record.put_aside", record, text)
            parts.events.tell("record.put_aside", record)
        self.carry_out(record, step)

    def may_hold_seconds(self, record: TakenRecord, now: float) -> float:
        """The seconds for which this record may be held; 0 without enough room or time."""
        parts, holding, delivery = self._parts, self.route.holding, record.delivery
        if self.route.blocks and parts.may_hold:
            return math.inf  # `RecordRouting.room` takes no more instead.
        held = parts.held
        if (
            not parts.may_hold
            or not self._may_forget_failures(record)
            or record.story.suspicions
            or len(held) >= holding.records
            or held.bytes + record.weight > holding.bytes
            or held.of_partition(delivery.topic, delivery.partition)
            >= parts.limits.locks // HELD_OF_LOCKS
        ):
            return 0.0
        # A group can forbid renewals, and brokers before KIP-1222 have none.  Then the first lock
        # has to last for the wait and the run.
        if parts.limits.renewal and parts.members.renew:
            return holding.longest_seconds
        reserve_seconds = (parts.members.lock_seconds or 0.0) * WITHOUT_RENEWAL
        return max(0.0, min(delivery.deadline - now - reserve_seconds, holding.longest_seconds))

    def _may_forget_failures(self, record: TakenRecord) -> bool:
        """Whether an end of this process would be the first that forgets failures of the record."""
        # No topic has the failures of a held record.  Its process may have ended before, or it has
        # failures in its headers; then all others are to be there, too (ADR 0055).
        delivery = record.delivery
        return delivery.delivery_count == 1 and (
            delivery.topic != self.route.own_topic or story_of(delivery.headers).failures == 0
        )

    def lost(self, record: TakenRecord, error: BaseException | None = None) -> None:
        """Drop a record whose lock has ended; the broker delivers it again to some member."""
        caution = self._parts.cautions.get(record.delivery.topic)
        if caution is not None:
            # ADR 0035: a lost lock raises delivery counts as a crash does, so the next take is
            # small.
            caution.start_again()
        if record.handler_record is not None:  # Without a handler run, nothing is done twice.
            self._counts.lock_lost += 1
            self._parts.events.tell("record.lock_lost", record, error)
        # No acknowledgement is sent; this only removes the record from the client's tables.
        self._settle(record, record.delivery.release)

    def _hold(self, record: TakenRecord, step: Hold) -> None:
        due_ms, clock = step.story.due_ms, self._parts.clock
        assert due_ms is not None, "a held record has a due time"
        delay_seconds = max(0.0, (due_ms - clock.wall_ms()) / 1000)
        record.story = self._waiting(record, step.story)
        self._counts.held += 1
        # By the monotonic clock from here on: a step of the wall clock must not change the wait.
        self._parts.held.add(record, clock.now() + delay_seconds)
        self._parts.events.tell(
            "record.held", record, None, {"due_ms": due_ms, "id": record.story.id}
        )

    def _postpone(self, record: TakenRecord, step: Postpone) -> None:
        parts = self._parts
        decided = Moment.now(parts.clock)
        # Before the first attempt to write it, so that all attempts have the same id.
        story = self._waiting(record, step.story)
        outbox = self._transaction_of(record)
        postponer = parts.postponer if outbox is None else parts.postponer.through(outbox)
        attempt = partial(postponer.postpone, record.delivery, story, decided)

        def gate() -> TopicGate:
            # One for each retry topic: a missing one must not hold the records of the others.
            return parts.gate(parts.postponer.topic(story, decided))

        give_back = self._give_back_of(record)
        write = PendingWrite(record, gate, attempt, parts.clock, give_back=give_back)
        parts.writes.begin(write, self._settle_postponed(write, story))

    def _waiting(self, record: TakenRecord, story: Story) -> Story:
        """Return the story of a record that is about to wait."""
        if self.route.expiry is not None:
            story = aged(story, record.delivery, record.story)
        return identified(story)

    async def _settle_postponed(self, write: PendingWrite, story: Story) -> None:
        if await write.acknowledged():
            record = write.record
            self._counts.postponed += 1
            self._settle(record, record.delivery.accept)
            if story.suspicions:
                self._parts.members.flush()  # A crash before the acknowledgement doubles it.
            details = {"due_ms": story.due_ms, "id": story.id}
            self._parts.events.tell("record.postponed", record, None, details)

    def _bury(self, record: TakenRecord, step: Bury) -> None:
        parts = self._parts
        if self._burier is None:
            self._burier = Burier(parts.outbox, parts.clock, self.route, parts.members.id)
        topic = self._burier.topic
        # Nothing is to be written first, so nothing can be lost by rejecting at once.
        if topic is None or not step.is_kept:
            if self._returned is None:
                self._reject(record, step)
            else:
                self._begin_report(record, self._reject_reported(record, step))
            return
        outbox = self._transaction_of(record)
        attempt = partial(self._burier.bury, record.delivery, step, outbox=outbox)
        gate = partial(parts.gate, topic)
        give_back = self._give_back_of(record)
        write = PendingWrite(record, gate, attempt, parts.clock, give_back=give_back)
        parts.writes.begin(write, self._settle_buried(write, step, topic))

    def _reject(self, record: TakenRecord, step: Bury) -> None:
        self._settle(record, record.delivery.reject)
        if step.reason != DeadLetterReason.REJECTED:  # `handler_runs` counts and reports a Reject.
            self._counts.rejected += 1
            details = {"reason": step.reason}
            self._parts.events.tell("record.rejected", record, step.error, details)

    async def _reject_reported(self, record: TakenRecord, step: Bury) -> None:
        assert self._returned is not None, "the caller has asked"
        await self._returned.failed(record, step)
        self._reject(record, step)

    async def _accept_reported(self, record: TakenRecord, reason: str) -> None:
        assert self._returned is not None, "the caller has asked"
        await self._returned.skipped(record, reason)
        self._settle(record, record.delivery.accept)

    def _begin_report(self, record: TakenRecord, work: Coroutine[Any, Any, None]) -> None:
        parts = self._parts
        write = PendingWrite(record, partial(parts.gate, NO_TOPIC), _nothing, parts.clock)
        parts.writes.begin(write, work)

    async def _settle_buried(self, write: PendingWrite, step: Bury, topic: str) -> None:
        record = write.record
        # Also for one that no handler has begun, so that the event has no record.
        details = {
            "reason": step.reason,
            "topic": topic,
            "key": record.delivery.key,
            "redrives": record.story.redrives,
        }
        # Before the letter: a redriven letter runs again, and its result is the later one.
        if self._returned is not None:
            await self._returned.failed(record, step)
        await self._parts.events.before_letter(record, step.error, details)
        if await write.acknowledged():
            self._counts.dead_lettered += 1
            self._settle(record, record.delivery.reject)
            self._parts.events.tell("record.dead_lettered", record, step.error, details)

    def _give_back_of(self, record: TakenRecord) -> Callable[[], None] | None:
        """Return what releases a record that cannot be written; None if it must be held."""
        # A consumer group cannot give a record to another member.  Of a share group, each release
        # costs a delivery, and the broker archives a record at its limit.
        if not self.route.is_share or record.runs_alone(self._parts.limits.alone_from):
            return None
        return partial(self.carry_out, record, Redeliver())

    def _transaction_of(self, record: TakenRecord) -> Outbox | None:
        """The outbox whose records are written with the record's offset; None without one."""
        delivery = record.delivery
        # Of an unreadable range, the letter may be written twice.
        if self.route.exactly_once and isinstance(delivery, ConsumedRecord):
            return delivery
        return None

    def _settle(self, record: TakenRecord, acknowledge: Callable[[], None]) -> None:
        if record.is_done:
            return  # The lock was lost during the write.
        try:
            acknowledge()
        except IllegalStateError as error:
            self._say_not_held(record, error)
        self._queue.settled(record)
        self._parts.room.notify()

    def _say_not_held(self, record: TakenRecord, error: IllegalStateError) -> None:
        self._parts.events.say(logging.WARNING, "record.not_held", record, f"error={error}")


async def _nothing(*, shrunk: bool) -> None:
    """The write of a record that needs none."""
