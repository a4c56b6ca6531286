"""``sharegroup users``: list, add and remove the users of SCRAM, and change their passwords."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.offline_catalog import change_catalog, read_catalog
from sharegroup.broker.cluster.scram_credentials import DECOY_KEY_BYTES, Removal, Upsertion
from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    refuse,
    refuse_errors,
    show,
)
from sharegroup.cli.common.options import Verb
from sharegroup.cli.common.output import Listing, done, print_listing, printable
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from sharegroup.core.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    USER_BYTES_MAX,
    credential_of,
    salted_password,
)
from sharegroup.errors import KafkaError, ResourceNotFound
from sharegroup.protocol_enums import ScramMechanism

# A new password is never an option of the command line, which other users of the machine can read.


PASSWORD_CHARACTERS_MAX = 1_024
LINE_BYTES_MAX = 4 * PASSWORD_CHARACTERS_MAX + 5
"""Maximum size of a line with a password in UTF-8, with a byte order mark and a line end."""
STDIN = "standard input"

password_file_option = click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File with the password in its first line; - for standard input.  [default: ask on a "
    "terminal, otherwise standard input]",
)


def new_password(user: str, file: Path | None) -> str:
    """Return the password from a file, from standard input, or from the terminal."""
    if file is None and sys.stdin.isatty():
        prompted: Any = click.prompt(
            f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
        return _checked(str(prompted), "the terminal")
    if file is None or str(file) == "-":
        return _checked(_text(sys.stdin.buffer.readline(LINE_BYTES_MAX), STDIN), STDIN)
    with file.open("rb") as lines:
        return _checked(_text(lines.readline(LINE_BYTES_MAX), str(file)), str(file))


def _text(line: bytes, origin: str) -> str:
    """Decode the line of a password, whatever the locale; the error does not show it."""
    try:
        # Editors of Windows begin a file with a mark that no client would send.
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Without a cause: it has the bytes.
        raise click.ClickException(f"the first line of {printable(origin)} is not UTF-8") from None


def _checked(line: str, origin: str) -> str:
    password = line.rstrip("\r\n")
    if not password or len(password) > PASSWORD_CHARACTERS_MAX:
        raise click.ClickException(
            f"expected a password of 1 to {PASSWORD_CHARACTERS_MAX} characters in the first line "
            f"of {origin}, found {len(password)}"
        )
    return password


MECHANISMS = {
    mechanism.sasl_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)
}
SALT_BYTES = 24

data_option = click.option(
    "--data",
    "directory",
    type=click.Path(file_okay=False),
    help="Data directory of a stopped broker, or of one that has not been started yet; without "
    "it, a running broker is asked.",
)
user_argument = click.argument("user")


def mechanism_option(default: str) -> Callable[[Verb], Verb]:
    """Create the option ``--mechanism``."""
    return click.option(
        "--mechanism",
        "names",
        type=click.Choice(list(MECHANISMS)),
        multiple=True,
        help=f"May be given twice.  [default: {default}]",
    )


@click.group("users", cls=VerbsAsOptions)
def command() -> None:
    """List, add and remove the users of SCRAM, and change their passwords.

    A broker that nobody can log in to gets its first user in its data directory:

    \b
        sharegroup users add admin --data /var/lib/sharegroup
        sharegroup serve --config server.properties
    """


@command.command("list")
@click.argument("users", nargs=-1)
@data_option
@cluster_options
@listing_options
def list_users(
    *, users: tuple[str, ...], directory: str | None, access: Access, form: Form
) -> None:
    """Show users, their mechanisms and iterations; without names, all users."""
    if directory is not None:
        _existing(directory)
        listing = _listing(_stored(directory, users))
        print_listing(listing, as_json=form.as_json)
        refuse(listing.failures)
        return

    async def described(admin: AdminClient) -> Listing:
        return _listing(await admin.describe_user_scram_credentials(users or None))

    show(access, form, described)


@command.command("add")
@user_argument
@mechanism_option("SCRAM-SHA-512")
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    help="How often the password is hashed; more make it harder to guess, and logins slower.",
)
@password_file_option
@data_option
@cluster_options
@json_option
def add(  # One option each.
    *,
    user: str,
    names: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    directory: str | None,
    access: Access,
    as_json: bool,
) -> None:
    """Add a user, or change the password of one."""
    _check_name(user)
    mechanisms = [MECHANISMS[name] for name in names or ("SCRAM-SHA-512",)]
    password = new_password(user, password_file)
    if directory is not None:
        _set_offline(directory, user, password, mechanisms, iterations)
    else:
        for mechanism in mechanisms:  # A request may name a user once.
            change = UserScramCredentialUpsertion(user, password, mechanism, iterations)
            _alter(access, change)
    done(f"set the password of {user}", as_json=as_json, user=user, mechanisms=_names(mechanisms))


@command.command("remove")
@user_argument
@mechanism_option("all of the user")
@data_option
@cluster_options
@json_option
def remove(
    *,
    user: str,
    names: tuple[str, ...],
    directory: str | None,
    access: Access,
    as_json: bool,
) -> None:
    """Remove a user; open connections end when they have to log in again."""
    wanted = [MECHANISMS[name] for name in names]
    if directory is not None:
        _existing(directory)
        removed = wanted or [info.mechanism for info in _infos(_stored(directory, [user]), user)]
        _remove_offline(directory, user, removed)
    else:
        described = ask(access, lambda admin: admin.describe_user_scram_credentials([user]))
        refuse_errors(described)
        removed = wanted or [info.mechanism for info in _infos(described, user)]
        for mechanism in removed:
            _alter(access, UserScramCredentialDeletion(user, mechanism))
    done(f"removed {user}", as_json=as_json, user=user, mechanisms=_names(removed))


def _alter(
    access: Access, change: UserScramCredentialUpsertion | UserScramCredentialDeletion
) -> None:
    refuse_errors(ask(access, lambda admin: admin.alter_user_scram_credentials([change])))


def _check_name(user: str) -> None:
    if not user or "\0" in user or len(user.encode()) > USER_BYTES_MAX:
        raise click.BadParameter(
            f"expected a name of 1 to {USER_BYTES_MAX} bytes", param_hint="USER"
        )


def _names(mechanisms: Iterable[ScramMechanism]) -> list[str]:
    return [mechanism.sasl_name for mechanism in mechanisms]


def _listing(
    described: Mapping[str, tuple[ScramCredentialInfo, ...] | KafkaError],
) -> Listing:
    rows = [
        {"user": user, "mechanism": info.mechanism.sasl_name, "iterations": info.iterations}
        for user, infos in described.items()
        if not isinstance(infos, KafkaError)
        for info in infos
    ]
    failures = [error for error in described.values() if isinstance(error, KafkaError)]
    return Listing(rows, ("user", "mechanism", "iterations"), "There are no users.", failures)


def _infos(
    described: Mapping[str, tuple[ScramCredentialInfo, ...] | KafkaError], user: str
) -> tuple[ScramCredentialInfo, ...]:
    infos = described[user]
    if isinstance(infos, KafkaError):
        raise infos
    return infos


# In the data directory of a stopped broker.


def _existing(directory: str) -> None:
    if not os.path.isdir(directory):
        raise click.BadParameter(f"there is no directory {directory!r}", param_hint="--data")


def _stored(
    directory: str, users: Iterable[str]
) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
    credentials = read_catalog(directory).scram_credentials
    described: dict[str, tuple[ScramCredentialInfo, ...] | KafkaError] = {}
    for user in tuple(users) or sorted(credentials.users):
        described[user] = tuple(
            ScramCredentialInfo(mechanism, credential.iterations)
            for mechanism, credential in sorted(credentials.of_user(user).items())
        ) or ResourceNotFound(f"there is no user {user!r} in {directory}")
    return described


def _set_offline(
    directory: str,
    user: str,
    password: str,
    mechanisms: Iterable[ScramMechanism],
    iterations: int,
) -> None:
    upserted = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
        credential = credential_of(mechanism, salted, salt=salt, iterations=iterations)
        upserted.append(Upsertion(user, mechanism, credential))
    _change(directory, upserted, [])


def _remove_offline(directory: str, user: str, mechanisms: Iterable[ScramMechanism]) -> None:
    stored = {info.mechanism for info in _infos(_stored(directory, [user]), user)}
    for mechanism in mechanisms:
        if mechanism not in stored:
            raise ResourceNotFound(f"user {user!r} has no password for {mechanism.sasl_name}")
    _change(directory, [], [Removal(user, mechanism) for mechanism in mechanisms])


def _change(directory: str, upserted: list[Upsertion], removed: list[Removal]) -> None:
    decoy_key = secrets.token_bytes(DECOY_KEY_BYTES)

    def event_of(catalog: Catalog) -> Event:
        return catalog.scram_credentials.changed(upserted, removed, decoy_key=decoy_key)

    try:
        asyncio.run(change_catalog(os.path.realpath(directory), event_of))
    except BlockingIOError as error:
        raise click.ClickException(
            f"{error}; stop the broker, or leave out --data to ask it"
        ) from error
