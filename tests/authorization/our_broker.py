"""Our broker with an authorizer and a user for each case of the matrix, on sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from tests.authorization.kafka_broker import guarded_settings
from tests.authorization.run import Sockets


@asynccontextmanager
async def authorizing_broker(folder: Path, passwords: Mapping[str, str]) -> AsyncIterator[Sockets]:
    """Run a broker of ours in a folder; return the way in."""
    settings = {
        **guarded_settings(passwords),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
    }
    running = await app.start(Config.parse(settings))
    try:
        ports = [int(address.rpartition(":")[2]) for address in running.listeners.split(",")]
        yield Sockets(*ports, passwords, is_ours=True)
    finally:
        await running.stop()
