"""DeleteAcls (31): deletes the entries of access control lists that match filters."""

from __future__ import annotations

from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from sharegroup.broker import acl_changes
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.security.acl_filters import AclFilter
from sharegroup.core.security.acls import Acl
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: DeleteAclsRequest
) -> Later[DeleteAclsResponse]:
    acl_changes.authorizer(parts)
    return Later(_delete(parts, request))


async def _delete(parts: Parts, request: DeleteAclsRequest) -> DeleteAclsResponse:
    filters = await parts.slices.finish(of_each(_checked, request.filters))
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


def refuse(request: DeleteAclsRequest, error: KafkaError) -> Steps[DeleteAclsResponse]:
    failed = _failed(error)
    results = yield from of_each(lambda _: failed, request.filters)
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=results)


def _checked(wanted: DeleteAclsFilter) -> AclFilter | KafkaError:
    """Return the filter, or the reason why it is none."""
    code_of = acl_changes.code_of
    try:
        return AclFilter(
            code_of(AclResourceType, wanted.resource_type_filter, "resourceType"),
            code_of(AclPatternType, wanted.pattern_type_filter, "patternType"),
            wanted.resource_name_filter,
            wanted.principal_filter,
            wanted.host_filter,
            code_of(AclOperation, wanted.operation, "operation"),
            code_of(AclPermission, wanted.permission_type, "permissionType"),
        )
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
