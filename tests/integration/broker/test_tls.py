"""A listener with TLS: requests, users of certificates, refusals, and hostile handshakes."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509

from sharegroup.broker.tls.handshakes import LINGER_MS
from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.client import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from sharegroup.errors import TlsHandshakeFailed, TopicAuthorizationFailed
from tests.integration.broker.tls_scene import (
    Seen,
    client_options,
    running,
    tls_settings,
    trusting,
    until,
)
from tests.support.limits import HANGING_SECONDS
from tests.support.scraping import Scrape, scrape

Loop = Callable[[], asyncio.AbstractEventLoop]
NAMES = "RULE:^CN=([^,]+).*$/$1/L"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return make_certificates(folder, hosts=["127.0.0.1"], clients=["Alice"])


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def run_on(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    return run_on


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_go_through_each_version_of_tls(
    run: Callable[[Any], Any], files: CertificateFiles, tmp_path: Path, version: str
) -> None:
    settings = tls_settings(files, ssl_enabled_protocols=version)
    values = [bytes([number]) * 900_000 for number in range(5)]

    async def main() -> list[bytes]:
        async with running(tmp_path, settings) as broker:
            options = client_options(files, broker)
            async with Producer(**options) as producer:
                for value in values:
                    await (await producer.send("records", value))
            found: list[bytes] = []
            async with Consumer(**options, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("records", 0)])
                while len(found) < len(values):
                    found += [record.value for record in await consumer.poll(1)]
            return found

    assert run(main()) == values


@pytest.mark.parametrize(
    ("rules", "user", "principal"),
    [
        ("DEFAULT", "Alice", "User:CN=Alice"),
        (NAMES, "Alice", "User:alice"),
        (NAMES, "", "User:ANONYMOUS"),
    ],
)
def test_user_of_a_connection_is_that_of_its_certificate(
    files: CertificateFiles, tmp_path: Path, rules: str, user: str, principal: str
) -> None:
    settings = tls_settings(files, ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    seen = Seen()

    async def main() -> None:
        async with (
            running(tmp_path, settings, seen) as broker,
            AdminClient(**client_options(files, broker, user)) as admin,
        ):
            await admin.list_topics()

    uvloop.run(main())
    assert set(seen.principals) == {principal}


def test_rights_of_a_connection_are_those_of_its_certificate(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "c", hosts=["127.0.0.1"], clients=["admin", "bob"])
    settings = tls_settings(
        files,
        ssl_client_auth="required",
        ssl_principal_mapping_rules=NAMES,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:admin",
    )

    async def main() -> list[type | None]:
        found: list[type | None] = []
        async with running(tmp_path, settings) as broker:
            for user in ("bob", "admin"):
                async with AdminClient(**client_options(files, broker, user)) as admin:
                    [error] = (await admin.create_topics([NewTopic("records")])).values()
                    found.append(None if error is None else type(error))
        return found

    assert uvloop.run(main()) == [TopicAuthorizationFailed, None]


def test_metrics_count_handshakes_and_tell_when_the_certificate_expires(
    files: CertificateFiles, tmp_path: Path
) -> None:
    pem = files.server.read_bytes()
    expires = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()

    async def main() -> Scrape:
        settings = tls_settings(files) | {"sharegroup.metrics.port": "0"}
        async with running(tmp_path, settings) as broker:
            async with AdminClient(**client_options(files, broker)) as admin:
                await admin.list_topics()
            with socket.create_connection(("127.0.0.1", broker.parts.node.port)) as peer:
                peer.send(b"no TLS")
                await until(lambda: not broker.server.handshakes.is_empty, "it failed")
            assert broker.metrics is not None
            return await asyncio.to_thread(scrape, broker.metrics.port)

    found = uvloop.run(main())
    assert found("sharegroup_tls_handshakes_total", listener="SSL", result="completed") > 0
    assert found("sharegroup_tls_handshakes_total", listener="SSL", result="failed") == 1
    name = "sharegroup_tls_certificate_expires_timestamp_seconds"
    assert found(name, listener="SSL") == expires


def _other_authority(tmp_path: Path) -> CertificateFiles:
    return make_certificates(tmp_path / "other", hosts=["127.0.0.1"], clients=["Alice"])


def _outdated(files: CertificateFiles) -> CertificateFiles:
    if not files.client("old").exists():
        make_certificates(files.folder, hosts=(), clients=["old"], days=-1)
    return files


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("none", "peer did not return a certificate"),
        ("other authority", "certificate is not valid: .*(self-signed|unable to get)"),
        ("outdated", "certificate is not valid: certificate has expired"),
        ("no rule", "no rule of ssl.principal.mapping.rules gives the subject 'CN=Alice'"),
    ],
)
def test_client_without_a_valid_certificate_is_refused_and_logged(
    run: Callable[[Any], Any],
    files: CertificateFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    case: str,
    reason: str,
) -> None:
    settings = tls_settings(files, ssl_client_auth="required")
    if case == "no rule":
        settings["ssl.principal.mapping.rules"] = "RULE:^CN=bob$/bob/"

    async def main() -> None:
        async with running(tmp_path, settings) as broker:
            options = client_options(files, broker)
            options |= {"default_api_timeout_ms": 2_000, "retry_backoff_ms": 10}
            if case == "other authority":
                options["ssl_certfile"] = str(_other_authority(tmp_path).client("Alice"))
            elif case == "outdated":
                options["ssl_certfile"] = str(_outdated(files).client("old"))
            elif case == "no rule":
                options["ssl_certfile"] = str(files.client("Alice"))
            try:
                async with AdminClient(**options) as admin:
                    await admin.list_topics()
            finally:
                assert broker.server.connection_count == 0

    expected: Any = Exception if case == "no rule" else TlsHandshakeFailed
    with pytest.raises(expected):
        run(main())
    assert any(
        record.getMessage().startswith("event=tls_handshake_failed") for record in caplog.records
    )
    assert re.search(reason, caplog.text)


def test_broker_with_an_unknown_authority_or_another_name_is_refused_by_our_client(
    files: CertificateFiles, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path, tls_settings(files)) as broker:
            other = client_options(_other_authority(tmp_path), broker)
            wrong_name = client_options(files, broker)
            wrong_name["bootstrap_servers"] = f"localhost:{broker.parts.node.port}"
            for options, message in (
                (other, "certificate verify failed"),
                (wrong_name, "Hostname mismatch"),
            ):
                async with AdminClient(**options) as admin:
                    with pytest.raises(TlsHandshakeFailed, match=message):
                        await admin.list_topics()

    uvloop.run(main())


def test_clients_of_the_wrong_protocol_are_closed_with_a_line_that_says_so(
    files: CertificateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(files) | {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    }

    async def main() -> None:
        async with running(tmp_path, settings) as broker:
            tls_port, plain_port = (
                int(address.rpartition(":")[2]) for address in broker.listeners.split(",")
            )
            reader, writer = await asyncio.open_connection("127.0.0.1", tls_port)
            writer.write(b"\x00\x00\x00\x10\x00\x12\x00\x03" + bytes(12))
            assert await asyncio.wait_for(reader.read(), HANGING_SECONDS) == b""
            writer.close()
            with pytest.raises((ssl.SSLError, OSError)):
                await asyncio.open_connection(
                    "127.0.0.1", plain_port, ssl=trusting(files), server_hostname="127.0.0.1"
                )

    uvloop.run(main())
    assert "the peer sent bytes that are not TLS; does it use PLAINTEXT?" in caplog.text
    assert "the beginning of a TLS handshake; the listener is PLAINTEXT" in caplog.text


def test_half_handshake_is_closed_at_the_time_limit(
    run: Callable[[Any], Any],
    files: CertificateFiles,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = tls_settings(files) | {"sharegroup.tls.handshake.timeout.ms": "100"}

    async def main() -> None:
        async with running(tmp_path, settings) as broker:
            port = broker.parts.node.port
            for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(begun)
                with suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), HANGING_SECONDS) == b""
                writer.close()
            await until(lambda: broker.server.handshakes.is_empty, "all are forgotten")
            assert broker.server.admission.count == 0

    run(main())
    assert "the TLS handshake took more than 100 ms" in caplog.text


def test_honest_client_is_served_beside_a_flood_of_half_handshakes(
    files: CertificateFiles, tmp_path: Path
) -> None:
    """Peers of another address connect, send half a handshake or nothing, and stay."""

    async def main() -> float:
        async with running(tmp_path, tls_settings(files)) as broker:
            port = broker.parts.node.port
            hogs = []
            try:
                for number in range(300):
                    hog = socket.create_connection(
                        ("127.0.0.1", port), source_address=("127.0.0.9", 0)
                    )
                    hogs.append(hog)
                    if number % 2:
                        hog.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                    await asyncio.sleep(0)
                handshakes = broker.server.handshakes
                await until(lambda: handshakes.pending_count == 128, "one address has its share")
                begin = asyncio.get_running_loop().time()
                async with AdminClient(**client_options(files, broker)) as admin:
                    await admin.list_topics()
                return asyncio.get_running_loop().time() - begin
            finally:
                for hog in hogs:
                    hog.close()

    assert uvloop.run(main()) < 1


def test_stop_ends_while_handshakes_are_pending_and_failed_ones_linger(
    run: Callable[[Any], Any], files: CertificateFiles, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path, tls_settings(files)) as broker:
            port = broker.parts.node.port
            peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
            peers[0].send(b"no TLS")
            await until(lambda: broker.server.handshakes.pending_count == 3, "one failed")
        for peer in peers:
            peer.close()

    run(main())


def test_failed_peer_that_does_not_close_is_closed_after_a_moment(
    files: CertificateFiles, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path, tls_settings(files)) as broker:
            with socket.create_connection(("127.0.0.1", broker.parts.node.port)) as peer:
                peer.send(b"no TLS")
                await until(lambda: not broker.server.handshakes.is_empty, "it failed")
                begin = asyncio.get_running_loop().time()
                await until(lambda: broker.server.handshakes.is_empty, "it is closed")
                assert asyncio.get_running_loop().time() - begin > (LINGER_MS - 100) / 1_000

    uvloop.run(main())
