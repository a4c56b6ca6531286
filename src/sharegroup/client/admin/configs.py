"""Describes and alters configs of topics, brokers and groups.

A broker answers only for its own configs, so requests about brokers go to those brokers.  Other
requests go to any broker that answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from sharegroup.client.admin.calls import ask_any, by_item, call, check, outcome
from sharegroup.client.admin.types import AlterConfig, ConfigEntry, ConfigResource
from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.protocol_enums import ConfigSource, ResourceType

ANY_NODE = -1
ALL_TYPES = 1
"""The first version of ListConfigResources that lists all types of resources."""
RESOURCES_PER_REQUEST = 100
"""Resources that are described together: sharegroup's brokers refuse more than 200."""

Result = TypeVar("Result")


@call
async def describe_configs(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    *,
    names: Collection[str] | None = None,
    documentation: bool = False,
    node_id: int | None = None,
    timeout: float | None = None,
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """Return the configs of these topics, brokers and groups, with the sources of their values.

    ``names`` are the configs to return; None means all.

    Sends a request to each broker among the resources, and one for every `RESOURCES_PER_REQUEST`
    of all other resources, topics and groups.  ``node_id`` is the broker to ask for those; None
    means any broker.
    """
    requested_resources = tuple(resources)
    results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
    # A broker that has just started is not in older metadata.
    if node_id is not None and node_id not in cluster.nodes:
        await cluster.retrying(lambda: cluster.refresh(()), subject="the brokers of the cluster")
    for part_node_id, part in (await _by_node(cluster, requested_resources, results)).items():
        node_to_ask = node_id if node_id is not None and part_node_id == ANY_NODE else part_node_id
        for first in range(0, len(part), RESOURCES_PER_REQUEST):
            asked = part[first : first + RESOURCES_PER_REQUEST]
            request = _description_request(asked, names, documentation)
            response = await _ask(cluster, node_to_ask, request, subject="describe_configs")
            results.update(_described(cluster, response, asked))
    return by_item(requested_resources, results, "resource")


@call
async def list_config_resources(
    cluster: Cluster, types: Iterable[ResourceType] = (), *, timeout: float | None = None
) -> list[ConfigResource]:
    """List the resources that have configs, of these types or of all, sorted.

    Groups are listed that have configs of their own, whether the group exists or not.

    Types that this client does not know are left out.
    """
    resource_types = tuple(types)
    request = ListConfigResourcesRequest(resource_types=tuple(i8(kind) for kind in resource_types))
    response = await ask_any(
        cluster,
        request,
        subject="list_config_resources",
        # Version 0 knows only subscriptions to client metrics, and takes no types.
        version_min=0 if resource_types == (ResourceType.CLIENT_METRICS,) else ALL_TYPES,
    )
    check(cluster, response, "DESCRIBE_CONFIGS", request="list_config_resources")
    known_types = frozenset(map(int, ResourceType))
    return sorted(
        (
            ConfigResource(ResourceType(resource.resource_type), resource.resource_name)
            for resource in response.config_resources
            if resource.resource_type in known_types
        ),
        key=lambda resource: (resource.type, resource.name),
    )


@call
async def incremental_alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Sequence[AlterConfig]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> dict[ConfigResource, KafkaError | None]:
    """Change single configs and keep the others; atomic for each resource.

    ``validate_only`` changes nothing.
    """
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
        response = await _ask(cluster, node_id, request, subject="incremental_alter_configs")
        asked = _by_key(part)
        for answer in response.responses:
            if (resource := asked.get((answer.resource_type, answer.resource_name))) is None:
                continue
            results[resource] = outcome(cluster, answer, "ALTER_CONFIGS", **_about(resource))
    return by_item(changes, results, "resource")


OF_ONE_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
"""The types of resources that only the broker that they name knows."""


async def _by_node(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    results: dict[ConfigResource, Result | KafkaError],
) -> dict[int, list[ConfigResource]]:
    """Return the resources by the node to ask; add errors of unknown brokers to ``results``."""
    parts: dict[int, list[ConfigResource]] = defaultdict(list)
    brokers: list[ConfigResource] = []
    for resource in resources:
        # The empty broker name means the defaults of all brokers; any broker answers for it.
        if resource.type in OF_ONE_BROKER and resource.name != "":
            brokers.append(resource)
        else:
            parts[ANY_NODE].append(resource)
    if brokers:
        await cluster.retrying(lambda: cluster.refresh(()), subject="the brokers of the cluster")
    nodes = {str(node_id): node_id for node_id in cluster.nodes}
    for resource in brokers:
        if resource.name in nodes:
            parts[nodes[resource.name]].append(resource)
        else:
            broker_names = ", ".join(sorted(nodes))
            text = f"broker {resource.name!r} is not in the cluster; its brokers are {broker_names}"
            results[resource] = InvalidRequest(text)
    return parts


async def _ask(cluster: Cluster, node_id: int, request: Any, *, subject: str) -> Any:
    if node_id == ANY_NODE:
        return await ask_any(cluster, request, subject=subject)

    async def attempt() -> Any:
        return await (await cluster.connection(node_id)).request(request)

    return await cluster.retrying(attempt, subject=f"{subject} of broker {node_id}")


def _description_request(
    resources: Sequence[ConfigResource], names: Collection[str] | None, documentation: bool
) -> DescribeConfigsRequest:
    keys = None if names is None else tuple(names)
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(resource.type),
                resource_name=resource.name,
                configuration_keys=keys,
            )
            for resource in resources
        ),
        include_documentation=documentation,
    )


def _described(
    cluster: Cluster, response: Any, resources: Sequence[ConfigResource]
) -> Iterator[tuple[ConfigResource, dict[str, ConfigEntry] | KafkaError]]:
    """Yield the configs or the error of each of these resources that is in a response."""
    asked = _by_key(resources)
    for answer in response.results:
        if (resource := asked.get((answer.resource_type, answer.resource_name))) is None:
            continue
        error = outcome(cluster, answer, "DESCRIBE_CONFIGS", **_about(resource))
        yield resource, error or {config.name: _entry(config) for config in answer.configs}


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        ConfigSource.of(config.config_source),
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )


def _by_key(resources: Iterable[ConfigResource]) -> dict[tuple[int, str], ConfigResource]:
    """Return the requested resources by what answers name them by."""
    return {(int(resource.type), resource.name): resource for resource in resources}


def _about(resource: ConfigResource) -> dict[str, str]:
    return {resource.type.name.lower(): resource.name}
