"""What a group may do is asked of the group, then of the broker, and else is Kafka's default."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.client import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.worker.parts import ShareGroupLimits
from sharegroup.worker.transport.kafka import limits_of


class Admin:
    """Knows these configs, and counts what it is asked."""

    def __init__(self, group: dict[str, str] | KafkaError, broker: dict[str, str]) -> None:
        self.configs = {ResourceType.GROUP: group, ResourceType.BROKER: broker}
        self.asked: list[ConfigResource] = []

    async def describe_configs(self, resources: list[ConfigResource]) -> dict[Any, Any]:
        (resource,) = resources
        self.asked.append(resource)
        found = self.configs[resource.type]
        if isinstance(found, KafkaError):
            return {resource: found}
        entries = {
            name: ConfigEntry(name, value, ConfigSource.DEFAULT, False, False)
            for name, value in found.items()
        }
        return {resource: entries}

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(node_id=7)])


def limits(admin: Admin) -> ShareGroupLimits:
    anything: Any = admin
    return asyncio.run(limits_of(anything, "billing"))


def test_limits_are_the_settings_of_the_group() -> None:
    admin = Admin(
        {
            "share.delivery.count.limit": "9",
            "share.partition.max.record.locks": "300",
            "share.renew.acknowledge.enable": "false",
        },
        {},
    )
    assert limits(admin) == ShareGroupLimits(deliveries=9, locks=300, renewal=False)
    assert admin.asked == [ConfigResource(ResourceType.GROUP, "billing")]


def test_limits_missing_in_the_group_are_those_of_the_broker() -> None:
    admin = Admin(
        {"share.record.lock.duration.ms": "30000"},
        {"group.share.delivery.count.limit": "7", "group.share.partition.max.record.locks": "100"},
    )
    assert limits(admin) == ShareGroupLimits(deliveries=7, locks=100, renewal=True)
    assert admin.asked[1] == ConfigResource(ResourceType.BROKER, "7")


def test_unknown_limits_are_kafkas_defaults() -> None:
    refused = UnsupportedVersion("group configs")
    assert limits(Admin(refused, {})) == ShareGroupLimits(deliveries=5, locks=2000, renewal=True)


@pytest.mark.parametrize("text", ["", "many", "0", "-1", "1e3", "9" * 5_000])
def test_limit_that_is_no_count_is_unknown(text: str) -> None:
    """What another broker answers must not end a worker that runs."""
    admin = Admin(
        {"share.delivery.count.limit": text, "share.partition.max.record.locks": text}, {}
    )
    assert limits(admin) == ShareGroupLimits()


def test_limits_are_kafkas_defaults_while_the_cluster_names_no_broker() -> None:
    class Starting(Admin):
        async def describe_cluster(self) -> Any:
            return SimpleNamespace(nodes=[])

    assert limits(Starting({}, {})) == ShareGroupLimits()
