"""The parts of a running broker, as handlers see them; `app` puts them together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from sharegroup.broker.access.audit import AuditLog
from sharegroup.broker.access.logins import Logins
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.quotas import Quotas
from sharegroup.broker.access.rights import UNLIMITED, Rights
from sharegroup.broker.client_telemetry import ClientTelemetry
from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.producer_ids import ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.consumer_groups_on_demand import ConsumerGroupsOnDemand
from sharegroup.broker.groups.group_log import GroupLog
from sharegroup.broker.groups.modern_groups_on_demand import ModernGroupsOnDemand
from sharegroup.broker.load.late_requests import LateRequests
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.load.request_counters import RequestCounters
from sharegroup.broker.load.slices import Slices
from sharegroup.broker.load.unserved import UnservedFeatures
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share_on_demand import ShareOnDemand
from sharegroup.broker.transactions.transactions_on_demand import TransactionsOnDemand
from sharegroup.core.shared_totals import SharedTotal

if TYPE_CHECKING:
    # Only brokers with ACLs import it.
    # `ConsumerGroupsOnDemand` and `ShareOnDemand` import them at first use, to keep the start of a
    # broker short.
    from sharegroup.broker.access.authorizer import Authorizer
    from sharegroup.broker.groups.consumer_group_coordinator import ConsumerGroupCoordinator
    from sharegroup.broker.groups.modern_group_coordinator import ModernGroupCoordinator
    from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
    from sharegroup.broker.load.produced_batches import ProducedBatches
    from sharegroup.broker.share.dead_letter_authors import DeadLetterAuthors
    from sharegroup.broker.share.dead_letters import DeadLetters
    from sharegroup.broker.share.share_coordinator import ShareCoordinator
    from sharegroup.broker.share.share_partitions import SharePartitions
    from sharegroup.broker.share.state_pruning import StatePruning
    from sharegroup.core.sessions.fetch_session import FetchSessions
    from sharegroup.core.sessions.share_session import ShareSessions


T = TypeVar("T")


class OnDemand(Generic[T]):
    """A part that is made when it is first needed; all views of the parts share it."""

    __slots__ = ("_make", "existing")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.existing: T | None = None
        """None until it is first needed."""

    def __call__(self) -> T:
        """Return the part, and make it if this is the first use."""
        if self.existing is None:
            self.existing = self._make()
        return self.existing


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
    topics: Topics
    waiting: WaitingRoom
    producer_ids: ProducerIds
    fetch_sessions_on_demand: OnDemand[FetchSessions]
    groups: GroupLog
    share: ShareOnDemand
    consumer_groups: ConsumerGroupsOnDemand
    group_settings: GroupSettings
    requests: RequestCounters
    unserved: UnservedFeatures
    transactions: TransactionsOnDemand
    client_telemetry: ClientTelemetry
    logins: Logins
    quotas: Quotas
    audit: AuditLog
    authorizer: Authorizer | None = None
    """None if every client may do everything."""
    listener: str = "PLAINTEXT"
    """The name of the listener by which the requests of this view come."""
    slices: Slices = field(init=False)
    record_jobs: RecordJobs = field(init=False)
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
        self.share.connect(self.record_jobs, self._dead_letter_authors)

    def _dead_letter_authors(self) -> DeadLetterAuthors | None:
        """Return the rights of those who set dead-letter topics; None without an authorizer."""
        if self.authorizer is None:
            return None
        # Imported at first use, because a broker starts faster without it.
        from sharegroup.broker.share.dead_letter_authors import DeadLetterAuthors

        return DeadLetterAuthors(
            self.topics.catalog, self.authorizer, self.quotas, self.audit, self.clock
        )

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
        totals: tuple[SharedTotal[Any], ...] = (
            *self.share_group_coordinator.shared_totals,
            *self.consumer_group_coordinator.shared_totals,
            *self.modern_groups.shared_totals,
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

    def _make_produced_batches(self) -> ProducedBatches:
        # Imported with the first batch that is produced.
        from sharegroup.broker.load.produced_batches import ProducedBatches

        return ProducedBatches(self.record_jobs, self.config.server.user_limits_percent)

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
        return self.share.parts().coordinator

    @cached_property
    def state_pruning(self) -> StatePruning:
        """The job that keeps the topic of that state short."""
        return self.share.parts().pruning

    @cached_property
    def share_group_coordinator(self) -> ShareGroupCoordinator:
        """The coordinator of share groups."""
        return self.share.parts().groups

    @cached_property
    def share_partitions(self) -> SharePartitions:
        """The share partitions that are in use."""
        return self.share.parts().partitions

    @cached_property
    def share_sessions(self) -> ShareSessions:
        """The share sessions of all connections."""
        return self.share.parts().sessions

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The writer of dead letters."""
        return self.share.parts().dead_letters

    @property
    def serves_share_state(self) -> bool:
        """Whether the requests of the share coordinator are served (ADR 0010).

        With an authorizer they are served to principals with CLUSTER_ACTION.
        """
        return self.config.server.share_state_apis or self.authorizer is not None

    @property
    def consumer_group_coordinator(self) -> ConsumerGroupCoordinator:
        """The consumer group coordinator; made on first use."""
        return self.consumer_groups.coordinator()

    @property
    def modern_groups(self) -> ModernGroupsOnDemand:
        """The consumer groups of KIP-848."""
        return self.consumer_groups.modern

    @property
    def modern_group_coordinator(self) -> ModernGroupCoordinator:
        """The coordinator of consumer groups of KIP-848; made on first use."""
        return self.modern_groups.coordinator()
