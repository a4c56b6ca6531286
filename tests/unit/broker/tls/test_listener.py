"""TLS of a listener: who a client's certificate says that it is."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.load.admission import Admission
from sharegroup.broker.tls.handshakes import Handshakes
from sharegroup.broker.tls.listener import TlsListener
from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.core.security.principal import Principal
from sharegroup.errors import InvalidConfig
from sharegroup.testing import ManualClock


class Layer(NamedTuple):
    """A connection whose handshake is complete."""

    host: str = "10.0.0.1"


LAYER: Any = Layer()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder: Path = tmp_path_factory.mktemp("certificates")
    made = make_certificates(folder, hosts=["localhost"], clients=["alice"])
    make_certificates(folder, hosts=(), clients=["old"], days=-1)
    return made


def certificate(files: CertificateFiles, user: str) -> bytes:
    pem = files.client(user).read_bytes()
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def listener(
    files: CertificateFiles, *, uses_client_names: bool = True, needs_certificates: bool = False
) -> TlsListener:
    tls = TlsConfig(
        keystore_type="PEM",
        keystore_location=str(files.server),
        truststore_type="PEM",
        truststore_location=str(files.authority),
        client_auth="required",
    )
    handshakes = Handshakes(ManualClock(), Admission(100, host_max=100), ServerConfig())
    return TlsListener(
        "SSL",
        uses_client_names=uses_client_names,
        needs_certificates=needs_certificates,
        tls=tls,
        texts={},
        handshakes=handshakes,
    )


@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_listener_for_other_machines_goes_on_to_need_certificates(
    files: CertificateFiles, client_auth: str
) -> None:
    """Else a setting at run time would open it to everybody, and stay after a restart."""
    key = "listener.name.ssl.ssl.client.auth"
    own = listener(files, needs_certificates=True)
    with pytest.raises(InvalidConfig, match="clients of other machines that have no certificate"):
        own.check({key: client_auth}, [key])
    own.check({key: "required"}, [key])
    listener(files).check({key: client_auth}, [key])


def test_valid_certificate_gives_the_user(files: CertificateFiles) -> None:
    found = listener(files).completed(LAYER, certificate(files, "alice"))
    assert found == Principal("User", "CN=alice")


@pytest.mark.parametrize("uses_client_names", [True, False])
def test_expired_certificate_of_a_resumed_session_is_refused(
    files: CertificateFiles, uses_client_names: bool
) -> None:
    own = listener(files, uses_client_names=uses_client_names)
    with pytest.raises(PermissionError, match="expired since its session began"):
        own.completed(LAYER, certificate(files, "old"))


@pytest.mark.parametrize("has_ticket", [True, False])
def test_session_of_tls_1_2_is_resumed_without_verification(
    files: CertificateFiles, has_ticket: bool
) -> None:
    """The reason for the check above.  Sessions without tickets live as long as connections."""
    own, context = listener(files), ssl.create_default_context(cafile=files.authority)
    context.load_cert_chain(files.client("alice"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not has_ticket:
        context.options |= ssl.OP_NO_TICKET
    session, servers = None, list[ssl.SSLObject]()
    for is_resumed in (False, True):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = own.new_object(to_server, to_client)
        servers.append(server)  # OpenSSL forgets the session of a connection that was lost.
        client = context.wrap_bio(
            to_client, to_server, server_hostname="localhost", session=session
        )
        for _ in range(3):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert server.session_reused is is_resumed
        session = client.session
        assert session is not None
        assert session.has_ticket is has_ticket
        assert server.context.session_stats()["number"] == (not has_ticket)
