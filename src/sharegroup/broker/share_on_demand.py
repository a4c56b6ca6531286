"""Makes the parts that serve share groups when the first of them is needed.

They are a fifth of the modules of a broker.  So they are imported only when a log holds the state
of a share group, or a request needs them, or soon after the start (`warm_up`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE
from sharegroup.broker.cluster.features import FinalizedFeatures
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.groups.group_log import (
    GroupLog,
    Reading,
    RegisteredCoordinator,
    reading_on_demand,
)
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.load.waiting import WaitingRoom
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import GroupType

if TYPE_CHECKING:
    # `_make` imports them at first use.
    from sharegroup.broker.share.dead_letter_authors import DeadLetterAuthors
    from sharegroup.broker.share_parts import ShareParts

RECORD_TYPES = frozenset({10, 11, 12, 13, 14, 15})
"""Types of the records (`core.groups.share.records.ShareGroupRecordType`)."""


class ShareOnDemand:
    """Holds the parts that serve share groups and makes them when they are first needed.

    Until then there is no share group and no share session.
    """

    __slots__ = (
        "_checkpoint",
        "_clock",
        "_config",
        "_connections",
        "_features",
        "_group_log",
        "_made",
        "_settings",
        "_topics",
        "_waiting",
        "existing",
    )

    def __init__(
        self,
        group_log: GroupLog,
        topics: Topics,
        waiting: WaitingRoom,
        clock: Clock,
        config: LiveConfig,
        settings: GroupSettings,
        features: FinalizedFeatures,
        checkpoint: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """``checkpoint`` moves the recovery points up before state is pruned, if it has to."""
        self._group_log = group_log
        self._topics = topics
        self._waiting = waiting
        self._clock = clock
        self._config = config
        self._settings = settings
        self._features = features
        self._checkpoint = checkpoint
        self._connections: tuple[RecordJobs, Callable[[], DeadLetterAuthors | None]] | None = None
        """None while the broker starts."""
        self._made = asyncio.Event()
        self.existing: ShareParts | None = None
        """None until they are first needed."""
        group_log.register(
            RegisteredCoordinator(GroupType.SHARE, RECORD_TYPES, self._begin_reading, self._has)
        )

    def load(self) -> None:
        """Read the state of share partitions at start, if there is any."""
        topic = self._topics.catalog.topic(SHARE_GROUP_STATE)
        if any(True for _ in self._topics.opened(topic)):
            self._make()

    def agree(self) -> None:
        """Make the state of share partitions agree with the groups, after both were read."""
        if self.existing is not None:
            self.existing.groups.start()

    def connect(
        self, record_jobs: RecordJobs, make_authors: Callable[[], DeadLetterAuthors | None]
    ) -> None:
        """Give the parts what reads records for them, and the users of dead letters."""
        self._connections = (record_jobs, make_authors)
        if self.existing is not None:
            self.existing.connect(record_jobs, make_authors())

    def parts(self) -> ShareParts:
        """Return the parts, and make them if this is the first use."""
        if self.existing is not None:
            return self.existing
        made = self._make()
        made.groups.agree()
        return made

    def stop(self) -> None:
        """Stop the timers."""
        if self.existing is not None:
            self.existing.stop()

    async def write_dead_letters(self) -> None:
        """Write dead letters from the first use of the parts on, until cancelled."""
        await self._made.wait()
        await self.parts().dead_letters.run()

    async def prune_state(self) -> None:
        """Keep the state topic short from the first use of the parts on, until cancelled."""
        await self._made.wait()
        await self.parts().pruning.run()

    def _make(self) -> ShareParts:
        # Imported at first use, because a broker starts faster without it.
        from sharegroup.broker.share_parts import make_share_parts

        self.existing = make_share_parts(
            self._group_log,
            self._topics,
            self._waiting,
            self._clock,
            self._config,
            self._settings,
            self._features,
            self._checkpoint,
        )
        if self._connections is not None:
            record_jobs, make_authors = self._connections
            self.existing.connect(record_jobs, make_authors())
        self._made.set()
        return self.existing

    def _has(self, group_id: GroupId) -> bool:
        return self.existing is not None and self.existing.groups.has(group_id)

    def _begin_reading(self) -> Reading:
        if self.existing is not None:
            return self.existing.groups.begin_reading()
        return reading_on_demand(self._begin_first_reading, takes_transactions=False)

    def _begin_first_reading(self) -> Reading:
        return self._make().groups.begin_reading()
