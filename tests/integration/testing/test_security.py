"""A test gets a broker with TLS, users and ACLs in one line."""

from __future__ import annotations

import asyncio
import tempfile

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from sharegroup.client import AclBinding, AclOperation, AclResourceType
from sharegroup.client.sync import AdminClient
from sharegroup.errors import KafkaError, SaslAuthenticationFailed
from sharegroup.testing import Security, TestBroker, broker, run_broker
from sharegroup.testing.security import MECHANISMS
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS

USERS = {"billing": 'its "secret"\\', "eve": "hers"}
READ_ORDERS = AclBinding(AclResourceType.TOPIC, "orders", "User:billing", AclOperation.READ)


def seen_by(broker: TestBroker, user: str, mechanism: str = MECHANISMS[0]) -> list[str]:
    with AdminClient(**broker.client_options(user, mechanism=mechanism)) as admin:
        return admin.list_topics()


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_users_see_what_their_acls_allow(tls: bool) -> None:
    with run_broker(security=Security(users=USERS, acls=[READ_ORDERS], tls=tls)) as broker:
        broker.create_topic("orders")
        broker.create_topic("secrets")
        broker.produce("orders", "one apple")
        assert [seen_by(broker, "billing", mechanism) for mechanism in MECHANISMS] == 3 * [
            ["orders"]
        ]
        assert seen_by(broker, "eve") == []
        broker.kill()
        broker.start()
        assert seen_by(broker, "billing") == ["orders"]
        others = ConfluentAdmin(broker.librdkafka_config("billing"))
        assert list(others.list_topics(timeout=HANGING_SECONDS).topics) == ["orders"]
        assert [record.value for record in broker.records("orders")] == [b"one apple"]


def test_users_exist_also_on_ports_that_the_test_has_chosen() -> None:
    clients, tests = free_ports(2)
    listeners = f"CLIENTS://127.0.0.1:{clients},TESTS://127.0.0.1:{tests}"
    with run_broker({"listeners": listeners}, security=Security(users=USERS)) as broker:
        broker.create_topic("orders")
        assert [seen_by(broker, "eve", mechanism) for mechanism in MECHANISMS] == 3 * [["orders"]]
        broker.stop()
        broker.start()
        assert seen_by(broker, "eve", "SCRAM-SHA-512") == ["orders"]


def test_broker_whose_users_cannot_be_stored_does_not_stay() -> None:
    """Neither its port nor its data directory may be in use afterwards."""
    (port,) = free_ports(1)
    nobody = AclBinding(AclResourceType.TOPIC, "orders", "nobody", AclOperation.READ)

    async def start(data: str) -> None:
        with pytest.raises(KafkaError, match="nobody"):
            async with broker(port=port, data=data, security=Security(users=USERS, acls=[nobody])):
                raise AssertionError("it has started")
        async with broker(port=port, data=data, security=Security(users=USERS)) as b:
            await b.create_topic("orders")

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(start(folder))


def test_without_acls_users_may_do_everything() -> None:
    with run_broker(security=Security(users=USERS)) as broker:
        broker.create_topic("orders")
        assert seen_by(broker, "eve") == ["orders"]


def test_a_wrong_password_is_refused() -> None:
    with run_broker(security=Security(users=USERS)) as broker:
        options = broker.client_options("eve") | {"sasl_plain_password": "wrong"}
        with (
            pytest.raises(SaslAuthenticationFailed),
            AdminClient(**options, default_api_timeout_ms=5_000) as admin,
        ):
            admin.list_topics()


def test_tls_alone_needs_no_user() -> None:
    with run_broker(security=Security(tls=True)) as broker:
        broker.create_topic("orders")
        with AdminClient(**broker.client_options()) as admin:
            assert admin.list_topics() == ["orders"]
        with pytest.raises(ValueError, match="there are no users"):
            broker.client_options("billing")


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="ACLs need users"):
        Security(acls=[READ_ORDERS])
    with pytest.raises(ValueError, match="users, tls=True or both"):
        Security()
    with (
        run_broker(security=Security(users=USERS)) as broker,
        pytest.raises(ValueError, match="'mallory' is none of them"),
    ):
        broker.client_options("mallory")


@pytest.mark.sharegroup(security=Security(users={"billing": "its-secret"}))
def test_the_fixture_takes_it_too(sharegroup_broker: TestBroker) -> None:
    sharegroup_broker.create_topic("orders")
    assert seen_by(sharegroup_broker, "billing") == ["orders"]
