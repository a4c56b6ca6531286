"""A broker with TLS in this process, its certificates, and what it knows of its clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sharegroup.broker.app import Running, start
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.handler_contract import ApiHandler, RequestContext
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.cli.access.local_certificates import CertificateFiles
from tests.support.limits import HANGING_SECONDS

WAIT_SECONDS_MAX = HANGING_SECONDS


def tls_settings(files: CertificateFiles, **values: str) -> dict[str, str]:
    """Settings of a listener SSL; further ones with ``_`` for dots."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        **{name.replace("_", "."): value for name, value in values.items()},
    }


class Seen:
    """The users that sent requests to a broker, in order."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def handler_of(self, api_key: int) -> ApiHandler:
        handler = handler_of(api_key)

        def handle(parts: Parts, context: RequestContext, request: Any) -> Any:
            self.principals.append(str(context.peer.principal))
            return handler.handle(parts, context, request)

        return replace(handler, handle=handle)


@asynccontextmanager
async def running(
    folder: Path, settings: dict[str, str], seen: Seen | None = None
) -> AsyncIterator[Running]:
    """A broker with these settings, and its data in a folder."""
    config = Config.parse({"log.dirs": str(folder / "data"), **settings})
    broker = await start(config, handler_of=(seen or Seen()).handler_of)
    try:
        yield broker
    finally:
        await broker.stop()


def client_options(files: CertificateFiles, broker: Running, user: str = "") -> dict[str, Any]:
    """Options of our clients, with the certificate of a user."""
    options = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.authority),
    }
    return {**options, "ssl_certfile": str(files.client(user))} if user else options


def trusting(files: CertificateFiles, user: str = "") -> ssl.SSLContext:
    """A client's context; its host names are those of the broker's certificate."""
    context = ssl.create_default_context(cafile=files.authority)
    if user:
        context.load_cert_chain(files.client(user))
    return context


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, for a limited time."""
    end = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not in {WAIT_SECONDS_MAX} s: {what}"
        await asyncio.sleep(0.005)
