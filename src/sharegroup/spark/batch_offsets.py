"""The offset range of each partition for a batch read: from offsets, times or words of its options.

A time stands for the first record with this timestamp or a later one, as the leader of the
partition finds it.  Timestamps of producers need not ascend, so the records behind that offset may
be older, and those behind the offset of an ending time may be in time.  Spark's own Kafka source
reads the same records.

    timestamps   10   12   30   11   40   41
    offsets       0    1    2    3    4    5
                      [start = 12    [end = 40: offsets 1, 2 and 3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sharegroup.client.fetch.offsets import all_listed, list_offsets, offsets_of
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InvalidConfig, OffsetOutOfRange
from sharegroup.spark.options import (
    EARLIEST,
    LATEST,
    BatchOptions,
    OffsetsOption,
    PerPartition,
    Times,
)

NO_RECORD = -1
"""The offset that a leader answers if all records are older than a time."""

Offsets = Mapping[TopicPartition, int]


class OffsetBounds(NamedTuple):
    """The records to read of a partition: offsets [first, end), none if they are equal."""

    first: int
    end: int


async def offset_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], options: BatchOptions
) -> dict[TopicPartition, OffsetBounds]:
    """Look up the offsets to read of every partition, within the log as it is now.

    Raises InvalidConfig if the options do not fit the partitions, and OffsetOutOfRange for records
    that the log does not have, unless ``failOnDataLoss`` is false.
    """
    wanted = list(partitions)
    # In this order, offsets by time are not below the first offset and not above the last one.
    earliest = await offsets_of(cluster, wanted, EARLIEST)
    starting = await _by_time(cluster, "starting", options.starting, wanted)
    ending = await _by_time(cluster, "ending", options.ending, wanted)
    latest = await offsets_of(cluster, wanted, LATEST)
    if isinstance(options.starting, Times):
        firsts = _starts(starting, latest, options)
    else:
        firsts = _offsets("startingOffsets", options.starting, earliest, latest)
    if isinstance(options.ending, Times):
        ends: Offsets = {
            where: latest[where] if offset == NO_RECORD else offset
            for where, offset in ending.items()
        }
    else:
        ends = _offsets("endingOffsets", options.ending, earliest, latest)
    return {
        where: _checked(
            where,
            OffsetBounds(firsts[where], ends[where]),
            OffsetBounds(earliest[where], latest[where]),
            fail=options.fail_on_data_loss,
        )
        for where in wanted
    }


async def offsets_since(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Look up the first record of each partition with its time or a later one, or NO_RECORD."""
    listed = all_listed(await list_offsets(cluster, times))
    return {where: found.offset for where, found in listed.items()}


async def _by_time(
    cluster: Cluster, option: str, wanted: OffsetsOption | Times, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Look up the offsets of an option by time; empty for another option."""
    if not isinstance(wanted, Times):
        return {}
    if isinstance(wanted.milliseconds, int):
        return await offsets_since(cluster, dict.fromkeys(partitions, wanted.milliseconds))
    times = _named(f"{option}OffsetsByTimestamp", wanted.milliseconds, partitions)
    return await offsets_since(cluster, times)


def _starts(offsets: Offsets, latest: Offsets, options: BatchOptions) -> Offsets:
    """Return the start of every partition; InvalidConfig if a partition has no record in time."""
    late = sorted(where for where, offset in offsets.items() if offset == NO_RECORD)
    if late and not options.late_start_is_latest:
        named = ", ".join(f"{where.topic}-{where.partition}" for where in late[:10])
        raise InvalidConfig(
            f"all records of {named}{' ...' if len(late) > 10 else ''} are older than the starting "
            "time; expected a record of that time or later in every partition; to read no rows of "
            "such partitions, set the option startingOffsetsByTimestampStrategy=latest"
        )
    return {
        where: latest[where] if offset == NO_RECORD else offset for where, offset in offsets.items()
    }


def _offsets(option: str, wanted: OffsetsOption, earliest: Offsets, latest: Offsets) -> Offsets:
    """Return the offset of every partition that an option specifies."""
    if isinstance(wanted, int):
        return earliest if wanted == EARLIEST else latest
    special = {EARLIEST: earliest, LATEST: latest}
    return {
        where: special[offset][where] if offset in special else offset
        for where, offset in _named(option, wanted, earliest).items()
    }


def _named(option: str, wanted: PerPartition, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the numbers by partition; InvalidConfig unless all partitions are named."""
    named = {
        TopicPartition(topic, partition): number
        for topic, numbers in wanted.items()
        for partition, number in numbers.items()
    }
    missing, unknown = set(partitions) - set(named), set(named) - set(partitions)
    if missing or unknown:
        raise InvalidConfig(
            f"option {option} has to name all partitions to read and no others; "
            f"missing: {_listing(missing)}; unknown: {_listing(unknown)}"
        )
    return named


def _listing(partitions: Iterable[TopicPartition]) -> str:
    names = [f"{where.topic}-{where.partition}" for where in sorted(partitions)]
    return ", ".join(names) or "none"


def _checked(
    where: TopicPartition, wanted: OffsetBounds, log: OffsetBounds, *, fail: bool
) -> OffsetBounds:
    """Return the wanted offsets that the log has."""
    text = f"topic {where.topic!r} partition {where.partition}"
    if wanted.first > wanted.end:
        raise InvalidConfig(
            f"{text}: the start of the read is offset {wanted.first}, which is after its end, "
            f"offset {wanted.end}; expected a start that is not after the end: see the options "
            "startingOffsets, startingTimestamp, endingOffsets and endingTimestamp"
        )
    if fail and (wanted.first < log.first or wanted.end > log.end):
        raise OffsetOutOfRange(
            f"{text}: offsets {wanted.first} to {wanted.end} were requested, but the log holds "
            f"{log.first} to {log.end}; to read only the available records, set the option "
            "failOnDataLoss=false"
        )
    first = min(max(wanted.first, log.first), log.end)
    return OffsetBounds(first, max(first, min(wanted.end, log.end)))
