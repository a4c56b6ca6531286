"""This project's own clients in the simulation: what is outside of it is where mistakes stay.

`ShareConsumer` and `Producer` run as they are, on the same loop and network as everybody else;
the time that they read is the simulation's (`tests.sim.world`).  The wiretap checks what the
broker makes of them.  Here is checked what they tell their users: an accept that `commit` calls
durable is one that the broker has confirmed (K1), and so is a record that was delivered (K2).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from sharegroup.client import Producer, Record, ShareConsumer
from sharegroup.errors import KafkaError
from tests.sim.board import Board
from tests.sim.checker import Checker
from tests.sim.client import PORT

BOOTSTRAP = f"127.0.0.1:{PORT}"
REQUEST_TIMEOUT_MS = 4_000
POLL_S = 1.0


class Ended(Exception):
    """The application does not go on with this consumer."""


@dataclass
class OwnConsumer:
    """An application with a `ShareConsumer` of this project; see the module's text."""

    name: str
    group: str
    board: Board
    checker: Checker
    chance: random.Random
    fresh: int = 0
    """Records received since the faults ended."""

    async def run(self) -> None:
        while True:
            try:
                async with ShareConsumer(
                    *self.board.names,
                    bootstrap_servers=BOOTSTRAP,
                    group_id=self.group,
                    client_id=self.name,
                    share_acknowledgement_mode="explicit",
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                    connect_timeout_ms=REQUEST_TIMEOUT_MS,
                    metadata_max_age_ms=1_000,
                ) as consumer:
                    await self._work(consumer)
            except (KafkaError, Ended):
                await asyncio.sleep(self.chance.uniform(0.1, 1))

    async def _work(self, consumer: ShareConsumer) -> None:
        while True:
            records = await consumer.poll(timeout=POLL_S, max_records=self.chance.choice((5, 100)))
            if self.board.is_settling:
                self.fresh += len(records)
            await asyncio.sleep(self.chance.uniform(0, 0.3))
            accepted = [record for record in records if self._settle(record)]
            if records and self.chance.random() < 0.7:
                await self._commit(consumer, accepted)
            if not self.board.is_settling and self.chance.random() < 0.02:
                raise Ended

    def _settle(self, record: Record) -> bool:
        """Whether the record was accepted."""
        how = 1.0 if self.board.is_settling else self.chance.random()
        if how < 0.15:
            record.release()
        elif how < 0.2:
            record.reject()
        else:
            record.accept()
            return True
        return False

    async def _commit(self, consumer: ShareConsumer, accepted: list[Record]) -> None:
        for where, error in (await consumer.commit()).items():
            offsets = [
                record.offset
                for record in accepted
                if (record.topic, record.partition) == (where.topic, where.partition)
            ]
            if error is None:
                self.checker.told_durable(self.group, where.topic, where.partition, offsets)


@dataclass
class OwnProducer:
    """An application with a `Producer` of this project; see the module's text."""

    name: str
    board: Board
    checker: Checker
    chance: random.Random
    count: int = 0

    async def run(self) -> None:
        while True:
            try:
                async with Producer(
                    bootstrap_servers=BOOTSTRAP,
                    client_id=self.name,
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                    connect_timeout_ms=REQUEST_TIMEOUT_MS,
                    metadata_max_age_ms=1_000,
                ) as producer:
                    await self._work(producer)
            except KafkaError:
                await asyncio.sleep(self.chance.uniform(0.1, 1))

    async def _work(self, producer: Producer) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0, 1))
            if self.board.is_quiet or not self.board.topics:
                continue
            topic = self.chance.choice(list(self.board.topics.values()))
            self.count += 1
            value = b"%s/%d" % (self.name.encode(), self.count)
            done = await producer.send_and_wait(topic.name, value)
            self.checker.told_delivered(topic.name, done.partition, done.offset, value)
