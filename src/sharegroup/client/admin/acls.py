"""Requests about access control lists (ACLs): which user may do what from where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.static.primitive import i8

from sharegroup.client.admin.calls import ask_any, call, check, outcome
from sharegroup.client.admin.types import AclBinding, AclBindingFilter
from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import NONE, KafkaError, UnknownServerError, UnsupportedVersion
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType

Code = TypeVar("Code", bound=IntEnum)
Item = TypeVar("Item")


@call
async def create_acls(
    cluster: Cluster, bindings: Iterable[AclBinding], *, timeout: float | None = None
) -> dict[AclBinding, KafkaError | None]:
    """Create ACLs; one that exists already is no error."""
    distinct_bindings = tuple(dict.fromkeys(bindings))
    if not distinct_bindings:
        return {}
    answer = await ask_any(
        cluster,
        CreateAclsRequest(creations=tuple(map(_creation, distinct_bindings))),
        subject="create_acls",
    )
    return {
        binding: outcome(cluster, result, "ALTER", acl=str(binding))
        for binding, result in _paired(distinct_bindings, answer.results)
    }


@call
async def describe_acls(
    cluster: Cluster, filter_: AclBindingFilter | None = None, *, timeout: float | None = None
) -> tuple[AclBinding, ...]:
    """Return the ACLs that match a filter, or all, in the order of resources and users."""
    answer = await ask_any(
        cluster,
        DescribeAclsRequest(**_fields_of(filter_ or AclBindingFilter())),
        subject="describe_acls",
    )
    check(cluster, answer, "DESCRIBE")
    return tuple(
        sorted(_binding(resource, acl) for resource in answer.resources for acl in resource.acls)
    )


@call
async def delete_acls(
    cluster: Cluster, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
) -> dict[AclBindingFilter, tuple[AclBinding, ...] | KafkaError]:
    """Delete the ACLs that match filters, and return what each filter deleted."""
    distinct_filters = tuple(dict.fromkeys(filters))
    if not distinct_filters:
        return {}
    request = DeleteAclsRequest(
        filters=tuple(DeleteAclsFilter(**_fields_of(filter_)) for filter_ in distinct_filters)
    )
    answer = await ask_any(cluster, request, subject="delete_acls")
    results: dict[AclBindingFilter, tuple[AclBinding, ...] | KafkaError] = {}
    for filter_, result in _paired(distinct_filters, answer.filter_results):
        failed = [result, *(acl for acl in result.matching_acls if acl.error_code != NONE)]
        errors = (outcome(cluster, entry, "ALTER", filter=str(filter_)) for entry in failed)
        error = next((failure for failure in errors if failure is not None), None)
        results[filter_] = error or tuple(
            sorted(_binding(acl, acl) for acl in result.matching_acls)
        )
    return results


def _paired(items: Sequence[Item], results: Sequence[Any]) -> Iterable[tuple[Item, Any]]:
    """Pair the items with their results, which have the order of the request and no names."""
    # Results name no binding and no filter; their order alone tells what they are about.
    if len(results) != len(items):
        raise UnknownServerError(
            f"expected {len(items)} results of ACLs in the broker's response, found "
            f"{len(results)}: any of them may be the missing one, so list the ACLs"
        )
    return zip(items, results, strict=True)


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=i8(binding.resource_type),
        resource_name=binding.name,
        resource_pattern_type=i8(binding.pattern_type),
        principal=binding.principal,
        host=binding.host,
        operation=i8(binding.operation),
        permission_type=i8(binding.permission),
    )


def _fields_of(filter_: AclBindingFilter) -> dict[str, Any]:
    """Return the fields of a filter, as the requests name them."""
    return {
        "resource_type_filter": i8(filter_.resource_type),
        "resource_name_filter": filter_.name,
        "pattern_type_filter": i8(filter_.pattern_type),
        "principal_filter": filter_.principal,
        "host_filter": filter_.host,
        "operation": i8(filter_.operation),
        "permission_type": i8(filter_.permission),
    }


def _binding(resource: Any, entry: Any) -> AclBinding:
    """Return the ACL of a resource pattern and an entry of an answer."""
    return AclBinding(
        _known(AclResourceType, resource.resource_type),
        resource.resource_name,
        entry.principal,
        _known(AclOperation, entry.operation),
        permission=_known(AclPermission, entry.permission_type),
        pattern_type=_known(AclPatternType, resource.pattern_type),
        host=entry.host,
    )


def _known(codes: type[Code], number: int) -> Code:
    try:
        return codes(number)
    except ValueError:
        raise UnsupportedVersion(
            f"the broker has an ACL with {codes.__name__} {number}, which this version of "
            "sharegroup does not know; use a newer one"
        ) from None
