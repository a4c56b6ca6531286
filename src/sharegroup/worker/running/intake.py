"""Takes records of one topic, as many as the handlers have room for.

    GroupRunner: room? --none--> wait until a record is settled
                   '----some---> Intake.take --> records, given to their routes

A group has one intake with its own member for each of its topics, because of the assignor.  The
assignor distributes the partitions of all topics of a member together.  With as many partitions
as workers, each worker would read one topic and not the others.  With a retry topic beside a
topic of one partition, only one worker would get new records (docs/adr/0018).  The partitions of
members with different topics are distributed separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharegroup.worker.ports import DeliveredRecord, RecordSource
from sharegroup.worker.running.group_parts import GroupParts

TAKE_SECONDS = 1.0
TAKE_SECONDS_HOLDING = 0.2
"""The wait while records are held.  If no records arrive in it, the held ones may be the cause."""

TAKE_SECONDS_FIRST = 0.02
"""The wait of a topic for which others wait by their priorities.  It has most likely a backlog, so
its records are here, or a round trip away."""


class Intake:
    """Takes records of one topic from its source, unless it is closed."""

    __slots__ = ("_is_paused", "_open", "_parts", "is_own", "source")

    def __init__(self, source: RecordSource, parts: GroupParts, *, is_own: bool) -> None:
        self.source = source
        self.is_own = is_own
        """Whether the topic is the group's own one."""
        self._parts = parts
        self._is_paused = False
        self._open = asyncio.Event()
        self._open.set()

    def room(self, room: int) -> int:
        """Return how many of ``room`` records to take now: none while a record runs alone."""
        parts = self._parts
        if parts.alone.run_now is not None:
            return 0
        return parts.cautions[self.source.topic].room(room, parts.held)

    def close(self) -> Sequence[DeliveredRecord]:
        """Stop taking records, and release those that were fetched ahead, except those returned.

        A release costs a delivery, so a record that must run alone is to be put aside instead.
        """
        self._open.clear()
        # In the own topic each record may be a suspect, whatever its delivery count.
        limits = self._parts.limits
        below = 1 if self.is_own else limits.alone_from
        return self.source.quiet(delivered_below=below)

    def reopen(self) -> None:
        """Take records again, unless a circuit breaker is open."""
        if not self._is_paused:
            self.source.resume()
        self._open.set()

    def pause(self) -> Sequence[DeliveredRecord]:
        """Take nothing while a circuit breaker is open; returns what was fetched ahead."""
        self._is_paused = True
        return self.source.quiet(delivered_below=0)  # None is released.

    def end_pause(self) -> None:
        """Take records again, unless the intake is closed."""
        self._is_paused = False
        if self._open.is_set():
            self.source.resume()

    async def wait_open(self) -> None:
        """Wait until records may be taken."""
        await self._open.wait()

    async def wait_for_room(self) -> None:
        """Wait until a record is settled, and send the pending acknowledgements before."""
        self.source.flush()
        await self._parts.room.wait()

    async def take(self, room: int, *, holds_up: bool) -> Sequence[DeliveredRecord]:
        """Take up to ``room`` records; waits a short time for the first.

        The time is shorter if the topic ``holds_up`` others.  Raises KafkaError if this member can
        never take any.
        """
        wait_seconds = TAKE_SECONDS_HOLDING if self._parts.held else TAKE_SECONDS
        if holds_up:
            wait_seconds = TAKE_SECONDS_FIRST
        return await self.source.take(room, wait_seconds)
