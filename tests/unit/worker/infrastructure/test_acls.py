"""The ACLs of a worker's user are those of docs/clusters.md."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from sharegroup.client import AdminClient
from sharegroup.client.admin.types import AclBinding, AclBindingFilter
from sharegroup.errors import ClusterAuthorizationFailed, SecurityDisabled
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.worker import App, BrokerDeadLetter, RateLimit
from sharegroup.worker.infrastructure.rights import acl_changes, required_acls


def acls_of(**options: Any) -> list[tuple[str, str, str, str]]:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", **options)
    async def bill(order: bytes) -> None: ...

    return [
        (acl.operation.name, acl.resource_type.name, acl.name, acl.pattern.name)
        for acl in required_acls(app.route_list)
    ]


BARE = [
    ("READ", "TOPIC", "orders", "LITERAL"),
    ("READ", "GROUP", "billing", "LITERAL"),
]
RETRIES = [
    ("READ", "TOPIC", "billing.retry", "LITERAL"),
    ("READ", "TOPIC", "billing.retry.", "PREFIXED"),
    ("WRITE", "TOPIC", "billing.retry", "LITERAL"),
    ("WRITE", "TOPIC", "billing.retry.", "PREFIXED"),
    ("READ", "GROUP", "billing.retry-scheduler", "LITERAL"),
]
LETTERS = [("WRITE", "TOPIC", "orders.dead", "LITERAL")]


def test_records_retries_and_dead_letters() -> None:
    assert acls_of(dead_letter="orders.dead") == [*BARE, *RETRIES, *LETTERS]


def test_steered_group_needs_its_transactional_ids() -> None:
    ids = [("WRITE", "TRANSACTIONAL_ID", "billing.retry-scheduler.", "PREFIXED")]
    expected = [*BARE, *RETRIES, *ids, *LETTERS]
    assert acls_of(steering=True, dead_letter="orders.dead") == expected


def test_no_retries_and_letters_of_the_broker() -> None:
    assert acls_of(retry=None, dead_letter=BrokerDeadLetter("orders.dead")) == BARE


def test_handlers_of_one_topic_need_each_acl_once() -> None:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", retry=None, dead_letter=None)
    async def bill(order: bytes) -> None: ...

    @app.share_group("audit", topics="orders", retry=None, dead_letter=None)
    async def audit(order: bytes) -> None: ...

    assert [(acl.operation.name, acl.name) for acl in required_acls(app.route_list)] == [
        ("READ", "orders"),
        ("READ", "billing"),
        ("READ", "audit"),
    ]


def test_workers_that_announce_themselves_write_heartbeats_and_read_commands() -> None:
    acls = [(acl.operation.name, acl.name) for acl in required_acls((), announced="orders-service")]
    assert acls == [("WRITE", "orders-service.workers"), ("READ", "orders-service.control")]


def test_workers_that_divide_a_rate_limit_read_heartbeats_too() -> None:
    app = App("orders-service", announce=True)
    limit = RateLimit(1, shared="fleet")

    @app.share_group("billing", topics="orders", rate_limit=limit, retry=None, dead_letter=None)
    async def bill(order: bytes) -> None: ...

    acls = required_acls(app.route_list, announced=app.name)
    assert [(acl.operation.name, acl.name) for acl in acls[2:]] == [
        ("WRITE", "orders-service.workers"),
        ("READ", "orders-service.control"),
        ("READ", "orders-service.workers"),
    ]


class Cluster:
    """An admin client of a cluster with these ACLs, or with an error instead."""

    def __init__(self, *acls: AclBinding, error: Exception | None = None) -> None:
        self.acls, self.error = acls, error

    async def describe_acls(self, filter_: AclBindingFilter) -> tuple[AclBinding, ...]:
        assert filter_ == AclBindingFilter(permission=AclPermission.ALLOW)
        if self.error is not None:
            raise self.error
        return self.acls


def lacking(cluster: Cluster) -> list[tuple[str, str, str | None]]:
    app = App("orders-service")

    @app.share_group("billing", topics="orders", retry=None, dead_letter=None)
    async def bill(order: bytes) -> None: ...

    required = required_acls(app.route_list)
    changes = asyncio.run(acl_changes(required, cast("AdminClient", cluster), "User:ann"))
    return [(str(change.kind), change.name, change.wanted) for change in changes]


READ_ORDERS = AclBinding(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
READ_BILLING = replace(READ_ORDERS, resource_type=AclResourceType.GROUP, name="billing")
MISSING_ORDERS = ("missing", "orders", "User:ann")


def test_acls_that_are_there_are_no_change() -> None:
    assert lacking(Cluster(READ_ORDERS, READ_BILLING)) == []
    assert lacking(Cluster(READ_BILLING)) == [MISSING_ORDERS]


@pytest.mark.parametrize(
    "wider",
    [
        replace(READ_ORDERS, operation=AclOperation.ALL),
        replace(READ_ORDERS, name="*"),
        replace(READ_ORDERS, principal="User:*"),
        replace(READ_ORDERS, name="ord", pattern_type=AclPatternType.PREFIXED),
    ],
    ids=str,
)
def test_a_wider_acl_is_enough(wider: AclBinding) -> None:
    assert lacking(Cluster(wider, READ_BILLING)) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(READ_ORDERS, operation=AclOperation.DESCRIBE),
        replace(READ_ORDERS, principal="User:bob"),
        replace(READ_ORDERS, host="10.0.0.1"),
        replace(READ_ORDERS, resource_type=AclResourceType.GROUP),
        replace(READ_ORDERS, name="orders.", pattern_type=AclPatternType.PREFIXED),
    ],
    ids=str,
)
def test_another_acl_is_not_enough(other: AclBinding) -> None:
    assert lacking(Cluster(other, READ_BILLING)) == [MISSING_ORDERS]


def test_acls_that_cannot_be_seen_are_unknown() -> None:
    for error in (ClusterAuthorizationFailed("no"), SecurityDisabled("no authorizer")):
        found = lacking(Cluster(error=error))
        assert found == [("unknown", "orders", "User:ann"), ("unknown", "billing", "User:ann")]
