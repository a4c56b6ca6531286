"""The backlog of a group: what cannot be determined is unknown, not zero and not everything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.client.admin.types import (
    CommittedOffset,
    PartitionDescription,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    KafkaError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.waiting.retry_topics import scheduler_group, tier_topic
from sharegroup.worker.telemetry.lag import GroupBacklog

GROUP = "billing"
TIER = tier_topic(GROUP, "30s")
PARTITIONS = tuple(TopicPartition(TIER, number) for number in range(2))
DESCRIBED = TopicDescription(
    TIER,
    None,
    False,
    tuple(PartitionDescription(number, 0, 0, (0,), (0,), ()) for number in (0, 1)),
)


class Admin:
    """A cluster with ten records in each partition of a tier, of which seven were moved."""

    def __init__(self) -> None:
        self.described: Any = DESCRIBED
        self.committed: Any = dict.fromkeys(PARTITIONS, CommittedOffset(7, None, ""))
        self.end: dict[TopicPartition, Any] = dict.fromkeys(PARTITIONS, ListedOffset(10, -1, 0))
        self.lag: Any = {TopicPartition("orders", 0): SharePartitionOffset(0, None, 5)}

    async def list_topics(self) -> list[str]:
        return [TIER, "orders"]

    async def describe_topics(self, names: list[str]) -> Any:
        return dict.fromkeys(names, self.described)

    async def list_offsets(self, specs: dict[TopicPartition, int]) -> Any:
        first = dict.fromkeys(specs, ListedOffset(0, -1, 0))
        return first if OffsetSpec.EARLIEST in specs.values() else {k: self.end[k] for k in specs}

    async def list_consumer_group_offsets(self, groups: Any) -> Any:
        assert list(groups) == [scheduler_group(GROUP)]
        return dict.fromkeys(groups, self.committed)

    async def list_share_group_offsets(self, groups: Any) -> Any:
        return dict.fromkeys(groups, self.lag)


def waiting(admin: Admin) -> dict[str, int]:
    backlog = GroupBacklog(admin, None, (GROUP,))  # type: ignore[arg-type]
    asyncio.run(backlog.ask())
    assert backlog.lag == {(GROUP, "orders"): 5}
    return dict(backlog.in_tiers)


def test_records_after_the_offsets_of_the_scheduler_wait() -> None:
    assert waiting(Admin()) == {GROUP: 6}


@pytest.mark.parametrize(
    "committed",
    [
        GroupIdNotFound("no such group"),
        {},
        dict.fromkeys(PARTITIONS, CommittedOffset(None, None, "")),
    ],
)
def test_all_records_wait_for_a_scheduler_that_has_committed_nothing(committed: object) -> None:
    admin = Admin()
    admin.committed = committed
    assert waiting(admin) == {GROUP: 20}


@pytest.mark.parametrize(
    "error", [GroupAuthorizationFailed("no right"), CoordinatorLoadInProgress("not yet")]
)
def test_error_of_the_group_makes_the_number_unknown(error: KafkaError) -> None:
    admin = Admin()
    admin.committed = error
    assert waiting(admin) == {}


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailed("no right"), UnknownTopicOrPartition("not here")]
)
def test_error_of_one_committed_offset_makes_the_number_unknown(error: KafkaError) -> None:
    admin = Admin()
    admin.committed[PARTITIONS[1]] = error
    assert waiting(admin) == {}


def test_error_of_one_end_offset_makes_the_number_unknown() -> None:
    admin = Admin()
    admin.end[PARTITIONS[1]] = NotLeaderOrFollower("not here")
    assert waiting(admin) == {}


def test_topic_that_cannot_be_described_makes_the_number_unknown() -> None:
    admin = Admin()
    admin.described = TopicAuthorizationFailed("no right")
    assert waiting(admin) == {}
    admin.described = UnknownTopicOrPartition("deleted meanwhile")
    assert waiting(admin) == {GROUP: 0}
