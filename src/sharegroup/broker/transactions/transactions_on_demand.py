"""Creates the transaction coordinator when it is first needed.

Most embedded brokers have no transactions, and their start should not wait for these modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.cluster.catalog import TRANSACTION_STATE
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.producer_ids import ProducerIds
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.consumer_groups_on_demand import ConsumerGroupsOnDemand
from sharegroup.broker.groups.group_log import GroupLog

if TYPE_CHECKING:
    # `coordinator` and `markers` import them at first use.
    from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator
    from sharegroup.broker.transactions.transaction_markers import TransactionMarkers


class TransactionsOnDemand:
    """Holds the transaction coordinator and creates it when it is first needed."""

    __slots__ = (
        "_clock",
        "_config",
        "_consumer_groups",
        "_coordinator",
        "_features",
        "_groups",
        "_markers",
        "_topics",
        "producer_ids",
    )

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        config: LiveConfig,
        *,
        features: FinalizedFeatures,
        groups: GroupLog,
        consumer_groups: ConsumerGroupsOnDemand,
        producer_ids: ProducerIds,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._config = config
        self._features = features
        self._groups = groups
        self._consumer_groups = consumer_groups
        self.producer_ids = producer_ids
        self._coordinator: TransactionCoordinator | None = None
        """None until it is first needed."""
        self._markers: TransactionMarkers | None = None

    @property
    def existing(self) -> TransactionCoordinator | None:
        """The coordinator, or None if there were no transactions yet."""
        return self._coordinator

    def load(self) -> None:
        """Read the transactional ids at start, and complete what was decided before a crash."""
        topic = self._topics.catalog.topic(TRANSACTION_STATE)
        # A log is created by its first use (ADR 0007): without one there was never a transaction.
        if any(True for _ in self._topics.opened(topic)):
            self.coordinator()

    @property
    def markers(self) -> TransactionMarkers:
        """Writes the markers that end transactions in partitions."""
        if self._markers is None:
            # Imported at first use, like the coordinator.
            from sharegroup.broker.transactions.transaction_markers import TransactionMarkers

            self._markers = TransactionMarkers(self._topics, self._clock, self._consumer_groups)
        return self._markers

    def coordinator(self) -> TransactionCoordinator:
        """Return the coordinator, and create it if this is the first use."""
        if self._coordinator is None:
            self._coordinator = self._make()
            self._coordinator.load()
        return self._coordinator

    def _make(self) -> TransactionCoordinator:
        # Imported at first use, because a broker without transactions starts faster without them.
        from sharegroup.broker.transactions.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(
            CoordinatorLog(self._topics, self._clock, TRANSACTION_STATE),
            self._topics,
            self._clock,
            self._config,
            features=self._features,
            groups=self._groups,
            markers=self.markers,
            producer_ids=self.producer_ids,
        )

    async def keep_forgetting(self) -> None:
        """Forget transactional ids that have expired, again and again, until cancelled."""
        while True:
            await sleep_ms(self._clock, self._config.transactions.id_expiration_check_ms)
            if self._coordinator is not None:
                await self._coordinator.forget_expired()

    def stop(self) -> None:
        """Stop the timers of transactions, and fail the requests that wait for one."""
        if self._coordinator is not None:
            self._coordinator.stop()
