"""Redrive: sends dead letters back to the group that they belong to, and to no other group.

    letters --some--> copies to <group>.retry --durable--> ledger

Up to a few thousand copies are in flight while the next ones are prepared.  They are recorded in
the ledger once all of them are durable.  So an interruption loses nothing, and at most twice as
many copies are sent again.

A letter that cannot be sent stays and is reported at the end (`Refusals`); the others are sent.
That happens if the topic is missing or the broker refuses the copy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive_copies import (
    OF_ONE_BATCH,
    OF_ONE_TARGET,
    Copy,
    RedriveCopies,
    RedriveOptions,
    error_text,
    hand_over,
    outcome_of,
)
from sharegroup.dead_letters.redriven import Redriven
from sharegroup.errors import InvalidConfig, KafkaError

UNDER_WAY_MIN = 4_000
"""Copies per ledger entry; with fewer, the ledger would be the bottleneck."""
NO_PARTITION = -1


@dataclass(slots=True)
class _UnderWay:
    """Copies in flight: letters of one partition whose copies are not yet known to be durable."""

    partition: int
    copies: list[Copy] = field(default_factory=list)
    futures: list[SendFuture] = field(default_factory=list)


class Redrive:
    """One run of a redrive, from a dead-letter queue to the topics of its groups."""

    def __init__(self, queue: DeadLetterQueue, producer: Producer, options: RedriveOptions) -> None:
        if not producer.is_confirmed:
            raise InvalidConfig(
                "a redrive marks letters as sent back when a broker confirms their records, which "
                'acks=0 never does; use acks="all" (the default) or 1'
            )
        self._queue = queue
        self._producer = producer
        self._options = options
        self._copies = RedriveCopies(queue.cluster, options, time.time_ns() // 1_000_000)
        self._before = _UnderWay(NO_PARTITION)
        self._now = _UnderWay(NO_PARTITION)

    @property
    def done(self) -> Redriven:
        """The result so far."""
        return self._copies.done

    async def run(self, stop: asyncio.Event) -> Redriven:
        """Send back the selected letters until all are sent or ``stop`` is set.

        Raises KafkaError.  After an error, `done` has what was sent and recorded before it.
        """
        options = self._options
        if not options.dry_run:
            await self._open_ledger()
        copies = self._copies
        size = copies.chunk_letters_max
        unit = UNDER_WAY_MIN if options.rate is None else size
        try:
            chunks = self._queue.chunks_of(
                copies.copy,
                options.selection,
                size=size,
                complete=True,
                unreadable=copies.refuse_unreadable,
            )
            async for chunk in chunks:
                chosen = await copies.choose(chunk)
                await self._keep_rate(stop)
                if stop.is_set():
                    self.done.interrupted = True
                    break
                now = self._now
                if now.partition != chunk.partition or len(now.copies) >= unit:
                    # The older copies are settled while the newer ones are on their way, so neither
                    # the producer nor the ledger waits for the other.
                    last, self._before = self._before, now
                    self._now = _UnderWay(chunk.partition)
                    await self._settle(last)
                await self._send(chosen)
                if copies.is_at_limit:
                    break
        finally:
            # Also after an error, so that durable copies are recorded in the ledger.
            try:
                await self._settle(self._before)
            finally:
                await self._settle(self._now)
        return self.done

    async def _open_ledger(self) -> None:
        queue = self._queue
        await queue.ledger.create(queue.cluster)
        firsts = {log_range.where.partition: log_range.first for log_range in queue.ranges}
        await queue.ledger.prune(queue.cluster, queue.noted, firsts)

    async def _keep_rate(self, stop: asyncio.Event) -> None:
        """Wait until the rate limit allows the next chunk."""
        if self._options.rate is None:
            return
        try:
            async with asyncio.timeout(self._copies.seconds_to_wait()):
                await stop.wait()
        except TimeoutError:
            pass

    async def _send(self, chosen: Sequence[Copy]) -> None:
        """Give copies of letters to the producer."""
        self._copies.pace(len(chosen))
        if self._options.dry_run:
            self.done.sent.update(copy.target for copy in chosen)
            return
        now = self._now
        for copy in chosen:
            try:
                future = await hand_over(self._producer, copy)
            except OF_ONE_TARGET as error:
                self._copies.refuse(copy.letter, copy.target, error_text(error))
                continue
            now.copies.append(copy)
            now.futures.append(future)
        await asyncio.sleep(0)  # Lets the producer send full batches.

    async def _settle(self, under_way: _UnderWay) -> None:
        """Wait until copies are durable and record them in the ledger.

        Raises the first error that does not concern only one record or target.
        """
        failed: BaseException | None = None
        written: list[int] = []
        for copy, future in zip(under_way.copies, under_way.futures, strict=True):
            error = await outcome_of(future)
            if isinstance(error, OF_ONE_BATCH):
                error = await self._send_alone(copy)
            if error is None:
                written.append(copy.letter[1])
                self.done.sent[copy.target] += 1
            elif isinstance(error, OF_ONE_TARGET):
                self._copies.refuse(copy.letter, copy.target, error_text(error))
            else:
                failed = failed or error
        if written:
            # Before an error is raised: these copies are durable, and a later run must skip their
            # letters.
            facts = {
                "at_ms": self._copies.at_ms,
                "to": sorted({copy.target for copy in under_way.copies}),
            }
            await self._queue.ledger.note(self._producer, under_way.partition, written, facts=facts)
        if failed is not None:
            raise failed

    async def _send_alone(self, copy: Copy) -> BaseException | None:
        """Send a letter again in a batch of its own; returns the error, or None.

        A broker refuses a batch as a whole, so other letters of the batch fail with a bad one.
        """
        try:
            await self._producer.flush()
            future = await hand_over(self._producer, copy)
        except KafkaError as error:
            # Returned, as the error of a copy: the copies that are durable are still to be noted.
            return error
        return await outcome_of(future)
