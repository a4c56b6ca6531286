"""Offsets whose record batch cannot be read, as one delivery that becomes one dead letter.

No handler runs for them: there is no record.  The letter has the bytes of the batch, so nothing is
lost that could be had (docs/adr/0032).  A worker with little room acquires a batch in parts, which
have a letter each.  After the first of them is durable, the others leave out the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from sharegroup.errors import UnreadableBatch
from sharegroup.protocol_enums import AcknowledgeType

if TYPE_CHECKING:
    # A program that only declares handlers loads no client.
    from sharegroup.client.records import Header
    from sharegroup.client.share.consumer.record import UnreadableDelivery

BATCH_BYTES_MAX = 900 * 1024
"""The bytes of a batch that a letter has; with its headers it fits into Kafka's default limit."""
NO_TIME = -1


class UnreadableOffsets(UnreadableBatch):
    """Offsets of an owned partition of a consumer group that cannot be read."""

    delivery_count = 1
    deadline = math.inf

    def __init__(
        self,
        error: UnreadableBatch,
        *,
        settle: Callable[[AcknowledgeType], None],
        is_gone: Callable[[], bool],
    ) -> None:
        super().__init__(
            error,
            topic=error.topic,
            partition=error.partition,
            first=error.first,
            end=error.end,
            batch=error.batch,
            action="the handler goes on behind them",
        )
        self.settle = settle
        """Finishes the offsets, or has them delivered again."""
        self._is_gone = is_gone

    @property
    def is_lost(self) -> bool:
        """Whether others may own the partition."""
        return self._is_gone()


class UnreadableRange:
    """The unreadable offsets [offset, end) of a partition, under one lock.

    It is a `ports.DeliveredRecord` whose value is the batch.
    """

    __slots__ = ("_buried", "error")

    key = None
    headers: tuple[Header, ...] = ()
    timestamp_ms = NO_TIME

    def __init__(
        self, error: UnreadableDelivery | UnreadableOffsets, buried: dict[int, int]
    ) -> None:
        """``buried`` has the batch whose bytes are in a durable letter, by partition."""
        self.error = error
        self._buried = buried

    @property
    def value(self) -> bytes | None:
        """The bytes of the batch, unless another letter of this worker has them."""
        if self._buried.get(self.partition) == self.batch_offset:
            return None
        return self.error.batch[:BATCH_BYTES_MAX]

    @property
    def topic(self) -> str:
        return self.error.topic

    @property
    def partition(self) -> int:
        return self.error.partition

    @property
    def offset(self) -> int:
        return self.error.first

    @property
    def end(self) -> int:
        return self.error.end

    @property
    def batch_offset(self) -> int:
        """The base offset of the batch, which all of its parts have in common."""
        return int.from_bytes(self.error.batch[:8])

    @property
    def batch_bytes(self) -> int:
        """The size of the whole batch; `value` may be shorter."""
        return len(self.error.batch)

    @property
    def delivery_count(self) -> int:
        return self.error.delivery_count

    @property
    def deadline(self) -> float:
        return self.error.deadline

    @property
    def is_lost(self) -> bool:
        return self.error.is_lost

    def accept(self) -> None:
        self.error.settle(AcknowledgeType.ACCEPT)

    def release(self, *, delay: timedelta | None = None) -> None:  # noqa: ARG002
        self.error.settle(AcknowledgeType.RELEASE)  # No handler has seen it and named a delay.

    def reject(self) -> None:
        """Reject the offsets; the caller has made their letter durable."""
        # Only here: until the letter is durable, the next part of the batch must have the bytes.
        self._buried[self.partition] = self.batch_offset
        self.error.settle(AcknowledgeType.REJECT)

    def renew(self) -> None:
        self.error.settle(AcknowledgeType.RENEW)
