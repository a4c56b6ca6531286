"""Simulated producers: records whose values are never used twice, sent until somebody answers."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from sharegroup.wire.batches.records import encode_batch
from tests.sim.board import Board
from tests.sim.client import Client, NoAnswer
from tests.sim.clock import WALL_START_MS
from tests.sim.messages import (
    NO_SUCH_TOPIC,
    Partition,
    key_of,
    make_init_producer_id,
    make_produce,
)

TRIES_MAX = 12
"""After this a producer gives a batch up, and an idempotent one begins anew with another id."""

NO_PRODUCER_ID = -1


@dataclass
class Producer:
    """Sends to any partition there is; see the module's text."""

    name: str
    board: Board
    chance: random.Random
    acks: int = -1
    is_idempotent: bool = False
    pause_s: float = 0.3
    count: int = 0
    producer_id: int = NO_PRODUCER_ID
    sequences: dict[Partition, int] = field(default_factory=dict)

    async def run(self) -> None:
        client = Client(self.name)
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2 * self.pause_s))
            partition = self.board.any_partition(self.chance)
            if partition is None or self.board.is_quiet:
                continue
            try:
                await self._send(client, partition)
            except NoAnswer:
                continue

    async def _send(self, client: Client, partition: Partition) -> None:
        if self.is_idempotent and self.producer_id == NO_PRODUCER_ID:
            answer = await client.ask(make_init_producer_id())
            if int(answer.error_code) != 0:
                return
            self.producer_id, self.sequences = answer.producer_id, {}
        values = self._values()
        batch = bytes(self._batch(partition, values))
        if self.acks == 0:
            await client.tell(make_produce(partition, batch, acks=0))
            return
        error = await self._send_until_answered(client, partition, batch)
        if error == 0:
            self.sequences[partition] = self.sequences.get(partition, 0) + len(values)
        elif error not in NO_SUCH_TOPIC:
            self.producer_id = NO_PRODUCER_ID  # Nobody knows whether its sequence goes on.

    async def _send_until_answered(self, client: Client, partition: Partition, batch: bytes) -> int:
        """The error code; -1 when there never was an answer that says what became of it."""
        request = make_produce(partition, batch, acks=self.acks)
        for _ in range(TRIES_MAX if self.is_idempotent else self.chance.choice((1, 1, 3))):
            try:
                answer = await client.ask(request)
            except NoAnswer:
                await asyncio.sleep(self.chance.uniform(0.05, 0.5))
                continue
            error = int(answer.responses[0].partition_responses[0].error_code)
            if error == 0 or error in NO_SUCH_TOPIC:
                return error
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
        return -1

    def _values(self) -> list[bytes]:
        many = self.chance.choice((1, 2, 5, 20))
        self.count += many
        filling = b"." * self.chance.choice((0, 0, 10, 200))
        return [b"%s/%d/%b" % (self.name.encode(), self.count - i, filling) for i in range(many)]

    def _batch(self, partition: Partition, values: list[bytes]) -> bytearray:
        records = [(key_of(value), value, WALL_START_MS, ()) for value in values]
        if not self.is_idempotent:
            return encode_batch(records)
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequences.get(partition, 0),
        )
