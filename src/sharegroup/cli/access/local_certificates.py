"""Makes a local certificate authority, and certificates of a broker and of clients.

They are for trying TLS out and for tests: the key of the authority lies beside the others.  All
keys are for the curve P-256.  The module imports `cryptography`, which is in the extra `tls`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sharegroup.broker.clock import wall_ms

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3_650, 365
CLOCK_DIFFERENCE = dt.timedelta(hours=1)
"""How much the clock of another machine may be behind."""

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a folder; each of ``server`` and ``clients`` has a key and its certificates."""

    folder: Path
    clients: tuple[str, ...]

    @property
    def authority(self) -> Path:
        """The certificate of the authority, which both sides trust."""
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """The key that signs certificates."""
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        """The key and certificates of the broker."""
        return self.folder / "server.pem"

    def client(self, name: str) -> Path:
        """Return the file with the key and certificates of a client."""
        return self.folder / f"client-{name}.pem"


def make_certificates(
    folder: Path, *, hosts: Sequence[str], clients: Sequence[str], days: int = CERTIFICATE_DAYS
) -> CertificateFiles:
    """Make the files, readable to their owner alone; raise FileExistsError before any is replaced.

    If the folder has an authority, it signs the new certificates.  ``hosts`` are the names and
    addresses of the broker; without any, no certificate of a broker is made.
    """
    files = CertificateFiles(folder, tuple(clients))
    wanted = [files.client(name) for name in clients] + ([files.server] if hosts else [])
    for path in wanted:
        if path.exists():
            raise FileExistsError(f"{path} exists; remove it first, or name another folder")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    authority, key = _authority(files)
    if hosts:
        _write(files.server, _signed(hosts[0], authority, key, days=days, hosts=hosts))
    for name in clients:
        _write(files.client(name), _signed(name, authority, key, days=days))
    return files


def _authority(files: CertificateFiles) -> tuple[x509.Certificate, _Key]:
    """Return the authority of the folder; make one if there is none."""
    if files.authority_key.exists():
        certificate = x509.load_pem_x509_certificate(files.authority.read_bytes())
        loaded = load_pem_private_key(files.authority_key.read_bytes(), None)
        if certificate.public_key() != loaded.public_key():
            raise ValueError(
                f"{files.authority} is not the certificate of the key {files.authority_key}: what "
                "it signs would be refused; put the right key there, or name another folder"
            )
        return certificate, cast("_Key", loaded)
    if files.authority.exists():
        # Before the key is made: beside this certificate, it would sign what nobody accepts.
        raise FileExistsError(
            f"{files.authority} exists without its key {files.authority_key}, which signs "
            "certificates; put the key back, or name another folder"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("sharegroup local authority")
    builder = _builder(name, key, issuer=name, days=AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    _write(files.authority_key, _pem(key))
    _write(files.authority, certificate.public_bytes(Encoding.PEM))
    return certificate, key


def _signed(
    name: str,
    authority: x509.Certificate,
    authority_key: _Key,
    *,
    days: int,
    hosts: Sequence[str] = (),
) -> bytes:
    """Return a new key and its certificate: of a broker if it has hosts, otherwise of a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), key, issuer=authority.subject, days=days)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer_key, critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    return _pem(key) + certificate.public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name, key: _Key, *, issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.fromtimestamp(wall_ms() // 1000, dt.UTC)
    # With negative days, for a certificate that has expired, it must not begin after its end.
    begin = min(now, now + dt.timedelta(days=days)) - CLOCK_DIFFERENCE
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Make a file that only its owner can read; an existing one is an error."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
