"""What handlers touch of the broker: a protocol for each of its parts (`broker.parts.Parts`).

The class `…Parts` at the top of a handler's module names the parts that its requests touch, so
that a reader sees them in one line, and a test may call it with nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # For annotations only: a broker imports what its requests use.
    from sharegroup.broker.access.authorizer import Authorizer
    from sharegroup.broker.access.quotas import Quotas
    from sharegroup.broker.client_telemetry import ClientTelemetry
    from sharegroup.broker.clock import Clock
    from sharegroup.broker.cluster.features import FinalizedFeatures
    from sharegroup.broker.cluster.producer_ids import ProducerIds
    from sharegroup.broker.cluster.topics import Topics
    from sharegroup.broker.configuration.live_config import LiveConfig
    from sharegroup.broker.groups.classic_group_coordinator import ClassicGroupCoordinator
    from sharegroup.broker.groups.group_log import GroupLog
    from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator
    from sharegroup.broker.groups.on_demand import ModernGroups, OnDemand
    from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
    from sharegroup.broker.load.produced_batches import ProducedBatches
    from sharegroup.broker.load.record_jobs import RecordJobs
    from sharegroup.broker.load.slices import Slices
    from sharegroup.broker.load.waiting import WaitingRoom
    from sharegroup.broker.parts import Node
    from sharegroup.broker.share.group_settings import GroupSettings
    from sharegroup.broker.share.share_coordinator import ShareCoordinator
    from sharegroup.broker.share.share_partitions import SharePartitions
    from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator
    from sharegroup.broker.transactions.transaction_markers import TransactionMarkers
    from sharegroup.core.sessions.fetch_session import FetchSessions
    from sharegroup.core.sessions.share_session import ShareSessions


class HasAuthorizer(Protocol):
    authorizer: Authorizer | None


class HasClientTelemetry(Protocol):
    client_telemetry: ClientTelemetry


class HasClock(Protocol):
    clock: Clock


class HasConfig(Protocol):
    config: LiveConfig


class HasClassicGroups(Protocol):
    @property
    def classic_group_coordinator(self) -> ClassicGroupCoordinator: ...


class HasFeatures(Protocol):
    features: FinalizedFeatures


class HasFetchSessions(Protocol):
    @property
    def fetch_sessions(self) -> FetchSessions: ...


class HasGroupSettings(Protocol):
    group_settings: GroupSettings


class HasGroups(Protocol):
    groups: GroupLog


class HasListener(Protocol):
    listener: str


class HasMarkers(Protocol):
    markers: OnDemand[TransactionMarkers]


class HasModernCoordinator(Protocol):
    @property
    def modern_group_coordinator(self) -> ModernGroupCoordinator: ...


class HasModernGroups(Protocol):
    modern_groups: ModernGroups


class HasNode(Protocol):
    node: Node


class HasProducedBatches(Protocol):
    @property
    def produced_batches(self) -> ProducedBatches: ...


class HasProducerIds(Protocol):
    producer_ids: ProducerIds


class HasQuotas(Protocol):
    quotas: Quotas


class HasRecordJobs(Protocol):
    record_jobs: RecordJobs


class HasShareCoordinator(Protocol):
    @property
    def share_coordinator(self) -> ShareCoordinator: ...


class HasShareGroups(Protocol):
    @property
    def share_group_coordinator(self) -> ShareGroupCoordinator: ...


class HasSharePartitions(Protocol):
    @property
    def share_partitions(self) -> SharePartitions: ...


class HasShareSessions(Protocol):
    @property
    def share_sessions(self) -> ShareSessions: ...


class HasShareStateSwitch(Protocol):
    @property
    def serves_share_state(self) -> bool: ...


class HasSlices(Protocol):
    slices: Slices


class HasTopics(Protocol):
    topics: Topics


class HasTransactions(Protocol):
    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...


class HasWaiting(Protocol):
    waiting: WaitingRoom
