"""Requests about ACLs (29, 30, 31): describe, create and delete them."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from sharegroup.broker.access import checks as required
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.access import acl_changes
from sharegroup.broker.handlers.access.acl_changes import AclChangesParts
from sharegroup.broker.handlers.parts import HasFeatures
from sharegroup.core.security.acls import Acl, AclFilter, ResourcePattern, find
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import Steps, of_each


class AclsParts(AclChangesParts, HasFeatures, Protocol):
    """What these requests touch of the broker."""


def describe_acls(
    parts: AclsParts, context: RequestContext, request: DescribeAclsRequest
) -> Steps[DescribeAclsResponse]:
    """DescribeAcls (29): lists the entries of access control lists that match a filter."""
    acl_changes.authorizer(parts)
    return _describe(parts.topics, _filter(request))


def _describe(topics: Topics, filter_: AclFilter) -> Steps[DescribeAclsResponse]:
    matches = yield from find(topics.catalog.acls.acls, filter_)
    resources = []
    # `find` goes through the ACLs pattern by pattern, so those of one resource are adjacent.
    for pattern, acls in groupby(matches, key=lambda acl: acl.pattern):
        resources.append(_resource(pattern, (yield from of_each(_description, acls))))
        yield
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        resources=tuple(resources),
    )


def _filter(named: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    code_of = acl_changes.code_of
    return AclFilter(
        code_of(AclResourceType, named.resource_type_filter, "resourceType"),
        code_of(AclPatternType, named.pattern_type_filter, "patternType"),
        named.resource_name_filter,
        named.principal_filter,
        named.host_filter,
        code_of(AclOperation, named.operation, "operation"),
        code_of(AclPermission, named.permission_type, "permissionType"),
    )


def _resource(pattern: ResourcePattern, acls: tuple[AclDescription, ...]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=i8(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=i8(pattern.pattern_type),
        acls=acls,
    )


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=i8(acl.operation),
        permission_type=i8(acl.permission),
    )


def create_acls(
    parts: AclsParts, context: RequestContext, request: CreateAclsRequest
) -> Later[CreateAclsResponse]:
    """CreateAcls (30): creates entries of access control lists, each for itself."""
    acl_changes.authorizer(parts)
    return Later(_create(parts, request))


async def _create(parts: AclsParts, request: CreateAclsRequest) -> CreateAclsResponse:
    version = parts.features.finalized["metadata.version"]
    has_networks = version >= acl_changes.NETWORKS_SINCE
    wanted = []
    for creation in request.creations:
        await parts.slices.turn()
        wanted.append(_checked_creation(creation, has_networks=has_networks))
    errors = await acl_changes.create_acls(parts, wanted)
    results = await parts.slices.finish(of_each(_result, errors))
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=results)


def _checked_creation(creation: AclCreation, *, has_networks: bool) -> Acl | KafkaError:
    """Return the ACL to be created, or the reason why it may not be."""
    code_of = acl_changes.code_of
    try:
        acl = Acl(
            code_of(AclResourceType, creation.resource_type, "resourceType"),
            code_of(AclPatternType, creation.resource_pattern_type, "patternType"),
            creation.resource_name,
            creation.principal,
            creation.host,
            code_of(AclOperation, creation.operation, "operation"),
            code_of(AclPermission, creation.permission_type, "permissionType"),
        )
        acl_changes.check_new(acl, has_networks=has_networks)
    except KafkaError as error:
        return error.with_traceback(None)
    return acl


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.none, error_message=None)
    return AclCreationResult(error_code=error_code(error), error_message=str(error))


def delete_acls(
    parts: AclsParts, context: RequestContext, request: DeleteAclsRequest
) -> Later[DeleteAclsResponse]:
    """DeleteAcls (31): deletes the entries of access control lists that match filters."""
    acl_changes.authorizer(parts)
    return Later(_delete(parts, request))


async def _delete(parts: AclsParts, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = await parts.slices.finish(of_each(_checked_filter, request.filters))
    deleted = await acl_changes.delete_acls(parts, filters)
    results = []
    for outcome in deleted:
        if isinstance(outcome, KafkaError):
            results.append(_failed(outcome))
        else:
            matching = await parts.slices.finish(of_each(_matching, outcome))
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.none, error_message=None, matching_acls=matching
                )
            )
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=tuple(results))


def _checked_filter(named: DeleteAclsFilter) -> AclFilter | KafkaError:
    """Return the filter, or the reason why it is none."""
    try:
        return _filter(named)
    except KafkaError as error:
        return error.with_traceback(None)


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=error_code(error), error_message=str(error), matching_acls=()
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=i8(acl.resource_type),
        resource_name=acl.name,
        pattern_type=i8(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=i8(acl.operation),
        permission_type=i8(acl.permission),
    )


SERVED = {
    29: ApiHandler(
        describe_acls,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    ),
    30: ApiHandler(
        create_acls,
        gates=(required.ALTER_CLUSTER,),
    ),
    31: ApiHandler(
        delete_acls,
        gates=(required.ALTER_CLUSTER,),
    ),
}
