"""The ACLs that the user of a worker needs, as docs/clusters.md lists them.

Those that a cluster lacks are changes.  ACLs that deny are not considered: they may be meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import AclBinding, AclBindingFilter
from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import AuthorizationException, SecurityDisabled
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.declarations.names import scheduler_group
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.infrastructure.changes import Change, ChangeKind

LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP


class RequiredAcl(NamedTuple):
    """An operation that the user of a worker must be allowed."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    pattern: AclPatternType
    why: str


def required_acls(routes: Iterable[Route]) -> list[RequiredAcl]:
    """Return the ACLs for workers that prepare nothing, each once, in the order of the routes.

    The retry topics have one prefix, so tiers may change without new ACLs.
    """
    return list(dict.fromkeys(acl for route in routes for acl in _of_route(route)))


async def acl_changes(routes: Iterable[Route], admin: AdminClient, principal: str) -> list[Change]:
    """Return a change for each ACL that the user of the workers needs and does not have.

    They are unknown if the cluster has no ACLs, or if the user of ``admin`` may not see them.
    """
    required = required_acls(routes)
    try:
        existing = await admin.describe_acls(AclBindingFilter(permission=AclPermission.ALLOW))
    except (AuthorizationException, SecurityDisabled) as error:
        return [_change(ChangeKind.UNKNOWN, acl, principal, str(error)) for acl in required]
    theirs = [acl for acl in existing if acl.principal in (principal, "User:*") and acl.host == "*"]
    return [
        _change(ChangeKind.MISSING, acl, principal, acl.why)
        for acl in required
        if not any(_covers(found, acl) for found in theirs)
    ]


def _covers(found: AclBinding, wanted: RequiredAcl) -> bool:
    """Return whether an ACL allows all that another one would."""
    if found.resource_type is not wanted.resource_type:
        return False
    if found.operation not in (wanted.operation, AclOperation.ALL):
        return False
    if found.pattern_type is PREFIXED:
        return wanted.name.startswith(found.name)
    return found.name == "*" or (found.name == wanted.name and wanted.pattern is LITERAL)


def _change(kind: ChangeKind, acl: RequiredAcl, principal: str, why: str) -> Change:
    binding = AclBinding(
        acl.resource_type, acl.name, principal, acl.operation, pattern_type=acl.pattern
    )
    setting = f"{acl.operation.name} {acl.resource_type.name} {acl.pattern.name}"
    return Change(kind, "acl", acl.name, setting=setting, wanted=principal, why=why, acl=binding)


def _of_route(route: Route) -> Iterator[RequiredAcl]:
    for topic in route.topics:
        yield RequiredAcl(AclOperation.READ, TOPIC, topic, LITERAL, "records")
    yield RequiredAcl(AclOperation.READ, GROUP, route.group, LITERAL, "to be a member")
    if route.retry is not None:
        retries = own_topic(route.group)
        for operation in (AclOperation.READ, AclOperation.WRITE):
            yield RequiredAcl(operation, TOPIC, retries, LITERAL, "due records")
            yield RequiredAcl(operation, TOPIC, f"{retries}.", PREFIXED, "waiting records")
        scheduler = scheduler_group(route.group)
        yield RequiredAcl(AclOperation.READ, GROUP, scheduler, LITERAL, "to move due records")
    letters = letters_topic(route)
    if letters is not None:
        yield RequiredAcl(AclOperation.WRITE, TOPIC, letters, LITERAL, "dead letters")
