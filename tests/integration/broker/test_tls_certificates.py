"""Certificates that are exchanged while the broker runs: by settings and by changed files."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest
import uvloop
from cryptography import x509

from sharegroup.broker.app import Running
from sharegroup.cli.access.local_certificates import CertificateFiles, make_certificates
from sharegroup.client import AdminClient, AlterConfig, ConfigResource, ResourceType
from sharegroup.errors import InvalidConfig
from tests.integration.broker.tls_scene import (
    client_options,
    running,
    tls_settings,
    trusting,
    until,
)

THIS_BROKER = ConfigResource(ResourceType.BROKER, "1")
LOCATION = "listener.name.ssl.ssl.keystore.location"
CONNECTIONS = 8
EXCHANGES = 20


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return make_certificates(tmp_path / "certificates", hosts=["127.0.0.1"], clients=["alice"])


def new_server(files: CertificateFiles, *hosts: str) -> Path:
    """Another certificate of the broker, by the same authority; it replaces no file."""
    kept = files.server.read_bytes()
    files.server.unlink()
    made = make_certificates(files.folder, hosts=hosts or ["127.0.0.1"], clients=()).server
    path = files.folder / f"server-{len(os.listdir(files.folder))}.pem"
    made.rename(path)
    files.server.write_bytes(kept)
    return path


def serial_in(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def serial_of(broker: Running, files: CertificateFiles) -> int:
    """The serial number of the certificate that a new connection gets."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", broker.parts.node.port, ssl=trusting(files)
    )
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    writer.close()
    await reader.read()
    return x509.load_der_x509_certificate(certificate).serial_number


async def alter(admin: AdminClient, **values: str) -> None:
    changes = [AlterConfig(name, value) for name, value in values.items()]
    [error] = (await admin.incremental_alter_configs({THIS_BROKER: changes})).values()
    if error is not None:
        raise error


def test_setting_exchanges_the_certificate_and_survives_a_restart(
    files: CertificateFiles, tmp_path: Path
) -> None:
    newer = new_server(files)

    async def main() -> None:
        async with running(tmp_path, tls_settings(files)) as broker:
            assert await serial_of(broker, files) == serial_in(files.server)
            async with AdminClient(**client_options(files, broker)) as admin:
                await alter(admin, **{LOCATION: str(newer)})
                assert await serial_of(broker, files) == serial_in(newer)
                await admin.list_topics()  # The connection with the old one goes on.
        async with running(tmp_path, tls_settings(files)) as broker:
            assert await serial_of(broker, files) == serial_in(newer)

    uvloop.run(main())


def test_certificate_that_cannot_be_used_is_refused_and_the_old_one_stays(
    files: CertificateFiles, tmp_path: Path
) -> None:
    cut = files.folder / "cut.pem"
    cut.write_bytes(files.server.read_bytes()[:300])

    async def main() -> None:
        async with (
            running(tmp_path, tls_settings(files)) as broker,
            AdminClient(**client_options(files, broker)) as admin,
        ):
            for path, message in (
                ("/no/such/file", "cannot be read"),
                (str(cut), "must have at least one certificate|must have one private key"),
                (str(new_server(files, "127.0.0.2")), r"not for 'CN=127\.0\.0\.1' as before"),
                (str(new_server(files, "127.0.0.1", "x")), ""),
            ):
                if message:
                    with pytest.raises(InvalidConfig, match=f"listener SSL: .*({message})"):
                        await alter(admin, **{LOCATION: path})
                    assert await serial_of(broker, files) == serial_in(files.server)
                else:
                    await alter(admin, **{LOCATION: path})
            with pytest.raises(InvalidConfig, match="lacks 1 alternative names"):
                await alter(admin, **{LOCATION: str(files.server)})

    uvloop.run(main())


def test_another_subject_is_used_if_that_is_allowed(
    files: CertificateFiles, tmp_path: Path
) -> None:
    other = new_server(files, "localhost", "127.0.0.1")

    async def main() -> None:
        settings = tls_settings(files, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
        async with (
            running(tmp_path, settings) as broker,
            AdminClient(**client_options(files, broker)) as admin,
        ):
            await alter(admin, **{LOCATION: str(other)})
            assert await serial_of(broker, files) == serial_in(other)

    uvloop.run(main())


def test_setting_of_pem_exchanges_the_certificate(files: CertificateFiles, tmp_path: Path) -> None:
    key, begin, certificate = new_server(files).read_text().partition("-----BEGIN CERTIFICATE")
    chain = begin + certificate * 8  # Longer than other values may be.

    async def main() -> None:
        settings = tls_settings(files)
        key_0, begin_0, chain_0 = files.server.read_text().partition("-----BEGIN CERTIFICATE")
        del settings["ssl.keystore.location"]
        settings |= {"ssl.keystore.key": key_0, "ssl.keystore.certificate.chain": begin_0 + chain_0}
        async with (
            running(tmp_path, settings) as broker,
            AdminClient(**client_options(files, broker)) as admin,
        ):
            prefix = "listener.name.ssl.ssl.keystore."
            values = {f"{prefix}key": key, f"{prefix}certificate.chain": chain}
            await alter(admin, **values)
            certificate_pem = (begin + certificate).encode()
            expected = x509.load_pem_x509_certificate(certificate_pem).serial_number
            assert await serial_of(broker, files) == expected

    uvloop.run(main())


@pytest.mark.slow
def test_changed_file_is_used_within_seconds_and_a_damaged_one_is_not(
    files: CertificateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer, old = new_server(files), serial_in(files.server)

    async def main() -> None:
        async with running(tmp_path, tls_settings(files)) as broker:
            files.server.write_bytes(files.server.read_bytes()[:300])
            await until(lambda: "event=tls_certificate_kept" in caplog.text, "the file was seen")
            assert await serial_of(broker, files) == old
            expected = serial_in(newer)
            newer.rename(files.server)
            await until(lambda: "event=tls_certificate_exchanged" in caplog.text, "it is used")
            assert await serial_of(broker, files) == expected

    caplog.set_level("INFO")
    uvloop.run(main())
    assert caplog.text.count("event=tls_certificate_kept") == 1


@pytest.mark.slow
def test_no_connection_fails_while_certificates_are_exchanged(
    files: CertificateFiles, tmp_path: Path
) -> None:
    """Clients connect all the time, and each new connection has one of the two certificates."""
    paths = [files.server, new_server(files)]

    async def main() -> set[int]:
        found: set[int] = set()
        counts = [0] * CONNECTIONS
        async with running(tmp_path, tls_settings(files)) as broker:

            async def connect(number: int) -> None:
                while not is_over:
                    async with AdminClient(**client_options(files, broker, "alice")) as admin:
                        await admin.list_topics()
                    found.add(await serial_of(broker, files))
                    counts[number] += 1

            is_over = False
            async with asyncio.TaskGroup() as tasks:
                for number in range(CONNECTIONS):
                    tasks.create_task(connect(number))
                async with AdminClient(**client_options(files, broker)) as admin:
                    for number in range(EXCHANGES):
                        before = sum(counts)
                        await alter(admin, **{LOCATION: str(paths[(number + 1) % 2])})
                        await until(lambda: sum(counts) > before + 4, "connections were made")  # noqa: B023
                is_over = True
            [listener] = broker.server.tls_listeners
            assert listener.failed_count == 0
        return found

    assert uvloop.run(main()) == {serial_in(path) for path in paths}
