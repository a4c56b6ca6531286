"""A request whose principal lacks the permission never reaches its handler."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from sharegroup.broker.access.checks import Gate, check_gates
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.handler_contract import ApiHandler
from sharegroup.broker.load.late_requests import LateRequests
from sharegroup.broker.load.request_counters import RequestCounters
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.core.security.principal import ANONYMOUS, Principal, parse_principal
from sharegroup.errors import GroupAuthorizationFailed, InvalidRequest
from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.steps import Steps, run_to_end
from sharegroup.testing.virtual_time import ManualClock
from tests.unit.broker.test_dispatch import answered, frame, prepared

DESCRIBE_CLUSTER = 60


class OneRight:
    """Allows an operation on one resource, and counts the questions."""

    is_unlimited = False

    def __init__(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = "kafka-cluster"
    ) -> None:
        self.right = operation, resource_type, name
        self.asked = 0

    def may(self, *asked: Any) -> bool:
        self.asked += 1
        return asked == self.right

    def of_request(self, _api_key: int) -> OneRight:
        return self

    may_see = may

    def may_any(self, *asked: Any) -> Steps[bool]:
        yield from ()
        return asked == self.right[:2]

    def authorized_operations(self, *_: Any) -> i32:
        return i32(0)


def answer_to(rights: OneRight, gate: Gate) -> Any:
    def handle(*_: Any) -> Any:
        raise InvalidRequest("the handler was called")

    handler: ApiHandler = replace(handler_of(DESCRIBE_CLUSTER), handle=handle, gates=(gate,))
    parts: Any = SimpleNamespace(
        quotas=SimpleNamespace(is_on=False),
        requests=RequestCounters(),
        late_requests=LateRequests(ManualClock()),
        prepared=prepared(DESCRIBE_CLUSTER, 2, handler),
        features=SimpleNamespace(check_served=lambda _: None),
        slices=SimpleNamespace(run=lambda make, *_: run_to_end(make())),
    )
    request = frame(
        DESCRIBE_CLUSTER,
        2,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )
    peer = Peer("127.0.0.1", rights=rights)
    reply = dispatch(parts, lambda _: handler, request, connection_id=1, peer=peer)
    assert isinstance(reply, list)
    return answered(reply, DESCRIBE_CLUSTER, 2)


def test_request_without_the_permission_is_refused_before_its_handler() -> None:
    alter = Gate(AclOperation.ALTER, AclResourceType.CLUSTER)
    response = answer_to(OneRight(AclOperation.DESCRIBE, AclResourceType.CLUSTER), alter)
    assert response.error_code is ErrorCode.cluster_authorization_failed
    assert response.error_message == ("no ACL allows ALTER on CLUSTER 'kafka-cluster' to this user")


def test_request_with_the_permission_reaches_its_handler() -> None:
    rights = OneRight(AclOperation.ALTER, AclResourceType.CLUSTER)
    response = answer_to(rights, Gate(AclOperation.ALTER, AclResourceType.CLUSTER))
    assert response.error_code is ErrorCode.invalid_request
    assert rights.asked == 1


def test_gate_names_the_resource_that_the_request_is_about() -> None:
    gate = Gate(AclOperation.READ, AclResourceType.GROUP, lambda request: request.group_id)
    rights = OneRight(AclOperation.READ, AclResourceType.GROUP, "billing")
    check_gates([gate], rights, SimpleNamespace(group_id="billing"))
    with pytest.raises(GroupAuthorizationFailed, match="READ on GROUP 'orders'") as refused:
        check_gates([gate], rights, SimpleNamespace(group_id="orders"))
    assert refused.value.resource_name == "orders"


def test_principal_as_text() -> None:
    assert parse_principal("User:CN=alice:1,O=x") == Principal("User", "CN=alice:1,O=x")
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    for text in ("", "alice", "User:", ":alice"):
        with pytest.raises(InvalidRequest, match="must be like User:alice"):
            parse_principal(text)
