"""Takes records of one topic, as many as there is a use for.

    room? --none--> wait until something ended
      '----some---> take --> dispatch

A group has one for each of its topics, each with a member of its own.  That is for the sake of
the assignor: among members that read the same topics it deals out all their partitions
together, so that with as many partitions as workers each would read one topic's and not the
others', and with a retry topic beside a topic of one partition, one worker alone would get work
(docs/adr/0018).  Members of different topics are dealt theirs apart from each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sharegroup.worker.ports import Delivery, Source
from sharegroup.worker.running.settling import Settling

TAKE_SECONDS = 1.0
TAKE_SECONDS_HOLDING = 0.2
"""While records are held: if nothing comes for so long, they may be what keeps it from coming."""

Room = Callable[[], int]
Dispatch = Callable[[Sequence[Delivery]], None]


class Intake:
    """See the module's text."""

    __slots__ = ("_dispatch", "_open", "_room", "_settling", "source")

    def __init__(self, source: Source, settling: Settling, room: Room, dispatch: Dispatch) -> None:
        self.source = source
        self._settling = settling
        self._room = room
        self._dispatch = dispatch
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        """Take no more."""
        self._open.clear()
        self.source.quiet(delivered_below=self._settling.give_back_below)

    def reopen(self) -> None:
        """Take again."""
        self.source.resume()
        self._open.set()

    async def run(self) -> None:
        """Take, for ever; raises KafkaError when this member can never take any."""
        while True:
            await self._open.wait()
            room = self._room()
            if room <= 0:
                await self._wait_for_room()
            elif deliveries := await self.source.take(room, self._wait_seconds()):
                self._dispatch(deliveries)
            elif self._settling.held:
                self._settling.make_way(self.source)

    def _wait_seconds(self) -> float:
        return TAKE_SECONDS_HOLDING if self._settling.held else TAKE_SECONDS

    async def _wait_for_room(self) -> None:
        settling = self._settling
        self.source.flush()
        settling.hungry += 1
        settling.room_again.clear()
        try:
            await settling.room_again.wait()
        finally:
            settling.hungry -= 1
