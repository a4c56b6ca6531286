"""The permissions for the configurations of topics, groups and the cluster.

The configurations of brokers, their loggers and client metrics belong to the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.checks import Check
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.access.rights import Rights
from sharegroup.errors import AuthorizationException
from sharegroup.protocol_enums import CLUSTER_NAME, ResourceType

ChecksByType = Mapping[int, Check]
"""The check for each type of resource that has configurations."""

DESCRIBE_CONFIGS: Final[ChecksByType] = MappingProxyType(
    {
        ResourceType.TOPIC: required.DESCRIBE_CONFIGS_OF_TOPICS,
        ResourceType.GROUP: required.DESCRIBE_CONFIGS_OF_GROUPS,
        ResourceType.BROKER: required.DESCRIBE_CONFIGS_OF_CLUSTER,
        ResourceType.BROKER_LOGGER: required.DESCRIBE_CONFIGS_OF_CLUSTER,
        ResourceType.CLIENT_METRICS: required.DESCRIBE_CONFIGS_OF_CLUSTER,
    }
)
ALTER_CONFIGS: Final[ChecksByType] = MappingProxyType(
    {
        ResourceType.TOPIC: required.ALTER_CONFIGS_OF_TOPICS,
        ResourceType.GROUP: required.ALTER_CONFIGS_OF_GROUPS,
        ResourceType.BROKER: required.ALTER_CONFIGS_OF_CLUSTER,
        ResourceType.BROKER_LOGGER: required.ALTER_CONFIGS_OF_CLUSTER,
        ResourceType.CLIENT_METRICS: required.ALTER_CONFIGS_OF_CLUSTER,
    }
)


class ConfigPermissions:
    """The answers for the resources of one request."""

    __slots__ = ("_of_cluster", "_permissions")

    def __init__(self, rights: Rights, checks: ChecksByType) -> None:
        self._permissions = {kind: Permission(rights, check) for kind, check in checks.items()}
        self._of_cluster = (
            ResourceType.BROKER,
            ResourceType.BROKER_LOGGER,
            ResourceType.CLIENT_METRICS,
        )

    def denial(self, resource_type: int, name: str) -> AuthorizationException | None:
        """Return the error if the principal may not use the configuration of a resource.

        A type without configurations has another error, which the handler finds.
        """
        permission = self._permissions.get(int(resource_type))
        if permission is None:
            return None
        return permission.denial(CLUSTER_NAME if resource_type in self._of_cluster else name)
