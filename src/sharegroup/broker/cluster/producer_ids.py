"""The assignment of producer ids.

Ids are assigned to idempotent producers from durable blocks, so that no id is used twice.  Only the
end of the current block is written, so one in a thousand ids costs a disk write.  After a crash the
rest of the current block is never used.
"""

from __future__ import annotations

import asyncio

from sharegroup.broker.cluster.topics import Topics
from sharegroup.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

BLOCK_IDS = 1_000


class ProducerIds:
    """Assigns a unique id to each idempotent producer."""

    __slots__ = ("_lock", "_next", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        # A catalog that was restored from an older copy may lack ids that the logs have.
        self._next = max(topics.catalog.producer_ids_end, topics.producer_ids_seen)
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """Return a producer id that was never used before."""
        # Locked also during the write: requests that come meanwhile need ids of the same block.
        async with self._lock:
            if self._next >= self._topics.catalog.producer_ids_end:
                end = self._next + BLOCK_IDS
                await self._topics.alter(lambda: {"event": "producer_ids", "end": end})
            producer_id, self._next = self._next, self._next + 1
        return producer_id


def for_older_client(error: KafkaError, *, knows_fenced: bool) -> KafkaError:
    """Return the error to send: clients from before PRODUCER_FENCED know INVALID_PRODUCER_EPOCH."""
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return InvalidProducerEpoch(str(error))
    return error
