"""ACLs through an AdminClient, on a broker in the same process or on Kafka."""

from __future__ import annotations

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
from sharegroup.errors import InvalidRequest, SecurityDisabled
from sharegroup.testing import run_broker
from tests.support.chosen_broker import KAFKA, chosen, running, when_heard

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}

ORDERS = AclBinding(TOPIC, "orders", "User:alice", READ)
PAYMENTS = AclBinding(
    TOPIC,
    "pay-",
    "User:*",
    ALL,
    AclPermission.DENY,
    pattern_type=AclPatternType.PREFIXED,
    host="10.0.0.1",
)
BILLING = AclBinding(GROUP, "billing", "User:alice", READ)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if chosen() == KAFKA:
        with running(KAFKA, tmp_path_factory.mktemp("acls"), SECURED) as kafka:
            yield kafka.bootstrap_servers
    else:
        with run_broker(SECURED) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[sync.AdminClient]:
    with sync.AdminClient(bootstrap_servers=bootstrap) as client:
        yield client
        client.delete_acls([AclBindingFilter()])
        assert described(client, 0) == []


def described(
    client: sync.AdminClient, count: int, filter_: AclBindingFilter | None = None
) -> list[AclBinding]:
    """The ACLs that match, when there are so many."""
    return list(when_heard(lambda: client.describe_acls(filter_), lambda f: len(f) == count))


def test_created_acls_are_described_in_order_and_deleted(admin: sync.AdminClient) -> None:
    wanted = [BILLING, PAYMENTS, ORDERS, ORDERS]
    assert admin.create_acls(wanted) == {BILLING: None, PAYMENTS: None, ORDERS: None}
    assert described(admin, 3) == [ORDERS, PAYMENTS, BILLING]
    of_alice, of_bob = (AclBindingFilter(principal=f"User:{user}") for user in ("alice", "bob"))
    assert described(admin, 2, of_alice) == [ORDERS, BILLING]
    match = AclBindingFilter(TOPIC, "pay-1", pattern_type=AclPatternType.MATCH)
    assert described(admin, 1, match) == [PAYMENTS]
    assert admin.delete_acls([of_alice, of_bob]) == {of_alice: (ORDERS, BILLING), of_bob: ()}
    assert described(admin, 1) == [PAYMENTS]


def test_an_invalid_acl_has_an_error_that_names_it(admin: sync.AdminClient) -> None:
    broken = AclBinding(AclResourceType.CLUSTER, "elsewhere", "User:alice", READ)
    results = admin.create_acls([broken, ORDERS])
    assert results[ORDERS] is None
    assert isinstance(results[broken], InvalidRequest)
    assert "kafka-cluster" in str(results[broken])
    assert "User:alice from * may READ CLUSTER 'elsewhere'" in str(results[broken])
    assert described(admin, 1) == [ORDERS]


def test_nothing_to_do_asks_nobody() -> None:
    with sync.AdminClient(bootstrap_servers="127.0.0.1:1") as client:
        assert client.create_acls([]) == {}
        assert client.delete_acls([]) == {}


def test_without_an_authorizer_security_is_disabled() -> None:
    with (
        run_broker() as broker,
        sync.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(SecurityDisabled, match=r"authorizer.class.name"):
            admin.describe_acls()
        assert isinstance(admin.create_acls([ORDERS])[ORDERS], SecurityDisabled)
