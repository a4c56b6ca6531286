"""The commits of one consumer, in order: those of the application, and the automatic ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from sharegroup.client.consume.offset_commits import OffsetCommits
from sharegroup.client.records import (
    CommitFailedError,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)

Positions = Mapping[TopicPartition, OffsetAndMetadata]


class CommitOrder:
    """Sends one commit at a time, so that an older one never overwrites a newer one."""

    def __init__(self, commits: OffsetCommits | None, config: ConsumerConfig) -> None:
        self._commits = commits
        self._config = config
        self._turn = asyncio.Lock()
        self._committed_at = time.monotonic()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> OffsetCommits:
        """The requests about the group's offsets; IllegalStateError without a group."""
        if self._commits is None:
            raise IllegalStateError("this consumer has no group: group_id is not set")
        return self._commits

    async def commit(self, offsets: Positions, *, timeout_ms: int | None = None) -> None:
        """Commit offsets after the commits before."""
        commits = self.requests
        async with self._turn:
            await commits.commit(offsets, timeout_ms=timeout_ms)

    def commit_in_background(self, offsets: Positions) -> None:
        """Commit offsets without waiting; a failure is logged."""

        async def commit() -> None:
            try:
                await self.commit(offsets)
            except (CommitFailedError, KafkaError) as error:
                self._log_failure(error)

        task = asyncio.get_running_loop().create_task(commit(), name="commit")
        # The event loop holds tasks by weak references only.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def commit_if_due(self, now: float, positions: Callable[[], Positions]) -> None:
        """Commit the records of earlier polls in the background, if it is time to."""
        config = self._config
        if self._commits is None or not config.enable_auto_commit:
            return
        if (now - self._committed_at) * 1000 < config.auto_commit_interval_ms:
            return
        if self._under_way:
            return  # It stays due, so the first poll after that commit sends it.
        self._committed_at = now
        if offsets := positions():
            self.commit_in_background(offsets)

    async def commit_automatically(self, offsets: Positions) -> None:
        """Commit the positions of partitions that are given up, if commits are automatic."""
        config = self._config
        if self._commits is None or not config.enable_auto_commit:
            return
        limit_ms = min(config.max_poll_interval_ms, config.default_api_timeout_ms)
        try:
            await self.commit(offsets, timeout_ms=limit_ms)
        except (CommitFailedError, KafkaError) as error:
            self._log_failure(error)

    async def finish(self) -> None:
        """Wait for the commits under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def cancel(self) -> None:
        """Cancel the commits under way."""
        for task in self._under_way:
            task.cancel()

    def _log_failure(self, error: Exception) -> None:
        log.warning(
            "event=commit.failed group=%s error='%s' action='the records since the last commit may "
            "be read again'",
            self._config.group_id,
            error,
        )
