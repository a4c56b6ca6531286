"""What was made is waited for until every broker has heard of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.client.admin.types import (
    ClusterDescription,
    ConfigEntry,
    NodeDescription,
    PartitionDescription,
    TopicDescription,
)
from sharegroup.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from sharegroup.protocol_enums import ConfigSource, ResourceType
from sharegroup.worker.infrastructure.asking import visible
from sharegroup.worker.infrastructure.changes import Change, ChangeKind

SETTING = "share.auto.offset.reset"
MADE = [
    Change(ChangeKind.MISSING, "topic", "orders"),
    Change(ChangeKind.MISSING, "group", "billing", SETTING, "latest", "earliest"),
]


class Lagging:
    """An admin client of a cluster of three brokers, of which one hears late of what was made."""

    def __init__(self, *, late_answers: int, closed: bool = False) -> None:
        self.late_answers = late_answers
        self.closed = closed
        self.asked: list[int | None] = []

    async def describe_cluster(self) -> ClusterDescription:
        nodes = tuple(NodeDescription(node_id, "host", 9092, None) for node_id in (1, 2, 3))
        return ClusterDescription("id", 1, nodes)

    async def describe_topics(self, names: Any) -> dict[str, TopicDescription]:
        partitions = (PartitionDescription(0, 1, 0, (1,), (1,), ()),)
        return {name: TopicDescription(name, None, False, partitions) for name in names}

    async def describe_configs(self, resources: Any, *, node_id: int | None = None) -> Any:
        self.asked.append(node_id)
        lags = node_id == 3 and self.asked.count(3) <= self.late_answers
        answers: dict[Any, Any] = {}
        for resource in resources:
            value = "latest" if lags else "earliest"
            answers[resource] = {
                SETTING: ConfigEntry(SETTING, value, ConfigSource.GROUP, False, False)
            }
            if resource.type is ResourceType.TOPIC and lags:
                answers[resource] = UnknownTopicOrPartition("not heard of")
            if resource.type is ResourceType.TOPIC and self.closed:
                answers[resource] = TopicAuthorizationFailed("no DESCRIBE_CONFIGS")
        return answers


def test_every_broker_is_polled_until_it_knows_the_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin: Any = Lagging(late_answers=3)
    asyncio.run(visible(admin, MADE, step_seconds=0.0))
    assert [admin.asked.count(node_id) for node_id in (1, 2, 3)] == [1, 1, 4]
    assert caplog.text == ""


def test_broker_that_does_not_learn_of_the_topic_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin: Any = Lagging(late_answers=1_000_000)
    asyncio.run(visible(admin, MADE, lag_seconds_max=0.05))
    assert "event=infrastructure.lagging brokers=3 " in caplog.text


def test_topic_without_permission_to_describe_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin: Any = Lagging(late_answers=0, closed=True)
    asyncio.run(visible(admin, MADE))
    assert caplog.text == ""
