"""Reads the control topic of a group: the committed commands and answers, in their order."""

from __future__ import annotations

import logging

from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.waiting.control_records import ControlRecord, parsed
from sharegroup.waiting.retry_topics import CONTROL_PARTITION, control_topic

log = logging.getLogger(__name__)

OPEN_WAIT_MS = 60_000
"""How long an open transaction is waited for; coordinators abort those of schedulers before."""


class ControlTopic:
    """The control topic of one group, from the start or from its end on."""

    __slots__ = ("_cluster", "_next", "_pending", "where")

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._next = 0
        self._pending: list[ControlRecord] = []
        """Read before an error, and not returned yet."""
        self.where = TopicPartition(control_topic(group), CONTROL_PARTITION)

    async def end(self) -> int:
        """Return the end offset."""
        return (await offsets_of(self._cluster, [self.where], OffsetSpec.LATEST))[self.where]

    async def skip_to_end(self) -> None:
        """Read only what is written from now on."""
        self._next = await self.end()

    async def read(self, *, wait_ms: int = OPEN_WAIT_MS) -> list[ControlRecord]:
        """Return what was written since the last call, up to the end.

        Open transactions are waited for, each up to ``wait_ms``; then it raises RequestTimedOut,
        and the next call goes on.  Records that are none are logged and left out.
        """
        end = await self.end()
        if end < self._next:  # Another topic of this name, or a log that lost its end.
            self._next = 0
        unread = PartitionRange(self.where, self._next, end)
        if self._next < end:
            async for records in read_records(
                self._cluster, unread, committed=True, timeout_ms=wait_ms
            ):
                for record in records:
                    self._take(record.offset, record.key, record.value)
                    self._next = record.offset + 1
        self._next = end
        taken, self._pending = self._pending, []
        return taken

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            self._pending.append(parsed(key, value))
        except ValueError as error:
            log.warning(
                "event=control.unreadable topic=%s partition=%d offset=%d reason=%r "
                "effect=left_out action='find the program that writes to this topic, or use this "
                "library\\'s newer version'",
                *self.where,
                offset,
                str(error),
            )
