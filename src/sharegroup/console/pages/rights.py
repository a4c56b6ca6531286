"""Who may do what, read-only: ACLs, users of SCRAM, quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sharegroup.client.admin.types import AclBindingFilter
from sharegroup.console.pages.page import Forbidden, Page, Visit
from sharegroup.console.pages.tables import Column, TableView, table
from sharegroup.errors import KafkaError

ACLS = (
    Column("principal", "Who", "id"),
    Column("permission", "May", "text"),
    Column("operation", "Operation", "text"),
    Column("resource", "Resource", "text"),
    Column("name", "Name", "id"),
    Column("pattern", "Pattern", "text", narrow=False),
    Column("host", "From", "text", narrow=False),
)
USERS = (Column("user", "User", "id"), Column("mechanisms", "Mechanisms", "list"))
QUOTAS = (
    Column("entity", "Of", "text"),
    Column("key", "Limit", "text"),
    Column("value", "Value", "number"),
)

Rows = list[dict[str, Any]]


async def rights(visit: Visit) -> Page:
    """Return ACLs, users and quotas; what the console may not read says so."""
    if not visit.rights.may_see_cluster:
        raise Forbidden(
            "ACLs, users and quotas name what is hidden from you: they need a grant for all "
            "groups and topics, or a login with a user of the cluster"
        )
    parts: dict[str, tuple[Sequence[Column], Callable[[Visit], Awaitable[Rows]], str, str]] = {
        "acls": (ACLS, _acls, "principal", "There are no ACLs."),
        "users": (USERS, _users, "user", "There are no users of SCRAM."),
        "quotas": (QUOTAS, _quotas, "entity", "There are no quotas."),
    }
    shown: dict[str, TableView | str] = {}
    data: dict[str, Any] = {}
    for name, (columns, read, sort, empty) in parts.items():
        try:
            rows = await read(visit)
        except KafkaError as error:
            shown[name] = str(error)
            data[name] = {"error": str(error)}
        else:
            shown[name] = table(name, columns, rows, visit.query, sort=sort, empty=empty)
            data[name] = rows
    return Page("rights.html", "Access", {"shown": shown}, data)


async def _acls(visit: Visit) -> Rows:
    return [
        {
            "principal": acl.principal,
            "permission": acl.permission.name.lower(),
            "operation": acl.operation.name.lower().replace("_", " "),
            "resource": acl.resource_type.name.lower().replace("_", " "),
            "name": acl.name,
            "pattern": acl.pattern_type.name.lower(),
            "host": acl.host,
        }
        for acl in await visit.admin.describe_acls(AclBindingFilter())
    ]


async def _users(visit: Visit) -> Rows:
    return [
        {"user": user, "mechanisms": [info.mechanism.name.replace("_", "-") for info in found]}
        for user, found in (await visit.admin.describe_user_scram_credentials()).items()
        if not isinstance(found, KafkaError)
    ]


async def _quotas(visit: Visit) -> Rows:
    return [
        {"entity": str(entity), "key": key, "value": int(value) if value.is_integer() else value}
        for entity, limits in (await visit.admin.describe_client_quotas()).items()
        for key, value in limits.items()
    ]
