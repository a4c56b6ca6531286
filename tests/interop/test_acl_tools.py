"""Kafka's own kafka-acls on our broker, or on Apache Kafka, and what each other tool then sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.client import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    sync,
)
from tests.support.chosen_broker import chosen, running, when_heard
from tests.support.kafka_tools import SCRIPTS, run_tool, tools, why_missing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
ACLS = SCRIPTS["kafka-acls"]
SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
PREFIXED = AclPatternType.PREFIXED
ENTRY = re.compile(r"\(principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(chosen(), tmp_path_factory.mktemp("acls"), SECURED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[sync.AdminClient]:
    with sync.AdminClient(bootstrap_servers=bootstrap) as client:
        yield client
        client.delete_acls([AclBindingFilter()])
        assert acls(client, 0) == set()


def acls(client: sync.AdminClient, count: int) -> set[AclBinding]:
    """All ACLs, when there are so many."""
    return set(when_heard(client.describe_acls, lambda found: len(found) == count))


def kafka_acls(bootstrap: str, words: str) -> str:
    return run_tool(ACLS, "--bootstrap-server", bootstrap, *words.split())


def test_the_role_of_a_consumer_is_added_listed_and_removed(
    bootstrap: str, admin: sync.AdminClient
) -> None:
    consumer = "--consumer --topic orders --group billing --allow-principal User:alice"
    assert "Adding ACLs for resource" in kafka_acls(bootstrap, f"--add {consumer}")
    assert acls(admin, 3) == {
        AclBinding(TOPIC, "orders", "User:alice", READ),
        AclBinding(TOPIC, "orders", "User:alice", DESCRIBE),
        AclBinding(GROUP, "billing", "User:alice", READ),
    }
    assert "already exists" in kafka_acls(bootstrap, f"--add {consumer}")
    printed = kafka_acls(bootstrap, "--list --topic orders")
    assert "resourceType=TOPIC, name=orders, patternType=LITERAL" in printed
    assert set(ENTRY.findall(printed)) == {
        ("User:alice", "*", "READ", "ALLOW"),
        ("User:alice", "*", "DESCRIBE", "ALLOW"),
    }
    assert ENTRY.findall(kafka_acls(bootstrap, "--list --principal User:bob")) == []
    kafka_acls(bootstrap, f"--remove --force {consumer}")
    assert acls(admin, 0) == set()


def test_patterns_hosts_and_denials(bootstrap: str, admin: sync.AdminClient) -> None:
    prefixed = "--topic pay- --resource-pattern-type prefixed"
    kafka_acls(bootstrap, f"--add {prefixed} --allow-principal User:* --operation Write")
    kafka_acls(
        bootstrap,
        "--add --topic pay-secret --deny-principal User:bob --deny-host 10.0.0.1 --operation All",
    )
    deny = AclBinding(
        TOPIC, "pay-secret", "User:bob", AclOperation.ALL, AclPermission.DENY, host="10.0.0.1"
    )
    allow = AclBinding(TOPIC, "pay-", "User:*", WRITE, pattern_type=PREFIXED)
    assert acls(admin, 2) == {allow, deny}
    match = "--topic pay-secret --resource-pattern-type match"
    assert len(ENTRY.findall(kafka_acls(bootstrap, f"--list {match}"))) == 2
    kafka_acls(bootstrap, f"--remove --force {prefixed}")
    assert acls(admin, 1) == {deny}
    kafka_acls(bootstrap, f"--remove --force {match}")
    assert acls(admin, 0) == set()


def test_the_cluster_and_a_transactional_producer(bootstrap: str, admin: sync.AdminClient) -> None:
    kafka_acls(
        bootstrap,
        "--add --producer --idempotent --topic out --transactional-id tx --allow-principal User:p",
    )
    found = {(acl.resource_type, acl.name, acl.operation) for acl in acls(admin, 6)}
    assert (CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE) in found
    assert (AclResourceType.TRANSACTIONAL_ID, "tx", WRITE) in found
    assert "IDEMPOTENT_WRITE" in kafka_acls(bootstrap, "--list --cluster")


def test_a_misuse_fails_with_the_reason(bootstrap: str) -> None:
    done = tools().run(
        ACLS,
        *("--bootstrap-server", bootstrap, "--add", "--topic", "t"),
        *("--allow-principal", "User:a", "--resource-pattern-type", "match"),
    )
    assert done.code == 1
    assert "not valid when adding acls" in done.out + done.err
