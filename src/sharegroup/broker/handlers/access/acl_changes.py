"""Creates and deletes ACLs: checks what a request asks for, and changes the catalog durably.

The checks and their order are those of Kafka's ``AclApis`` and ``AclControlManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import IntEnum
from ipaddress import ip_network
from itertools import chain
from typing import Protocol, TypeVar

from sharegroup.broker.access.authorizer import Authorizer
from sharegroup.broker.cluster.acl_entries import check_texts
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.handlers.parts import HasAuthorizer, HasConfig, HasSlices, HasTopics
from sharegroup.core.security.acls import Acl, AclFilter, find, may_match
from sharegroup.errors import (
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    SecurityDisabled,
    UnsupportedVersion,
)
from sharegroup.protocol_enums import (
    CLUSTER_NAME,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)

log = logging.getLogger(__name__)

Code = TypeVar("Code", bound=IntEnum)

NETWORKS_SINCE = 32
"""The ``metadata.version`` since which the host of an ACL may be a network."""

FILTERS_MAX = 1_000
"""Number of filters of one DeleteAcls request; each may have to look at all ACLs."""

DELETED_MAX = 10_000
"""Number of ACLs that one DeleteAcls request may match, as in Kafka."""


class AclChangesParts(HasAuthorizer, HasConfig, HasSlices, HasTopics, Protocol):
    """What these requests touch of the broker."""


def authorizer(parts: AclChangesParts) -> Authorizer:
    """Return the authorizer; raise SecurityDisabled if there is none."""
    if parts.authorizer is None:
        raise SecurityDisabled(
            "no authorizer is configured: every client may do everything; "
            "set authorizer.class.name to use ACLs"
        )
    return parts.authorizer


async def create_acls(
    parts: AclChangesParts, wanted: Sequence[Acl | KafkaError]
) -> list[KafkaError | None]:
    """Create ACLs; return for each the error, or None if it is there now.

    The elements that are errors already are returned as they are.
    """
    entries = parts.topics.catalog.acls
    room = parts.config.server.acls_max
    results: list[KafkaError | None] = []

    async def decide() -> Iterable[Event]:
        new: dict[Acl, None] = {}
        for acl in wanted:
            await parts.slices.turn()
            error = acl if isinstance(acl, KafkaError) else None
            if not isinstance(acl, KafkaError) and acl not in entries.acls and acl not in new:
                # An ACL that exists already needs no room, so a request may be repeated at the
                # limit.
                if len(entries.acls) + len(new) < room:
                    new[acl] = None
                else:
                    error = PolicyViolation(
                        f"there are {room} ACLs, the maximum of sharegroup.acls.max; delete some, "
                        "or use prefixed patterns"
                    )
            results.append(error)
        for host in {acl.host for acl in new if not may_match(acl.host)}:
            log.warning(
                "event=acl_matches_nobody host=%r action='delete the ACL and create it with an IP "
                "address, a network such as 10.0.0.0/8, or *'",
                host,
            )
        return entries.created(new)

    await parts.topics.alter_acls(decide)
    return results


async def delete_acls(
    parts: AclChangesParts, filters: Sequence[AclFilter | KafkaError]
) -> list[KafkaError | list[Acl]]:
    """Delete the ACLs that match a filter; return for each filter its error or its matches."""
    if len(filters) > FILTERS_MAX:
        raise InvalidRequest(
            f"a request may have {FILTERS_MAX} filters of ACLs, not {len(filters)}; send several"
        )
    entries = parts.topics.catalog.acls
    results: list[KafkaError | list[Acl]] = []

    async def decide() -> Iterable[Event]:
        matched = 0
        for filter_ in filters:
            if isinstance(filter_, KafkaError):
                results.append(filter_)
                continue
            matches = await parts.slices.finish(find(entries.acls, filter_))
            matched += len(matches)
            # Raised before any ACL is deleted, so the request fails as a whole.
            if matched > DELETED_MAX:
                raise InvalidRequest(
                    f"the filters match more than {DELETED_MAX} ACLs; nothing was deleted, send "
                    "several requests with narrower filters"
                )
            results.append(matches)
        return entries.deleted(
            dict.fromkeys(chain(*(matches for matches in results if isinstance(matches, list))))
        )

    await parts.topics.alter_acls(decide)
    return results


def code_of(codes: type[Code], number: int, field: str) -> Code:
    """Return the member of an enumeration; raise InvalidRequest for a number that it lacks."""
    try:
        return codes(number)
    except ValueError:
        raise InvalidRequest(f"Invalid {field} UNKNOWN: there is no code {number}") from None


def check_new(acl: Acl, *, has_networks: bool) -> None:
    """Raise the error of an ACL that may not be created.

    ``has_networks`` says whether the cluster's ``metadata.version`` permits networks as hosts.
    """
    if acl.resource_type == AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"the only name of the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise InvalidRequest("Invalid empty resource name")
    if acl.resource_type == AclResourceType.ANY:
        raise InvalidRequest("Invalid resourceType ANY: an ACL is about one type of resource")
    if acl.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise InvalidRequest(
            f"Invalid patternType {acl.pattern_type.name}: use LITERAL or PREFIXED"
        )
    if acl.operation == AclOperation.ANY:
        raise InvalidRequest("Invalid operation ANY: use ALL for every operation")
    if acl.permission == AclPermission.ANY:
        raise InvalidRequest("Invalid permissionType ANY: use ALLOW or DENY")
    if ":" not in acl.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{acl.principal[:200]}`: it has no colon between type "
            "and name, as in User:alice"
        )
    _check_host(acl.host, has_networks=has_networks)
    check_texts(acl)


def _check_host(host: str, *, has_networks: bool) -> None:
    if not host:
        raise InvalidRequest("the host of an ACL is empty; use * for all hosts")
    if "/" not in host:
        return
    if not has_networks:
        raise UnsupportedVersion(
            f"the host {host[:200]!r} is a network, which needs metadata.version {NETWORKS_SINCE} "
            "or newer; upgrade the feature first"
        )
    if not host.partition("/")[2].isdecimal():  # Python also takes masks, such as /0.0.0.255.
        raise InvalidRequest(
            f"Invalid CIDR notation {host[:200]!r}: expected a number of bits after the slash"
        )
    try:
        ip_network(host, strict=False)
    except ValueError as error:
        raise InvalidRequest(f"Invalid CIDR notation {host[:200]!r}: {error}") from None
