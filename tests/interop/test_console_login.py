"""The console's logins with users of a real Apache Kafka, by TLS and SCRAM, and with its ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    NewTopic,
    Producer,
    ScramMechanism,
    ShareConsumer,
    UserScramCredentialUpsertion,
)
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.client.settings.option_values import SaslMechanism
from tests.integration.console.access_scene import SECURITY, USERS, console
from tests.integration.worker.secured import Secured, secured
from tests.interop.secure_listeners import why_no_certificates
from tests.support.chosen_broker import SOONER
from tests.support.kafka_peer import why_missing
from tests.support.limits import HANGING_SECONDS

missing = why_missing() or why_no_certificates()
pytestmark = [pytest.mark.kafka, pytest.mark.skipif(missing is not None, reason=missing or "")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {**SOONER, "group.share.enable": "true"}
    with secured(tmp_path_factory.mktemp("secured"), settings) as there:
        asyncio.run(made(there))
        yield there


async def made(broker: Secured) -> None:
    """Make users with their ACLs, and two topics with a share group each."""
    open_bootstrap = broker.open_bootstrap
    async with AdminClient(bootstrap_servers=open_bootstrap) as admin:
        outcomes: dict[Any, Any] = await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(name, password, ScramMechanism.SCRAM_SHA_512)
            for name, password in USERS.items()
        )
        outcomes |= await admin.create_acls(SECURITY.acls or ())
        outcomes |= await admin.create_topics([NewTopic("orders", 1), NewTopic("secrets", 1)])
        assert not [error for error in outcomes.values() if isinstance(error, Exception)]
    for topic, group in (("orders", "billing"), ("secrets", "spies")):
        async with Producer(bootstrap_servers=open_bootstrap) as producer:
            await producer.send_and_wait(topic, b'{"id": 7}', key=b"k7")
        async with ShareConsumer(
            topic, bootstrap_servers=open_bootstrap, group_id=group, start_from="earliest"
        ) as consumer:
            assert await consumer.poll(timeout=HANGING_SECONDS)
            await consumer.commit()


def options(broker: Secured) -> ClientOptions:
    return ClientOptions(
        **{
            **broker.options(USERS["console"]),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "console",
        }
    )


@pytest.mark.slow
def test_users_see_and_read_what_the_acls_of_kafka_allow(broker: Secured) -> None:
    async def run() -> None:
        async with console(options(broker), login_mechanism=SaslMechanism.SCRAM_SHA_512) as scene:
            ada, eve = await scene.browser(), await scene.browser()
            wrong = await ada.log_in(name="ada", password="wrong")
            assert (wrong.status_code, "does not accept" in wrong.text) == (401, True)
            for browser, name in ((ada, "ada"), (eve, "eve")):
                done = await browser.log_in(name=name, password=USERS[name])
                assert done.status_code == 303, done.text
            groups = await ada.until("/groups", lambda data: data["groups"] != [])
            assert [row["group"] for row in groups["groups"]] == ["billing"]
            topics = await ada.until("/topics", lambda data: data["topics"] != [])
            assert [row["name"] for row in topics["topics"]] == ["orders"]
            (row,) = (await ada.data("/records", topic="orders"))["records"]
            assert row["key"] == "k7"
            assert (await ada.get("/group", id="spies")).status_code == 404
            assert (await ada.data("/group", id="billing"))["runs"] == []
            assert await eve.data("/groups") == {"groups": []}
            assert await eve.data("/topics") == {"topics": []}

    asyncio.run(run())
