"""The parts of a running broker, as handlers see them.  `app` is what puts them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.features import Features
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.request_counters import RequestCounters
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.waiting import WaitingRoom
from sharegroup.core.fetch_session import FetchSessions
from sharegroup.core.share_session import ShareSessions

if TYPE_CHECKING:
    from sharegroup.broker.cluster.producer_ids import ProducerIds
    from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator
    from sharegroup.broker.groups.consumer_groups_on_demand import ConsumerGroupsOnDemand
    from sharegroup.broker.groups.group_log import GroupLog
    from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
    from sharegroup.broker.share.dead_letters import DeadLetters
    from sharegroup.broker.share.share_coordinator import ShareCoordinator
    from sharegroup.broker.share.share_partitions import SharePartitions
    from sharegroup.broker.share.state_pruning import StatePruning


class Node(NamedTuple):
    """This broker, as metadata answers name it."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class Parts:
    """Everything that a handler may use."""

    node: Node
    config: LiveConfig
    features: Features
    clock: Clock
    topics: Topics
    waiting: WaitingRoom
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    share_coordinator: ShareCoordinator
    state_pruning: StatePruning
    groups: GroupLog
    share_group_coordinator: ShareGroupCoordinator
    consumer_groups: ConsumerGroupsOnDemand
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    group_settings: GroupSettings
    dead_letters: DeadLetters
    requests: RequestCounters

    @property
    def consumer_group_coordinator(self) -> ConsumerGroupCoordinator:
        """Made now if nobody needed it so far."""
        return self.consumer_groups.coordinator()
