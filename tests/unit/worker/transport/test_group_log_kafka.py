"""What `KafkaGroupLog` makes of a consumer; one that does what the test says stands in for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from sharegroup.client import CommitFailedError, OffsetAndMetadata, TopicPartition
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.errors import GroupAuthorizationFailed, NetworkException, RequestTimedOut
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.declarations.route import StartFrom
from sharegroup.worker.ports import BufferedRecord
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.transport import assigned_offsets
from sharegroup.worker.transport.group_log_kafka import KafkaGroupLog
from sharegroup.worker.transport.offset_transactions import Commit
from tests.support.limits import HANGING_SECONDS

ONE = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_offsets, "PAUSE_SECONDS", 0.001)


class Consumer:
    """Stands in for the consumer, as a member with one partition."""

    def __init__(self, **options: Any) -> None:
        self.assignment = frozenset([ONE])
        self.member = ConsumerGroupMetadata("billing", 7, "m")
        self.listener: Any = None
        self.errors: list[Exception] = []
        """Of the next questions for committed offsets."""

    def subscribe(self, topic: str, listener: Any) -> None:
        self.listener = listener

    async def start(self) -> None: ...

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self.errors:
            if isinstance(error := self.errors.pop(0), Ended):
                self.member = ConsumerGroupMetadata("billing")
            raise error
        return {where: OffsetAndMetadata(4, "done") for where in partitions}

    def group_metadata(self) -> ConsumerGroupMetadata:
        if self.member.generation_id < 0:
            raise CommitFailedError("this consumer is not a member of group 'billing'")
        return self.member


class Ended(NetworkException):
    """The membership ends with this error."""


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Mapping[int, Committed | None]] = []

    async def assigned(self, partitions: Mapping[int, Committed | None]) -> None:
        self.told.append(partitions)


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


def test_nothing_is_committed_in_transactions_without_a_membership() -> None:
    """The coordinator would take it, and the next owner would run the same records."""
    group_log, consumer = opened(exactly_once=True)
    group_log._transactions = transactions = Transactions()  # type: ignore[assignment]

    async def commits() -> None:
        await group_log.commit({0: Committed(5)})
        consumer.member = ConsumerGroupMetadata("billing")
        with pytest.raises(OwnershipLost, match="not a member of group 'billing'"):
            await group_log.commit({0: Committed(6)})

    asyncio.run(commits())
    assert [commit.offsets[ONE].offset for commit in transactions.commits] == [5]


def assigned(*errors: Exception) -> list[Mapping[int, Committed | None]]:
    """Return what the owner is told of an assignment whose offsets are asked for in vain first."""
    group_log, consumer = opened()
    consumer.errors = list(errors)
    owner: Any = Owner()

    async def joins() -> None:
        await group_log.start(owner)
        async with asyncio.timeout(HANGING_SECONDS):
            await consumer.listener.on_partitions_assigned(frozenset([ONE]))

    asyncio.run(joins())
    return owner.told


def test_committed_offsets_are_asked_for_until_they_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert assigned(RequestTimedOut("silent"), OwnershipLost("rebalance"), RequestTimedOut("")) == [
        {0: Committed(4, "done")}
    ]
    assert (
        caplog.text.count("event=assignment.waits group=billing topic=orders partitions=[0]") == 3
    )


def test_partitions_of_a_membership_that_ends_are_not_owned() -> None:
    assert assigned(RequestTimedOut("silent"), Ended("kicked out")) == []


def test_a_group_that_may_not_be_read_is_an_error() -> None:
    with pytest.raises(GroupAuthorizationFailed):
        assigned(GroupAuthorizationFailed("group 'billing'"))
