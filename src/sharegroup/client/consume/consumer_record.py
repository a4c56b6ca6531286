"""A record that a plain consumer has read."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.client.fetch.record_content import Field, RecordContent
from sharegroup.client.records import TopicPartition


class BatchOrigin(NamedTuple):
    """The facts that all records of one batch have in common."""

    topic_partition: TopicPartition
    leader_epoch: int
    has_append_time: bool


class ConsumerRecord(RecordContent[BatchOrigin]):
    """A record that a plain consumer has read."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The name of the record's topic."""
        return self._shared.topic_partition.topic

    @property
    def partition(self) -> int:
        """The number of the record's partition."""
        return self._shared.topic_partition.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value, as `Consumer.commit` and `Consumer.seek` take it."""
        return self._shared.topic_partition

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote the record; None if the log does not have it."""
        epoch = self._shared.leader_epoch
        return None if epoch < 0 else epoch

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamp is the broker's time of the append, not the producer's time."""
        return self._shared.has_append_time

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, key={self.key!r}, value={self.value!r})"
        )


class UnreadableConsumerRecord(ConsumerRecord):
    """A record whose key or value could not be deserialized; both are bytes.

    `Consumer.poll` returns it with ``on_deserialization_error="raw"``; ``error`` says what failed.
    """

    __slots__ = ("error",)

    error: RecordDeserializationError


class RecordDeserializationError(Exception):
    """A key or value could not be deserialized; ``record`` holds the bytes.

    The position stays at the record: `Consumer.seek` to ``record.offset + 1`` goes on behind it.
    """

    def __init__(self, message: str, record: ConsumerRecord, field: Field) -> None:
        super().__init__(message)
        self.record = record
        self.field: Field = field
        """The part of the record that could not be deserialized."""
