"""Transactions in the simulation: records and markers that are written straight into logs.

The broker has no transaction coordinator yet and refuses transactional batches on the wire, but
its logs know transactions, and so do all that read them.  This stands in for both the producer
and the coordinator: inside the broker's process it appends what they would append.  Each
transaction has a producer id of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sharegroup.errors import KafkaError
from sharegroup.ids import TopicId
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import encode_batch
from tests.sim.board import Board
from tests.sim.check_logs import LogChecks, Outcome
from tests.sim.clock import WALL_START_MS
from tests.sim.loop import SimLoop
from tests.sim.machine import Machine
from tests.sim.messages import Partition, key_of

LAST_PRODUCER_ID = 1_000_000
"""The ids are counted down from here: a broker gives its clients ids above those in its logs."""
OPEN_MAX = 4
ANSWER_S = 3.0


@dataclass(slots=True)
class Transaction:
    """One that is not over yet."""

    partition: Partition
    producer_id: int
    commits: bool
    values: list[bytes] = field(default_factory=list)
    is_ending: bool = False
    """A marker was sent, and perhaps it is there: nothing is added, and it ends no other way."""


@dataclass
class Transactor:
    """See the module's text."""

    board: Board
    machine: Machine
    loop: SimLoop
    logs: LogChecks
    chance: random.Random
    pause_s: float = 0.4
    count: int = 0
    running: list[Transaction] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0, self.pause_s))
            if not self.machine.is_up:
                continue
            if self.board.is_settling:
                # An open transaction holds up who reads committed records only.
                if self.running:
                    await self._end(self.running[0])
            elif self.running and (len(self.running) >= OPEN_MAX or self.chance.random() < 0.5):
                transaction = self.chance.choice(self.running)
                if self.chance.random() < 0.5 and not transaction.is_ending:
                    await self._write(transaction)
                else:
                    await self._end(transaction)
            else:
                await self._begin()

    async def _begin(self) -> None:
        partition = self.board.any_partition(self.chance)
        if partition is None:
            return
        self.count += 1
        transaction = Transaction(
            partition, LAST_PRODUCER_ID - self.count, commits=self.chance.random() < 0.5
        )
        self.running.append(transaction)
        self.logs.view(partition).has_markers = True
        await self._write(transaction)

    async def _write(self, transaction: Transaction) -> None:
        first = len(transaction.values)
        values = [
            b"transaction-%d/%d" % (transaction.producer_id, first + index)
            for index in range(self.chance.randint(1, 4))
        ]
        batch = encode_batch(
            [(key_of(value), value, WALL_START_MS, ()) for value in values],
            producer_id=transaction.producer_id,
            producer_epoch=0,
            base_sequence=first,
            is_transactional=True,
        )
        view = self.logs.view(transaction.partition)
        for value in values:
            view.sent[value] = False
            view.outcomes[value] = Outcome.OPEN
        if await self._append(transaction.partition, lambda: batch) is None:
            transaction.commits = False  # Perhaps it lacks a record: nobody would commit that.
        transaction.values += values

    async def _end(self, transaction: Transaction) -> None:
        """Write the marker, again and again until it is there."""
        transaction.is_ending = True
        view = self.logs.view(transaction.partition)
        for value in transaction.values:
            view.outcomes[value] = Outcome.COMMITTED if transaction.commits else Outcome.ABORTED
        ticket = await self._append(
            transaction.partition,
            lambda: encode_marker(
                is_commit=transaction.commits,
                producer_id=transaction.producer_id,
                producer_epoch=0,
                timestamp=WALL_START_MS,
            ),
        )
        if ticket is not None or transaction.partition not in self.board.partitions():
            self.running.remove(transaction)

    async def _append(self, partition: Partition, batch: Callable[[], bytearray]) -> Ticket | None:
        """The ticket of a durable append; None: nobody knows, or there is no such partition."""

        async def append() -> Ticket | None:
            if self.machine.running is None:
                return None  # The broker began to stop at this instant.
            topics = self.machine.running.parts.topics
            with contextlib.suppress(KafkaError):
                _, log = topics.identified(TopicId(partition.topic_id), partition.index)
                ticket = log.append(batch(), now_ms=self.machine.clock.wall_ms())
                await ticket
                return ticket
            return None

        task = self.loop.start(self.machine.process, append(), name="transactor")
        done, _ = await asyncio.wait([task], timeout=ANSWER_S)
        return task.result() if done else None
