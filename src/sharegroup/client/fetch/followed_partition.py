"""Follows one partition: each read returns the records that were written since the one before.

It needs no group and commits nothing.  A look at the end of the log costs one small request, so a
reader that looks each second costs the cluster little.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.wire.batches.records import DecodedRecord

T = TypeVar("T")

log = logging.getLogger(__name__)

OPEN_WAIT_MS = 60_000
"""How long an open transaction is waited for; coordinators abort those of our programs before."""


class FollowedPartition(Generic[T]):
    """The committed records of a partition, each as what ``parse`` makes of it.

    Everybody with access to the topic can write any record, so ``parse`` raises ValueError for one
    that it does not expect.  Such a record is logged and left out.
    """

    __slots__ = ("_cluster", "_next", "_parse", "_pending", "where")

    def __init__(
        self, cluster: Cluster, where: TopicPartition, parse: Callable[[DecodedRecord], T]
    ) -> None:
        self._cluster = cluster
        self._next = 0
        self._parse = parse
        self._pending: list[T] = []
        """Read before an error, and not returned yet."""
        self.where = where

    async def end(self) -> int:
        """Return the end offset."""
        return (await offsets_of(self._cluster, [self.where], OffsetSpec.LATEST))[self.where]

    async def skip_to_end(self) -> None:
        """Read only what is written from now on."""
        self._next = await self.end()

    async def read(self, *, wait_ms: int = OPEN_WAIT_MS) -> list[T]:
        """Return what was written since the last call, up to the end.

        Open transactions are waited for, each up to ``wait_ms``; then it raises RequestTimedOut,
        and the next call goes on.
        """
        end = await self.end()
        if end < self._next:  # Another topic of this name, or a log that lost its end.
            self._next = 0
        unread = PartitionRange(self.where, self._next, end)
        if self._next < end:
            async for records in read_records(
                self._cluster,
                unread,
                unreadable=self._leave_out,
                committed=True,
                timeout_ms=wait_ms,
            ):
                for record in records:
                    self._take(record)
                    self._next = record.offset + 1
        self._next = end
        taken, self._pending = self._pending, []
        return taken

    def _take(self, record: DecodedRecord) -> None:
        try:
            self._pending.append(self._parse(record))
        except ValueError as error:
            self._warn(record.offset, error)

    def _leave_out(self, unreadable: PartitionRange, error: KafkaError) -> None:
        self._warn(unreadable.first, error)

    def _warn(self, offset: int, error: Exception) -> None:
        log.warning(
            "event=control.unreadable topic=%s partition=%d offset=%d reason=%r "
            "effect=left_out action='find the program that writes to this topic, or use this "
            "library\\'s newer version'",
            *self.where,
            offset,
            str(error),
        )
