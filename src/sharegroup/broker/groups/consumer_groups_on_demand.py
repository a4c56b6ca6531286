"""Creates the coordinator of consumer groups when it is first needed.

Many brokers serve only share groups, and importing the modules for consumer groups takes a tenth
of the start time.  So they are imported only when the log holds a record of a consumer group or a
request needs the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import (
    GroupLog,
    Reading,
    RegisteredCoordinator,
    reading_on_demand,
)
from sharegroup.broker.groups.modern_groups_on_demand import ModernGroupsOnDemand
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import GroupType

if TYPE_CHECKING:
    # `_make` imports it at first use.
    from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator

RECORD_TYPES = frozenset({1, 2})
"""The types of `core.groups.classic.records.ConsumerGroupRecordType`: offsets and groups."""


class ConsumerGroupsOnDemand:
    """Holds the coordinator of consumer groups and creates it when it is first needed.

    Until then there is no consumer group, and `agree`, `connection_closed` and `stop` do nothing.
    """

    __slots__ = ("_clock", "_config", "_coordinator", "_log", "_topics", "modern")

    def __init__(
        self,
        log_: GroupLog,
        topics: Topics,
        clock: Clock,
        config: LiveConfig,
        settings: GroupSettings,
    ) -> None:
        # Registered before classic groups: the offsets of a group of KIP-848 look like a classic
        # group without members, and the type that is found first counts.
        self.modern = ModernGroupsOnDemand(
            log_, topics, clock, config=config, settings=settings, classic=self.coordinator
        )
        """The groups of KIP-848."""
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._config = config
        self._coordinator: ConsumerGroupCoordinator | None = None
        """None until it is first needed."""
        log_.register(
            RegisteredCoordinator(GroupType.CLASSIC, RECORD_TYPES, self._begin_reading, self._has)
        )

    def coordinator(self) -> ConsumerGroupCoordinator:
        """Return the coordinator, and create it if this is the first use."""
        if self._coordinator is not None:
            return self._coordinator
        coordinator = self._make()
        coordinator.agree()
        return coordinator

    def agree(self) -> None:
        """Correct committed offsets that no longer match the logs, after the log was read."""
        self.modern.agree()
        if self._coordinator is not None:
            self._coordinator.agree()

    def connection_closed(self, connection_id: int) -> None:
        """Drop the waiting requests of a closed connection."""
        if self._coordinator is not None:
            self._coordinator.connection_closed(connection_id)

    def stop(self) -> None:
        """Stop the timers of consumer groups and cancel all waiting requests."""
        self.modern.stop()
        if self._coordinator is not None:
            self._coordinator.stop()

    def _make(self) -> ConsumerGroupCoordinator:
        # Imported at first use, because a broker without consumer groups starts faster without it.
        from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator

        self._coordinator = ConsumerGroupCoordinator(
            self._log, self._topics, self._clock, self._config, self.modern
        )
        return self._coordinator

    def _has(self, group_id: GroupId) -> bool:
        return self._coordinator is not None and self._coordinator.has(group_id)

    def _begin_reading(self) -> Reading:
        if self._coordinator is not None:
            return self._coordinator.begin_reading()
        return reading_on_demand(lambda: self._make().begin_reading(), takes_transactions=True)
