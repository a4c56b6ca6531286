"""What the handlers declare is what the matrix has denied cases for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroup.broker.server.handler_table import handler_of
from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.wire.codec.apis import APIS
from tests.authorization.matrix import PROBES
from tests.authorization.probe import Need

Pair = tuple[AclOperation, AclResourceType]


def needs_of(api: str) -> Iterator[Need]:
    for probe in PROBES:
        if probe.title.partition(":")[0] == api:
            yield from probe.needs


def pair(need: Need) -> Pair:
    return need.operation, need.resource_type


@pytest.mark.parametrize("key", APIS, ids=[api.name for api in APIS.values()])
def test_each_declared_permission_has_denied_cases(key: int) -> None:
    handler, needs = handler_of(key), list(needs_of(APIS[key].name))
    declared = {
        (check.operation, check.resource_type) for check in (*handler.gates, *handler.checks)
    }
    refused = {pair(need) for need in needs if need.refused or need.hides}
    shown = {pair(need) for need in needs if need.operations}
    assert declared <= refused | shown
    assert refused <= declared


NO_PERMISSION = {
    "ApiVersions": "a client asks it before it logs in; it tells of versions and features only",
    "SaslHandshake": "is a part of the login, before which there is no principal",
    "SaslAuthenticate": "is a part of the login, before which there is no principal",
    "GetTelemetrySubscriptions": "as in Kafka; it tells only which metrics the operator wants",
    "PushTelemetry": "as in Kafka; the operator chose the metrics, and their number is bounded",
}
"""The requests that every client may send, also with an authorizer, and the reason."""


@pytest.mark.parametrize("key", APIS, ids=[api.name for api in APIS.values()])
def test_request_declares_a_permission_or_has_a_reason_for_none(key: int) -> None:
    handler = handler_of(key)
    declares = bool(handler.gates or handler.checks)
    assert declares != (APIS[key].name in NO_PERMISSION)


def test_reasons_for_no_permission_are_of_requests_that_are_served() -> None:
    assert NO_PERMISSION.keys() <= {api.name for api in APIS.values()}
