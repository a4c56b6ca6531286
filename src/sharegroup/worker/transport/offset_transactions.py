"""Transactions of one process that write records and commit offsets of a consumer group together.

    begin --> records --> offsets, as this member --> commit
                               `- other members own the partitions: abort, OwnershipLost

The coordinator refuses an offset of a member of an earlier generation, and the next owner reads the
committed offset only when no transaction may still change it (KIP-447).  So the transactional id is
of this process alone, and a frozen process can commit nothing when it wakes up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from sharegroup.client import (
    IllegalStateError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMemberId,
)
from sharegroup.worker.ports import BufferedRecord, WrittenRecord
from sharegroup.worker.retrying.postponer import RECORD_BYTES_MAX
from sharegroup.worker.retrying.tier_log import OwnershipLost
from sharegroup.worker.retrying.tier_moves import MovesRefused
from sharegroup.worker.transport.transaction_writes import OF_ITS_TRANSACTION, write_all

log = logging.getLogger(__name__)

TRANSACTION_MS = 10_000
"""Time after which the coordinator aborts the transaction of a process that died.

As long, its partitions wait for their next owner, which comes after the session timeout anyway.
"""
DELIVERY_MS = 6_000
"""Time after which a write has failed: below that of the transaction, with time for its end."""
GIVE_UP_SECONDS = 2.0
"""Time for the abort of a transaction that failed; afterwards the coordinator aborts it."""
NOT_OWNED = (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
)


class Commit(NamedTuple):
    """The offsets of a transaction, and the member of the group that commits them."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member: ConsumerGroupMetadata


class OffsetTransactions:
    """The transactions of one process for one consumer group, one at a time."""

    __slots__ = ("_options", "_producer", "_turn")

    def __init__(self, group: str, options: Mapping[str, Any]) -> None:
        """``options`` are those of all clients of the application."""
        self._options = {
            **options,
            "transactional_id": f"{group}.{token_hex(8)}",
            "transaction_timeout_ms": TRANSACTION_MS,
            "request_timeout_ms": min(options.get("request_timeout_ms", DELIVERY_MS), DELIVERY_MS),
            "delivery_timeout_ms": DELIVERY_MS,
            "max_block_ms": DELIVERY_MS,
            "request_bytes_max": RECORD_BYTES_MAX,
            "linger_ms": 0,
            "allow_auto_create_topics": False,
        }
        self._producer: Producer | None = None
        self._turn = asyncio.Lock()

    async def write(
        self, records: Sequence[BufferedRecord], commit: Commit
    ) -> Sequence[WrittenRecord]:
        """Write the records and commit the offsets, all or nothing; returns where they are.

        Raises OwnershipLost if another member owns a partition, MovesRefused, or another
        KafkaError; then nothing was written.
        """
        # A write that hangs ends the transaction after `DELIVERY_MS`.
        async with self._turn:
            try:
                return await self._transaction(records, commit)
            except BaseException as error:
                await self._give_up()
                if isinstance(error, NOT_OWNED):
                    raise OwnershipLost(str(error)) from error
                raise

    async def close(self) -> None:
        """End an open transaction, and close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def _transaction(
        self, records: Sequence[BufferedRecord], commit: Commit
    ) -> Sequence[WrittenRecord]:
        if self._producer is None:
            self._producer = Producer(**self._options)
        producer = self._producer
        await producer.begin_transaction()
        written, errors = [], {}
        for index, outcome in enumerate(await write_all(producer, records)):
            if isinstance(outcome, KafkaError):
                errors[index] = outcome
            else:
                written.append(outcome)
        refused = {
            index: error
            for index, error in errors.items()
            if not isinstance(error, OF_ITS_TRANSACTION)
        }
        if refused:
            raise MovesRefused(refused)
        if errors:
            raise next(iter(errors.values()))
        await producer.send_offsets_to_transaction(commit.offsets, commit.member)
        await _commit(producer)
        return written

    async def _give_up(self) -> None:
        """Abort the transaction that failed; a producer that cannot is replaced."""
        producer = self._producer
        if producer is None:
            return
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                if producer.is_in_transaction():
                    await producer.abort_transaction()
                    return
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            log.info(
                "event=transaction_open id=%s reason=%r", self._options["transactional_id"], error
            )
        self._producer = None
        await producer.close(timeout=0)


async def _commit(producer: Producer) -> None:
    """Commit, and wait for the outcome as long as it takes: nobody else may go on meanwhile."""
    while True:
        try:
            await producer.commit_transaction()
        except RequestTimedOut as error:
            log.warning(
                "event=transaction_in_doubt error=%r action='the records of its partitions wait "
                "until the transaction coordinator answers'",
                error,
            )
        else:
            return
