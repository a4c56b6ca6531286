"""A lane whose handler takes many records at a time.

    ready --gather, one lane at a time--> batch --> handler --> one end for each record

The lane that gathers takes what is ready, up to the size, and waits for the rest no longer than
the route says since the first of them came; the others leave it alone meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sharegroup.worker.decisions.batches import Ends, ends_of_raised, ends_of_returned
from sharegroup.worker.declared.route import Batching
from sharegroup.worker.middleware import Call
from sharegroup.worker.records.record import LOOP, Record
from sharegroup.worker.running.in_hand import InHand
from sharegroup.worker.running.lane import Lane
from sharegroup.worker.seeing.current import CURRENT, CURRENT_GROUP

if TYPE_CHECKING:
    from sharegroup.worker.running.route_runner import RouteRunner


class BatchLane(Lane):
    """See the module's text."""

    __slots__ = ("_batch", "_batching")

    def __init__(self, runner: RouteRunner, batching: Batching) -> None:
        super().__init__(runner)
        self._batching = batching
        self._batch: list[InHand] = []

    @property
    def hand(self) -> list[InHand]:
        """The records whose handler runs."""
        return self._batch

    def drop(self) -> None:
        """They were given up."""
        self._batch = []

    async def run(self) -> None:
        """Gather what is ready and handle it, for ever."""
        runner = self._runner
        CURRENT_GROUP.set(runner.route.group)
        LOOP.set(asyncio.get_running_loop())
        while runner.is_running:
            if not runner.ready or runner.gathering is not None or not runner.may_begin():
                await self._idle()
                continue
            batch = await self._gather()
            runner.wake_one()
            if batch:
                await self._handle_all(batch)
                await asyncio.sleep(0)

    async def _gather(self) -> list[InHand]:
        runner, size = self._runner, self._batching.size
        runner.gathering = self
        try:
            over = runner.ready[0].taken_at + self._batching.wait_seconds
            while len(runner.ready) < size and runner.clock.now() < over:
                await self._wait_until(over)
                if not runner.may_begin() or not runner.ready:
                    return []  # The worker stops: what is ready is given back.
        finally:
            runner.gathering = None
        ready = [runner.ready.popleft() for _ in range(min(size, len(runner.ready)))]
        batch = [one for one in ready if not one.is_done]
        return batch if runner.bucket is None else await runner.turn_of(batch)

    async def _wait_until(self, over: float) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        sleeping = asyncio.ensure_future(self._runner.clock.sleep_until(over))
        try:
            await asyncio.wait({self._wake, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake = None
            sleeping.cancel()

    async def _handle_all(self, some: list[InHand]) -> None:
        runner = self._runner
        begun_at = runner.clock.now()
        batch, payloads = [], []
        for one in some:
            if not runner.begin(one, begun_at):
                continue
            one.record = Record(one.delivery, one.story, runner.clock)
            try:
                payloads.append(await runner.read(one))
            except Exception as error:  # noqa: BLE001  Of this record alone.
                runner.ended(one, error, 0.0, begun_at)
            else:
                batch.append(one)
        if batch:
            self.begun_at = begun_at
            self._batch = batch
            CURRENT.set(batch[0].record)
            ends = await self._called(payloads, [one.record for one in batch])
            self._ended(batch, ends)

    async def _called(self, payloads: list[Any], records: list[Record]) -> Ends:
        runner, count = self._runner, len(payloads)
        try:
            if runner.around is not None:
                returned = await runner.around(Call(runner.route, payloads, tuple(records)))
            elif runner.takes_record:
                returned = await runner.call(payloads, records)
            else:
                returned = await runner.call(payloads)
        except BaseException as error:  # noqa: BLE001  Everything that a handler can end with.
            why = self._why(error)
            return (None,) * count if why is None else ends_of_raised(why, count)
        if self.verdict is not None:
            return (self._why(None),) * count
        return ends_of_returned(returned, count)

    def _ended(self, batch: list[InHand], ends: Ends) -> None:
        runner = self._runner
        ended_at = runner.clock.now()
        seconds = ended_at - self.begun_at
        was_given_up, self._batch = self._batch is not batch, []
        for one, end in zip(batch, ends, strict=True):
            if was_given_up:
                runner.ended_late(one, seconds)
            elif one.is_lost(ended_at):
                runner.lost(one)
            else:
                runner.ended(one, end, seconds, ended_at)
