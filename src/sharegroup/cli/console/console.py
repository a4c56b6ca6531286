"""``sharegroup console``: a page in the browser for share groups and dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options
from sharegroup.cli.common.log_lines import start_logging
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import complain
from sharegroup.cli.groups.inspect_group import base_url
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.client.settings.option_values import SaslMechanism
from sharegroup.console.access.exposure import Listening
from sharegroup.errors import InvalidConfig, MissingExtra
from sharegroup.installation import pip_install

if TYPE_CHECKING:
    from sharegroup.console.settings import PathOf

PORT_MAX = 65_535
MECHANISMS = [
    mechanism.value for mechanism in SaslMechanism if mechanism is not SaslMechanism.OAUTHBEARER
]
NOWHERE = "none"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleUsers:
    """Who may come in, and what they may do."""

    allow_changes: bool
    hide_values: bool
    token_file: Path | None
    cluster_login: str | None
    roles: Path | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the history of groups is kept."""

    remember: bool
    history: str | None
    """A file, or `NOWHERE`; None: the default file, unless ``remember``."""


def _listening(**options: Any) -> Listening:
    try:
        return Listening(**options)
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error


def _memory(*, remember: bool, history: str | None) -> Memory:
    if remember and history is not None:
        raise click.UsageError("--remember keeps the history in topics: give it without --history")
    return Memory(remember, history)


listening_options = gathered(
    "listening",
    _listening,
    click.option(
        "--port",
        type=click.IntRange(0, PORT_MAX),
        default=8080,
        show_default=True,
        help="Port of the console; 0 means a free one.",
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address that the port listens on; another one than this machine's own needs a login "
        "and encryption.",
    ),
    click.option("--tls-cert", type=FILE, help="Certificate in PEM: browsers connect by https."),
    click.option(
        "--tls-key", type=FILE, help="Key of the certificate, if that is in another file."
    ),
    click.option(
        "--behind-proxy",
        "proxies",
        metavar="ADDRESS",
        multiple=True,
        help="Address or network of a proxy that encrypts and sends X-Forwarded-Proto and "
        "X-Forwarded-For; requests that come another way are refused.",
    ),
    click.option(
        "--name",
        "names",
        metavar="HOST",
        multiple=True,
        help="Name by which browsers reach the port, if it is neither --host nor localhost.",
    ),
)
user_options = gathered(
    "users",
    ConsoleUsers,
    click.option("--allow-changes", is_flag=True, help="Allow changes; without it, it only reads."),
    click.option(
        "--hide-values", is_flag=True, help="Do not show keys, values and headers of records."
    ),
    click.option(
        "--token-file", type=FILE, help="Log in by tokens; the file has lines name:token."
    ),
    click.option(
        "--cluster-login",
        type=click.Choice(MECHANISMS),
        help="Log in as a user of the cluster by this mechanism: everybody sees and changes what "
        "that user may.",
    ),
    click.option(
        "--roles",
        type=FILE,
        help="Roles per pattern of groups and topics, and masks of values: TOML, or JSON.",
    ),
)  # fmt: skip


memory_options = gathered(
    "memory",
    _memory,
    click.option(
        "--remember",
        is_flag=True,
        help="Keep the history in two topics of the cluster, which all consoles share.",
    ),
    click.option(
        "--history",
        metavar="FILE",
        help="Keep the history in this file; none: do not keep it.  The default is a file for each "
        "cluster in the user's folder for state, ~/.local/state/sharegroup.",
    ),
)


@click.command("console")
@listening_options
@user_options
@memory_options
@click.option(
    "--metrics",
    "metrics_url",
    metavar="URL",
    help="Metrics port of sharegroup serve: show runs live, with members and locks.",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Schema registry by which values are decoded: Avro, JSON, Protobuf.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Level of the log on standard error; info has who saw values and who changed what.",
)
@click.option("--ends-with-input", is_flag=True, hidden=True)
@cluster_options
def command(
    *,
    listening: Listening,
    users: ConsoleUsers,
    memory: Memory,
    metrics_url: str | None,
    schema_registry: str | None,
    log_level: str,
    ends_with_input: bool,
    access: Access,
) -> None:
    """Serve a page that shows share groups, their records and dead letters.

    It works with any cluster that has share groups: this broker, or Apache Kafka 4.2 and later.
    It only reads, unless --allow-changes is given.  It listens on this machine only, unless --host
    says otherwise.

    \b
        sharegroup console --bootstrap-server 127.0.0.1:9092
    """
    try:
        # Imported here because the web framework takes longer to import than most verbs run.
        from sharegroup.console.access.roles import ALL_RIGHTS, Roles
        from sharegroup.console.access.roles_file import read_roles
        from sharegroup.console.access.tokens import read_tokens
        from sharegroup.console.program import end_with_input, run
        from sharegroup.console.remember.history_file import default_file
        from sharegroup.console.settings import ConsoleSettings
    except ImportError as error:
        raise MissingExtra(f"the console needs an extra: {pip_install('console')}") from error
    start_logging(log_level)
    if ends_with_input:
        end_with_input()
    try:
        mechanism = users.cluster_login
        settings = ConsoleSettings(
            client_options=cast("ClientOptions", access.client_options()),
            allow_changes=users.allow_changes,
            show_values=not users.hide_values,
            metrics_url=None if metrics_url is None else base_url(metrics_url),
            schema_registry=schema_registry,
            roles=read_roles(users.roles) if users.roles else Roles.of_everybody(ALL_RIGHTS),
            tokens=read_tokens(users.token_file) if users.token_file else None,
            token_file=users.token_file,
            roles_file=users.roles,
            login_mechanism=None if mechanism is None else SaslMechanism(mechanism),
            remember=memory.remember,
            history_file=_history_file(memory, default_file),
        )
        run(settings, listening, say=click.echo)
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        complain(
            f"the console cannot listen on {listening.host}:{listening.port}: {error.strerror}; "
            "take another --port or --host"
        )
        raise SystemExit(1) from error


def _history_file(memory: Memory, default_file: PathOf) -> PathOf | None:
    if memory.remember or memory.history == NOWHERE:
        return None
    if memory.history is None:
        return default_file
    path = Path(memory.history).absolute()
    return lambda _: path
