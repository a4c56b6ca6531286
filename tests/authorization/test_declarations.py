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
