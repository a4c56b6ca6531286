"""Reads the topic of schedules: the newest record of each key, by partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import InvalidRecord
from sharegroup.schedules.schedule import partition_of
from sharegroup.schedules.schedule_records import SCHEDULE, Entry, Owner, key_of, parsed

log = logging.getLogger(__name__)

ENTRIES_MAX = 10_000
"""Records of one partition that are kept; more are no work of this library."""
SCHEDULE_PREFIX = f"{SCHEDULE}/".encode()


class ReadPartition(NamedTuple):
    """A partition of the topic, read up to its end."""

    entries: tuple[Entry, ...]
    end: int
    """The offset after the last one that was read."""
    unreadable: frozenset[bytes] = frozenset()
    """The keys of stored schedules that this process cannot read; a newer one may have them."""


class NewestRecords:
    """The newest value of each key, of records that are added in the order of their offsets."""

    __slots__ = ("_newest", "_where")

    def __init__(self, where: TopicPartition) -> None:
        self._where = where
        self._newest: dict[bytes, bytes] = {}

    def put(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record; one without a value deletes its key."""
        if key is None:
            return  # Nothing of ours, and nothing that compaction would keep.
        if value is None:
            self._newest.pop(key, None)
            return
        self._newest[bytes(key)] = bytes(value)
        if len(self._newest) > ENTRIES_MAX:
            topic, partition = self._where
            raise InvalidRecord(
                f"topic {topic!r} partition {partition} has more than {ENTRIES_MAX} keys; another "
                "program writes to it. Delete its records"
            )

    def read(self, end: int) -> ReadPartition:
        """Return what the records have; those that are not valid are logged and left out."""
        entries = tuple(entries_of(self._newest.items(), self._where))
        stored = {key for key in self._newest if key.startswith(SCHEDULE_PREFIX)}
        return ReadPartition(entries, end, frozenset(stored - set(map(key_of, entries))))


def entries_of(records: Iterable[tuple[bytes, bytes]], where: TopicPartition) -> Iterable[Entry]:
    """Yield what these records have; those that are not valid are logged and left out."""
    for key, value in records:
        try:
            entry = parsed(key, value)
            _check_place(entry, where)
        # Everybody with access to the topic can write a record; it must not end the readers.
        except Exception as error:  # noqa: BLE001  See above.
            log.warning(
                "event=schedules.unreadable topic=%s partition=%d reason=%r effect=left_out do=%r",
                *where,
                str(error) if isinstance(error, ValueError) else repr(error),
                "use the newer version of this library, install what is missing, or find the "
                "program that writes to this topic and delete the record; then restart the workers",
            )
        else:
            yield entry


def _check_place(entry: Entry, where: TopicPartition) -> None:
    """Raise ValueError for a schedule of another partition, whose owner runs it, too."""
    if isinstance(entry, Owner) or partition_of(entry.name) == where.partition:
        return
    raise ValueError(
        f"schedule {entry.name!r} belongs to partition {partition_of(entry.name)}, and a record of "
        f"it is in partition {where.partition}"
    )


async def read_partition(
    cluster: Cluster, where: TopicPartition, *, timeout_ms: int | None = None
) -> ReadPartition:
    """Read the committed records of a partition, up to its end at the time of the call.

    Open transactions are waited for up to ``timeout_ms``; then RequestTimedOut is raised.
    """
    first = (await offsets_of(cluster, [where], OffsetSpec.EARLIEST))[where]
    end = (await offsets_of(cluster, [where], OffsetSpec.LATEST))[where]
    newest = NewestRecords(where)
    unread = PartitionRange(where, first, end)
    async for records in read_records(cluster, unread, committed=True, timeout_ms=timeout_ms):
        for record in records:
            newest.put(record.key, record.value)
    return newest.read(end)
