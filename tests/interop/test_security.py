"""TLS and every SASL mechanism against a real Apache Kafka, and what is said when they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import (
    InvalidConfig,
    KafkaError,
    RequestTimedOut,
    SaslAuthenticationFailed,
    TlsHandshakeFailed,
)
from tests.interop.secure_listeners import (
    KEY_PASSWORD,
    LOGIN_MS,
    PASSWORD,
    USER,
    Certificates,
    SecureKafka,
    unsecured_token,
    why_no_certificates,
)
from tests.support import confluent_calls
from tests.support.kafka_peer import why_missing
from tests.support.limits import HANGING_SECONDS

missing = why_missing() or why_no_certificates()
pytestmark = [pytest.mark.kafka, pytest.mark.skipif(missing is not None, reason=missing or "")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
Options = dict[str, Any]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("kafka"), certificates) as peer:
        admin = confluent_calls.admin(peer.bootstrap_servers)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            information = ScramCredentialInfo(mechanism, 4096)
            upsertion = UserScramCredentialUpsertion(USER, information, PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])[USER].result(HANGING_SECONDS)
        yield peer
        confluent_calls.admin.cache_clear()


def login(mechanism: str) -> Options:
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": unsecured_token}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


def sasl_tls(kafka: SecureKafka, certificates: Certificates, mechanism: str) -> Options:
    return {
        "bootstrap_servers": kafka.at(kafka.sasl_tls_port),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates.authority),
        **login(mechanism),
    }


def sasl(kafka: SecureKafka, mechanism: str) -> Options:
    return {
        "bootstrap_servers": kafka.at(kafka.sasl_port),
        "security_protocol": "SASL_PLAINTEXT",
        **login(mechanism),
    }


def tls(kafka: SecureKafka, certificates: Certificates) -> Options:
    return {
        "bootstrap_servers": kafka.at(kafka.tls_port),
        "security_protocol": "SSL",
        "ssl_cafile": str(certificates.authority),
        "ssl_certfile": str(certificates.client),
        "ssl_keyfile": str(certificates.client_key),
        "ssl_password": KEY_PASSWORD,
    }


async def topics_of(options: Options) -> list[str]:
    async with AdminClient(**options) as admin:
        return await admin.list_topics()


def refusal(options: Options, error: type[KafkaError]) -> str:
    """The text of the error that this client gets, which must come soon."""
    started_at = time.monotonic()
    with pytest.raises(error) as raised:
        asyncio.run(topics_of(options))
    assert time.monotonic() - started_at < 10.0
    return str(raised.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_logs_in_over_tls(
    kafka: SecureKafka, certificates: Certificates, mechanism: str
) -> None:
    topic = f"mechanism-{mechanism}"

    async def scenario() -> None:
        options = sasl_tls(kafka, certificates, mechanism)
        async with AdminClient(**options) as admin:
            assert await admin.create_topics([NewTopic(topic, 1)]) == {topic: None}
            totals = admin.metrics()["admin-client-metrics"]
            assert totals["successful-authentication-total"] == totals["connection-count"] == 1
        async with Producer(**options) as producer:
            assert (await producer.send_and_wait(topic, b"hello")).offset == 0

    asyncio.run(scenario())


def test_share_consumer_reads_over_tls_and_scram(
    kafka: SecureKafka, certificates: Certificates
) -> None:
    options = sasl_tls(kafka, certificates, "SCRAM-SHA-512")

    async def scenario() -> None:
        async with AdminClient(**options) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
            resource = ConfigResource(ResourceType.GROUP, "billing")
            change = AlterConfig("share.auto.offset.reset", "earliest")
            assert await admin.incremental_alter_configs({resource: [change]}) == {resource: None}
        async with Producer(**options) as producer:
            await producer.send("orders", b"one apple")
        async with asyncio.timeout(HANGING_SECONDS):
            async with ShareConsumer("orders", group_id="billing", **options) as consumer:
                async for record in consumer:
                    assert record.value == b"one apple"
                    break

    asyncio.run(scenario())


def test_certificate_of_the_client_with_a_locked_key(
    kafka: SecureKafka, certificates: Certificates
) -> None:
    assert isinstance(asyncio.run(topics_of(tls(kafka, certificates))), list)


def test_token_provider_may_be_a_coroutine_function(kafka: SecureKafka) -> None:
    async def provider() -> str:
        return unsecured_token()

    options = {**sasl(kafka, "OAUTHBEARER"), "sasl_oauth_token_provider": provider}
    assert isinstance(asyncio.run(topics_of(options)), list)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_authentication_is_renewed_on_open_connections_before_it_ends(
    kafka: SecureKafka, mechanism: str
) -> None:
    """A login lasts 2 s here. A producer that works for two of them logs in twice more.

    Kafka closes a connection whose login has ended at the next request.
    """
    topic = f"renewed-{mechanism}"

    async def scenario() -> None:
        async with Producer(linger_ms=0, **sasl(kafka, mechanism)) as producer:
            opened = None
            sent = 0
            async with asyncio.timeout(5 * LOGIN_MS / 1000):
                while (totals := producer.metrics()["producer-metrics"])[
                    "successful-reauthentication-total"
                ] < 4:  # Twice on each of two connections.
                    assert (await producer.send_and_wait(topic, b"v")).offset == sent
                    sent += 1
                    if sent == 1:
                        opened = producer.metrics()["producer-metrics"]["connection-creation-total"]
            assert totals["connection-creation-total"] == opened == 2
            assert totals["record-retry-total"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_is_an_error_at_once(kafka: SecureKafka, mechanism: str) -> None:
    options = {**sasl(kafka, mechanism), "sasl_plain_password": "battery"}
    text = refusal(options, SaslAuthenticationFailed)
    assert f"broker 127.0.0.1:{kafka.sasl_port}: SASL {mechanism}: Authentication failed" in text
    assert "battery" not in text


def test_expired_token_is_an_error_at_once(kafka: SecureKafka) -> None:
    options = sasl(kafka, "OAUTHBEARER")
    options["sasl_oauth_token_provider"] = lambda: unsecured_token(seconds=-120)
    text = refusal(options, SaslAuthenticationFailed)
    assert text.endswith('SASL OAUTHBEARER: {"status":"invalid_token"}')


def test_untrusted_broker_is_refused(kafka: SecureKafka, certificates: Certificates) -> None:
    options = sasl_tls(kafka, certificates, "PLAIN")
    options["ssl_cafile"] = str(certificates.other_authority)
    assert "certificate verify failed" in refusal(options, TlsHandshakeFailed)


def test_certificate_for_another_host_is_refused_with_host_name_check(
    kafka: SecureKafka, certificates: Certificates
) -> None:
    options = sasl_tls(kafka, certificates, "PLAIN")
    options["bootstrap_servers"] = f"localhost:{kafka.sasl_tls_port}"
    assert "localhost" in refusal(options, TlsHandshakeFailed)
    assert isinstance(asyncio.run(topics_of({**options, "ssl_check_hostname": False})), list)


def test_plain_text_to_a_tls_listener_is_an_error_with_a_hint(
    kafka: SecureKafka, certificates: Certificates
) -> None:
    options = {"bootstrap_servers": kafka.at(kafka.tls_port), "default_api_timeout_ms": 1_500}
    text = refusal(options, RequestTimedOut)
    # Java's TLS sends an alert before it hangs up, and not always in time.
    assert "try security_protocol=SSL" in text or "check that the listener uses" in text


def test_missing_authentication_is_an_error_with_a_hint(kafka: SecureKafka) -> None:
    options = {"bootstrap_servers": kafka.at(kafka.sasl_port), "default_api_timeout_ms": 1_500}
    assert "check that the listener uses" in refusal(options, RequestTimedOut)


def test_tls_to_a_plain_listener_is_an_error(
    kafka: SecureKafka, certificates: Certificates
) -> None:
    options = {**tls(kafka, certificates), "bootstrap_servers": kafka.bootstrap_servers}
    text = refusal({**options, "default_api_timeout_ms": 1_500}, KafkaError)
    assert f"broker 127.0.0.1:{kafka.port}" in text


def test_missing_or_locked_files_are_named(certificates: Certificates) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl_cafile='/nowhere\.pem'"):
        AdminClient(security_protocol="SSL", ssl_cafile="/nowhere.pem")
    with pytest.raises(InvalidConfig, match="if the key is encrypted: ssl_password"):
        AdminClient(
            security_protocol="SSL",
            ssl_cafile=str(certificates.authority),
            ssl_certfile=str(certificates.client),
            ssl_keyfile=str(certificates.client_key),
        )
