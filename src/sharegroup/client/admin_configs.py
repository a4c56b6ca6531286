"""Configs of topics, brokers and groups.

A broker answers for its own configs only, so requests about brokers go to those brokers;
everything else goes to whichever answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from sharegroup.client.admin_topics import ask_any, by_item, outcome
from sharegroup.client.admin_types import (
    AlterConfig,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from sharegroup.client.cluster import Cluster
from sharegroup.errors import InvalidRequest, KafkaError

ANY_NODE = -1

Result = TypeVar("Result")


async def describe_configs(
    cluster: Cluster, resources: Iterable[ConfigResource], *, documentation: bool
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    wanted = tuple(resources)
    results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    for node_id, part in (await _by_node(cluster, wanted, results)).items():
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
            if (resource := _asked(part, one)) is None:
                continue
            results[resource] = outcome(one.error_code, one.error_message, **_about(resource)) or {
                config.name: _entry(config) for config in one.configs
            }
    return by_item(wanted, results, "resource")


async def incremental_alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Sequence[AlterConfig]],
    *,
    validate_only: bool,
) -> dict[ConfigResource, KafkaError | None]:
    results: dict[ConfigResource, KafkaError | None] = {}
    for node_id, part in (await _by_node(cluster, changes, results)).items():
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
            if (resource := _asked(part, one)) is None:
                continue
            results[resource] = outcome(one.error_code, one.error_message, **_about(resource))
    return by_item(changes, results, "resource")


async def _by_node(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    results: dict[ConfigResource, Result | KafkaError],
) -> dict[int, list[ConfigResource]]:
    """Which node to ask about what; a broker that is not there gets its error in ``results``."""
    parts: dict[int, list[ConfigResource]] = defaultdict(list)
    brokers: list[ConfigResource] = []
    for one in resources:
        # The empty broker name means the defaults of all brokers; any of them takes it.
        if one.type is ResourceType.BROKER and one.name != "":
            brokers.append(one)
        else:
            parts[ANY_NODE].append(one)
    if brokers:
        await cluster.retrying(lambda: cluster.refresh(()), what="the brokers of the cluster")
    nodes = {str(node_id): node_id for node_id in cluster.nodes}
    for one in brokers:
        if one.name in nodes:
            parts[nodes[one.name]].append(one)
        else:
            there_are = ", ".join(sorted(nodes))
            text = f"broker {one.name!r} is not in the cluster; its brokers are {there_are}"
            results[one] = InvalidRequest(text)
    return parts


async def _ask(cluster: Cluster, node_id: int, request: Any, *, what: str) -> Any:
    if node_id == ANY_NODE:
        return await ask_any(cluster, request, what=what)

    async def attempt() -> Any:
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


def _asked(part: Iterable[ConfigResource], answer: Any) -> ConfigResource | None:
    """Which of the resources asked about an answer speaks of; None: of none."""
    about = (answer.resource_type, answer.resource_name)
    return next((one for one in part if (int(one.type), one.name) == about), None)


def _about(resource: ConfigResource) -> dict[str, str]:
    return {resource.type.name.lower(): resource.name}
