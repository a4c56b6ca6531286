"""DescribeUserScramCredentials (50): mechanisms and iterations of users, without their keys."""

from __future__ import annotations

from collections import Counter

from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from sharegroup.broker.cluster.scram_credentials import ScramCredentials
from sharegroup.broker.handler_contract import RequestContext, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.parts import Parts
from sharegroup.errors import DuplicateResource, KafkaError, ResourceNotFound
from sharegroup.steps import Steps, of_each


def handle(
    parts: Parts, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    credentials = parts.topics.catalog.scram_credentials
    named = Counter(user.name for user in request.users or ()) or Counter(credentials.users)
    results = yield from of_each(
        lambda entry: _described(credentials, entry[0], named_twice=entry[1] > 1),
        tuple(named.items()),
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=results,
    )


def refuse(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error_code(error),
        error_message=str(error),
        results=(),
    )


def _described(
    credentials: ScramCredentials, user: str, *, named_twice: bool
) -> DescribeUserScramCredentialsResult:
    found = credentials.of_user(user)
    error: KafkaError | None = None
    if named_twice:
        error = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not found:
        error = ResourceNotFound(
            f"Attempt to describe a user credential that does not exist: {user}"
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        credential_infos=()
        if error is not None
        else tuple(
            CredentialInfo(mechanism=i8(mechanism), iterations=i32(credential.iterations))
            for mechanism, credential in sorted(found.items())
        ),
    )
