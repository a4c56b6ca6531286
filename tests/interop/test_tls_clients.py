"""Real clients on our broker's TLS listener, each with a certificate of its own.

``protocol`` and ``login`` of `Security` are the place where a login by SASL is added.  What a
client says when it, or the broker, does not trust the other is part of the tests: a client that
only times out leaves its user without a clue.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import (
    Consumer as ConfluentConsumer,
    KafkaError as ConfluentError,
    Producer as ConfluentProducer,
)
from kafka import KafkaConsumer, KafkaProducer

from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.client import AdminClient, Consumer, Producer, TopicPartition
from sharegroup.errors import TlsHandshakeFailed
from tests.interop.foreign_clients import LEAVES_SOCKETS
from tests.support.kafka_tools import SCRIPTS, tools, why_missing
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

pytestmark = LEAVES_SOCKETS
needs_java = pytest.mark.skipif(why_missing() is not None, reason=why_missing() or "")

VALUES = [b"%d:" % number + bytes(range(256)) * 40 for number in range(200)]
"""2 MB, in records that span TLS records."""
SSL_REFUSED = "SSL handshake failed|Failed to process post-handshake messages"
"""What Java's client says for an SslAuthenticationException, which it does not retry."""


@dataclass(frozen=True)
class Security:
    """What a client needs to know of one listener."""

    bootstrap: str
    authority: Path
    certificate: Path | None
    protocol: str = "SSL"
    login: dict[str, str] = field(default_factory=dict)
    """Properties of Kafka's clients for a login by SASL."""

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return context

    def ours(self) -> dict[str, Any]:
        own = {} if self.certificate is None else {"ssl_certfile": str(self.certificate)}
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "ssl_cafile": str(self.authority),
            "default_api_timeout_ms": 10_000,
            **own,
        }

    def confluent(self) -> dict[str, Any]:
        own = {}
        if self.certificate is not None:
            own = {
                "ssl.certificate.location": str(self.certificate),
                "ssl.key.location": str(self.certificate),
            }
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.authority),
            **own,
            **self.login,
        }

    def python(self) -> dict[str, Any]:
        """For aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "ssl_context": self.context(),
        }

    def java(self, path: Path) -> str:
        """The path of a properties file for Kafka's own tools."""
        lines = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "default.api.timeout.ms": 20_000,
            "request.timeout.ms": 10_000,
            **self.login,
        }
        if self.certificate is not None:
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return make_certificates(folder, hosts=["127.0.0.1"], clients=["alice"])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """The certificates of an authority that the broker does not trust."""
    folder: Path = tmp_path_factory.mktemp("others")
    return make_certificates(folder, hosts=["127.0.0.1"], clients=["alice"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: CertificateFiles) -> Iterator[str]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        "ssl.client.auth": "required",
    }
    data = tmp_path_factory.mktemp("broker") / "data"
    with ServeProcess(data, settings=settings) as process:
        yield process.bootstrap_servers


@pytest.fixture
def trusted(broker: str, files: CertificateFiles) -> Security:
    return Security(broker, files.authority, files.client("alice"))


def _expired(files: CertificateFiles) -> Path:
    if not files.client("old").exists():
        make_certificates(files.folder, hosts=(), clients=["old"], days=-1)
    return files.client("old")


@pytest.fixture(params=["none", "unknown authority", "expired"])
def refused(
    request: pytest.FixtureRequest, broker: str, files: CertificateFiles, other: CertificateFiles
) -> Security:
    """A client whose certificate the broker does not accept."""
    certificate = {
        "none": None,
        "unknown authority": other.client("alice"),
        "expired": _expired(files),
    }[request.param]
    return Security(broker, files.authority, certificate)


@pytest.fixture(params=["unknown authority", "wrong host name"])
def distrustful(
    request: pytest.FixtureRequest, broker: str, files: CertificateFiles, other: CertificateFiles
) -> Security:
    """A client that must not accept the broker's certificate."""
    if request.param == "unknown authority":
        return Security(broker, other.authority, files.client("alice"))
    wrong = broker.replace("127.0.0.1", "localhost")
    return Security(wrong, files.authority, files.client("alice"))


# Our client.


async def _ours(security: Security, topic: str) -> list[bytes]:
    async with Producer(**security.ours()) as producer:
        for value in VALUES:
            await producer.send(topic, value)
    found: list[bytes] = []
    async with Consumer(**security.ours(), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(HANGING_SECONDS):
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.poll(1)]
    return found


def test_our_client_gets_what_it_sent(trusted: Security, topic: str) -> None:
    assert asyncio.run(_ours(trusted, topic)) == VALUES


def _our_error(security: Security) -> str:
    async def ask() -> None:
        async with AdminClient(**security.ours()) as admin:
            await admin.list_topics()

    with pytest.raises(TlsHandshakeFailed) as error:
        asyncio.run(ask())
    return str(error.value)


def test_our_client_says_that_its_certificate_is_refused(refused: Security) -> None:
    assert "check ssl_certfile" in _our_error(refused)


def test_our_client_refuses_the_broker(distrustful: Security) -> None:
    assert "certificate verify failed" in _our_error(distrustful)


# confluent-kafka.


def test_confluent_gets_what_it_sent(trusted: Security, topic: str) -> None:
    producer = ConfluentProducer(trusted.confluent())
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(HANGING_SECONDS) == 0
    settings = {"group.id": f"{topic}.readers", "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer({**trusted.confluent(), **settings})
    try:
        consumer.subscribe([topic])
        messages = []
        while len(messages) < len(VALUES):
            taken = consumer.consume(len(VALUES) - len(messages), HANGING_SECONDS)
            assert taken, f"{len(messages)} of {len(VALUES)} records came"
            messages += taken
    finally:
        consumer.close()
    assert [message.value() for message in messages] == VALUES


def _confluent_says(security: Security, text: str) -> bool:
    """Whether librdkafka tells of an error with this text."""
    errors: list[ConfluentError] = []
    producer = ConfluentProducer({**security.confluent(), "error_cb": errors.append})
    for _ in range(int(HANGING_SECONDS * 10)):
        producer.poll(0.1)
        if any(text in error.str() for error in errors):
            return True
    pytest.fail(f"no error with {text!r}, but {errors}")


def test_confluent_says_that_its_certificate_is_refused(refused: Security) -> None:
    assert _confluent_says(refused, "alert")


def test_confluent_refuses_the_broker(distrustful: Security) -> None:
    assert _confluent_says(distrustful, "certificate verify failed")


# kafka-python.


def test_kafka_python_gets_what_it_sent(trusted: Security, topic: str) -> None:
    producer = KafkaProducer(**trusted.python())
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(HANGING_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        **trusted.python(),
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(HANGING_SECONDS * 1000),
    )
    try:
        found = [record.value for _, record in zip(VALUES, consumer, strict=False)]
    finally:
        consumer.close()
    assert found == VALUES


# aiokafka.


def test_aiokafka_gets_what_it_sent(trusted: Security, topic: str) -> None:
    async def steps() -> list[bytes]:
        async with AIOKafkaProducer(**trusted.python()) as producer:
            for value in VALUES:
                await producer.send(topic, value, partition=0)
        async with (
            AIOKafkaConsumer(
                topic, **trusted.python(), auto_offset_reset="earliest", group_id=None
            ) as consumer,
            asyncio.timeout(HANGING_SECONDS),
        ):
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(steps()) == VALUES


# Java, by Kafka's own tools.


def _tool(script: str, security: Security, path: Path, *words: str, stdin: bytes = b"") -> Any:
    access = ("--bootstrap-server", security.bootstrap, "--command-config", security.java(path))
    return tools().run(SCRIPTS[script], *access, *words, stdin=stdin)


@needs_java
def test_java_gets_what_it_sent(trusted: Security, topic: str, tmp_path: Path) -> None:
    lines = [f"{number}:" + "x" * 10_000 for number in range(200)]
    path = tmp_path / "client.properties"
    sent = _tool(
        "kafka-console-producer", trusted, path, "--topic", topic, stdin="\n".join(lines).encode()
    )
    assert sent.code == 0, sent.err
    words = ("--topic", topic, "--from-beginning", "--max-messages", str(len(lines)))
    read = _tool("kafka-console-consumer", trusted, path, *words)
    assert read.out.split("\n")[: len(lines)] == lines, read.err


@needs_java
def test_java_says_that_its_certificate_is_refused(refused: Security, tmp_path: Path) -> None:
    """It gets the alert, and so does not try again until its time-out."""
    done = _tool("kafka-topics", refused, tmp_path / "client.properties", "--list")
    assert done.code != 0
    assert re.search(SSL_REFUSED, done.out + done.err), done.out + done.err


@needs_java
def test_java_refuses_the_broker(distrustful: Security, tmp_path: Path) -> None:
    done = _tool("kafka-topics", distrustful, tmp_path / "client.properties", "--list")
    assert done.code != 0
    assert re.search(SSL_REFUSED, done.out + done.err), done.out + done.err


@needs_java
def test_kafka_configs_exchanges_the_certificate(
    trusted: Security, files: CertificateFiles, tmp_path: Path
) -> None:
    """With the same path as before, as after a renewal; and with a path that is not there."""
    name = "listener.name.ssl.ssl.keystore.location"
    words = ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config")
    path = tmp_path / "client.properties"
    done = _tool("kafka-configs", trusted, path, *words, f"{name}={files.server}")
    assert done.code == 0, done.err
    failed = _tool("kafka-configs", trusted, path, *words, f"{name}=/no/such/file")
    assert failed.code != 0
    assert "cannot be read" in failed.out + failed.err
