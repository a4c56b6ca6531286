"""TLS of all listeners of a broker, kept up to date with its settings and files."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listeners import Listener
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.tls.handshakes import Handshakes

if TYPE_CHECKING:
    # Only brokers with TLS import it.
    from sharegroup.broker.tls.listener import TlsListener

FILES_CHECKED_EVERY_SECONDS = 3.0


class TlsListeners:
    """TLS of each encrypted listener, by its name."""

    __slots__ = ("_by_name", "_config")

    def __init__(
        self, listeners: Iterable[Listener], config: Config, handshakes: Handshakes
    ) -> None:
        """Load keys and certificates; raise InvalidConfig if they cannot be used."""
        self._by_name = {
            listener.name: _tls_listener(listener, config, handshakes)
            for listener in listeners
            if listener.uses_tls
        }
        self._config: LiveConfig | None = None

    def of(self, name: str) -> TlsListener | None:
        """Return TLS of a listener; None if it is not encrypted."""
        return self._by_name.get(name)

    def all(self) -> Collection[TlsListener]:
        """Return TLS of all encrypted listeners."""
        return self._by_name.values()

    def follow(self, config: LiveConfig) -> None:
        """Use the stored settings of TLS, and later ones as they come."""
        self._config = config
        self._use()
        config.on_offer(self._check)
        config.on_applied(self._use)

    async def watch(self) -> None:
        """Use changed files of keys and certificates, until it is cancelled."""
        while True:
            await asyncio.sleep(FILES_CHECKED_EVERY_SECONDS)
            self._use()

    def _check(self, texts: Mapping[str, str], changed: Collection[str]) -> None:
        for listener in self._by_name.values():
            listener.check(texts, changed)

    def _use(self) -> None:
        assert self._config is not None
        if self._by_name:
            texts = self._config.texts
            for listener in self._by_name.values():
                listener.try_use(texts)


def _tls_listener(listener: Listener, config: Config, handshakes: Handshakes) -> TlsListener:
    # Imported here, because most brokers have no TLS, and they start faster without it.
    from sharegroup.broker.tls.listener import TlsListener

    return TlsListener(
        listener.name,
        uses_client_names=not listener.uses_sasl,
        needs_certificates=listener.needs_certificates,
        tls=config.tls,
        texts=config.given,
        handshakes=handshakes,
    )
