"""What an AdminClient makes of answers, on a broker in the same process."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from sharegroup.errors import InvalidRequest, TopicAlreadyExists
from sharegroup.testing import broker

SECONDS_MAX = 10
"""Far below the api timeout of a minute: whoever tries again until then has failed."""


def play(scenario: Callable[[AdminClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with broker() as running, AdminClient(bootstrap_servers=running.bootstrap) as admin:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(admin)

    asyncio.run(run())


def test_configs_of_a_broker_that_is_not_there_fail_at_once_and_hide_nothing() -> None:
    there, gone, nonsense = (ConfigResource(ResourceType.BROKER, name) for name in ("1", "7", "x"))

    async def scenario(admin: AdminClient) -> None:
        described = await admin.describe_configs([gone, there, nonsense])
        assert isinstance(described[there], dict)
        assert {resource: str(described[resource]) for resource in (gone, nonsense)} == {
            gone: "broker '7' is not in the cluster; its brokers are 1",
            nonsense: "broker 'x' is not in the cluster; its brokers are 1",
        }
        changed = await admin.incremental_alter_configs(
            {gone: [AlterConfig("log.segment.bytes", "1048576")]}
        )
        assert [type(error) for error in changed.values()] == [InvalidRequest]

    play(scenario)


def test_a_topic_that_exists_is_named_once() -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic("orders", 1)])
        error = (await admin.create_topics([NewTopic("orders", 1)]))["orders"]
        assert type(error) is TopicAlreadyExists
        assert str(error) == "topic 'orders' exists already"

    play(scenario)
