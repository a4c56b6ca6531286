"""The ACLs that the user of a worker needs, as docs/clusters.md lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.dead_letters.names import own_topic
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclResourceType
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.declarations.names import scheduler_group
from sharegroup.worker.declarations.route import Route

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
