"""One of a route's slots: a task that takes what is ready and runs its handler, for ever.

A task for each record would cost more than many handlers do, and so would a timer for each; so
lanes live as long as the worker, and one watch looks after the time of all of them.  It ends a
handler with `interrupt`, which cancels the lane's task: the handler sees a CancelledError, and
the lane knows whose it was.

    ready --> begin --> handler --> returned, raised ------------> RouteRunner.ended
                           |  '--- interrupted ---> its verdict ------^
                           '------ and doesn't end: given up; the slot is taken until it does
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharegroup.worker.middleware import Call
from sharegroup.worker.records.record import LOOP, Record
from sharegroup.worker.running.in_hand import UNREAD, InHand, Unordered
from sharegroup.worker.seeing.current import CURRENT, CURRENT_GROUP

if TYPE_CHECKING:
    from sharegroup.worker.running.route_runner import RouteRunner

TURN = 64
"""So many handlers that wait for nothing run in one turn of the loop, whichever lanes run them;
then all others that wait for the loop go first.  One that waits ends its lane's turn itself."""
LONG_SECONDS = 0.001
LONG_IN_TURN = 16
"""A handler that kept the loop for longer counts as so many."""


class Verdict(Exception):
    """Why a handler was ended from outside."""


class HandlingTimeout(Verdict, TimeoutError):
    """A handler ran longer than its ``max_handling``."""

    __module__ = "sharegroup.worker"  # Where users have it from.


class LockLost(Verdict):
    """The lock of its record ended while a handler ran; somebody else may have it by now."""


class Stopped(Verdict):
    """The worker stops, and its grace is over."""


class Lane:
    """See the module's text."""

    __slots__ = (
        "_is_fresh", "_runner", "_wake", "begun_at", "interrupted_at", "one", "task", "verdict",
    )  # fmt: skip

    def __init__(self, runner: RouteRunner) -> None:
        self._runner = runner
        self._is_fresh = False
        """Whether it was idle until now."""
        self._wake: asyncio.Future[None] | None = None
        self.one: InHand | None = None
        """The record whose handler runs; None: none, or it was given up."""
        self.begun_at = 0.0
        self.verdict: Verdict | None = None
        """Why the handler was interrupted; None: it was not."""
        self.interrupted_at = 0.0
        self.task: asyncio.Task[None] | None = None

    @property
    def hand(self) -> Sequence[InHand]:
        """The records whose handler runs; none: it is idle, or they were given up."""
        return () if self.one is None else (self.one,)

    def drop(self) -> None:
        """Its record was given up; the lane goes on when the handler ends."""
        self.one = None

    def wake(self) -> None:
        """There is something to do."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def interrupt(self, verdict: Verdict, now: float) -> None:
        """End the handler that runs; what becomes of its record depends on why."""
        assert self.task is not None, "a lane is started before it can run anything"
        if self.verdict is None:
            self.verdict = verdict
            self.interrupted_at = now
        self.task.cancel()

    async def run(self) -> None:
        """Take what is ready and handle it, for ever."""
        runner = self._runner
        ready = runner.ready
        CURRENT_GROUP.set(runner.route.group)
        LOOP.set(asyncio.get_running_loop())
        while runner.is_running:
            if not ready or not runner.may_begin():
                await self._idle()
                continue
            if runner.in_turn >= TURN:
                await self._next_turn()
                continue
            one = ready.popleft()
            if one.is_done:
                continue
            if ready and runner.idle and (self._is_fresh or not runner.waking):
                runner.wake(2)
            self._is_fresh = False
            if runner.bucket is not None and not await runner.turn_of((one,)):
                continue
            runner.latest = self
            await self._handle(one)
            if runner.latest is self:  # Else it waited for something, and others ran.
                runner.count_in_turn(1)

    async def _idle(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        self._runner.idle.append(self)
        try:
            await self._wake
        finally:
            self._wake = None
            self._is_fresh = True
            self._runner.woken(self)

    async def _next_turn(self) -> None:
        """Begin nothing more in this turn of the loop.  One lane waits for the next one: it wakes
        two others, and each of these two more, if handlers wait and there is more to begin."""
        runner = self._runner
        if runner.is_paced:
            await self._idle()
            return
        runner.is_paced = True
        try:
            await asyncio.sleep(0)
        finally:
            runner.is_paced = False

    async def _handle(self, one: InHand) -> None:
        # The hot path: once for each record.
        runner = self._runner
        begun_at = runner.clock.now()
        if not runner.begin(one, begun_at):
            return
        self.begun_at = begun_at
        self.one = one
        one.record = record = Record(one.delivery, one.story, runner.clock)
        CURRENT.set(record)
        error: BaseException | None = None
        try:
            payload = one.payload
            if payload is UNREAD:
                decode = runner.decode
                payload = await runner.read(one) if decode is None else decode(one.delivery.value)
            elif type(payload) is Unordered:
                raise payload.error  # noqa: TRY301  As if its handler did.
            else:
                one.payload = UNREAD  # A retry here must not get what this run has changed.
            if runner.around is not None:
                await runner.around(Call(runner.route, payload, (record,)))
            elif runner.takes_record:
                await runner.call(payload, record)
            else:
                await runner.call(payload)
        except BaseException as raised:  # noqa: BLE001  Everything that a handler can end with.
            error = raised
        ended_at = runner.clock.now()
        if ended_at - begun_at > LONG_SECONDS and runner.latest is self:
            runner.count_in_turn(LONG_IN_TURN)
        if error is not None or self.verdict is not None:
            error = self._why(error)
        was_given_up, self.one = self.one is not one, None
        if was_given_up:
            runner.ended_late(one, ended_at - begun_at)
        else:
            runner.ended(one, error, ended_at - begun_at, ended_at)

    def _why(self, error: BaseException | None) -> BaseException | None:
        """The error that counts: of a handler that was interrupted, the verdict."""
        if isinstance(error, KeyboardInterrupt):
            raise error  # Somebody wants the process to end: its records go back with it.
        verdict, self.verdict = self.verdict, None
        assert self.task is not None
        if verdict is None:
            if isinstance(error, asyncio.CancelledError) and self.task.cancelling():
                raise error  # Not the handler's own: the lane is to end.
            return error
        while self.task.cancelling():
            self.task.uncancel()
        if error is not None:
            verdict.__cause__ = error
        return verdict
