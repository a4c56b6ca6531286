"""Makes the TLS context of a listener from its settings, with the standard library's ``ssl``."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.tls.key_stores import KeyStore, read_key_store, read_trust_store
from sharegroup.errors import InvalidConfig

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

SUITES_OF_TLS_1_3 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_CHACHA = "CHACHA20-POLY1305"


def make_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context of a server; raise InvalidConfig for settings that cannot work."""
    keys, authorities = read_key_store(tls), read_trust_store(tls)
    if keys is None:
        raise InvalidConfig(
            "TLS needs the broker's key and certificate: set ssl.keystore.location, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain; `sharegroup certs` makes them "
            "for a try"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A renegotiation would be a handshake beyond the limits of `Handshakes`.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    _select_versions(context, tls)
    _load_keys(context, keys)
    if authorities is not None:
        try:
            context.load_verify_locations(cadata=authorities.pem)
        except ssl.SSLError as error:
            raise InvalidConfig(f"{authorities.source}: {error}") from error
    elif tls.client_auth != "none":
        raise InvalidConfig(
            f"ssl.client.auth={tls.client_auth} needs the certificates of the authorities of the "
            "clients: set ssl.truststore.location or ssl.truststore.certificates"
        )
    context.verify_mode = _CLIENT_AUTH[tls.client_auth]
    if tls.client_auth != "none":
        # A resumed session skips the check of the client's certificate.  In TLS 1.2 that cannot be
        # turned off, so `TlsListener.completed` looks at the end of its validity.  There, tickets
        # are better than the other way to resume, which keeps each session in memory.
        context.num_tickets = 0
    return context


def _select_versions(context: ssl.SSLContext, tls: TlsConfig) -> None:
    unknown = [name for name in tls.enabled_protocols if name not in VERSIONS]
    if unknown or not tls.enabled_protocols:
        raise InvalidConfig(
            f"ssl.enabled.protocols must name TLSv1.2, TLSv1.3 or both, not "
            f"{','.join(tls.enabled_protocols)[:200]!r}; older versions are not secure"
        )
    enabled = {VERSIONS[name] for name in tls.enabled_protocols}
    if tls.cipher_suites:
        enabled &= _select_suites(context, tls.cipher_suites)
        if not enabled:
            raise InvalidConfig(
                f"ssl.cipher.suites={','.join(tls.cipher_suites)[:500]} has no suite for "
                f"ssl.enabled.protocols={','.join(tls.enabled_protocols)}"
            )
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)


def _select_suites(context: ssl.SSLContext, suites: Sequence[str]) -> set[ssl.TLSVersion]:
    """Select the cipher suites; return the versions of TLS that have one of them."""
    newer = SUITES_OF_TLS_1_3 & set(suites)
    # Python's `ssl` has no function that selects suites of TLS 1.3.
    if newer and newer != SUITES_OF_TLS_1_3:
        raise InvalidConfig(
            "ssl.cipher.suites: the suites of TLS 1.3 can only be selected together; add "
            f"{', '.join(sorted(SUITES_OF_TLS_1_3 - newer))}, or set ssl.enabled.protocols=TLSv1.2"
        )
    older = [suite for suite in suites if suite not in newer]
    for suite in older:
        try:
            # One by one first: in a list OpenSSL ignores unknown names as long as it knows one.
            context.set_ciphers(_openssl_name(suite))
        except ssl.SSLError as error:
            raise InvalidConfig(f"ssl.cipher.suites: {suite[:100]!r} is not available") from error
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))
    versions = {ssl.TLSVersion.TLSv1_3} if newer else set()
    return versions | ({ssl.TLSVersion.TLSv1_2} if older else set())


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2 by its name of IANA; other names are returned."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not (suite.startswith("TLS_") and separator):
        # Names alone: OpenSSL's syntax of lists could select more than one suite.
        return suite.replace(":", " ").replace(",", " ")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", _CHACHA)
    cipher = cipher.replace("_CBC", "").replace("AES_", "AES").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    # Always a password: otherwise OpenSSL would ask for it on the terminal, and block.
    password = keys.password or ""
    try:
        with _as_file(keys.pem) as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidConfig(
            f"{keys.source}: the private key or the certificates cannot be used: {error}; check "
            "ssl.key.password, and that the certificate belongs to the key and comes first"
        ) from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Offer bytes as a file for the time of the context; ``ssl`` reads keys only from files.

    On Linux the file is in memory alone.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("sharegroup-keys", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="sharegroup-") as file:  # Readable to its owner alone.
        file.write(content)
        file.flush()
        yield file.name
