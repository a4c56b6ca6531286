"""``sharegroup certs``: makes certificates for trying TLS out, and prints the settings for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sharegroup.installation import pip_install

if TYPE_CHECKING:
    # Imported in `command`, because it needs the extra `tls`.
    from sharegroup.cli.access.local_certificates import CertificateFiles

HOSTS = ("localhost", "127.0.0.1", "::1")
NO_NAME_CHARACTERS = frozenset("/\\\0\n\r")
"""Characters of a client's name that cannot be in the name of its file."""


@click.command("certs")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name or address by which clients reach the broker; may be repeated.  "
    f"[default: {', '.join(HOSTS)}]",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="User name in a client's certificate; may be repeated.  [default: client]",
)
@click.option("--days", type=click.IntRange(1, 3_650), default=365, show_default=True)
def command(*, folder: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Make an authority and certificates of a broker and of clients, for trying TLS out.

    Prints the settings of the broker and of a client.  If FOLDER has an authority, it signs further
    certificates: `sharegroup certs FOLDER --client bob`.  No file is replaced.
    """
    try:
        # Imported here, because it needs the extra `tls`.
        from sharegroup.cli.access.local_certificates import make_certificates
    except ImportError as error:
        raise click.ClickException(
            f"certs needs the package cryptography: {pip_install('tls')}"
        ) from error
    for name in clients:
        if not name or len(name) > 64 or NO_NAME_CHARACTERS & set(name):
            raise click.BadParameter(
                f"{name[:100]!r}: expected 1 to 64 characters without slashes and line ends",
                param_hint="--client",
            )
    has_authority = (folder / "ca.key").exists()
    if not hosts and not (has_authority and clients):
        hosts = HOSTS
    try:
        files = make_certificates(
            # The printed settings name these files, and are used in other directories.
            folder.resolve(),
            hosts=hosts,
            clients=clients or (() if has_authority else ("client",)),
            days=days,
        )
    except (FileExistsError, ValueError) as error:  # The second: no PEM file, or another key.
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(_settings(files, has_server=bool(hosts))))


def _settings(files: CertificateFiles, *, has_server: bool) -> list[str]:
    """Return the lines of the settings for the new files."""
    lines = []
    if has_server:
        lines += [
            "# The broker: sharegroup serve --config server.properties",
            "listeners=SSL://127.0.0.1:9093",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={files.server}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={files.authority}",
            "ssl.client.auth=required",
            "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "",
        ]
    for name in files.clients:
        lines += [
            f"# The client of the user {name}: sharegroup topics list --command-config ...",
            "bootstrap.servers=127.0.0.1:9093",
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={files.authority}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={files.client(name)}",
            "",
        ]
    return lines[:-1]
