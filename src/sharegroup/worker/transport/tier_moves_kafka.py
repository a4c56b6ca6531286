"""Moves of a steered group on a real cluster: transactions of one producer for each process.

    begin --> records, answers --> offset of the partition, as this member --> commit
                                     `- another member owns it: abort, OwnershipLost

The coordinator refuses an offset of a member of an earlier generation, and the next owner reads the
committed offset only when no transaction may still change it (KIP-447).  So the transactional id is
of this process alone, and a frozen process can commit nothing when it wakes up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import fields
from secrets import token_hex

from sharegroup.client import (
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    SendFuture,
    TopicPartition,
)
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.client.settings.client_config import ClientConfig, ReadingConfig, config_from
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    RequestTimedOut,
    StaleMemberEpoch,
    TransactionAbortable,
    TransactionAborted,
    UnknownMemberId,
)
from sharegroup.waiting.control_records import ControlRecord
from sharegroup.waiting.control_topic import follow_control
from sharegroup.waiting.retry_topics import scheduler_group
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.retrying.postponer import RECORD_BYTES_MAX
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost, TierPartition, TierRecord
from sharegroup.worker.retrying.tier_moves import MovedRecord, MovesRefused
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog, connection_options

log = logging.getLogger(__name__)

TRANSACTION_MS = 10_000
"""Time after which the coordinator aborts the move of a process that died.

As long, its partitions wait for their next owner, which comes after the session timeout anyway.
"""
DELIVERY_MS = 6_000
"""Time after which a write has failed: below that of the transaction, with time for its end."""
GIVE_UP_SECONDS = 2.0
"""Time for the abort of a move that failed; afterwards the coordinator aborts it."""
NOT_OWNED = (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
)
OF_ITS_TRANSACTION = (TransactionAbortable, TransactionAborted)
"""Errors of a record because another one of its transaction has failed."""


class KafkaTierMoves:
    """Moves the records of one group in transactions; a `TierMoves`."""

    __slots__ = ("_cluster", "_control", "_options", "_producer", "_tier_log", "_turn")

    def __init__(self, config: ClientConfig, group: str, tier_log: KafkaTierLog) -> None:
        self._tier_log = tier_log
        options = connection_options(config)
        self._options = {
            **options,
            "transactional_id": f"{scheduler_group(group)}.{token_hex(8)}",
            "transaction_timeout_ms": TRANSACTION_MS,
            "request_timeout_ms": min(options["request_timeout_ms"], DELIVERY_MS),
            "delivery_timeout_ms": DELIVERY_MS,
            "max_block_ms": DELIVERY_MS,
            "request_bytes_max": RECORD_BYTES_MAX,
            "linger_ms": 0,
        }
        names = {field.name for field in fields(ReadingConfig)}
        self._cluster = Cluster(
            config_from(ReadingConfig, {key: options[key] for key in options if key in names})
        )
        self._control = follow_control(self._cluster, group)
        self._producer: Producer | None = None
        self._turn = asyncio.Lock()

    async def move(
        self, partition: TierPartition, records: Sequence[MovedRecord], committed: Committed
    ) -> Sequence[WrittenRecord]:
        """Write the records and commit the offset, all or nothing."""
        member = self._tier_log.member_of(partition)
        # One transaction at a time; a write that hangs ends it after `DELIVERY_MS`.
        async with self._turn:
            try:
                return await self._transaction(partition, records, committed, member)
            except BaseException as error:
                await self._give_up()
                if isinstance(error, NOT_OWNED):
                    raise OwnershipLost(str(error)) from error
                raise

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
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
        self._cluster.close()

    async def _transaction(
        self,
        partition: TierPartition,
        records: Sequence[MovedRecord],
        committed: Committed,
        member: ConsumerGroupMetadata,
    ) -> Sequence[WrittenRecord]:
        if self._producer is None:
            self._producer = Producer(**self._options)
        producer = self._producer
        await producer.begin_transaction()
        futures = await _written(producer, records)
        written, errors = [], {}
        for index, future in enumerate(futures):
            if isinstance(future, KafkaError):
                errors[index] = future
                continue
            try:
                written.append(await future)
            except KafkaError as error:
                errors[index] = error
        refused = {
            index: error
            for index, error in errors.items()
            if not isinstance(error, OF_ITS_TRANSACTION)
        }
        if refused:
            raise MovesRefused(refused)
        if errors:
            raise next(iter(errors.values()))
        offset = {TopicPartition(*partition): OffsetAndMetadata(*committed)}
        await producer.send_offsets_to_transaction(offset, member)
        await _commit(producer)
        return written

    async def _give_up(self) -> None:
        """Abort the move that failed; a producer that cannot is replaced, which fences it."""
        producer = self._producer
        if producer is None:
            return
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                if producer.is_in_transaction():
                    await producer.abort_transaction()
                    return
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            log.info("event=move_open group=%s reason=%r", self._options["client_id"], error)
        self._producer = None
        await producer.close(timeout=0)


async def _written(
    producer: Producer, records: Sequence[MovedRecord]
) -> Sequence[SendFuture | KafkaError]:
    futures: list[SendFuture | KafkaError] = []
    for topic, key, value, headers, partition in records:
        try:
            future = producer.send_now(
                topic, value, key=key, headers=headers, partition=partition
            ) or await producer.send(topic, value, key=key, headers=headers, partition=partition)
        except KafkaError as error:
            futures.append(error)
        else:
            futures.append(future)
    return futures


async def _commit(producer: Producer) -> None:
    """Commit, and wait for the outcome as long as it takes: nobody else may move the records."""
    while True:
        try:
            await producer.commit_transaction()
        except RequestTimedOut as error:
            log.warning(
                "event=move_in_doubt error=%r action='the records of this partition wait until the "
                "transaction coordinator answers'",
                error,
            )
        else:
            return
