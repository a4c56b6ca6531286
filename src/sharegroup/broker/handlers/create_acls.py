"""CreateAcls (30): creates entries of access control lists, each for itself."""

from __future__ import annotations

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.errors import ErrorCode

from sharegroup.broker import acl_changes
from sharegroup.broker.handler_contract import Later, RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.core.security.acls import Acl
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: CreateAclsRequest
) -> Later[CreateAclsResponse]:
    acl_changes.authorizer(parts)
    return Later(_create(parts, request))


async def _create(parts: Parts, request: CreateAclsRequest) -> CreateAclsResponse:
    version = parts.features.finalized["metadata.version"]
    has_networks = version >= acl_changes.NETWORKS_SINCE
    wanted = []
    for creation in request.creations:
        await parts.slices.turn()
        wanted.append(_checked(creation, has_networks=has_networks))
    errors = await acl_changes.create_acls(parts, wanted)
    results = await parts.slices.finish(of_each(_result, errors))
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=results)


def refuse(request: CreateAclsRequest, error: KafkaError) -> Steps[CreateAclsResponse]:
    failed = _result(error)
    results = yield from of_each(lambda _: failed, request.creations)
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=results)


def _checked(creation: AclCreation, *, has_networks: bool) -> Acl | KafkaError:
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
