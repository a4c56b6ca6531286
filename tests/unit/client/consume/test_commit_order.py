"""Automatic commits: when they are due, and what happens while another commit is under way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sharegroup.client.consume.offset_commits import CommitOrder, Positions
from sharegroup.client.records import OffsetAndMetadata, TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import NetworkException

INTERVAL_SECONDS = 5.0


class Commits:
    """Commits offsets when the test lets it."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.goes_on = asyncio.Event()
        self.fails = False

    def claim(self, offsets: Positions) -> None: ...

    async def commit(
        self, offsets: Positions, claim: None, *, timeout_ms: int | None = None
    ) -> None:
        await self.goes_on.wait()
        if self.fails:
            raise NetworkException("cut")
        self.committed += [position.offset for position in offsets.values()]


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("orders", 0): OffsetAndMetadata(offset)}


def order_of(commits: Any) -> tuple[CommitOrder, float]:
    return CommitOrder(commits, ConsumerConfig(group_id="g")), time.monotonic()


def test_a_commit_that_is_due_during_another_follows_with_the_next_poll() -> None:
    async def run() -> None:
        commits = Commits()
        order, start = order_of(commits)
        order.commit_if_due(start + INTERVAL_SECONDS, lambda: at(1))
        order.commit_if_due(start + 2 * INTERVAL_SECONDS, lambda: at(2))
        commits.goes_on.set()
        await order.finish()
        assert commits.committed == [1]
        order.commit_if_due(start + 2 * INTERVAL_SECONDS + 0.1, lambda: at(3))
        await order.finish()
        assert commits.committed == [1, 3]
        order.commit_if_due(start + 3 * INTERVAL_SECONDS, lambda: at(4))
        await order.finish()
        assert commits.committed == [1, 3], "an interval after the last automatic commit"

    asyncio.run(run())


def test_a_commit_that_is_due_during_one_of_the_application_follows() -> None:
    async def run() -> None:
        commits = Commits()
        order, start = order_of(commits)
        order.commit_in_background(at(1))
        order.commit_if_due(start + INTERVAL_SECONDS, lambda: at(2))
        commits.goes_on.set()
        await order.finish()
        order.commit_if_due(start + INTERVAL_SECONDS + 0.1, lambda: at(2))
        await order.finish()
        assert commits.committed == [1, 2]

    asyncio.run(run())


def test_a_commit_that_is_due_during_one_that_fails_follows() -> None:
    async def run() -> None:
        commits = Commits()
        commits.fails = True
        order, start = order_of(commits)
        order.commit_if_due(start + INTERVAL_SECONDS, lambda: at(1))
        order.commit_if_due(start + 2 * INTERVAL_SECONDS, lambda: at(2))
        commits.goes_on.set()
        await order.finish()
        commits.fails = False
        order.commit_if_due(start + 2 * INTERVAL_SECONDS + 0.1, lambda: at(2))
        await order.finish()
        assert commits.committed == [2]

    asyncio.run(run())


def test_without_positions_the_next_commit_is_due_after_an_interval() -> None:
    """As in Java: a consumer without records does not look at its positions in each poll."""

    async def run() -> None:
        commits = Commits()
        commits.goes_on.set()
        order, start = order_of(commits)
        order.commit_if_due(start + INTERVAL_SECONDS, dict)
        order.commit_if_due(start + INTERVAL_SECONDS + 1, lambda: at(1))
        await order.finish()
        assert commits.committed == []

    asyncio.run(run())
