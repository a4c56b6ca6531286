"""Handles the return value of a handler: sends it on, keeps it as a result, and replies with it.

    handler returned --> sent to the topic `to` --> [the mark of once_by] --> result --> reply
                                                                                  --> accepted
    handler failed finally ------------------------------------> result --> reply --> dead letter

All of it happens before the record is settled.  If a process dies meanwhile, the record is
delivered again, and its value is sent again: a reader of `to` sees it at least once.  With
``exactly_once`` it is in the transaction of the record.  Results and replies are in no transaction:
the last run's result stays, and a reply that is not expected is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from sharegroup.backoff import Backoff
from sharegroup.dead_letters.story import Story, origin_of
from sharegroup.dead_letters.story_headers import own_headers
from sharegroup.errors import RequestTimedOut
from sharegroup.worker.decisions.decide import MESSAGE_CHARACTERS_MAX, Bury
from sharegroup.worker.decisions.messages import class_name, message_of, trace_of
from sharegroup.worker.declarations.replies import replies_topic
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.middleware import Call, Middleware, Proceed
from sharegroup.worker.ports import DeliveredRecord, Header, Outbox
from sharegroup.worker.records.outcomes import Reject, Release
from sharegroup.worker.records.record import CURRENT_OUTBOX, CURRENT_SLOT, Record
from sharegroup.worker.results.reply import REPLY_HEADER, ReplyAddress, address_of, reply_of
from sharegroup.worker.results.result import (
    ID_HEADER,
    KEEP_HEADER,
    Result,
    ResultState,
    id_of,
    is_kept,
    parsed,
    result_name,
    written,
)
from sharegroup.worker.results.time_limit import TimeIsOver, within
from sharegroup.worker.running.group_parts import GroupParts
from sharegroup.worker.running.taken_record import TakenRecord
from sharegroup.worker.sender import Outlet
from sharegroup.worker.stores.store import Store, StoreUnavailable
from sharegroup.worker.telemetry.state import HandlerCounts

log = logging.getLogger(__name__)

T = TypeVar("T")

STORE_TRIES = 4
"""A result is written this often before its handler's run counts as failed."""
STORE_SECONDS = 15.0
"""The time of a try; more than those after which our own stores give up (`stores`)."""
STORE_PAUSE_MS_MIN = 200
STORE_PAUSE_MS_MAX = 2_000
REPLY_SECONDS = 5.0
"""The time in which a reply is written; the handler's place is occupied meanwhile."""
FILTERED = "filtered"
"""Why a record is not handled that the filter of its handler does not want."""
TRACE_HEADERS = ("traceparent", "tracestate")
"""The trace of a record that was sent on begins with the run that sent it, if runs are traced."""


class Around(NamedTuple):
    """What surrounds the handler of a route."""

    middlewares: Sequence[Middleware] = ()
    returned: Returned | None = None


NOTHING_AROUND = Around()


class Returned:
    """Sends on, keeps and replies with what the handler of one route returns."""

    __slots__ = ("_clock", "_outlet", "_parts", "_route", "counts")

    def __init__(self, route: Route, outlet: Outlet, parts: GroupParts) -> None:
        self._route = route
        self._outlet = outlet
        self._parts = parts
        self._clock = parts.clock
        self.counts: HandlerCounts | None = None
        """The counts of the route; set by its `RouteRunner`."""

    # The middleware.

    async def send_on(self, call: Call, proceed: Proceed) -> Any:
        """Send what the handler returns to the topic `to`; None is not sent."""
        value = await proceed(call)
        record = call.record
        if value is not None and _is_accepted(record):
            await self._send(value, record)
        return value

    async def report(self, call: Call, proceed: Proceed) -> Any:
        """Keep what the handler returns or raises as the record's result, and reply."""
        record = call.record
        record.begun_ms = started_ms = self._clock.wall_ms()
        # Its limit is that of the handler.  A store or a broker that is slow must not let one run
        # again that has returned, or whose error is final.
        waiting = CURRENT_SLOT.get().waiting
        try:
            value = await proceed(call)
        except Exception as error:
            if self._route.retry is not None and not isinstance(error, Reject | Release):
                with waiting():
                    await self._keep_failure(record, error, started_ms)
            raise
        if _is_accepted(record):
            with waiting():
                await self._report_success(call, value, started_ms)
        return value

    async def _report_success(self, call: Call, value: Any, started_ms: int) -> None:
        record = call.record
        result = await self._done_before(record) if call.passed_over else None
        if result is None:
            encoded = self._encoded(value)
            result = self._result(
                *(record.delivery, record.story, ResultState.SUCCEEDED),
                value=encoded,
                attempts=record.attempt,
                started_ms=started_ms,
            )
            await self._keep(result, record.headers)
        await self._reply(record.delivery.headers, result)

    # A record that failed finally.

    async def failed(self, record: TakenRecord, step: Bury) -> None:
        """Keep and reply that a record failed finally; its letter has all of it, whatever fails."""
        story, error = step.story, step.error
        text = "" if error is None else self._text(error)
        name = "" if error is None else class_name(error)
        if error is None and story.attempts:  # Its process ended; the failure before is known.
            name, text = story.attempts[-1].error, story.attempts[-1].message
        result = self._result(
            *(record.delivery, story, ResultState.FAILED),
            error_class=name,
            error_text=text,
            reason=str(step.reason),
            traceback="" if error is None else trace_of(error, self._route.redaction),
            attempts=story.failures,
            started_ms=getattr(record.handler_record, "begun_ms", 0),
        )
        headers = record.delivery.headers
        await self._try_to_keep(result, headers)
        await self._reply(headers, result)

    # A record that is accepted without a run.

    def tells_skipped(self, record: TakenRecord, reason: str) -> bool:
        """Whether anything is to be written about it; for most records of a filter, nothing is."""
        has_result = reason != FILTERED and self._route.result_seconds > 0
        return has_result or self._address(record.delivery.headers) is not None

    async def skipped(self, record: TakenRecord, reason: str) -> None:
        """Keep and reply that a record is not handled.

        One that the filter of the handler does not want has no result: such records may be many.
        """
        result = self._result(
            *(record.delivery, record.story, ResultState.FAILED),
            reason=reason,
            attempts=record.story.failures,
        )
        if reason != FILTERED:
            await self._try_to_keep(result, record.delivery.headers)
        await self._reply(record.delivery.headers, result)

    # Their parts.

    async def _send(self, value: Any, record: Record) -> None:
        route, outlet = self._route, self._outlet
        topic, codec = route.to, route.output
        assert topic is not None, "the route has the option"
        assert codec is not None, "the application sets it for the option"
        try:
            if codec.may_block:
                data = await asyncio.to_thread(codec.encode, value, topic)
            else:
                data = codec.encode(value, topic)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{route.shape.name}: what it returned cannot be sent to {topic!r}: {error}"
            ) from error
        headers = self._headers_to_send(record)
        outbox: Outbox | None = CURRENT_OUTBOX.get() or outlet.outbox
        assert outbox is not None, "the application is connected while its handlers run"
        await outbox.send(topic, data, key=record.key, headers=headers)

    def _headers_to_send(self, record: Record) -> list[Header]:
        """The headers of the record, with its id, and without what was meant for its handler."""
        topic, story = self._route.to, record.story
        assert topic is not None, "the route has the option"
        left_out = (REPLY_HEADER, ID_HEADER, KEEP_HEADER)
        kept = [header for header in record.headers if header[0] not in left_out]
        traced = [header for header in kept if header[0] in TRACE_HEADERS]
        headers = [header for header in kept if header[0] not in TRACE_HEADERS]
        headers.append((ID_HEADER, id_of(record.headers, record.delivery, story).encode()))
        for add in self._outlet.before_send:
            add(topic, headers)
        if all(name not in TRACE_HEADERS for name, _ in headers):
            headers += traced
        return [*headers, *record.redrive_headers]

    def _encoded(self, value: Any) -> bytes | None:
        codec = self._route.return_codec
        assert codec is not None, "the outcome of its records is written"
        if value is None:
            return None
        try:
            return codec.encode(value, "")
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{self._route.shape.name}: what it returned cannot be encoded as a result: "
                f"{error}; annotate the type that it returns"
            ) from error

    def _result(
        self, delivery: DeliveredRecord, story: Story, state: ResultState, **facts: Any
    ) -> Result[bytes]:
        return Result(
            id=id_of(own_headers(delivery.headers), delivery, story),
            state=state,
            handler=self._route.shape.name,
            worker_id=self._parts.members.id,
            sent_ms=origin_of(delivery, story).timestamp_ms,
            ended_ms=self._clock.wall_ms(),
            **facts,
        )

    async def _keep_failure(self, record: Record, error: Exception, started_ms: int) -> None:
        """Keep that a run failed; the run failed already, so nothing is raised."""
        if record.delivery.is_lost:
            return  # Another member has the record, and maybe a later result.
        result = self._result(
            *(record.delivery, record.story, ResultState.RETRYING),
            error_class=class_name(error),
            error_text=self._text(error),
            attempts=record.attempt,
            started_ms=started_ms,
        )
        try:
            await self._put(result, record.headers)
        except Exception as unkept:  # noqa: BLE001  The failure of the handler counts.
            self._not_written("result", result, unkept)

    def _text(self, error: BaseException) -> str:
        return message_of(error, MESSAGE_CHARACTERS_MAX, self._route.redaction)

    async def _done_before(self, record: Record) -> Result[bytes] | None:
        """Return the result of the run that did the work; None if there is none."""
        store = self._store()
        if store is None:
            return None
        result_id = id_of(record.headers, record.delivery, record.story)
        data = await self._answered(store.get(result_name(self._route.group, result_id)))
        if data is None:
            return None
        result = parsed(data, bytes)
        return result if result.state is ResultState.SUCCEEDED else None

    async def _keep(self, result: Result[bytes], headers: Sequence[Header]) -> None:
        """Write a result, several times if the store is unavailable."""
        backoff = Backoff(STORE_PAUSE_MS_MIN, STORE_PAUSE_MS_MAX, chance=random.random)
        for left in reversed(range(STORE_TRIES)):
            try:
                await self._put(result, headers)
            except StoreUnavailable:
                if not left:
                    raise
                pause_seconds = backoff.next_ms() / 1000
                await self._clock.sleep_until(self._clock.now() + pause_seconds)
            else:
                return

    async def _try_to_keep(self, result: Result[bytes], headers: Sequence[Header]) -> None:
        try:
            await self._keep(result, headers)
        # A store of the application may raise anything, and the record must be settled.
        except Exception as unkept:  # noqa: BLE001
            self._not_written("result", result, unkept)

    async def _put(self, result: Result[bytes], headers: Sequence[Header]) -> None:
        store = self._store()
        if store is not None and is_kept(headers):
            name = result_name(self._route.group, result.id)
            keep_seconds = self._route.result_seconds
            await self._answered(store.put(name, written(result), keep_seconds=keep_seconds))

    async def _answered(self, call: Awaitable[T]) -> T:
        """Wait for a call of the store; raises StoreUnavailable if it does not answer."""
        try:
            return await within(STORE_SECONDS, self._clock, call)
        except TimeIsOver:
            raise StoreUnavailable(f"result: no answer within {STORE_SECONDS:g} s") from None

    def _store(self) -> Store | None:
        return self._outlet.store if self._route.result_seconds else None

    async def _reply(self, headers: Sequence[Header], result: Result[bytes]) -> None:
        """Reply if a sender asked; only that sender misses a reply that cannot be written."""
        address, outbox = self._address(headers), self._outlet.outbox
        if address is None or outbox is None:
            return
        try:
            writing = self._write_reply(outbox, address, result)
            await within(REPLY_SECONDS, self._clock, writing)
        except TimeIsOver:
            error = RequestTimedOut(f"no acknowledgement within {REPLY_SECONDS:g} s")
            self._not_written("reply", result, error)
        # A closed producer raises other errors, too; the record must be settled.
        except Exception as error:  # noqa: BLE001
            self._not_written("reply", result, error)

    def _address(self, headers: Sequence[Header]) -> ReplyAddress | None:
        return address_of(headers, self._route.group) if self._route.replies else None

    async def _write_reply(
        self, outbox: Outbox, address: ReplyAddress, result: Result[bytes]
    ) -> None:
        value, headers = reply_of(result)
        # Not in the transaction of ``exactly_once``: a partition that does not exist, which any
        # producer can ask for, would fail it again and again.
        await outbox.send(
            replies_topic(self._outlet.app_name),
            value,
            key=address.ask_id.encode("ascii"),
            headers=headers,
            partition=address.partition,
        )

    def _not_written(
        self, what: Literal["result", "reply"], result: Result[bytes], error: Exception
    ) -> None:
        assert self.counts is not None, "set when the handler was started"
        unwritten = self.counts.unwritten
        unwritten[what] = unwritten.get(what, 0) + 1
        # Only the first one is a warning: while a store is away, there would be one per record.
        level = logging.WARNING if unwritten[what] == 1 else logging.DEBUG
        log.log(
            level,
            "event=%s.unwritten group=%s handler=%s id=%s state=%s error=%r effect='the record is "
            "settled without it' action='look at sharegroup_worker_unwritten_total for more'",
            *(what, self._route.group, self._route.shape.name, result.id, result.state, error),
        )


def _is_accepted(record: Record) -> bool:
    """Whether a record whose handler has returned is to be accepted, as far as it is known now.

    A handler that swallows its interruption returns, too: then the verdict counts, and the record
    runs again or has become a dead letter.
    """
    slot = CURRENT_SLOT.get()
    is_running = any(taken.handler_record is record for taken in slot.records)
    return is_running and slot.verdict is None and record.decision in (None, "accept")
