"""The parts that serve share groups and share partitions, and their start.

`parts` imports this module when the first of them is needed: they are a fifth of the modules of a
broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from sharegroup.broker.access.audit import AuditLog
from sharegroup.broker.access.authorizer import Authorizer
from sharegroup.broker.access.quotas import Quotas
from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.group_config import DEFAULT_PERSISTER
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import GroupLog, Reading
from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.dead_letter_topic import DeadLetterAuthors, DeadLetterTopics
from sharegroup.broker.share.dead_letters import DeadLetters
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.persister import NoPersister, Persister
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.broker.share.state_pruning import StatePruning
from sharegroup.core.sessions.share_session import ShareSessions
from sharegroup.ids import GroupId


class BrokerParts(Protocol):
    """What share groups need of the other parts of the broker (`broker.parts.Parts`)."""

    config: LiveConfig
    features: FinalizedFeatures
    clock: Clock
    topics: Topics
    waiting: WaitingRoom
    groups: GroupLog
    group_settings: GroupSettings
    record_jobs: RecordJobs
    quotas: Quotas
    audit: AuditLog
    authorizer: Authorizer | None
    checkpoint: Callable[[], Awaitable[None]] | None


class ShareParts(NamedTuple):
    """The parts that serve share groups and share partitions."""

    coordinator: ShareCoordinator
    pruning: StatePruning
    partitions: SharePartitions
    sessions: ShareSessions
    dead_letters: DeadLetters
    groups: ShareGroupCoordinator

    def has(self, group_id: GroupId) -> bool:
        """Whether a share group with this id exists."""
        return self.groups.has(group_id)

    def begin_reading(self) -> Reading:
        """Begin a reading of the log of groups."""
        return self.groups.begin_reading()

    def stop(self) -> None:
        """Stop the timers."""
        self.groups.stop()
        self.partitions.stop()


def make_share_parts(broker: BrokerParts) -> ShareParts:
    """Make the parts, and read the state of share partitions; the groups are read afterwards."""
    config, settings, clock, topics = (
        broker.config,
        broker.group_settings,
        broker.clock,
        broker.topics,
    )
    state_log = CoordinatorLog(topics, clock, SHARE_GROUP_STATE)
    coordinator = ShareCoordinator(state_log, topics, clock, config.coordinator)
    is_durable = config.share_group.persister == DEFAULT_PERSISTER
    persister: Persister = coordinator if is_durable else NoPersister()
    partitions = SharePartitions(
        clock, topics, broker.waiting, coordinator=persister, settings=settings
    )
    sizes, user_percent = config.share_group, config.server.user_limits_percent
    sessions = ShareSessions(
        sizes.sessions_max, partitions_max=sizes.session_partitions_max, user_percent=user_percent
    )
    dead_letters = DeadLetters(
        clock,
        topics,
        DeadLetterTopics(config, settings, topics),
        settings=settings,
        share_partitions=partitions,
        persister=persister,
        is_attended=sessions.group_has_sessions,
    )
    pruning = StatePruning(
        coordinator,
        topics,
        clock,
        config.coordinator,
        is_on=lambda: broker.features.share_groups,
        checkpoint=broker.checkpoint,
    )
    groups = ShareGroupCoordinator(
        broker.groups,
        topics,
        clock,
        settings=settings,
        share_coordinator=persister,
        share_partitions=partitions,
        user_percent=user_percent,
    )
    for reader in (partitions.batch_checks, dead_letters):
        reader.jobs, reader.owner_of = broker.record_jobs, groups.owner_of
    dead_letters.authors = _authors(broker)
    broker.waiting.use_queues(sessions.watches, partitions.may_have_records)
    coordinator.load()
    return ShareParts(coordinator, pruning, partitions, sessions, dead_letters, groups)


def _authors(broker: BrokerParts) -> DeadLetterAuthors | None:
    """Return the users who set dead-letter topics; None without an authorizer."""
    if broker.authorizer is None:
        return None
    return DeadLetterAuthors(
        broker.topics.catalog, broker.authorizer, broker.quotas, broker.audit, broker.clock
    )
