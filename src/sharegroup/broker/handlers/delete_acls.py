"""DeleteAcls (31): deletes entries of access control lists, which this broker does not have."""

from __future__ import annotations

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.handlers.describe_acls import NO_AUTHORIZER
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, SecurityDisabled
from sharegroup.steps import Steps, of_each


def handle(parts: Parts, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    raise SecurityDisabled(NO_AUTHORIZER)


def refuse(request: DeleteAclsRequest, error: KafkaError) -> Steps[DeleteAclsResponse]:
    code, text = error_code(error), str(error)
    failed = DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=())
    results = yield from of_each(lambda _: failed, request.filters)
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=results)
