"""TLS with a broker in the same process: whom the client trusts, and what it says when it doesn't.

The same against a real Apache Kafka is in tests/interop/test_security.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvloop

from sharegroup.client import AdminClient
from sharegroup.errors import InvalidConfig, KafkaError, TlsHandshakeFailed
from tests.faults.lying_broker import LyingBroker
from tests.interop.secure_listeners import KEY_PASSWORD, Certificates, why_no_certificates

pytestmark = pytest.mark.skipif(
    why_no_certificates() is not None, reason=why_no_certificates() or ""
)
Loop = Callable[[], asyncio.AbstractEventLoop]
LIMITS: dict[str, Any] = {
    "connect_timeout_ms": 1_000,
    "default_api_timeout_ms": 2_000,
    "retry_backoff_ms": 10,
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Loop:
    factory: Loop = request.param
    return factory


def server(certificates: Certificates, *, asks_for_a_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.folder / "broker.pem", certificates.folder / "broker.key")
    if asks_for_a_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)
    return context


def topics(loop: Loop, context: ssl.SSLContext | None, *, host: str = "", **options: Any) -> Any:
    """The topics that a client with these options is told of by a broker with this context."""

    async def run() -> list[str]:
        async with LyingBroker(context) as broker:
            bootstrap = f"{host}:{broker.port}" if host else broker.bootstrap_servers
            async with AdminClient(bootstrap_servers=bootstrap, **{**LIMITS, **options}) as admin:
                return await admin.list_topics()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


def test_broker_that_is_trusted_is_talked_to(loop: Loop, certificates: Certificates) -> None:
    trust = {"security_protocol": "SSL", "ssl_cafile": str(certificates.authority)}
    assert topics(loop, server(certificates), **trust) == ["t"]


def test_context_of_the_application_is_used(loop: Loop, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.authority)
    options = {"security_protocol": "SSL", "ssl_context": context}
    assert topics(loop, server(certificates), **options) == ["t"]


def test_untrusted_certificate_is_refused_immediately(
    loop: Loop, certificates: Certificates
) -> None:
    trust = {"security_protocol": "SSL", "ssl_cafile": str(certificates.other_authority)}
    with pytest.raises(TlsHandshakeFailed, match="certificate verify failed"):
        topics(loop, server(certificates), **trust)


def test_host_name_is_checked_unless_ssl_check_hostname_is_false(
    loop: Loop, certificates: Certificates
) -> None:
    trust = {"security_protocol": "SSL", "ssl_cafile": str(certificates.authority)}
    with pytest.raises(TlsHandshakeFailed, match=r"Hostname mismatch.*'localhost'"):
        topics(loop, server(certificates), host="localhost", **trust)
    unchecked = {**trust, "ssl_check_hostname": False}
    assert topics(loop, server(certificates), host="localhost", **unchecked) == ["t"]


def test_client_certificate_is_sent_on_request(loop: Loop, certificates: Certificates) -> None:
    context = server(certificates, asks_for_a_certificate=True)
    trust = {"security_protocol": "SSL", "ssl_cafile": str(certificates.authority)}
    own = {
        "ssl_certfile": str(certificates.client),
        "ssl_keyfile": str(certificates.client_key),
        "ssl_password": KEY_PASSWORD,
    }
    assert topics(loop, context, **trust, **own) == ["t"]
    with pytest.raises(KafkaError):
        topics(loop, context, **trust, default_api_timeout_ms=300)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("has_own", [False, True], ids=["none", "of another authority"])
def test_refused_certificate_of_the_client_is_an_error_at_once(
    loop: Loop, certificates: Certificates, version: ssl.TLSVersion, *, has_own: bool
) -> None:
    """In TLS 1.3 the client has finished the handshake when the broker's refusal arrives."""
    context = server(certificates, asks_for_a_certificate=True)
    context.maximum_version = version
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_cafile": str(certificates.authority),
    }
    if has_own:
        options["ssl_certfile"] = str(certificates.folder / "other-ca.pem")
        options["ssl_keyfile"] = str(certificates.folder / "other-ca.key")

    async def run(bootstrap: str) -> None:
        async with AdminClient(bootstrap_servers=bootstrap, **LIMITS, **options) as admin:
            await admin.list_topics()

    with (
        _refusing(context) as bootstrap,
        asyncio.Runner(loop_factory=loop) as runner,
        pytest.raises(TlsHandshakeFailed, match=r"alert.*client certificate.*check ssl_certfile"),
    ):
        runner.run(run(bootstrap))


@contextmanager
def _refusing(context: ssl.SSLContext) -> Iterator[str]:
    """The address of a listener whose handshakes fail; it hangs up once the alert was read.

    Were the connection closed at once, with bytes of the client unread, the kernel would reset
    it, and the client might not see the alert.
    """

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            duplicate = connection.dup()
            with duplicate:
                with connection, suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()
                with suppress(OSError):
                    duplicate.shutdown(socket.SHUT_WR)
                    while duplicate.recv(4096):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_plain_text_and_tls_are_incompatible(loop: Loop, certificates: Certificates) -> None:
    soon = {"connect_timeout_ms": 200, "default_api_timeout_ms": 500}
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:.*check that the listener uses"):
        topics(loop, server(certificates), **soon)
    trust = {"security_protocol": "SSL", "ssl_cafile": str(certificates.authority)}
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1"):
        topics(loop, None, **trust, **soon)


def test_connection_closed_during_the_tls_handshake_gives_a_hint(
    loop: Loop, certificates: Certificates
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def run() -> None:
        listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        options = {"security_protocol": "SSL", "ssl_cafile": str(certificates.authority)}
        soon = {**LIMITS, "default_api_timeout_ms": 200}
        async with (
            listener,
            AdminClient(bootstrap_servers=f"127.0.0.1:{port}", **options, **soon) as admin,
        ):
            await admin.list_topics()

    with (
        asyncio.Runner(loop_factory=loop) as runner,
        pytest.raises(
            KafkaError, match=r"127\.0\.0\.1:\d+: .*the listener uses security_protocol=SSL"
        ),
    ):
        runner.run(run())


def test_wrong_password_of_a_key_is_an_error_and_not_a_question(
    certificates: Certificates,
) -> None:
    files = {
        "security_protocol": "SSL",
        "ssl_cafile": str(certificates.authority),
        "ssl_certfile": str(certificates.client),
        "ssl_keyfile": str(certificates.client_key),
    }
    with pytest.raises(InvalidConfig, match="if the key is encrypted: ssl_password"):
        AdminClient(**files)
    with pytest.raises(InvalidConfig) as raised:
        AdminClient(**files, ssl_password="not the battery")
    assert "not the battery" not in str(raised.value)
