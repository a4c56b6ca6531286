"""One file of client properties, for Kafka's own tool and for ours, against a guarded Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from tests.interop.secure_listeners import (
    KEY_PASSWORD,
    PASSWORD,
    USER,
    Certificates,
    SecureKafka,
    unsecured_token,
    why_no_certificates,
)
from tests.support import confluent_calls
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import why_missing
from tests.support.kafka_tools import run_tool, why_missing as why_no_tools

missing = why_missing() or why_no_tools() or why_no_certificates()
pytestmark = [
    LONG_WITH_A_JVM,
    pytest.mark.kafka,
    pytest.mark.skipif(missing is not None, reason=missing or ""),
]

GROUP = "guarded.group"
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
    f'    username="{USER}" \\\n    password="%s";'
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    folder = tmp_path_factory.mktemp("guarded")
    certificates = Certificates(folder / "certificates")
    both = certificates.client_key.read_text() + certificates.client.read_text()
    (folder / "client-both.pem").write_text(both)
    (folder / "token").write_text(unsecured_token())
    with SecureKafka(folder / "kafka", certificates) as kafka:
        yield kafka
        confluent_calls.admin.cache_clear()


@pytest.fixture
def properties(kafka: SecureKafka, tmp_path: Path) -> Path:
    """A file of client properties, empty but for whom to trust."""
    authority = kafka.folder.parent / "certificates" / "ca.pem"
    file = tmp_path / "client.properties"
    file.write_text(f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n")
    return file


def sharegroup(words: str, file: Path, bootstrap: str) -> int:
    """The exit code of a run."""
    options = ["--command-config", str(file), "--bootstrap-server", bootstrap]
    with pytest.raises(SystemExit) as end:
        main([*words.split(), *options])
    return int(end.value.code or 0)


def test_login_and_authority_are_read_as_by_kafkas_tool(
    kafka: SecureKafka, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with properties.open("a") as more:
        more.write("security.protocol: SASL_SSL\nsasl.mechanism = PLAIN\n")
        more.write(f"sasl.jaas.config={PLAIN_LOGIN % PASSWORD}\n")
    bootstrap = kafka.at(kafka.sasl_tls_port)
    made = sharegroup("topics create guarded.topic --partitions 1", properties, bootstrap)
    assert (made, capsys.readouterr().err) == (0, "")
    reset = f"groups reset-offsets {GROUP} --topic guarded.topic --to-latest --execute"
    assert sharegroup(reset, properties, bootstrap) == 0
    printed = run_tool(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", bootstrap, "--command-config", str(properties), "--list"),
    )
    assert printed.split() == [GROUP]


def test_clients_certificate_with_a_locked_key_opens_the_door(
    kafka: SecureKafka, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with properties.open("a") as more:
        more.write("security.protocol=SSL\nssl.keystore.type=PEM\n")
        more.write(f"ssl.keystore.location={kafka.folder.parent}/client-both.pem\n")
        more.write(f"ssl.key.password={KEY_PASSWORD}\n")
    assert sharegroup("topics list", properties, kafka.at(kafka.tls_port)) == 0
    assert capsys.readouterr().err == ""


def test_token_is_read_from_a_file(
    kafka: SecureKafka, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with properties.open("a") as more:
        more.write("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
        more.write(f"sasl.oauthbearer.token.endpoint.url=file://{kafka.folder.parent}/token\n")
    assert sharegroup("topics list", properties, kafka.at(kafka.sasl_tls_port)) == 0
    assert capsys.readouterr().err == ""


def test_wrong_password_is_refused_in_one_line_without_the_password(
    kafka: SecureKafka, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with properties.open("a") as more:
        more.write("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
        more.write(f"sasl.jaas.config={PLAIN_LOGIN % 'guessed'}\n")
    assert sharegroup("topics list", properties, kafka.at(kafka.sasl_tls_port)) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: SaslAuthenticationFailed: ")
    assert error.endswith("; check the sasl. properties in --command-config or in the profile\n")
    assert "guessed" not in error
    assert error.count("\n") == 1


def test_unknown_authority_is_refused_with_advice(
    kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    assert sharegroup("topics list", file, kafka.at(kafka.tls_port)) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: TlsHandshakeFailed: ")
    assert error.endswith("; check the ssl. properties in --command-config or in the profile\n")
