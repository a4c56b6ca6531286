"""What keeps a broker from starting is said before anything is touched."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from sharegroup.broker.app import start
from sharegroup.broker.clock import SystemClock
from sharegroup.broker.configuration.config import Config, ServerConfig
from sharegroup.broker.load.admission import Admission
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.broker.server.sockets import Server
from sharegroup.broker.tls.handshakes import Handshakes
from sharegroup.errors import InvalidConfig


@pytest.mark.parametrize(
    ("listener", "insecure", "message"),
    [
        ("PLAINTEXT://192.0.2.1:0", False, "--insecure"),
        ("PLAINTEXT://0.0.0.0:0", False, "--insecure"),
        ("PLAINTEXT://0.0.0.0:0", True, r"advertised\.listeners"),
        ("SSL://127.0.0.1:0", False, r"listener SSL: TLS needs .*ssl\.keystore\.location"),
        ("SSL://192.0.2.1:0", False, r"ssl\.client\.auth=none"),
    ],
)
def test_listener_that_is_open_or_unknown_is_refused(
    tmp_path: Path, listener: str, insecure: bool, message: str
) -> None:
    config = Config.parse({"listeners": listener, "log.dirs": str(tmp_path / "data")})
    with pytest.raises(InvalidConfig, match=message):
        asyncio.run(start(config, insecure=insecure))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_port_that_another_one_takes_while_the_broker_starts_is_a_failure(
    run: Callable[[Any], None],
) -> None:
    """Both are bound before either listens; the second one must not say that it is ready."""

    async def both() -> None:
        clock, admission = SystemClock(), Admission(10, host_max=10)
        handshakes = Handshakes(clock, admission, ServerConfig())
        first, second = (Server(clock, admission, handshakes) for _ in range(2))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        await first.listen("127.0.0.1", port)
        await second.listen("127.0.0.1", port)
        parts = SimpleNamespace(config=SimpleNamespace(server=SimpleNamespace(connections_max=9)))
        await first.serve([parts], lambda: handler_of, lambda _: None)  # type: ignore[list-item]  # What `serve` looks at.
        try:
            with pytest.raises(OSError, match=r"in use"):
                await second.serve([parts], lambda: handler_of, lambda _: None)  # type: ignore[list-item]
        finally:
            await first.stop()
            await second.stop()

    run(both())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_start_that_fails_leaves_no_port_open(run: Callable[[Any], None], tmp_path: Path) -> None:
    """The endpoint of the metrics listens before the clients' listener finds its port taken."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        values = {"listeners": listeners, "log.dirs": str(tmp_path / "data")}
        with pytest.raises(OSError, match=r"in use"):
            await start(Config.parse({**values, "sharegroup.metrics.port": str(port)}))
        again = await start(Config.parse(values))
        await again.stop()

    run(main())
