"""Reads private keys and certificates: PEM files, PEM text in settings, and PKCS12 files.

The rules about which settings belong together are Kafka's (``DefaultSslEngineFactory``).  Java's
older format JKS is refused with the command that converts it.  A file that is named as JKS may be
PKCS12, because current versions of keytool write that by default.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharegroup.broker.configuration.tls_config import STORE_TYPES, TlsConfig
from sharegroup.errors import InvalidConfig
from sharegroup.installation import pip_install

if TYPE_CHECKING:
    # Imported in `_from_pkcs12`, because it is in an extra.
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

STORE_BYTES_MAX = 4 * 1024 * 1024
"""The largest file of keys or certificates."""

_PEM = re.compile(
    r"-----BEGIN ([A-Z0-9 ]{1,40})-----(.{1,1000000}?)-----END \1-----", re.DOTALL | re.ASCII
)
_JKS_MAGIC, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\x30"
_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and the certificates that belong to it, in PEM."""

    pem: bytes
    password: str | None
    """The password of the key in ``pem``; None if the key is not encrypted."""
    source: str
    """The setting or file it comes from, for messages."""


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Certificates of authorities, in PEM."""

    pem: str
    source: str


def read_key_store(tls: TlsConfig) -> KeyStore | None:
    """Read the broker's key and certificates; None if no setting names them.

    Raises InvalidConfig if they cannot be read or if the settings contradict each other.
    """
    path, kind = tls.keystore_location, _kind("ssl.keystore.type", tls.keystore_type)
    if tls.keystore_key is not None or tls.keystore_chain is not None:
        if tls.keystore_key is None or tls.keystore_chain is None:
            raise InvalidConfig(
                "ssl.keystore.key and ssl.keystore.certificate.chain must both be set, or neither"
            )
        _check_text(kind, "keystore", path, tls.keystore_password)
        pem = _blocks(tls.keystore_key, "ssl.keystore.key", "PRIVATE KEY")
        pem += _blocks(tls.keystore_chain, "ssl.keystore.certificate.chain", "CERTIFICATE")
        return KeyStore(_joined(pem), tls.key_password, "ssl.keystore.key")
    if path is None:
        if tls.keystore_password is not None:
            raise InvalidConfig("ssl.keystore.password is set, but ssl.keystore.location is not")
        return None
    source, content = f"ssl.keystore.location={path}", _read(path, "ssl.keystore.location")
    if _format(content, kind, source) == "PEM":
        _check_no_password(tls.keystore_password, "keystore", "ssl.key.password")
        text = content.decode("utf-8", "replace")
        pem = _blocks(text, source, "PRIVATE KEY") + _blocks(text, source, "CERTIFICATE")
        return KeyStore(_joined(pem), tls.key_password, source)
    if tls.keystore_password is None:
        raise InvalidConfig(f"{source}: a PKCS12 file needs ssl.keystore.password")
    return KeyStore(_key_from_pkcs12(content, tls.keystore_password, source), None, source)


def read_trust_store(tls: TlsConfig) -> TrustStore | None:
    """Read the certificates of the authorities; None if no setting names them.

    Raises InvalidConfig if they cannot be read or if the settings contradict each other.
    """
    path, kind = tls.truststore_location, _kind("ssl.truststore.type", tls.truststore_type)
    if tls.truststore_certificates is not None:
        name = "ssl.truststore.certificates"
        _check_text(kind, "truststore", path, tls.truststore_password)
        pem = _blocks(tls.truststore_certificates, name, "CERTIFICATE")
        return TrustStore(_joined(pem).decode(), name)
    if path is None:
        if tls.truststore_password is not None:
            raise InvalidConfig(
                "ssl.truststore.password is set, but ssl.truststore.location is not"
            )
        return None
    source, content = f"ssl.truststore.location={path}", _read(path, "ssl.truststore.location")
    if _format(content, kind, source) == "PEM":
        _check_no_password(tls.truststore_password, "truststore", "no password")
        pem = _blocks(content.decode("utf-8", "replace"), source, "CERTIFICATE")
        return TrustStore(_joined(pem).decode(), source)
    pem = _certificates_from_pkcs12(content, tls.truststore_password, source)
    return TrustStore(_joined(pem).decode(), source)


def certificate_of(keys: KeyStore) -> bytes:
    """Return the broker's own certificate in DER: the first one of the chain."""
    first = next(body for label, body in _PEM.findall(keys.pem.decode()) if label == "CERTIFICATE")
    return base64.b64decode(first)


def _kind(name: str, text: str) -> str:
    kind = text.upper()
    if kind not in STORE_TYPES:
        raise InvalidConfig(f"{name} must be one of {', '.join(STORE_TYPES)}, not {text[:100]!r}")
    return kind


def _check_text(kind: str, store: str, path: str | None, password: str | None) -> None:
    """Raise InvalidConfig unless PEM in the settings is the only source of a store."""
    if kind != "PEM":
        raise InvalidConfig(f"keys and certificates in settings need ssl.{store}.type=PEM")
    if path is not None:
        raise InvalidConfig(
            f"ssl.{store}.location={path} and PEM in the settings are both given; expected one"
        )
    _check_no_password(password, store, "ssl.key.password for the key")


def _check_no_password(password: str | None, store: str, instead: str) -> None:
    if password is not None:
        raise InvalidConfig(
            f"ssl.{store}.password cannot be set with the format PEM; use {instead}"
        )


def _read(path: str, name: str) -> bytes:
    try:
        # Non-blocking, so that a named pipe does not stop the broker; it reads as empty.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:  # `open` does not close the descriptor of a folder, which it refuses.
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(STORE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{name}={path[:500]} cannot be read: {error}") from error
    if not content or len(content) > STORE_BYTES_MAX:
        raise InvalidConfig(
            f"{name}={path} must have 1 to {STORE_BYTES_MAX} bytes, not {len(content)} or more"
        )
    return content


def _format(content: bytes, kind: str, source: str) -> str:
    """Return the format of a file; raise InvalidConfig if it is not the configured one."""
    if content.startswith(_JKS_MAGIC):
        path = source.partition("=")[2]
        raise InvalidConfig(
            f"{source} is a Java key store (JKS), which only Java can read; convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12, "
            f"and set the location to {path}.p12 and the type to PKCS12"
        )
    is_pem = b"-----BEGIN " in content
    if kind == "PEM" and not is_pem:
        raise InvalidConfig(f"{source} has no PEM block (-----BEGIN ...-----); check the type")
    if kind != "PEM" and (is_pem or not content.startswith(_DER_SEQUENCE)):
        actual = "PEM: set the type to PEM" if is_pem else "neither PKCS12 nor PEM"
        raise InvalidConfig(f"{source} should be PKCS12, but is {actual}")
    return "PEM" if kind == "PEM" else "PKCS12"


def _blocks(text: str, source: str, kind: str) -> list[str]:
    """Return the PEM blocks of a kind, each with lines of its own; expects one key at most.

    In a properties file, a block may be one line with spaces, as in Kafka.
    """
    blocks = [_rewrapped(label, body) for label, body in _PEM.findall(text) if label.endswith(kind)]
    if not blocks or (kind == "PRIVATE KEY" and len(blocks) > 1):
        expected = "one private key" if kind == "PRIVATE KEY" else "at least one certificate"
        raise InvalidConfig(f"{source} must have {expected} in PEM, found {len(blocks)}")
    if not all(map(str.isascii, blocks)):
        raise InvalidConfig(f"{source}: a PEM block is damaged: it has bytes that are not ASCII")
    return blocks


def _rewrapped(label: str, body: str) -> str:
    if ":" in body:  # The headers of an encrypted key in the traditional format need their lines.
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    encoded = "".join(body.split())
    lines = (encoded[at : at + _COLUMNS] for at in range(0, len(encoded), _COLUMNS))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"))


def _joined(blocks: Iterable[str]) -> bytes:
    return "".join(blocks).encode()


def _from_pkcs12(content: bytes, password: str | None, source: str) -> PKCS12KeyAndCertificates:
    try:
        # Imported here, because it is in the extra `tls`, and few brokers have PKCS12 files.
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise InvalidConfig(
            f"{source}: PKCS12 needs the package cryptography: {pip_install('tls')}, or use PEM"
        ) from error
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise InvalidConfig(
            f"{source} cannot be read as PKCS12, or its password is wrong: {error}"
        ) from error


def _key_from_pkcs12(content: bytes, password: str, source: str) -> bytes:
    store = _from_pkcs12(content, password, source)
    # As in `_from_pkcs12`.
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise InvalidConfig(f"{source} must have a private key with its certificate")
    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert.certificate]
    issuers = {other.certificate.subject: other.certificate for other in store.additional_certs}
    # PKCS12 keeps certificates in no order, but TLS sends each before that of its issuer.  A
    # certificate that names itself as its issuer ends the chain.
    while chain[-1].issuer in issuers and chain[-1].issuer != chain[-1].subject:
        chain.append(issuers.pop(chain[-1].issuer))
    return pem + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)


def _certificates_from_pkcs12(content: bytes, password: str | None, source: str) -> list[str]:
    store = _from_pkcs12(content, password, source)
    if not store.additional_certs:
        raise InvalidConfig(f"{source} must have at least one certificate of an authority")
    # As in `_from_pkcs12`.
    from cryptography.hazmat.primitives.serialization import Encoding

    return [
        other.certificate.public_bytes(Encoding.PEM).decode() for other in store.additional_certs
    ]
