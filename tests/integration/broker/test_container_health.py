"""The health check of the container, against brokers with every kind of protection."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from tests.integration.broker.tls_scene import running, tls_settings
from tests.support.limits import HANGING_SECONDS

SCRIPT = Path(__file__).resolve().parents[3] / "container" / "health.py"


async def health(**environment: str) -> tuple[int, str]:
    """Run the health check; return its exit code and its text."""
    named = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        env={**named, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(HANGING_SECONDS):
        _, text = await process.communicate()
    assert process.returncode is not None
    return process.returncode, text.decode()


def write(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


Settings = Callable[[CertificateFiles], dict[str, str]]


def plain(_: CertificateFiles) -> dict[str, str]:
    return {"listeners": "PLAINTEXT://127.0.0.1:0"}


def with_login(_: CertificateFiles) -> dict[str, str]:
    return {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}


def with_login_and_tls(files: CertificateFiles) -> dict[str, str]:
    return tls_settings(
        files, listeners="SASL_SSL://127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-512"
    )


def with_certificates(files: CertificateFiles) -> dict[str, str]:
    return tls_settings(files, ssl_client_auth="required")


def with_certificates_and_tls_1_2(files: CertificateFiles) -> dict[str, str]:
    return tls_settings(files, ssl_client_auth="required", ssl_enabled_protocols="TLSv1.2")


@pytest.mark.parametrize(
    "settings_of",
    [plain, with_login, with_login_and_tls, with_certificates, with_certificates_and_tls_1_2],
)
def test_broker_that_answers_is_healthy(tmp_path: Path, settings_of: Settings) -> None:
    async def scenario() -> None:
        settings = settings_of(
            make_certificates(tmp_path / "certs", hosts=["127.0.0.1"], clients=[])
        )
        async with running(tmp_path, settings) as broker:
            settings["listeners"] = broker.listeners
            file = write(tmp_path / "server.properties", settings)
            assert await health(SHAREGROUP_CONFIG=file) == (0, "")

    asyncio.run(scenario())


def test_metrics_port_is_asked_if_every_listener_requires_certificates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        files = make_certificates(tmp_path / "certs", hosts=["127.0.0.1"], clients=[])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {**with_certificates(files), "sharegroup.metrics.port": str(port)}
        async with running(tmp_path, settings) as broker:
            settings["listeners"] = broker.listeners
            file = write(tmp_path / "server.properties", settings)
            assert await health(SHAREGROUP_CONFIG=file) == (0, "")
        assert "tls_handshake_failed" not in caplog.text

    asyncio.run(scenario())


def test_listener_comes_from_the_environment_of_kafkas_image(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(
            tmp_path, plain(make_certificates(tmp_path / "certs", hosts=[], clients=[]))
        ) as broker:
            assert await health(KAFKA_LISTENERS=broker.listeners) == (0, "")

    asyncio.run(scenario())


def test_port_that_nobody_serves_is_not_healthy() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        code, text = await health(KAFKA_LISTENERS=f"PLAINTEXT://127.0.0.1:{port}")
        assert (code, "ConnectionRefusedError" in text) == (1, True)

    asyncio.run(scenario())


def test_other_server_is_not_healthy() -> None:
    async def scenario() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            code, text = await health(KAFKA_LISTENERS=f"PLAINTEXT://127.0.0.1:{port}")
        assert (code, "expected an answer to request 7" in text) == (1, True)

    asyncio.run(scenario())


def test_missing_settings_file_is_not_healthy(tmp_path: Path) -> None:
    async def scenario() -> None:
        code, text = await health(SHAREGROUP_CONFIG=str(tmp_path / "missing.properties"))
        assert (code, "missing.properties" in text) == (1, True)

    asyncio.run(scenario())
