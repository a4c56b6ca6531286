"""The parts of a running broker, as handlers see them; `app` puts them together.

The coordinators are made when they are first needed (`groups.on_demand`): here, because they are
made from the other parts.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sharegroup.broker.access.audit import AuditLog
from sharegroup.broker.access.logins import Logins
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.quotas import Quotas
from sharegroup.broker.access.rights import UNLIMITED, Rights
from sharegroup.broker.client_telemetry import ClientTelemetry
from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import TRANSACTION_STATE
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.producer_ids import ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import GroupLog
from sharegroup.broker.groups.on_demand import ModernGroups, OnDemand, register
from sharegroup.broker.load.late_requests import LateRequests
from sharegroup.broker.load.log_limit import UnservedFeatures
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.load.request_counters import RequestCounters
from sharegroup.broker.load.slices import Slices
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.protocol_enums import GroupType

if TYPE_CHECKING:
    # Imported at first use, to keep the start of a broker short; the first by brokers with ACLs.
    from sharegroup.broker.access.authorizer import Authorizer
    from sharegroup.broker.groups.classic_group_coordinator import ClassicGroupCoordinator
    from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator
    from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
    from sharegroup.broker.load.produced_batches import ProducedBatches
    from sharegroup.broker.share.dead_letters import DeadLetters
    from sharegroup.broker.share.share_coordinator import ShareCoordinator
    from sharegroup.broker.share.share_partitions import SharePartitions
    from sharegroup.broker.share.state_pruning import StatePruning
    from sharegroup.broker.share_parts import ShareParts
    from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator
    from sharegroup.broker.transactions.transaction_markers import TransactionMarkers
    from sharegroup.core.sessions.fetch_session import FetchSessions
    from sharegroup.core.sessions.share_session import ShareSessions


class Node(NamedTuple):
    """This broker, as metadata responses name it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass
class Parts:
    """All parts of the broker that a handler may use.

    Those that are made at their first use are cached in the instance, which therefore has no slots.
    """

    node: Node
    config: LiveConfig
    features: FinalizedFeatures
    clock: Clock
    expiry_clock: Clock
    """The clock by which offsets, transactions and producers expire."""
    topics: Topics
    waiting: WaitingRoom
    producer_ids: ProducerIds
    groups: GroupLog
    group_settings: GroupSettings
    requests: RequestCounters
    unserved: UnservedFeatures
    client_telemetry: ClientTelemetry
    logins: Logins
    quotas: Quotas
    audit: AuditLog
    authorizer: Authorizer | None = None
    """None if every client may do everything."""
    checkpoint: Callable[[], Awaitable[None]] | None = None
    """Moves the recovery points up before state is pruned; None if they need not be."""
    listener: str = "PLAINTEXT"
    """The name of the listener by which the requests of this view come."""
    slices: Slices = field(init=False)
    record_jobs: RecordJobs = field(init=False)
    share: OnDemand[ShareParts] = field(init=False)
    modern_groups: ModernGroups = field(init=False)
    """The consumer groups of KIP-848."""
    classic_groups: OnDemand[ClassicGroupCoordinator] = field(init=False)
    transactions: OnDemand[TransactionCoordinator] = field(init=False)
    markers: OnDemand[TransactionMarkers] = field(init=False)
    fetch_sessions_on_demand: OnDemand[FetchSessions] = field(init=False)
    _produced_batches: OnDemand[ProducedBatches] = field(init=False)
    late_requests: LateRequests = field(init=False)
    prepared: dict[tuple[int, int], tuple[Any, type[Any]]] = field(default_factory=dict)
    """By API key and version: the handler and the class of requests that need not wait for imports.
    A handler is an `ApiHandler`, whose module imports this one."""

    def __post_init__(self) -> None:
        self.slices = Slices(self.clock, self.requests.total_seconds)
        self.late_requests = LateRequests(self.clock)
        self.record_jobs = RecordJobs(self.slices, self.config.server.decompressed_bytes_max)
        self._produced_batches = OnDemand(self._make_produced_batches)
        self.fetch_sessions_on_demand = OnDemand(self._make_fetch_sessions)
        share = OnDemand(self._make_share_parts, lambda made: made.groups.agree())
        self.share = register(self.groups, GroupType.SHARE, share)
        # Registered before classic groups: the offsets of a group of KIP-848 look like a classic
        # group without members, and the type that is found first counts.
        modern = OnDemand(self._make_modern_groups)
        self.modern_groups = ModernGroups(register(self.groups, GroupType.CONSUMER, modern))
        classic = OnDemand(self._make_classic_groups, lambda made: made.agree())
        self.classic_groups = register(
            self.groups, GroupType.CLASSIC, classic, takes_transactions=True
        )
        self.transactions = OnDemand(self._make_transactions, lambda made: made.load())
        self.markers = OnDemand(self._make_markers)

    def _make_share_parts(self) -> ShareParts:
        # Imported at first use, like all below, because a broker starts faster without it.
        from sharegroup.broker.share_parts import make_share_parts

        return make_share_parts(self)

    def _make_modern_groups(self) -> ModernGroupCoordinator:
        # Imported at first use.
        from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator

        return ModernGroupCoordinator(
            self.groups,
            self.topics,
            self.expiry_clock,
            config=self.config,
            settings=self.group_settings,
            classic=self.classic_groups,
        )

    def _make_classic_groups(self) -> ClassicGroupCoordinator:
        # Imported at first use.
        from sharegroup.broker.groups.classic_group_coordinator import ClassicGroupCoordinator

        return ClassicGroupCoordinator(
            self.groups, self.topics, self.expiry_clock, self.config, self.modern_groups
        )

    def _make_markers(self) -> TransactionMarkers:
        # Imported at first use.
        from sharegroup.broker.transactions.transaction_markers import TransactionMarkers

        return TransactionMarkers(self.topics, self.expiry_clock, self.classic_groups)

    def _make_transactions(self) -> TransactionCoordinator:
        # Imported at first use.
        from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(
            CoordinatorLog(self.topics, self.expiry_clock, TRANSACTION_STATE),
            self.topics,
            self.expiry_clock,
            self.config,
            features=self.features,
            groups=self.groups,
            markers=self.markers(),
            producer_ids=self.producer_ids,
        )

    def _make_fetch_sessions(self) -> FetchSessions:
        # Imported with the first fetch.
        from sharegroup.core.sessions.fetch_session import FetchSessions

        server = self.config.server
        return FetchSessions(
            server.fetch_sessions_max,
            partitions_max=server.fetch_session_partitions_max,
            user_percent=server.user_limits_percent,
        )

    def _make_produced_batches(self) -> ProducedBatches:
        # Imported with the first batch that is produced.
        from sharegroup.broker.load.produced_batches import ProducedBatches

        return ProducedBatches(self.record_jobs, self.config.server.user_limits_percent)

    def seen_by(self, listener: str, node: Node) -> Parts:
        """Return the same parts for the connections of a listener that advertises ``node``.

        Every part is shared, so no field but these two may be set after the start.
        """
        view = copy.copy(self)
        view.listener, view.node = listener, node
        return view

    def rights_of(self, peer: Peer) -> Rights:
        """Return the rights of a peer with its present principal."""
        return UNLIMITED if self.authorizer is None else self.authorizer.rights_of(peer)

    def user_part_refusals(self) -> Iterator[tuple[str, int]]:
        """Yield what all users share, and how often a user's part of it was used up."""
        transactions, catalog = self.transactions.existing, self.topics.catalog
        modern_groups = self.modern_groups.coordinator.existing
        totals: tuple[SharedTotal[Any], ...] = (
            *self.share_group_coordinator.shared_totals,
            *self.classic_group_coordinator.shared_totals,
            *(() if modern_groups is None else modern_groups.shared_totals),
            *(() if transactions is None else (transactions.transactions.memory,)),
            catalog.partitions,
            catalog.group_settings_memory,
        )
        for total in totals:
            yield total.name.replace(" ", "_"), total.refused_count
        yield "fetch_sessions", self.fetch_sessions.user_refused_count
        yield "share_sessions", self.share_sessions.user_refused_count
        yield "quota_meters", self.quotas.user_refused_count
        yield "bytes_of_waiting_batches", self.produced_batches.user_refused_count

    @cached_property
    def produced_batches(self) -> ProducedBatches:
        """The batches that wait for their preparation; made on first use, like all below."""
        return self._produced_batches()

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of all connections."""
        return self.fetch_sessions_on_demand()

    @cached_property
    def share_coordinator(self) -> ShareCoordinator:
        """The durable state of share partitions."""
        return self.share().coordinator

    @cached_property
    def state_pruning(self) -> StatePruning:
        """The job that keeps the topic of that state short."""
        return self.share().pruning

    @cached_property
    def share_group_coordinator(self) -> ShareGroupCoordinator:
        """The coordinator of share groups."""
        return self.share().groups

    @cached_property
    def share_partitions(self) -> SharePartitions:
        """The share partitions that are in use."""
        return self.share().partitions

    @cached_property
    def share_sessions(self) -> ShareSessions:
        """The share sessions of all connections."""
        return self.share().sessions

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The writer of dead letters."""
        return self.share().dead_letters

    @property
    def serves_share_state(self) -> bool:
        """Whether the requests of the share coordinator are served (ADR 0010).

        With an authorizer they are served to principals with CLUSTER_ACTION.
        """
        return self.config.server.share_state_apis or self.authorizer is not None

    @property
    def classic_group_coordinator(self) -> ClassicGroupCoordinator:
        """The coordinator of classic groups, which keeps the offsets of all consumer groups."""
        return self.classic_groups()

    @property
    def modern_group_coordinator(self) -> ModernGroupCoordinator:
        """The coordinator of consumer groups of KIP-848."""
        return self.modern_groups.coordinator()

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self.transactions()
