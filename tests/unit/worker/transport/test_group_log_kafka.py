"""What `KafkaGroupLog` makes of a consumer; one that does what the test says stands in for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sharegroup.client import TopicPartition
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.declarations.route import StartFrom
from sharegroup.worker.ports import BufferedRecord
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.transport.group_log_kafka import KafkaGroupLog
from sharegroup.worker.transport.offset_transactions import Commit

ONE = TopicPartition("orders", 0)


class Consumer:
    """Stands in for the consumer, as a member with one partition."""

    def __init__(self, **options: Any) -> None:
        self.assignment = frozenset([ONE])
        self.member = ConsumerGroupMetadata("billing", 7, "m")

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self.member


class Transactions:
    """Notes the commits."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    async def write(self, records: Sequence[BufferedRecord], commit: Commit) -> None:
        self.commits.append(commit)


def opened(*, exactly_once: bool = False) -> tuple[KafkaGroupLog, Any]:
    consumer: Any = Consumer()
    start = StartFrom.EARLIEST
    reading = GroupReading("billing", "orders", 1_000, "classic", start, exactly_once)
    return KafkaGroupLog(reading, {}, open_consumer=lambda **_: consumer), consumer


@pytest.mark.parametrize("member", [(-1, "m"), (7, ""), (-1, "")])
def test_nothing_is_committed_in_transactions_without_a_membership(member: tuple[int, str]) -> None:
    """The coordinator would take it, and the next owner would run the same records."""
    group_log, consumer = opened(exactly_once=True)
    group_log._transactions = transactions = Transactions()  # type: ignore[assignment]

    async def commits() -> None:
        await group_log.commit({0: Committed(5)})
        consumer.member = ConsumerGroupMetadata("billing", *member)
        with pytest.raises(OwnershipLost, match="membership in group 'billing' has ended"):
            await group_log.commit({0: Committed(6)})

    asyncio.run(commits())
    assert [commit.offsets[ONE].offset for commit in transactions.commits] == [5]
