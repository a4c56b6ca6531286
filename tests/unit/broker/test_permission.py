"""A handler asks once for each name, and its errors contain only what the request contains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.config_permissions import DESCRIBE_CONFIGS, ConfigPermissions
from sharegroup.broker.access.permission import (
    Permission,
    TopicPermission,
    is_allowed_on_cluster,
    operations_on_cluster,
    topic_permission,
)
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.errors import ClusterAuthorizationFailed, TopicAuthorizationFailed
from sharegroup.protocol_enums import AclOperation, AclResourceType, ResourceType
from tests.unit.broker.test_gates import OneRight

ORDERS_ID, UNKNOWN_ID = UUID(int=7), UUID(int=8)
READ_ORDERS = (AclOperation.READ, AclResourceType.TOPIC, "orders")


class Asked(OneRight):
    """Tells questions of listings, which are not audited, from the others."""

    def __init__(self, *right: Any) -> None:
        super().__init__(*right)
        self.seen = 0

    def may_see(self, *asked: Any) -> bool:
        self.seen += 1
        return asked == self.right


def test_each_name_is_asked_for_once() -> None:
    rights = Asked(*READ_ORDERS)
    read = Permission(rights, required.READ_TOPICS)
    assert [read.allows("orders"), read.allows("other"), read.allows("orders")] == [
        True,
        False,
        True,
    ]
    assert (rights.asked, rights.seen) == (2, 0)


def test_a_listing_is_not_audited() -> None:
    rights = Asked(*READ_ORDERS)
    assert Permission(rights, required.READ_TOPICS, is_audited=False).allows("other") is False
    assert is_allowed_on_cluster(rights, required.ALTER_CLUSTER, is_audited=False) is False
    assert (rights.asked, rights.seen) == (0, 2)


def test_unlimited_rights_are_not_asked() -> None:
    read = Permission(UNLIMITED, required.READ_TOPICS)
    assert read.is_unlimited
    assert read.denial("orders") is None
    assert topic_permission(UNLIMITED, required.READ_TOPICS, cast("Catalog", None)) is None


def test_the_denial_of_an_id_does_not_contain_the_name() -> None:
    catalog = cast(
        "Catalog",
        SimpleNamespace(
            by_id=lambda asked: SimpleNamespace(name="secret") if asked == ORDERS_ID else None
        ),
    )
    read = TopicPermission(Asked(*READ_ORDERS), required.READ_TOPICS, catalog)
    denial = read.denial(ORDERS_ID)
    assert isinstance(denial, TopicAuthorizationFailed)
    assert "secret" not in str(denial)
    assert str(ORDERS_ID) in str(denial)
    assert read.denial(UNKNOWN_ID) is None
    assert "secret" in str(read.denial("secret"))


def test_topics_of_a_request_have_names_or_ids() -> None:
    catalog = cast("Catalog", SimpleNamespace(by_id=lambda _: SimpleNamespace(name="orders")))
    read = TopicPermission(Asked(*READ_ORDERS), required.READ_TOPICS, catalog)
    assert read.denial_of(SimpleNamespace(name="orders")) is None
    assert read.denial_of(SimpleNamespace(topic_id=ORDERS_ID)) is None
    assert read.denial_of(SimpleNamespace(topic_id=None)) is None
    assert read.denial_of(SimpleNamespace(name="other")) is not None


def test_configurations_of_brokers_belong_to_the_cluster() -> None:
    right = AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, "kafka-cluster"
    permissions = ConfigPermissions(Asked(*right), DESCRIBE_CONFIGS)
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS):
        assert permissions.denial(kind, "any") is None
    assert isinstance(permissions.denial(ResourceType.TOPIC, "orders"), TopicAuthorizationFailed)
    of_topics = ConfigPermissions(Asked(*READ_ORDERS), DESCRIBE_CONFIGS)
    assert isinstance(of_topics.denial(ResourceType.BROKER, "1"), ClusterAuthorizationFailed)
    assert of_topics.denial(77, "an unknown type has another error") is None


def test_operations_on_a_cluster_that_may_not_be_described_are_0() -> None:
    class Request:
        include_cluster_authorized_operations = True

    assert operations_on_cluster(Asked(*READ_ORDERS), Request()) == 0
    assert operations_on_cluster(UNLIMITED, Request()) > 0
