"""Describes and alters client quotas: limits of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.static.primitive import f64, i8

from sharegroup.client.admin.calls import ask_any, by_item, call, check, outcome
from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import KafkaError

# Quota entities: the users, client ids and addresses that quotas are for.


class QuotaName(Enum):
    """What stands for a name in a quota entity, or in a filter for entities."""

    DEFAULT = "default"
    """All names that have no quota of their own."""
    ANY = "any"
    """In a filter: every name, and the default."""


Name: TypeAlias = str | QuotaName | None
"""The name of a user, client id or address; None: the entity has none."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota is for.

    For example, ``QuotaEntity(user="alice", client_id=QuotaName.DEFAULT)`` are the clients of alice
    whose client ids have no quota of their own.  An address cannot be combined with other names.
    """

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def named(self) -> tuple[tuple[str, str | QuotaName], ...]:
        """Return the kinds of names that the entity has, with their names."""
        names = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return tuple((kind, name) for kind, name in names if name is not None)

    def __str__(self) -> str:
        names = (
            f"{kind}={'<default>' if name is QuotaName.DEFAULT else name}"
            for kind, name in self.named()
        )
        return ", ".join(names)


EXACT, DEFAULT_NAME, ANY_NAME = range(3)
"""The codes of the ways to match a name in the protocol."""


@call
async def alter_client_quotas(
    cluster: Cluster,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> dict[QuotaEntity, KafkaError | None]:
    """Set limits of users, client ids and addresses by key; None removes a limit.

    The keys are those of Kafka, such as ``producer_byte_rate``.
    """
    for entity in changes:
        if any(name is QuotaName.ANY for _, name in entity.named()):
            raise ValueError(f"{entity}: QuotaName.ANY is for filters; use a name or DEFAULT")
    request = AlterClientQuotasRequest(
        entries=tuple(
            EntryData(
                entity=tuple(
                    EntityData(entity_type=kind, entity_name=_wire_name(name))
                    for kind, name in entity.named()
                ),
                ops=tuple(
                    OpData(key=key, value=f64(float(limit or 0)), remove=limit is None)
                    for key, limit in limits.items()
                ),
            )
            for entity, limits in changes.items()
        ),
        validate_only=validate_only,
    )
    response = await ask_any(cluster, request, subject="alter_client_quotas")
    answered: dict[QuotaEntity, KafkaError | None] = {}
    for entry in response.entries:
        entity = _entity((named.entity_type, named.entity_name) for named in entry.entity)
        answered[entity] = outcome(cluster, entry, "ALTER_CONFIGS", quota=str(entity))
    return by_item(changes, answered, "quota entity")


@call
async def describe_client_quotas(
    cluster: Cluster,
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
    strict: bool = False,
    timeout: float | None = None,
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the limits of the entities that have these names, or of all.

    ``QuotaName.DEFAULT`` is the default and ``QuotaName.ANY`` every name.  With ``strict``,
    entities with further names are left out.
    """
    entity = QuotaEntity(user, client_id, ip)
    request = DescribeClientQuotasRequest(
        components=tuple(_component(kind, name) for kind, name in entity.named()), strict=strict
    )
    response = await ask_any(cluster, request, subject="describe_client_quotas")
    check(cluster, response, "DESCRIBE_CONFIGS", request="describe_client_quotas")
    return {
        _entity((named.entity_type, named.entity_name) for named in entry.entity): {
            value.key: float(value.value) for value in entry.values
        }
        for entry in response.entries or ()
    }


def _component(kind: str, name: str | QuotaName) -> ComponentData:
    match name:
        case QuotaName.ANY:
            return ComponentData(entity_type=kind, match_type=i8(ANY_NAME), match=None)
        case QuotaName.DEFAULT:
            return ComponentData(entity_type=kind, match_type=i8(DEFAULT_NAME), match=None)
        case _:
            return ComponentData(entity_type=kind, match_type=i8(EXACT), match=name)


def _wire_name(name: str | QuotaName) -> str | None:
    return None if isinstance(name, QuotaName) else name


def _entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of an answer; a broker may know kinds of names that we do not."""
    names: dict[str, Name] = {
        kind: QuotaName.DEFAULT if name is None else name for kind, name in named
    }
    return QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))
