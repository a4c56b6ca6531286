"""The TLS side of one listener: its certificate, which may be exchanged, and its handshakes.

A new certificate comes by IncrementalAlterConfigs of ``listener.name.<name>.ssl.*``, or because a
file has changed.  It is used for connections that are accepted from then on.  If it cannot be used,
the old one stays: a request gets the reason as an error, and a changed file a warning in the log.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from sharegroup.broker.clock import wall_ms
from sharegroup.broker.configuration.listener_settings import PREFIX, listener_settings
from sharegroup.broker.configuration.tls_config import TlsConfig
from sharegroup.broker.tls.context import make_context
from sharegroup.broker.tls.handshakes import Handshakes
from sharegroup.broker.tls.key_stores import certificate_of, read_key_store
from sharegroup.broker.tls.transport import TlsLayer
from sharegroup.core.security.certificate_names import CertificateNames, certificate_names
from sharegroup.core.security.principal import USER, Principal
from sharegroup.core.security.principal_rules import PrincipalRules
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

_FilesState = tuple[tuple[int, ...] | None, ...]


class _Loaded(NamedTuple):
    """What was made of the settings and files at one time."""

    tls: TlsConfig
    files: _FilesState
    context: ssl.SSLContext
    names: CertificateNames
    """The names of the broker's certificate."""


class TlsListener:
    """TLS of one listener; the `Handshaker` of its connections."""

    def __init__(
        self,
        name: str,
        *,
        uses_client_names: bool,
        needs_certificates: bool = False,
        tls: TlsConfig,
        texts: Mapping[str, str],
        handshakes: Handshakes,
    ) -> None:
        """Load key and certificates; raise InvalidConfig if they cannot be used.

        With ``uses_client_names`` the certificate of a client tells its user; else SASL does.  With
        ``needs_certificates`` no later setting may let in clients without one.
        """
        self.name = name
        self._shared_tls = tls
        self._handshakes = handshakes
        self._uses_client_names = uses_client_names
        self._needs_certificates = needs_certificates
        self._loaded = self._load(texts)
        self._rules = PrincipalRules(self._loaded.tls.principal_rules)
        self._reported = ""
        """The reason for which changed files are not used; empty if there is none."""
        self.on_empty: Callable[[], None] = lambda: None
        """Called when a connection ends before its handshake is complete."""
        self.completed_count = 0
        """Handshakes that were completed."""
        self.failed_count = 0
        """Handshakes that failed."""

    @property
    def subject(self) -> str:
        """The subject of the certificate that new connections get."""
        return self._loaded.names.subject

    @property
    def expires_seconds(self) -> int:
        """The end of the validity of that certificate, in seconds since 1970."""
        return self._loaded.names.expires_seconds

    # The handshakes of its connections.

    def accepted(self, layer: TlsLayer) -> bool:
        return self._handshakes.accept(layer)

    def received(self, layer: TlsLayer) -> None:
        self._handshakes.advance(layer)

    def new_object(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return self._loaded.context.wrap_bio(incoming, outgoing, server_side=True)

    def completed(self, layer: TlsLayer, certificate: bytes | None) -> Principal | None:
        principal = None if certificate is None else self._principal(certificate)
        self.completed_count += 1
        self._handshakes.completed(layer)
        return principal

    def failed(self, layer: TlsLayer, reason: str) -> None:
        self.failed_count += 1
        self._handshakes.failed(layer, self.name, reason)

    def misused(self, layer: TlsLayer, reason: str) -> None:
        self._handshakes.report("tls_connection_closed", layer, self.name, reason)

    def closed(self, layer: TlsLayer) -> None:
        self._handshakes.closed(layer)
        self.on_empty()

    def _principal(self, certificate: bytes) -> Principal | None:
        """Return the user of a client's certificate, whose signature was verified.

        The session of TLS 1.2 may be resumed, which verifies nothing.  OpenSSL forgets sessions
        after two hours, and Python cannot turn that off.
        """
        try:
            names = certificate_names(certificate)
        except InvalidConfig as error:
            raise PermissionError(str(error)) from error
        if names.expires_seconds * 1000 < wall_ms():
            raise PermissionError("the client's certificate has expired since its session began")
        if not self._uses_client_names:
            return None
        name = self._rules.name_of(names.subject)
        if name is None:
            raise PermissionError(
                f"no rule of ssl.principal.mapping.rules gives the subject {names.subject[:500]!r} "
                "a user"
            )
        return Principal(USER, name)

    # The exchange of its certificate.

    def check(self, texts: Mapping[str, str], changed: Collection[str]) -> None:
        """Raise InvalidConfig if the listener cannot use its settings, of which some changed.

        ``changed`` has the names of all keys of the request.  A key that is set to the same value
        counts: its file may have changed.
        """
        prefix = f"{PREFIX}{self.name.lower()}.ssl."
        if any(name.startswith(prefix) for name in changed):
            self._check_names(self._load(texts))

    def use(self, texts: Mapping[str, str]) -> None:
        """Use these settings and the present files for new connections.

        Raises InvalidConfig if they cannot be used; then the old ones stay in use.
        """
        tls = listener_settings(self._shared_tls, texts, self.name)
        if tls == self._loaded.tls and files_state(tls) == self._loaded.files:
            return
        loaded = self._load(texts)
        self._check_names(loaded)
        self._loaded = loaded
        log.info("event=tls_certificate_exchanged listener=%s subject=%r", self.name, self.subject)

    def try_use(self, texts: Mapping[str, str]) -> None:
        """Use changed files; log once why they cannot be used."""
        try:
            self.use(texts)
        except InvalidConfig as error:
            if str(error) != self._reported:
                log.warning(
                    "event=tls_certificate_kept listener=%s subject=%r error=%r action='mend the "
                    "file; the broker tries again'",
                    self.name,
                    self.subject,
                    str(error),
                )
            self._reported = str(error)
        else:
            self._reported = ""

    def _load(self, texts: Mapping[str, str]) -> _Loaded:
        try:
            tls = listener_settings(self._shared_tls, texts, self.name)
            self._check_client_auth(tls)
            files = files_state(tls)  # Before they are read: a later change is seen as one.
            context = make_context(tls)
            keys = read_key_store(tls)
            assert keys is not None, "make_context has read it"
            return _Loaded(tls, files, context, certificate_names(certificate_of(keys)))
        except InvalidConfig as error:
            raise InvalidConfig(f"listener {self.name}: {error}") from error

    def _check_client_auth(self, tls: TlsConfig) -> None:
        if self._needs_certificates and tls.client_auth != "required":
            raise InvalidConfig(
                f"ssl.client.auth={tls.client_auth} would accept clients of other machines that "
                "have no certificate; the listener needs ssl.client.auth=required, or start the "
                "broker with --insecure"
            )

    def _check_names(self, new: _Loaded) -> None:
        """Raise InvalidConfig for another subject or fewer names, which mostly are a mistake.

        As in Kafka, ``ssl.allow.dn.changes`` and ``ssl.allow.san.changes`` allow it.
        """
        old = self._loaded.names
        if new.names.subject.lower() != old.subject.lower() and not new.tls.allow_name_changes:
            raise InvalidConfig(
                f"listener {self.name}: the new certificate is for {new.names.subject!r}, not for "
                f"{old.subject!r} as before; ssl.allow.dn.changes=true would allow this"
            )
        missing = old.alternatives - new.names.alternatives
        if missing and not new.tls.allow_host_changes:
            raise InvalidConfig(
                f"listener {self.name}: the new certificate lacks {len(missing)} alternative names "
                "of the old one; ssl.allow.san.changes=true would allow this"
            )


def files_state(tls: TlsConfig) -> _FilesState:
    """Return what changes when one of the files does; None stands for a file that is not there."""
    return tuple(
        _file_state(path)
        for path in (tls.keystore_location, tls.truststore_location)
        if path is not None
    )


def _file_state(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
