"""The parts that serve share groups and share partitions, and their start.

`share_on_demand` imports this module when the first of them is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.group_config import DEFAULT_PERSISTER
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import GroupLog
from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.dead_letter_authors import DeadLetterAuthors
from sharegroup.broker.share.dead_letter_topic import DeadLetterTopics
from sharegroup.broker.share.dead_letters import DeadLetters
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.broker.share.persister import NoPersister, Persister
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.broker.share.state_pruning import StatePruning
from sharegroup.core.sessions.share_session import ShareSessions


class ShareParts(NamedTuple):
    """The parts that serve share groups and share partitions."""

    coordinator: ShareCoordinator
    pruning: StatePruning
    partitions: SharePartitions
    sessions: ShareSessions
    dead_letters: DeadLetters
    groups: ShareGroupCoordinator

    def connect(self, record_jobs: RecordJobs, authors: DeadLetterAuthors | None) -> None:
        """Give these parts what reads records for them, and the users of dead letters."""
        for reader in (self.partitions.batch_checks, self.dead_letters):
            reader.jobs, reader.owner_of = record_jobs, self.groups.owner_of
        self.dead_letters.authors = authors

    def stop(self) -> None:
        """Stop the timers."""
        self.groups.stop()
        self.partitions.stop()


def make_share_parts(
    group_log: GroupLog,
    topics: Topics,
    waiting: WaitingRoom,
    clock: Clock,
    config: LiveConfig,
    settings: GroupSettings,
    features: FinalizedFeatures,
    checkpoint: Callable[[], Awaitable[None]] | None,
) -> ShareParts:
    """Make the parts, and read the state of share partitions; the groups are read afterwards."""
    state_log = CoordinatorLog(topics, clock, SHARE_GROUP_STATE)
    coordinator = ShareCoordinator(state_log, topics, clock, config.coordinator)
    is_durable = config.share_group.persister == DEFAULT_PERSISTER
    persister: Persister = coordinator if is_durable else NoPersister()
    partitions = SharePartitions(clock, topics, waiting, coordinator=persister, settings=settings)
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
        is_on=lambda: features.share_groups,
        checkpoint=checkpoint,
    )
    groups = ShareGroupCoordinator(
        group_log,
        topics,
        clock,
        settings=settings,
        share_coordinator=persister,
        share_partitions=partitions,
        user_percent=user_percent,
    )
    waiting.on_wake(sessions.happened)
    coordinator.load()
    return ShareParts(coordinator, pruning, partitions, sessions, dead_letters, groups)
