"""A slot in which a route's handler runs, for one record after another.

A task or a timer for each record would cost more than many handlers do.  So a slot has one task as
long as the worker lives (`RouteRunner`), and one `Watch` checks the time of all slots.  It ends a
handler with `interrupt`, which cancels the slot's task: the handler sees a CancelledError, and the
slot's verdict says why.

    run(record) --> handler --> returned, raised: None, or its error
                       |  '---- interrupted: the verdict
                       '------- does not end: given up; the slot is occupied until it does
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from sharegroup.worker.decisions.batches import Ends, ends_of_raised, ends_of_returned
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.middleware import Call, Proceed
from sharegroup.worker.ports import WorkerClock
from sharegroup.worker.records.outcomes import GivenUp, Verdict
from sharegroup.worker.records.record import CURRENT, Record
from sharegroup.worker.running.taken_record import NOT_DECODED, OrderByFailure, TakenRecord


class SlotHandler(Protocol):
    """The parts of a route that a slot uses: its handler, and the decoder of its values."""

    route: Route
    takes_record: bool
    call: Callable[..., Awaitable[Any]]
    """Calls the handler with the payload and, if it takes it, the record."""
    around: Proceed | None
    """The middleware around `call`; None if there is no middleware."""
    decode: Callable[[bytes | None], Any] | None
    """Decodes a value; None if decoding may block, so that `read` is to be awaited."""

    async def read(self, value: bytes | None) -> Any:
        """Decode a value, in a thread if that may block."""


class HandlerSlot:
    """A slot in which a route's handler runs for one record, or one batch, at a time."""

    __slots__ = (
        "_batch", "_clock", "_handler", "_record", "begun_at", "ended_at", "interrupted_at",
        "task", "verdict",
    )  # fmt: skip

    def __init__(self, handler: SlotHandler, clock: WorkerClock) -> None:
        self._handler = handler
        self._clock = clock
        self._record: TakenRecord | None = None
        """The record whose handler runs; None if none does or the record was given up."""
        self._batch: Sequence[TakenRecord] = ()
        """The same for a batch handler."""
        self.begun_at = 0.0
        """The time from which the handler's run is limited; infinite while it waits."""
        self.ended_at = 0.0
        self.verdict: Verdict | None = None
        """Why the handler was interrupted; None unless it was."""
        self.interrupted_at = 0.0
        self.task: asyncio.Task[None] | None = None
        """The task that awaits `run`; set before it begins."""

    @property
    def records(self) -> Sequence[TakenRecord]:
        """The records whose handler runs; empty if none does or they were given up."""
        return self._batch if self._record is None else (self._record,)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Begin to limit the run at the end of this context, because the handler waits in it."""
        # No elapsed time reaches a limit from here, so `Watch` needs no flag.
        self.begun_at = math.inf
        try:
            yield
        finally:
            self.begun_at = self._clock.now()

    def drop(self) -> Sequence[TakenRecord]:
        """Forget the records, because they are given up, and return them.

        The slot continues when its handler ends.
        """
        records = self.records
        self._record, self._batch = None, ()
        return records

    def interrupt(self, verdict: Verdict, now: float) -> None:
        """Cancel the running handler; the verdict determines the outcome of its records."""
        assert self.task is not None, "a slot has its task before it can run anything"
        if self.verdict is None:
            self.verdict = verdict
            self.interrupted_at = now
        # Also if there was a verdict: a stop may meet a handler that a timeout has interrupted, and
        # that has swallowed the first cancellation.
        self.task.cancel()

    async def run(self, record: TakenRecord, begun_at: float) -> BaseException | None:
        """Run the handler for a record.

        Returns its error, the verdict that interrupted it, or None if it returned.
        """
        # The hot path: runs once for each record.
        handler = self._handler
        self.begun_at = begun_at
        self._record = record
        record.handler_record = handler_record = Record(record.delivery, record.story, self._clock)
        # Needs no reset: the context belongs to the slot's task, and the next run sets it again.
        CURRENT.set(handler_record)
        error: BaseException | None = None
        try:
            payload = record.payload
            if payload is NOT_DECODED:
                value, decode = record.delivery.value, handler.decode
                payload = await handler.read(value) if decode is None else decode(value)
            elif type(payload) is OrderByFailure:
                raise payload.error  # noqa: TRY301  As if the handler had raised it.
            else:
                record.payload = NOT_DECODED  # A retry must not get what this run has changed.
            if handler.around is not None:
                await handler.around(Call(handler.route, payload, (handler_record,)))
            elif handler.takes_record:
                await handler.call(payload, handler_record)
            else:
                await handler.call(payload)
        except BaseException as raised:  # noqa: BLE001  A handler may raise anything.
            error = raised
        self.ended_at = self._clock.now()
        if error is not None or self.verdict is not None:
            error = self._outcome(error)
        # `drop` has cleared the field if the record was given up; it is settled by then.
        was_given_up, self._record = self._record is not record, None
        return GivenUp() if was_given_up else error

    async def run_batch(
        self,
        batch: list[TakenRecord],
        begun_at: float,
        unreadable: Callable[[TakenRecord, BaseException], None],
    ) -> Ends:
        """Decode the values of a batch and run its handler for them.

        A record whose value cannot be decoded leaves the list, and ``unreadable`` settles it.
        Returns for each remaining record what `run` returns.
        """
        self.begun_at = begun_at
        self._batch = batch
        ends = await self._call_batch(batch, unreadable)
        self.ended_at = self._clock.now()
        was_given_up, self._batch = self._batch is not batch, ()
        return (GivenUp(),) * len(batch) if was_given_up else ends

    async def _call_batch(
        self,
        batch: list[TakenRecord],
        unreadable: Callable[[TakenRecord, BaseException], None],
    ) -> Ends:
        returned = None
        try:
            payloads = await self._decoded(batch, unreadable)
            if payloads and self._batch is batch:
                returned = await self._call(payloads, [record.handler_record for record in batch])
        except BaseException as error:  # noqa: BLE001  A handler may raise anything.
            cause, count = self._outcome(error), len(batch)
            return (None,) * count if cause is None else ends_of_raised(cause, count)
        if self.verdict is not None:
            return (self._outcome(None),) * len(batch)
        return ends_of_returned(returned, len(batch))

    async def _call(self, payloads: list[Any], records: list[Record]) -> Any:
        handler = self._handler
        CURRENT.set(records[0])
        if handler.around is not None:
            return await handler.around(Call(handler.route, payloads, tuple(records)))
        if handler.takes_record:
            return await handler.call(payloads, records)
        return await handler.call(payloads)

    async def _decoded(
        self,
        batch: list[TakenRecord],
        unreadable: Callable[[TakenRecord, BaseException], None],
    ) -> list[Any]:
        payloads = []
        for record in tuple(batch):
            try:
                payload = record.payload
                if payload is NOT_DECODED:
                    payload = await self._handler.read(record.delivery.value)
                elif type(payload) is OrderByFailure:
                    raise payload.error  # noqa: TRY301  As if the decoder had raised it.
                record.payload = NOT_DECODED  # A retry must not get what this run has changed.
                payloads.append(payload)
            except BaseException as error:
                kind = type(error)
                assert self.task is not None
                is_of_slot = issubclass(kind, asyncio.CancelledError) and self.task.cancelling()
                if is_of_slot or issubclass(kind, KeyboardInterrupt):
                    raise
                # Anything else is raised by the decoder, and concerns this record alone.
                # In the list until here: a watch or a stop may have given up the whole batch.
                if self._batch is batch:
                    batch.remove(record)
                    unreadable(record, error)
        return payloads

    def _outcome(self, error: BaseException | None) -> BaseException | None:
        """Return the verdict if the handler was interrupted, otherwise its error."""
        # Of the type, because `isinstance` asks an error of the application for its class.
        kind = type(error)
        if error is not None and issubclass(kind, KeyboardInterrupt):
            raise error  # The process is to end; leaving the group releases the records.
        verdict, self.verdict = self.verdict, None
        assert self.task is not None
        if verdict is None:
            if (
                error is not None
                and issubclass(kind, asyncio.CancelledError)
                and self.task.cancelling()
            ):
                raise error  # The slot was cancelled, not the handler.
            return error
        # The task goes on.  A CancelledError that a later handler raises by itself must not look
        # like a cancellation of the slot, above.
        while self.task.cancelling():
            self.task.uncancel()
        if error is not None:
            verdict.__cause__ = error
        return verdict
