"""The partitions that this process owns of one consumer group, for code that steers them.

    partitions = app.partitions("audit")
    partitions.pause("orders", 3)
    await partitions.seek("orders", 3, 10_000)

A rebalance ends all of that: the next owner, also if it is the same process, reads on from the
committed offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.worker.consuming.group_source import GroupSource


class ConsumedPartitions:
    """The partitions that this process owns of one consumer group; `App.partitions` returns it."""

    __slots__ = ("_group", "_sources")

    def __init__(self, group: str, sources: Sequence[GroupSource]) -> None:
        self._group = group
        self._sources = {source.topic: source for source in sources}

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that this process owns, with those of the group's own topic."""
        return tuple(
            TopicPartition(topic, number)
            for topic, source in sorted(self._sources.items())
            for number in sorted(source.owned)
        )

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The owned partitions that `pause` was called for."""
        return tuple(
            where for where in self.owned if self._sources[where.topic].is_held(where.partition)
        )

    def pause(self, topic: str, partition: int) -> None:
        """Take no more records of a partition until `resume`; those that were taken still run."""
        self._source(topic, partition).hold(partition, is_held=True)

    def resume(self, topic: str, partition: int) -> None:
        """Take records of a paused partition again."""
        self._source(topic, partition).hold(partition, is_held=False)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset``: waits for the handlers of the partition, then commits it.

        What was finished above the offset is forgotten and runs again.  Raises OwnershipLost if
        the partition is taken away meanwhile.  A handler that calls it for its own partition
        waits for itself, until the limit for revocations is over.
        """
        if offset < 0:
            raise ValueError(f"seek {topic!r} {partition}: expected 0 or more, found {offset}")
        await self._source(topic, partition).seek(partition, offset)

    def _source(self, topic: str, partition: int) -> GroupSource:
        source = self._sources.get(topic)
        if source is None or partition not in source.owned:
            raise IllegalStateError(
                f"group {self._group!r}: this process does not own partition {partition} of topic "
                f"{topic!r}; it owns {', '.join(map(repr, self.owned)) or 'none'}"
            )
        return source
