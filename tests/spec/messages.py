"""Requests as the spec's tests write them, and the two answers they look into most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch

from sharegroup.wire.batches.records import decode_records

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
OPEN, CLOSE = 0, -1
JOIN, LEAVE = 0, -1

IMPOSSIBLE_NAMES = ("", "x" * 250, "two words", ".", "..", "no#such", "\u00e9\u2028", "a\x00b")
"""Names that no topic can have."""

Range = tuple[int, ...]
"""Of an acknowledgement: (first offset, last offset, type, type, ...)."""

Partition = tuple[UUID, int]


class Topic(NamedTuple):
    """A topic of one test."""

    name: str
    id: UUID
    partition_count: int = 1

    def partitions(self) -> list[Partition]:
        return [(self.id, number) for number in range(self.partition_count)]


def milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def named(
    module: Any,
    verb: str,
    partitions: Iterable[Partition],
    acks: Mapping[Partition, Sequence[Range]],
) -> tuple[Any, ...]:
    """The topics of a ShareFetch or ShareAcknowledge: these partitions with these ranges."""
    topics: dict[UUID, list[Any]] = {}
    for topic_id, number in dict.fromkeys((*partitions, *acks)):
        batches = tuple(
            module.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=tuple(types)
            )
            for first, last, *types in acks.get((topic_id, number), ())
        )
        partition = getattr(module, f"{verb}Partition")
        topics.setdefault(topic_id, []).append(
            partition(partition_index=number, acknowledgement_batches=batches)
        )
    topic = getattr(module, f"{verb}Topic")
    return tuple(
        topic(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
    )


def fetch_topics(
    partitions: Iterable[Partition], acks: Mapping[Partition, Sequence[Range]]
) -> tuple[Any, ...]:
    return named(share_fetch, "Fetch", partitions, acks)


def acknowledge_topics(acks: Mapping[Partition, Sequence[Range]]) -> tuple[Any, ...]:
    return named(share_acknowledge, "Acknowledge", (), acks)


def forgotten(partitions: Iterable[Partition]) -> tuple[Any, ...]:
    return tuple(
        share_fetch.ForgottenTopic(topic_id=topic_id, partitions=(number,))
        for topic_id, number in partitions
    )


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a ShareFetch."""

    raw: Any

    @property
    def error(self) -> int:
        return int(self.raw.error_code)

    @property
    def lock_ms(self) -> int:
        return int(self.raw.acquisition_lock_timeout / timedelta(milliseconds=1))

    @property
    def partitions(self) -> dict[int, Any]:
        """Every partition that is answered, by its number."""
        return {
            partition.partition_index: partition
            for topic in self.raw.responses
            for partition in topic.partitions
        }

    @property
    def acquired(self) -> list[tuple[int, int, int]]:
        """(first offset, last offset, delivery count) of every range, whatever its partition."""
        return [range_ for ranges in self.by_partition.values() for range_ in ranges]

    @property
    def by_partition(self) -> dict[int, list[tuple[int, int, int]]]:
        return {
            number: [
                (record.first_offset, record.last_offset, record.delivery_count)
                for record in partition.acquired_records
            ]
            for number, partition in self.partitions.items()
            if partition.acquired_records
        }

    @property
    def count(self) -> int:
        """Of the records acquired."""
        return sum(last - first + 1 for first, last, _ in self.acquired)

    @property
    def errors(self) -> dict[int, int]:
        return {number: int(partition.error_code) for number, partition in self.partitions.items()}

    @property
    def ack_errors(self) -> dict[int, int]:
        return {
            number: int(partition.acknowledge_error_code)
            for number, partition in self.partitions.items()
        }

    def values(self, number: int = 0) -> dict[int, bytes | None]:
        """The values of all records that came for a partition, acquired or not, by offset."""
        records = decode_records(self.partitions[number].records or b"")
        return {record.offset: record.value for record in records}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The answer to a ShareAcknowledge."""

    raw: Any

    @property
    def error(self) -> int:
        return int(self.raw.error_code)

    @property
    def lock_ms(self) -> int:
        return int(self.raw.acquisition_lock_timeout / timedelta(milliseconds=1))

    @property
    def errors(self) -> dict[int, int]:
        return {
            partition.partition_index: int(partition.error_code)
            for topic in self.raw.responses
            for partition in topic.partitions
        }

    @property
    def outcome(self) -> int:
        """The error of the one partition that the request named."""
        assert self.error == 0, self.raw
        [error] = self.errors.values()
        return error
