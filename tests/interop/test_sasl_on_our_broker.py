"""Other clients log in to our broker over TLS, with every mechanism, unmodified.

A record that each of them writes is read back by itself.  The Java client is that of Kafka's tools.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import (
    Consumer as ConfluentConsumer,
    KafkaError as ConfluentError,
    Producer as ConfluentProducer,
    TopicPartition as ConfluentPartition,
)
from confluent_kafka.admin import (
    AdminClient as ConfluentAdmin,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer, TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from sharegroup.client import Producer, sync as our_clients
from sharegroup.testing import TestBroker, run_broker
from tests.integration.broker.sasl_scene import (
    ALL_MECHANISMS,
    CLOSED,
    OPEN,
    PASSWORD,
    USER,
    add_user,
    address_of,
    counts,
    settings,
)
from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.interop.secure_listeners import Certificates, why_no_certificates
from tests.support import kafka_tools
from tests.support.limits import HANGING_SECONDS
from tests.support.token_issuer import claims_of, key_of, signed

missing = why_no_certificates()
pytestmark = [LEAVES_SOCKETS, pytest.mark.skipif(missing is not None, reason=missing or "")]

MECHANISMS = ALL_MECHANISMS.split(",")
NO_TOOLS = kafka_tools.why_missing()
WITH_TOOLS = [
    pytest.mark.kafka,
    pytest.mark.skipif(NO_TOOLS is not None, reason=NO_TOOLS or ""),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), ["localhost"])


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[TestBroker]:
    values = {
        **settings(
            tmp_path_factory.mktemp("broker"), connection_failed_authentication_delay_ms="0"
        ),
        "listener.security.protocol.map": f"{OPEN}:PLAINTEXT,{CLOSED}:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
    }
    with run_broker(values) as running:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            add_user(running, mechanism.value)  # type: ignore[arg-type]
        yield running


def token(*, valid_seconds: float = 300) -> str:
    return signed(
        claims_of("carol", int(time.time()), valid_seconds=int(valid_seconds)), key_of("first")
    )


def topic_of(served: TestBroker, client: str, mechanism: str) -> str:
    name = f"{client}-{mechanism}".lower()
    served.create_topic(name)
    return name


class LoggedIn:
    """Asserts that exactly this mechanism was used meanwhile."""

    def __init__(self, served: TestBroker, mechanism: str) -> None:
        self._served, self._mechanism = served, mechanism

    def __enter__(self) -> None:
        self._before = dict(counts(self._served, "succeeded"))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            after = counts(self._served, "succeeded")
            grown = {name for name in after if after[name] > self._before.get(name, 0)}
            assert grown == {self._mechanism}


# confluent-kafka.


def confluent(
    served: TestBroker, certificates: Certificates, mechanism: str, **changed: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": address_of(served),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.authority),
        "sasl.mechanisms": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        options["oauth_cb"] = lambda _: (token(), time.time() + 300)
    else:
        options |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return options | changed


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(served: TestBroker, certificates: Certificates, mechanism: str) -> None:
    topic = topic_of(served, "confluent", mechanism)
    options = confluent(served, certificates, mechanism)
    with LoggedIn(served, mechanism):
        producer = ConfluentProducer(options)
        producer.produce(topic, b"apple")
        assert producer.flush(HANGING_SECONDS) == 0
        consumer = ConfluentConsumer({**options, "group.id": "g"})
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        record = consumer.poll(HANGING_SECONDS)
        consumer.close()
    assert record is not None
    assert record.value() == b"apple"


def test_confluent_kafka_is_told_of_a_wrong_password(
    served: TestBroker, certificates: Certificates
) -> None:
    errors: list[ConfluentError] = []
    options = confluent(served, certificates, "SCRAM-SHA-512", error_cb=errors.append)
    admin = ConfluentAdmin({**options, "sasl.password": "wrong"})
    end = time.monotonic() + HANGING_SECONDS
    while not errors and time.monotonic() < end:
        admin.poll(0.1)
    assert errors[0].code() == ConfluentError._AUTHENTICATION
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in errors[0].str()


def test_confluent_kafka_changes_users(served: TestBroker, certificates: Certificates) -> None:
    admin = ConfluentAdmin(confluent(served, certificates, "PLAIN"))
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    upsertion = UserScramCredentialUpsertion("dave", information, b"first")
    admin.alter_user_scram_credentials([upsertion])["dave"].result(HANGING_SECONDS)
    described = admin.describe_user_scram_credentials(["dave"])["dave"].result(HANGING_SECONDS)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    dave = {"sasl.username": "dave", "sasl.password": "first"}
    login = ConfluentAdmin(confluent(served, certificates, "SCRAM-SHA-512", **dave))
    assert login.list_topics(timeout=HANGING_SECONDS).brokers
    deletion = UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["dave"].result(HANGING_SECONDS)


# kafka-python.


class PythonTokens(KafkaPythonTokens):
    """The token provider of kafka-python."""

    def token(self) -> str:
        return token()

    def extensions(self) -> dict[str, str]:
        return {}


def python_options(
    served: TestBroker, certificates: Certificates, mechanism: str
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": address_of(served),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates.authority),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**options, "sasl_oauth_token_provider": PythonTokens()}
    return {**options, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(served: TestBroker, certificates: Certificates, mechanism: str) -> None:
    topic = topic_of(served, "python", mechanism)
    options = python_options(served, certificates, mechanism)
    with LoggedIn(served, mechanism):
        producer = KafkaProducer(**options)
        producer.send(topic, b"apple").get(HANGING_SECONDS)
        producer.close()
        consumer = KafkaConsumer(auto_offset_reset="earliest", **options)
        partition = PythonPartition(topic, 0)
        consumer.assign([partition])
        found = consumer.poll(HANGING_SECONDS * 1000)
        consumer.close()
    assert [record.value for record in found[partition]] == [b"apple"]


def test_kafka_python_is_told_of_a_wrong_password(
    served: TestBroker, certificates: Certificates
) -> None:
    options = python_options(served, certificates, "SCRAM-SHA-256")
    options |= {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 1_000}
    before = counts(served, "failed").get("SCRAM-SHA-256", 0)
    with pytest.raises(PythonError):
        KafkaProducer(**options)
    assert counts(served, "failed")["SCRAM-SHA-256"] > before


# aiokafka.


class AioTokens(AiokafkaTokens):
    async def token(self) -> str:
        return token()


def aio_options(served: TestBroker, certificates: Certificates, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": address_of(served),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(certificates.authority)),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**options, "sasl_oauth_token_provider": AioTokens()}
    return {**options, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


async def by_aiokafka(topic: str, options: dict[str, Any]) -> bytes:
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"apple")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        record = await asyncio.wait_for(consumer.getone(), HANGING_SECONDS)
        return bytes(record.value or b"")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(served: TestBroker, certificates: Certificates, mechanism: str) -> None:
    topic = topic_of(served, "aiokafka", mechanism)
    with LoggedIn(served, mechanism):
        options = aio_options(served, certificates, mechanism)
        assert asyncio.run(by_aiokafka(topic, options)) == b"apple"


def test_aiokafka_is_told_of_a_wrong_password(
    served: TestBroker, certificates: Certificates
) -> None:
    options = {**aio_options(served, certificates, "PLAIN"), "sasl_plain_password": "wrong"}

    async def start() -> None:
        producer = AIOKafkaProducer(**options)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AiokafkaError):
        asyncio.run(start())


# Ours.


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client(served: TestBroker, certificates: Certificates, mechanism: str) -> None:
    topic = topic_of(served, "ours", mechanism)
    options = aio_options(served, certificates, mechanism)
    options["ssl_cafile"] = str(certificates.authority)
    del options["ssl_context"]
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = token

    async def write() -> None:
        async with Producer(**options) as producer:
            await producer.send_and_wait(topic, b"apple")

    with LoggedIn(served, mechanism):
        asyncio.run(write())
        with our_clients.AdminClient(**options) as admin:
            assert topic in admin.list_topics()


# Kafka's own tools, in Java.


def java_properties(
    folder: Path, certificates: Certificates, mechanism: str, password: str = PASSWORD
) -> Path:
    modules = {
        "PLAIN": "plain.PlainLoginModule",
        "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
    }
    module = modules.get(mechanism, "scram.ScramLoginModule")
    user = "" if mechanism == "OAUTHBEARER" else f' username="{USER}" password="{password}"'
    lines = [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.authority}",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required{user};",
    ]
    if mechanism == "OAUTHBEARER":
        (folder / "token.jwt").write_text(token())
        lines.append(f"sasl.oauthbearer.token.endpoint.url={(folder / 'token.jwt').as_uri()}")
        lines.append(
            "sasl.login.callback.handler.class="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        )
    file = folder / "client.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [pytest.param(name, marks=WITH_TOOLS) for name in MECHANISMS])
def test_the_java_client(
    served: TestBroker,
    certificates: Certificates,
    mechanism: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topic_of(served, "java", mechanism)
    properties = java_properties(tmp_path, certificates, mechanism)
    arguments = ("--bootstrap-server", address_of(served), "--command-config", str(properties))
    tool = kafka_tools.SCRIPTS["kafka-topics"]
    with LoggedIn(served, mechanism):
        if mechanism == "OAUTHBEARER":  # Kafka reads only files that a system property names.
            allowed = (
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tmp_path.as_uri()}/token.jwt"
            )
            monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
            printed = kafka_tools.run_tool_alone(tool, *arguments, "--list")
        else:
            printed = kafka_tools.run_tool(tool, *arguments, "--list")
    assert topic in printed.split()


@pytest.mark.parametrize("tool", [pytest.param("kafka-configs", marks=WITH_TOOLS)])
def test_kafka_configs_changes_users(
    served: TestBroker, certificates: Certificates, tmp_path: Path, tool: str
) -> None:
    properties = java_properties(tmp_path, certificates, "PLAIN")
    base = ("--bootstrap-server", address_of(served), "--command-config", str(properties))
    erin = ("--entity-type", "users", "--entity-name", "erin")

    def run(*arguments: str) -> str:
        return kafka_tools.run_tool(kafka_tools.SCRIPTS[tool], *base, *arguments)

    run("--alter", *erin, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=first]")
    assert (
        "SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-256=iterations=8192"
    ) in run("--describe", *erin)
    login = java_properties(tmp_path, certificates, "SCRAM-SHA-256", "first")
    login.write_text(login.read_text().replace(f'username="{USER}"', 'username="erin"'))
    topics = kafka_tools.run_tool(
        kafka_tools.SCRIPTS["kafka-topics"],
        *("--bootstrap-server", address_of(served), "--command-config", str(login), "--list"),
    )
    assert "__consumer_offsets" in topics
    run("--alter", *erin, "--delete-config", "SCRAM-SHA-256")
    with our_clients.AdminClient(bootstrap_servers=address_of(served, OPEN)) as admin:
        assert "erin" not in admin.describe_user_scram_credentials()
