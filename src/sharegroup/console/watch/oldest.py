"""The timestamp of the oldest unsettled record of a share group.

The record at a start offset is read once, when the offset has moved and records wait.
"""

from __future__ import annotations

from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.console.watch.cluster_view import GroupView
from sharegroup.errors import KafkaError, UnreadableBatch

READS_MAX = 20
"""Records that are read for one group in one look; the others follow in the next."""
READ_MS = 2_000

Known = tuple[int, int | None]
"""A start offset, and the timestamp of its record; None if it could not be read."""


class OldestRecords:
    """Reads and remembers the timestamps, of one record in each partition of a group."""

    def __init__(self, reading: Cluster) -> None:
        self._reading = reading
        self._known: dict[str, dict[TopicPartition, Known]] = {}

    def keep(self, group_ids: set[str]) -> None:
        """Forget the groups that are not among these."""
        self._known = {name: known for name, known in self._known.items() if name in group_ids}

    async def timestamp_ms(self, group: GroupView) -> int | None:
        """Return the oldest timestamp of the records at the start offsets of a group."""
        known = self._known.setdefault(group.group_id, {})
        reads = 0
        times = []
        for partition in group.partitions:
            if not partition.lag or partition.offset is None or partition.offset < 0:
                known.pop(partition.where, None)
                continue
            offset, at_ms = known.get(partition.where, (None, None))
            if offset != partition.offset:
                at_ms = None
            if offset != partition.offset and reads < READS_MAX:
                reads += 1
                try:
                    at_ms = await self._read(partition.where, partition.offset)
                except KafkaError as error:
                    if error.retriable and not isinstance(error, UnreadableBatch):
                        reads = READS_MAX  # The others would fail, too; the next look tries again.
                        continue
                    # No right to read it, or it was deleted: unknown until the offset moves.
                known[partition.where] = (partition.offset, at_ms)
            if at_ms is not None:
                times.append(at_ms)
        return min(times, default=None)

    async def _read(self, where: TopicPartition, offset: int) -> int | None:
        wanted = PartitionRange(where, offset, offset + 1)
        async for records in read_records(self._reading, wanted, timeout_ms=READ_MS):
            for record in records:
                if record.timestamp is not None:
                    return record.timestamp
        return None
