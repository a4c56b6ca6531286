"""Configs of topics, brokers and groups.

A broker answers for its own configs only, so requests about brokers go to those brokers;
everything else goes to whichever answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from sharegroup.client.admin_topics import ask_any, outcome
from sharegroup.client.admin_types import (
    AlterConfig,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from sharegroup.client.cluster import Cluster
from sharegroup.errors import KafkaError

ANY_NODE = -1


async def describe_configs(
    cluster: Cluster, resources: Iterable[ConfigResource], *, documentation: bool
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for node_id, part in _by_node(resources).items():
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=i8(one.type), resource_name=one.name, configuration_keys=None
                )
                for one in part
            ),
            include_documentation=documentation,
        )
        response = await _ask(cluster, node_id, request, what="describe_configs")
        for one in response.results:
            resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
            results[resource] = outcome(one.error_code, one.error_message, _name(resource)) or {
                config.name: _entry(config) for config in one.configs
            }
    return results


async def incremental_alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Sequence[AlterConfig]],
    *,
    validate_only: bool,
) -> dict[ConfigResource, KafkaError | None]:
    results: dict[ConfigResource, KafkaError | None] = {}
    for node_id, part in _by_node(changes).items():
        request = IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(
                    resource_type=i8(resource.type),
                    resource_name=resource.name,
                    configs=tuple(
                        AlterableConfig(
                            name=change.name,
                            config_operation=i8(change.operation),
                            value=change.value,
                        )
                        for change in changes[resource]
                    ),
                )
                for resource in part
            ),
            validate_only=validate_only,
        )
        response = await _ask(cluster, node_id, request, what="incremental_alter_configs")
        for one in response.responses:
            resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
            results[resource] = outcome(one.error_code, one.error_message, _name(resource))
    return results


def _by_node(resources: Iterable[ConfigResource]) -> dict[int, list[ConfigResource]]:
    parts: dict[int, list[ConfigResource]] = defaultdict(list)
    for one in resources:
        # The empty broker name means the defaults of all brokers; any of them takes it.
        own = one.type is ResourceType.BROKER and one.name != ""
        parts[int(one.name) if own else ANY_NODE].append(one)
    return parts


async def _ask(cluster: Cluster, node_id: int, request: Any, *, what: str) -> Any:
    if node_id == ANY_NODE:
        return await ask_any(cluster, request, what=what)

    async def attempt() -> Any:
        if node_id not in cluster.nodes:
            await cluster.refresh(())
        return await (await cluster.connection(node_id)).request(request)

    return await cluster.retrying(attempt, what=f"{what} of broker {node_id}")


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    known = int(config.config_source) in ConfigSource.__members__.values()
    return ConfigEntry(
        config.name,
        config.value,
        ConfigSource(config.config_source) if known else ConfigSource.UNKNOWN,
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )


def _name(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower()} {resource.name!r}"
