"""DescribeAcls (29): lists access control lists, of which this broker has none.

As Apache Kafka without an authorizer, it answers SECURITY_DISABLED, which tools expect.
"""

from __future__ import annotations

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse

from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import KafkaError, SecurityDisabled

NO_AUTHORIZER = "this broker has no access control: every client may do everything"


def handle(
    parts: Parts, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    raise SecurityDisabled(NO_AUTHORIZER)


def refuse(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        resources=(),
    )
