"""DescribeAcls (29): lists the entries of access control lists that match a filter."""

from __future__ import annotations

from itertools import groupby

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from sharegroup.broker import acl_changes
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.security.acl_filters import AclFilter, find
from sharegroup.core.security.acls import Acl, Pattern
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: DescribeAclsRequest
) -> Steps[DescribeAclsResponse]:
    acl_changes.authorizer(parts)
    return _describe(parts, _filter(request))


def _describe(parts: Parts, filter_: AclFilter) -> Steps[DescribeAclsResponse]:
    found = yield from find(parts.topics.catalog.acls.acls, filter_)
    resources = []
    for pattern, acls in groupby(found, key=lambda acl: acl.pattern):
        resources.append(_resource(pattern, (yield from of_each(_description, acls))))
        yield
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        resources=tuple(resources),
    )


def refuse(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        resources=(),
    )


def _filter(request: DescribeAclsRequest) -> AclFilter:
    code_of = acl_changes.code_of
    return AclFilter(
        code_of(AclResourceType, request.resource_type_filter, "resourceType"),
        code_of(AclPatternType, request.pattern_type_filter, "patternType"),
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        code_of(AclOperation, request.operation, "operation"),
        code_of(AclPermission, request.permission_type, "permissionType"),
    )


def _resource(pattern: Pattern, acls: tuple[AclDescription, ...]) -> DescribeAclsResource:
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
