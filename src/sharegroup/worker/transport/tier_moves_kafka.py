"""Moves of a steered group on a real cluster, in transactions (`offset_transactions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sharegroup.client import OffsetAndMetadata, TopicPartition
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ReadingConfig,
    config_from,
    options_of,
)
from sharegroup.waiting.control_records import ControlRecord
from sharegroup.waiting.control_topic import follow_control
from sharegroup.waiting.retry_topics import scheduler_group
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.retrying.tier_log import Committed, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.transport.offset_transactions import (
    TRANSACTION_MS,
    Commit,
    OffsetTransactions,
)
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog, connection_options


class KafkaTierMoves:
    """Moves the records of one group in transactions; a `TierMoves`."""

    __slots__ = ("_cluster", "_control", "_tier_log", "_transactions")

    def __init__(self, config: ClientConfig, group: str, tier_log: KafkaTierLog) -> None:
        self._tier_log = tier_log
        options = connection_options(config)
        self._transactions = OffsetTransactions(scheduler_group(group), options)
        self._cluster = Cluster(config_from(ReadingConfig, options_of(ReadingConfig, options)))
        self._control = follow_control(self._cluster, group)

    async def move(
        self, partition: TierPartition, records: Sequence[MovedRecord], committed: Committed
    ) -> Sequence[WrittenRecord]:
        """Write the records and commit the offset, all or nothing."""
        member = self._tier_log.member_of(partition)
        offsets = {TopicPartition(*partition): OffsetAndMetadata(*committed)}
        buffered = [record.buffered() for record in records]
        return await self._transactions.write(buffered, Commit(offsets, member))

    async def record_at(self, partition: TierPartition, offset: int) -> TierRecord | None:
        """Read one record; None if there is none with this offset."""
        where = PartitionRange(TopicPartition(*partition), offset, offset + 1)
        async for records in read_records(
            self._cluster, where, committed=True, timeout_ms=TRANSACTION_MS
        ):
            for record in records:
                if record.offset == offset:
                    return TierRecord(
                        offset, record.timestamp or 0, record.key, record.value, record.headers
                    )
        return None

    async def read_control(self) -> Sequence[ControlRecord]:
        """Return the committed control records up to the end, from the last call on."""
        return await self._control.read()

    async def wait_control(self, wait_seconds: float) -> None:
        """Wait; a look at the end of the topic costs one small request."""
        await asyncio.sleep(wait_seconds)

    async def close(self) -> None:
        """End an open transaction, and close the clients."""
        await self._transactions.close()
        self._cluster.close()
