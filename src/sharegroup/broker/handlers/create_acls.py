"""CreateAcls (30): creates entries of access control lists, which this broker does not have."""

from __future__ import annotations

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.handlers.describe_acls import NO_AUTHORIZER
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, SecurityDisabled
from sharegroup.steps import Steps, of_each


def handle(parts: Parts, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    raise SecurityDisabled(NO_AUTHORIZER)


def refuse(request: CreateAclsRequest, error: KafkaError) -> Steps[CreateAclsResponse]:
    code, text = error_code(error), str(error)
    failed = AclCreationResult(error_code=code, error_message=text)
    results = yield from of_each(lambda _: failed, request.creations)
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=results)
