"""What clients know of the topics without asking: they would find out from Metadata."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

from tests.sim.messages import Partition


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as it was last seen."""

    name: str
    topic_id: UUID
    partition_count: int


@dataclass
class Board:
    """See the module's text; the administrator writes it, the others read."""

    topics: dict[str, KnownTopic] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """All topics that groups may subscribe to, there or not."""
    groups: tuple[str, ...] = ()
    is_quiet: bool = False
    """Nobody produces for now."""
    is_settling: bool = False
    """Faults are over: everybody works off what is left, and behaves."""

    def partitions(self) -> list[Partition]:
        return [
            Partition(topic.topic_id, index)
            for topic in self.topics.values()
            for index in range(topic.partition_count)
        ]

    def any_partition(self, chance: random.Random) -> Partition | None:
        partitions = self.partitions()
        return chance.choice(partitions) if partitions else None
