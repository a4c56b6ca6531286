"""The coordinator of consumer groups, made when there is something to coordinate.

Many brokers serve share groups alone, and to import what consumer groups need takes a tenth of a
start.  So nothing of it is imported before the log turns out to hold a record of a consumer
group, or somebody asks for the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import GroupLog, Keeper, Kind, Reading
from sharegroup.ids import GroupId

if TYPE_CHECKING:
    from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator

RECORD_TYPES = frozenset({1, 2})
"""Of committed offsets and of groups (`core.consumer_group_records.RecordType`)."""


class ConsumerGroupsOnDemand:
    """See the module's text."""

    __slots__ = ("_clock", "_config", "_log", "_topics", "made")

    def __init__(self, log_: GroupLog, topics: Topics, clock: Clock, config: LiveConfig) -> None:
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._config = config
        self.made: ConsumerGroupCoordinator | None = None
        """None: nobody has needed it so far, so there is no consumer group."""
        log_.kept_by(Keeper(Kind.CLASSIC, RECORD_TYPES, self._begin_reading, self._has))

    def coordinator(self) -> ConsumerGroupCoordinator:
        """The coordinator; made now if nobody needed it so far."""
        if self.made is not None:
            return self.made
        made = self._make()
        made.agree()
        return made

    def _make(self) -> ConsumerGroupCoordinator:
        from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator

        self.made = ConsumerGroupCoordinator(self._log, self._topics, self._clock, self._config)
        return self.made

    def _has(self, group_id: GroupId) -> bool:
        return self.made is not None and self.made.has(group_id)

    def _begin_reading(self) -> Reading:
        if self.made is not None:
            return self.made.begin_reading()
        begun: list[Reading] = []

        def replay(key: bytes, value: bytes | None) -> None:
            if not begun:
                begun.append(self._make().begin_reading())
            begun[0].replay(key, value)

        def finish() -> None:
            for reading in begun:
                reading.finish()

        return Reading(replay, finish)
