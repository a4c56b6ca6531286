"""CreateAcls, DescribeAcls and DeleteAcls, and what the ACLs then allow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult
from kio.schema.describe_acls.v3.request import DescribeAclsRequest

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.broker.handlers.access.acl_changes import FILTERS_MAX
from sharegroup.core.security.principal import Principal
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import AclOperation, AclResourceType
from tests.faults.in_process import Broker

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, ALTER, DESCRIBE = 2, 3, 4, 7, 8
DENY, ALLOW = 2, 3
NONE, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION = 0, 31, 35
INVALID_REQUEST, POLICY_VIOLATION = 42, 44

Scenario = Callable[[Broker], Awaitable[None]]
Row = tuple[int, int, str, str, str, int, int]
"""Resource type, pattern type, name, principal, host, operation and permission."""

SECURED = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS;User:root"}
ORDERS: Row = (TOPIC, LITERAL, "orders", "User:alice", "*", READ, ALLOW)


def run(scenario: Scenario, path: Path, **settings: str) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"), **{**SECURED, **settings})
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


def creation(row: Row) -> AclCreation:
    resource_type, pattern, name, principal, host, operation, permission = row
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


async def create(broker: Broker, *rows: Row, **options: Any) -> list[int]:
    """The error codes."""
    request = CreateAclsRequest(creations=tuple(map(creation, rows)))
    answer = await broker.ask(request, **options)
    return [int(result.error_code) for result in answer.results]


async def describe(
    broker: Broker,
    type_: int = ANY,
    pattern: int = ANY,
    name: str | None = None,
    *,
    principal: str | None = None,
) -> set[Row]:
    request = DescribeAclsRequest(
        resource_type_filter=type_,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await broker.ask(request)
    assert answer.error_code == NONE, answer.error_message
    patterns = [(r.resource_type, r.pattern_type, r.resource_name) for r in answer.resources]
    assert len(patterns) == len(set(patterns)), "a pattern has one entry"
    return {
        (
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }


def filter_of(type_: int, pattern: int, name: str | None) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=type_,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


async def delete(broker: Broker, *filters: DeleteAclsFilter) -> tuple[DeleteAclsFilterResult, ...]:
    results: tuple[DeleteAclsFilterResult, ...] = (
        await broker.ask(DeleteAclsRequest(filters=filters))
    ).filter_results
    return results


def may(broker: Broker, name: str, operation: int, principal: str, host: str = "10.0.0.1") -> bool:
    peer = Peer(host, principal=Principal("User", principal))
    rights = broker.running.parts.rights_of(peer)
    return rights.is_unlimited or rights.may(AclOperation(operation), AclResourceType.TOPIC, name)


def test_created_acls_are_described_and_decide(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        pay: Row = (TOPIC, PREFIXED, "pay-", "User:*", "10.0.0.0/24", WRITE, ALLOW)
        deny: Row = (TOPIC, LITERAL, "pay-secret", "User:bob", "*", ALL, DENY)
        assert not may(broker, "orders", READ, "alice")
        assert await create(broker, ORDERS, pay, deny, ORDERS) == [NONE] * 4
        assert await create(broker, ORDERS) == [NONE]
        assert await describe(broker) == {ORDERS, pay, deny}
        assert await describe(broker, TOPIC, MATCH, "pay-secret") == {pay, deny}
        assert await describe(broker, GROUP) == set()
        assert await describe(broker, principal="User:bob") == {deny}
        assert may(broker, "orders", READ, "alice")
        assert may(broker, "orders", DESCRIBE, "alice")
        assert not may(broker, "orders", WRITE, "alice")
        assert may(broker, "pay-1", WRITE, "bob")
        assert not may(broker, "pay-1", WRITE, "bob", "10.0.1.1")
        assert not may(broker, "pay-secret", WRITE, "bob")
        assert may(broker, "pay-secret", WRITE, "carol")
        assert may(broker, "anything", WRITE, "root")

    run(scenario, tmp_path)


def test_deleted_acls_decide_no_more(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        prefixed: Row = (TOPIC, PREFIXED, "ord", "User:alice", "*", READ, ALLOW)
        group: Row = (GROUP, LITERAL, "orders", "User:alice", "*", READ, ALLOW)
        await create(broker, ORDERS, prefixed, group)
        assert may(broker, "orders", READ, "alice")
        matched, again, none = await delete(
            broker,
            filter_of(TOPIC, MATCH, "orders"),
            filter_of(TOPIC, LITERAL, "orders"),
            filter_of(TOPIC, LITERAL, "ord"),
        )
        assert {(a.pattern_type, a.resource_name) for a in matched.matching_acls} == {
            (LITERAL, "orders"),
            (PREFIXED, "ord"),
        }
        assert [a.resource_name for a in again.matching_acls] == ["orders"]
        assert (none.error_code, none.matching_acls) == (NONE, ())
        assert await describe(broker) == {group}
        assert not may(broker, "orders", READ, "alice")

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        ((CLUSTER, LITERAL, "other", "User:a", "*", READ, ALLOW), INVALID_REQUEST, "kafka-cluster"),
        ((TOPIC, LITERAL, "", "User:a", "*", READ, ALLOW), INVALID_REQUEST, "empty resource name"),
        ((ANY, LITERAL, "a", "User:a", "*", READ, ALLOW), INVALID_REQUEST, "resourceType ANY"),
        ((99, LITERAL, "a", "User:a", "*", READ, ALLOW), INVALID_REQUEST, "resourceType UNKNOWN"),
        ((TOPIC, MATCH, "a", "User:a", "*", READ, ALLOW), INVALID_REQUEST, "patternType MATCH"),
        ((TOPIC, LITERAL, "a", "User:a", "*", ANY, ALLOW), INVALID_REQUEST, "operation ANY"),
        ((TOPIC, LITERAL, "a", "User:a", "*", READ, ANY), INVALID_REQUEST, "permissionType ANY"),
        ((TOPIC, LITERAL, "a", "alice", "*", READ, ALLOW), INVALID_REQUEST, "principal"),
        ((TOPIC, LITERAL, "a", "User:a", "", READ, ALLOW), INVALID_REQUEST, "host"),
        ((TOPIC, LITERAL, "a", "User:a", "1.2.3/8", READ, ALLOW), INVALID_REQUEST, "CIDR"),
        (
            (TOPIC, LITERAL, "a", "User:a", "1.0.0.0/0.0.0.255", READ, ALLOW),
            INVALID_REQUEST,
            "bits",
        ),
        ((TOPIC, LITERAL, "a" * 1_025, "User:a", "*", READ, ALLOW), INVALID_REQUEST, "1024"),
    ],
)
def test_an_invalid_acl_is_refused_and_the_others_are_created(
    tmp_path: Path, row: Row, code: int, text: str
) -> None:
    async def scenario(broker: Broker) -> None:
        request = CreateAclsRequest(creations=(creation(row), creation(ORDERS)))
        refused, created = (await broker.ask(request)).results
        assert (refused.error_code, created.error_code) == (code, NONE)
        assert text in refused.error_message
        assert await describe(broker) == {ORDERS}

    run(scenario, tmp_path)


def test_an_unknown_code_in_a_filter_is_an_invalid_request(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create(broker, ORDERS)
        refused, deleted = await delete(
            broker, filter_of(99, ANY, None), filter_of(TOPIC, ANY, None)
        )
        assert (refused.error_code, deleted.error_code) == (INVALID_REQUEST, NONE)
        assert len(deleted.matching_acls) == 1
        many = [filter_of(TOPIC, ANY, None)] * (FILTERS_MAX + 1)
        assert {result.error_code for result in await delete(broker, *many)} == {INVALID_REQUEST}

    run(scenario, tmp_path)


def test_the_number_of_acls_is_limited(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        rows = [(TOPIC, LITERAL, f"t{n}", "User:a", "*", READ, ALLOW) for n in range(5)]
        assert await create(broker, *rows) == [NONE] * 3 + [POLICY_VIOLATION] * 2
        assert len(await describe(broker)) == 3
        assert await create(broker, rows[0]) == [NONE], "it is there already"

    run(scenario, tmp_path, sharegroup_acls_max="3")


def test_acls_are_there_after_a_restart_also_from_a_rewritten_journal(tmp_path: Path) -> None:
    rows: list[Row] = [
        (TOPIC, PREFIXED, f"t{n}", f"User:u{n % 7}", "*", READ + n % 3, ALLOW) for n in range(500)
    ]

    async def first(broker: Broker) -> None:
        assert set(await create(broker, *rows)) == {NONE}
        for _ in range(550):
            await create(broker, ORDERS)
            await delete(broker, filter_of(TOPIC, LITERAL, "orders"))

    async def second(broker: Broker) -> None:
        assert await describe(broker) == set(rows)
        assert broker.running.parts.topics.event_count < 1_020

    run(first, tmp_path)
    run(second, tmp_path)


def test_only_users_with_rights_on_the_cluster_change_and_see_acls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker) -> None:
        alice = Peer("10.0.0.7", listener="OUTSIDE", principal=Principal("User", "alice"))
        alice.rights = broker.running.parts.rights_of(alice)
        ask = partial(broker.ask, peer=alice)
        request = CreateAclsRequest(creations=(creation(ORDERS),))
        with caplog.at_level(logging.INFO, "sharegroup.broker.access.audit"):
            (refused,) = (await ask(request)).results
            assert refused.error_code == CLUSTER_AUTHORIZATION_FAILED
            cluster: Row = (CLUSTER, LITERAL, "kafka-cluster", "User:alice", "*", ALTER, ALLOW)
            await create(broker, cluster)
            (created,) = (await ask(request)).results
            assert created.error_code == NONE
        assert [record.getMessage() for record in caplog.records] == [
            (
                "event=denied principal='User:alice' host=10.0.0.7 listener=OUTSIDE "
                "api=create_acls operation=ALTER resource=CLUSTER:'kafka-cluster'"
            ),
            (
                "event=administered principal='User:ANONYMOUS' host=127.0.0.1 listener=PLAINTEXT "
                "api=create_acls subjects='4:3:kafka-cluster:User:alice:*:7:3'"
            ),
            (
                "event=administered principal='User:alice' host=10.0.0.7 listener=OUTSIDE "
                "api=create_acls subjects='2:3:orders:User:alice:*:3:3'"
            ),
        ]
        assert broker.running.parts.audit.denials == {"OUTSIDE": 1}

    run(scenario, tmp_path)


def test_another_authorizer_is_refused_at_the_start(tmp_path: Path) -> None:
    async def nothing(_broker: Broker) -> None: ...

    with pytest.raises(InvalidConfig, match="StandardAuthorizer, which is the only other value"):
        run(nothing, tmp_path, authorizer_class_name="com.example.MyAuthorizer")
    with pytest.raises(InvalidConfig, match=r"super.users='alice'.*semicolons"):
        run(nothing, tmp_path, super_users="alice")
