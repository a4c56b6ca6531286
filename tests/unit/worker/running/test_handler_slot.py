"""The records of a slot are in sight while their values are decoded, so a stop finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sharegroup.worker.records.outcomes import GivenUp, LockLost, Stopped
from sharegroup.worker.records.record import Record
from sharegroup.worker.running.handler_slot import HandlerSlot
from sharegroup.worker.running.taken_record import TakenRecord
from tests.unit.worker.running.hand import in_hand, offsets
from tests.unit.worker.running.loop_clock import LoopClock


class SlowCodec:
    """The parts of a route whose values are decoded when `goes_on` is set; ``b"?"`` cannot be."""

    takes_record = False
    around = None
    decode = None

    def __init__(self) -> None:
        self.route: Any = None
        self.goes_on = asyncio.Event()
        self.ignores_cancellation = False
        self.called: list[list[bytes]] = []

    async def read(self, value: bytes | None) -> Any:
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            if not self.ignores_cancellation:
                raise
        if value == b"?":
            raise ValueError(value)
        return value

    async def call(self, payloads: list[bytes]) -> None:
        self.called.append(payloads)


class Play:
    """A slot that decodes a batch of three, of which the second cannot be decoded."""

    def __init__(self) -> None:
        clock = LoopClock()
        self.codec = SlowCodec()
        self.slot = HandlerSlot(self.codec, clock)
        self.batch = [in_hand(n, value=b"?" if n == 1 else b"%d" % n) for n in range(3)]
        for record in self.batch:
            record.handler_record = Record(record.delivery, record.story, clock)
        self.unreadable: list[TakenRecord] = []
        self.slot.task = asyncio.ensure_future(self._run())

    async def _run(self) -> Any:
        return await self.slot.run_batch(
            self.batch, 0.0, lambda record, error: self.unreadable.append(record)
        )

    async def ends(self) -> Sequence[Any]:
        ends: Any = await self.slot.task if self.slot.task is not None else ()
        return ends


def test_record_that_cannot_be_decoded_leaves_the_batch() -> None:
    async def test() -> None:
        play = Play()
        await asyncio.sleep(0)
        assert offsets(play.slot.records) == [0, 1, 2]
        play.codec.goes_on.set()
        assert list(await play.ends()) == [None, None]
        assert (offsets(play.batch), offsets(play.unreadable)) == ([0, 2], [1])
        assert play.codec.called == [[b"0", b"2"]]

    asyncio.run(test())


@pytest.mark.parametrize("verdict", [LockLost("lost"), Stopped("stops")])
def test_batch_that_is_being_decoded_is_interrupted(verdict: Any) -> None:
    async def test() -> None:
        play = Play()
        await asyncio.sleep(0)
        play.slot.interrupt(verdict, 1.0)
        assert list(await play.ends()) == [verdict] * 3
        assert (play.codec.called, play.slot.records) == ([], ())

    asyncio.run(test())


def test_batch_given_up_while_it_is_decoded_is_settled_once_and_not_run() -> None:
    async def test() -> None:
        play = Play()
        await asyncio.sleep(0)
        assert offsets(play.slot.drop()) == [0, 1, 2]
        play.codec.goes_on.set()
        assert [type(end) for end in await play.ends()] == [GivenUp] * 3
        assert (play.unreadable, play.codec.called) == ([], [])

    asyncio.run(test())


@pytest.mark.parametrize("count", [1, 2])
def test_verdict_of_a_batch_that_ignored_it_is_not_that_of_the_next_one(count: int) -> None:
    """Of one record, which cannot be decoded, or of two that are given up."""

    async def test() -> None:
        play = Play()
        play.codec.ignores_cancellation = True
        del play.batch[0 if count == 1 else 1]
        del play.batch[count:]
        await asyncio.sleep(0)
        play.slot.interrupt(Stopped("stops"), 1.0)
        if count == 2:
            play.slot.drop()
        await asyncio.sleep(0)
        play.codec.goes_on.set()  # For the second one.
        ends = await play.ends()
        assert [type(end) for end in ends] == [GivenUp] * (2 if count == 2 else 0)
        assert play.slot.verdict is None
        assert play.slot.task is not None
        assert play.slot.task.cancelling() == 0

    asyncio.run(test())
