"""Keys and certificates from files and settings, versions and cipher suites of TLS."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.tls.context import SUITES_OF_TLS_1_3, make_context
from sharegroup.broker.tls.key_stores import certificate_of, read_key_store
from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.core.security.certificate_names import certificate_names
from sharegroup.errors import InvalidConfig
from tests.support.processes import open_descriptors

PASSWORD = "battery"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return make_certificates(folder, hosts=["localhost"], clients=["alice"])


def config(files: CertificateFiles, **values: Any) -> TlsConfig:
    """The settings with a PEM file, and other values."""
    store = {"keystore_type": "PEM", "keystore_location": str(files.server)}
    return TlsConfig(**{**store, **values})


def pem_parts(files: CertificateFiles) -> tuple[str, str]:
    """The key of the broker and its certificate."""
    key, begin, certificate = files.server.read_text().partition("-----BEGIN CERTIFICATE")
    return key, begin + certificate


def handshake(context: ssl.SSLContext, files: CertificateFiles, **client: Any) -> ssl.SSLObject:
    """Connect in memory; return the client's side."""
    theirs = ssl.create_default_context(cafile=files.authority)
    for name, value in client.items():
        setattr(theirs, name, value)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    inner = theirs.wrap_bio(to_client, to_server, server_hostname="localhost")
    outer = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (inner, outer):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert inner.cipher() is not None
    return inner


def pkcs12_file(files: CertificateFiles, path: Path) -> Path:
    """The broker's key and certificate, with the authority's, as keytool would store them."""
    pem = files.server.read_bytes()
    key, certificate = load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    assert isinstance(key, EllipticCurvePrivateKey), "as sharegroup certs makes it"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            key,
            certificate,
            [authority],
            encryption,
        )
    )
    return path


def test_pem_file_of_key_and_certificates_is_used(files: CertificateFiles) -> None:
    assert handshake(make_context(config(files)), files).version() == "TLSv1.3"


@pytest.mark.parametrize("separator", ["\n", " "], ids=["lines", "a line of a properties file"])
def test_pem_in_the_settings_is_used(files: CertificateFiles, separator: str) -> None:
    key, certificate = (part.replace("\n", separator) for part in pem_parts(files))
    tls = TlsConfig(keystore_type="PEM", keystore_key=key, keystore_chain=certificate)
    handshake(make_context(tls), files)


def test_encrypted_key_needs_its_password(files: CertificateFiles, tmp_path: Path) -> None:
    pem = files.server.read_bytes()
    locked = load_pem_private_key(pem, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    path = tmp_path / "locked.pem"
    path.write_bytes(locked + pem_parts(files)[1].encode())
    tls = config(files, keystore_location=str(path), key_password=PASSWORD)
    handshake(make_context(tls), files)
    for wrong in (None, "other"):
        with pytest.raises(InvalidConfig, match=r"check ssl\.key\.password"):
            make_context(config(files, keystore_location=str(path), key_password=wrong))


def test_damaged_certificates_of_authorities_are_a_configuration_error(
    files: CertificateFiles, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_bytes(files.authority.read_bytes().replace(b"M", b"\xff", 1))
    tls = config(files, truststore_type="PEM", truststore_location=str(damaged))
    with pytest.raises(InvalidConfig, match=r"damaged\.pem: a PEM block is damaged"):
        make_context(tls)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors with /proc")
def test_folder_instead_of_a_file_leaves_no_descriptor_open(
    files: CertificateFiles, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot be read: .*directory"):
        make_context(config(files, keystore_location=str(tmp_path)))
    assert str(tmp_path) not in dict(open_descriptors()).values()


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_file_is_used_also_where_keytool_calls_it_jks(
    files: CertificateFiles, tmp_path: Path, kind: str
) -> None:
    path = str(pkcs12_file(files, tmp_path / "keys.p12"))
    tls = TlsConfig(
        keystore_type=kind,
        keystore_location=path,
        keystore_password=PASSWORD,
        truststore_type=kind,
        truststore_location=path,
        truststore_password=PASSWORD,
        client_auth="requested",
    )
    context = make_context(tls)
    handshake(context, files)
    [authority] = context.get_ca_certs(binary_form=True)
    assert certificate_names(authority).subject == "CN=sharegroup local authority"


def test_own_certificate_is_the_first_of_the_chain(files: CertificateFiles) -> None:
    keys = read_key_store(config(files))
    assert keys is not None
    names = certificate_names(certificate_of(keys))
    assert names.subject == "CN=localhost"
    assert names.alternatives == frozenset({b"\x82\x09localhost"})


def test_old_format_of_java_is_refused_with_the_command_that_converts(tmp_path: Path) -> None:
    path = tmp_path / "keys.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    tls = TlsConfig(keystore_location=str(path), keystore_password=PASSWORD)
    with pytest.raises(InvalidConfig, match=rf"keytool -importkeystore -srckeystore {path} "):
        make_context(tls)


def _pem_only(**values: Any) -> dict[str, Any]:
    return {"keystore_type": "PEM", "keystore_location": None, **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (_pem_only(), r"set ssl\.keystore\.location.*sharegroup certs"),
        (_pem_only(keystore_key="x"), "must both be set"),
        (_pem_only(keystore_chain="x"), "must both be set"),
        (_pem_only(keystore_key="x", keystore_chain="x"), "must have one private key in PEM"),
        ({"keystore_key": "x", "keystore_chain": "x"}, "are both given; expected one"),
        (_pem_only(keystore_type="JKS", keystore_key="x", keystore_chain="x"), "type=PEM"),
        (_pem_only(keystore_password="x"), r"ssl\.keystore\.location is not"),
        ({"keystore_location": "/no/such/file"}, "cannot be read: .*No such file"),
        ({"keystore_location": "/tmp"}, "cannot be read: .*directory"),
        ({"keystore_password": "x"}, "cannot be set with the format PEM"),
        ({"keystore_type": "PKCS12"}, "should be PKCS12, but is PEM: set the type to PEM"),
        ({"keystore_type": "BCFKS"}, "must be one of PEM, PKCS12, JKS, not 'BCFKS'"),
        ({"client_auth": "required"}, r"needs the certificates of the authorities"),
        ({"truststore_password": "x"}, r"ssl\.truststore\.location is not"),
        ({"truststore_type": "PEM", "truststore_certificates": "x"}, "at least one certificate"),
        ({"enabled_protocols": ("TLSv1.1",)}, "must name TLSv1.2, TLSv1.3 or both"),
        ({"enabled_protocols": ()}, "must name TLSv1.2, TLSv1.3 or both"),
        ({"cipher_suites": ("TLS_NULL",)}, "'TLS_NULL' is not available"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "can only be selected together"),
        (
            {"cipher_suites": ("ECDHE-RSA-AES128-GCM-SHA256",), "enabled_protocols": ("TLSv1.3",)},
            "has no suite for",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(
    files: CertificateFiles, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        make_context(config(files, **values))


def test_file_that_is_cut_is_refused(files: CertificateFiles, tmp_path: Path) -> None:
    whole = files.server.read_bytes()
    path = tmp_path / "cut.pem"
    for length in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidConfig):
            make_context(config(files, keystore_location=str(path)))


def test_named_pipe_instead_of_a_file_does_not_stop_the_broker(
    files: CertificateFiles, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidConfig, match="must have 1 to"):
        make_context(config(files, keystore_location=str(pipe)))


def test_key_of_another_certificate_is_refused(files: CertificateFiles) -> None:
    key, _ = pem_parts(files)
    other = files.client("alice").read_text()
    tls = TlsConfig(keystore_type="PEM", keystore_key=key, keystore_chain=other)
    with pytest.raises(InvalidConfig, match="certificate belongs to the key"):
        make_context(tls)


@pytest.mark.parametrize(
    ("suites", "chosen"),
    [
        (("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",), "ECDHE-ECDSA-AES256-SHA384"),
        (
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",),
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        (("ECDHE-ECDSA-AES256-GCM-SHA384",), "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_are_selected_by_both_kinds_of_names(
    files: CertificateFiles, suites: tuple[str, ...], chosen: str
) -> None:
    found = handshake(make_context(config(files, cipher_suites=suites)), files)
    assert found.cipher() is not None
    assert found.cipher()[0] == chosen  # type: ignore[index]
    assert found.version() == "TLSv1.2", "no suite of TLS 1.3 was selected"


def test_suites_of_tls_1_3_alone_select_tls_1_3_alone(files: CertificateFiles) -> None:
    context = make_context(config(files, cipher_suites=tuple(SUITES_OF_TLS_1_3)))
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3


def test_versions_are_limited_to_the_enabled_ones(files: CertificateFiles) -> None:
    context = make_context(config(files, enabled_protocols=("TLSv1.2",)))
    assert handshake(context, files).version() == "TLSv1.2"
    context = make_context(config(files, enabled_protocols=("TLSv1.3",)))
    with pytest.raises(ssl.SSLError):
        handshake(context, files, maximum_version=ssl.TLSVersion.TLSv1_2)
