"""Makes the TLS context of a client from its config."""

from __future__ import annotations

import ssl

from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import InvalidConfig


def tls_context(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the TLS context for all connections of a client; None without encryption."""
    if not config.uses_tls:
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
    except OSError as error:
        raise InvalidConfig(f"ssl_cafile={config.ssl_cafile!r}: {error}") from error
    context.check_hostname = config.ssl_check_hostname
    if config.ssl_certfile is not None:
        # Always pass a password: otherwise OpenSSL would ask for one on the terminal, and block.
        password = config.ssl_password or ""
        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, lambda: password)
        except (OSError, ValueError) as error:
            files = f"ssl_certfile={config.ssl_certfile!r}, ssl_keyfile={config.ssl_keyfile!r}"
            hint = "" if config.ssl_password else " (if the key is encrypted: ssl_password)"
            raise InvalidConfig(f"{files}: {error}{hint}") from error
    return context
