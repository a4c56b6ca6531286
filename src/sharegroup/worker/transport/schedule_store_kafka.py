"""A partition of the topic of schedules on a real cluster: one transactional producer per owner.

take_over   InitProducerId, which aborts the open transaction of the owner before; then read
write       one transaction; awaiting its records finds the topic that refuses one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharegroup.client import IllegalStateError, Producer, RecordMetadata, TopicPartition
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig, ReadingConfig, config_from
from sharegroup.dead_letters.redrive_copies import OF_ONE_TARGET
from sharegroup.errors import InvalidTransactionState, KafkaError
from sharegroup.schedules.schedule import schedules_topic, transactional_id
from sharegroup.schedules.schedule_log import ReadPartition, read_partition
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.scheduling.schedule_store import RunRefused, ScheduleAccess
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog, connection_options
from sharegroup.worker.transport.transaction_writes import OF_ITS_TRANSACTION, write_all

TRANSACTION_TIMEOUT_MS = 20_000
"""Time after which the coordinator aborts a transaction, for example of a killed owner."""
DELIVERY_TIMEOUT_MS = 15_000
"""Below the timeout of a transaction, after which its records would be of no use."""
MAX_BLOCK_MS = 5_000
"""Time for which a run waits for its topic, which may have been deleted."""
OPEN_WAIT_MS = 30_000
"""Time for which a takeover waits for an open transaction; only owners write them here."""


def open_schedules(config: ClientConfig, app_name: str, group_id: str) -> ScheduleAccess:
    """Return the access of one process to the schedules of an application."""
    options = connection_options(config)
    reading = Cluster(config_from(ReadingConfig, options))

    def open_store(partition: int) -> KafkaScheduleStore:
        where = TopicPartition(schedules_topic(app_name), partition)
        return KafkaScheduleStore(reading, options, where, transactional_id(app_name, partition))

    async def close() -> None:
        reading.close()

    return ScheduleAccess(KafkaTierLog(config, group_id), open_store, close)


class KafkaScheduleStore:
    """A partition of the topic of schedules, for one owner; a `ScheduleStore`."""

    __slots__ = ("_producer", "_reading", "_where")

    def __init__(
        self,
        reading: Cluster,
        options: Mapping[str, Any],
        where: TopicPartition,
        producer_id: str,
    ) -> None:
        self._reading = reading
        self._where = where
        self._producer = Producer(
            **{
                **options,
                "request_timeout_ms": min(options["request_timeout_ms"], DELIVERY_TIMEOUT_MS),
                "transactional_id": producer_id,
                "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
                "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
                "max_block_ms": MAX_BLOCK_MS,
                "linger_ms": 0,
                "allow_auto_create_topics": False,
            }
        )

    async def take_over(self) -> ReadPartition:
        """Fence the owner before, and return what it has committed, to the end."""
        await self._producer.init_transactions()
        return await read_partition(self._reading, self._where, timeout_ms=OPEN_WAIT_MS)

    async def write(self, records: Sequence[MovedRecord]) -> int:
        """Write all records, or none, and return the broker's time of the last one."""
        assert records[-1].topic == self._where.topic, "the last record has the broker's time"
        try:
            await self._producer.begin_transaction()
            outcomes = await write_all(self._producer, [record.buffered() for record in records])
            _check(records, outcomes)
            await self._producer.commit_transaction()
        except IllegalStateError as error:
            # The producer has failed in the background.
            raise InvalidTransactionState(str(error)) from error
        last = outcomes[-1]
        assert not isinstance(last, KafkaError), "there are no errors"
        return last.timestamp_ms

    async def close(self) -> None:
        """Close the producer, which aborts what is open, without waiting for it."""
        await self._producer.close(timeout=0)


def _check(records: Sequence[MovedRecord], outcomes: Sequence[RecordMetadata | KafkaError]) -> None:
    """Raise RunRefused for the topics of runs that failed, or the error of the transaction."""
    errors = [
        (record, outcome)
        for record, outcome in zip(records, outcomes, strict=True)
        if isinstance(outcome, KafkaError)
    ]
    refused = {record.topic: error for record, error in errors if _is_of_topic(record, error)}
    if refused:
        raise RunRefused(refused)
    if errors:
        raise min((error for _, error in errors), key=_is_of_transaction)


def _is_of_topic(record: MovedRecord, error: KafkaError) -> bool:
    is_run = record.partition is None  # The partition of states is given.
    # The wait for a topic that does not exist ends with RequestTimedOut, because of its last error.
    return is_run and (
        isinstance(error, OF_ONE_TARGET) or isinstance(error.__cause__, OF_ONE_TARGET)
    )


def _is_of_transaction(error: KafkaError) -> bool:
    return isinstance(error, OF_ITS_TRANSACTION)
