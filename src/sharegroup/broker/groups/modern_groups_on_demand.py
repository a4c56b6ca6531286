"""Creates the coordinator of consumer groups of KIP-848 when it is first needed.

Its modules are imported only when the log holds a record of such a group or a member joins one, so
a broker that serves none starts faster (see `consumer_groups_on_demand`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.ids import GroupId, TopicIdPartition
from sharegroup.protocol_enums import GroupType

if TYPE_CHECKING:
    # `coordinator` imports them at first use.
    from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator
    from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator
    from sharegroup.core.groups.classic.consumer_groups import Committer
    from sharegroup.core.groups.consumer.group import ModernGroup
    from sharegroup.core.groups.consumer.member import ListedModernGroup

RECORD_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
"""Types of the records (`core.groups.consumer.records.ModernGroupRecordType`)."""


class ModernGroupsOnDemand:
    """Holds the coordinator of consumer groups of KIP-848 and creates it when it is first needed.

    Until then there is no such group, and `agree` and `stop` do nothing.
    """

    __slots__ = ("_classic", "_clock", "_config", "_coordinator", "_log", "_settings", "_topics")

    def __init__(
        self,
        log_: GroupLog,
        topics: Topics,
        clock: Clock,
        *,
        config: LiveConfig,
        settings: GroupSettings,
        classic: Callable[[], ConsumerGroupCoordinator],
    ) -> None:
        """``classic`` returns the coordinator of classic groups."""
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._config = config
        self._settings = settings
        self._classic = classic
        self._coordinator: ModernGroupCoordinator | None = None
        """None until it is first needed."""
        log_.register(
            RegisteredCoordinator(GroupType.CONSUMER, RECORD_TYPES, self._begin_reading, self.has)
        )

    def coordinator(self) -> ModernGroupCoordinator:
        """Return the coordinator, and create it if this is the first use."""
        if self._coordinator is None:
            # Imported at first use, because a broker without such groups starts faster without it.
            from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator

            self._coordinator = ModernGroupCoordinator(
                self._log,
                self._topics,
                self._clock,
                config=self._config,
                settings=self._settings,
                classic=self._classic,
            )
        return self._coordinator

    def find(self, group_id: GroupId) -> ModernGroup | None:
        """Return the group with this id; None if there is none."""
        return None if self._coordinator is None else self._coordinator.find(group_id)

    def has(self, group_id: GroupId) -> bool:
        """Whether a group of KIP-848 with this id exists."""
        return self._coordinator is not None and self._coordinator.has(group_id)

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[TopicIdPartition],
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if a member may not commit offsets of these partitions."""
        self.coordinator().check_commit(
            committer, partitions, api_version=api_version, is_transactional=is_transactional
        )

    def list_groups(self) -> tuple[ListedModernGroup, ...]:
        """Return all groups, in the order of their ids."""
        return () if self._coordinator is None else self._coordinator.list_groups()

    @property
    def shared_totals(self) -> tuple[SharedTotal[GroupId], ...]:
        """The total of all groups, with the parts of users; empty if there was no group yet."""
        return () if self._coordinator is None else self._coordinator.shared_totals

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all groups in bytes."""
        return 0 if self._coordinator is None else self._coordinator.size_bytes

    @property
    def rebalance_count(self) -> int:
        """The number of group epoch changes, of all groups together."""
        return 0 if self._coordinator is None else self._coordinator.rebalance_count

    def agree(self) -> None:
        """Start the timers, after the log was read."""
        if self._coordinator is not None:
            self._coordinator.agree()

    def stop(self) -> None:
        """Stop the timers."""
        if self._coordinator is not None:
            self._coordinator.stop()

    def _begin_reading(self) -> Reading:
        if self._coordinator is not None:
            return self._coordinator.begin_reading()
        return reading_on_demand(
            lambda: self.coordinator().begin_reading(), takes_transactions=False
        )
