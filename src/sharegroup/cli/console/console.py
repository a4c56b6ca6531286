"""``sharegroup console``: a page in the browser for share groups and dead letters."""

from __future__ import annotations

from typing import cast

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options
from sharegroup.cli.common.output import complain
from sharegroup.cli.groups.inspect_group import base_url
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

PORT_MAX = 65_535


@click.command("console")
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    default=8080,
    show_default=True,
    help="Port of the console; 0 means a free one.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that the port listens on."
)
@click.option("--allow-changes", is_flag=True, help="Allow changes; without it, it only reads.")
@click.option(
    "--hide-values", is_flag=True, help="Do not show keys, values and headers of records."
)
@click.option(
    "--metrics",
    "metrics_url",
    metavar="URL",
    help="Metrics port of sharegroup serve: show runs live, with members and locks.",
)
@click.option("--ends-with-input", is_flag=True, hidden=True)
@cluster_options
def command(
    *,
    port: int,
    host: str,
    allow_changes: bool,
    hide_values: bool,
    metrics_url: str | None,
    ends_with_input: bool,
    access: Access,
) -> None:
    """Serve a page that shows share groups, their records and dead letters.

    It works with any cluster that has share groups: this broker, or Apache Kafka 4.2 and later.
    It only reads, unless --allow-changes is given.

    \b
        sharegroup console --bootstrap-server 127.0.0.1:9092
    """
    try:
        # Imported here because the web framework takes longer to import than most verbs run.
        from sharegroup.console.program import end_with_input, run
        from sharegroup.console.settings import ConsoleSettings
    except ImportError as error:
        raise MissingExtra(f"the console needs an extra: {pip_install('console')}") from error
    settings = ConsoleSettings(
        client_options=cast("ClientOptions", access.client_options()),
        allow_changes=allow_changes,
        show_values=not hide_values,
        metrics_url=None if metrics_url is None else base_url(metrics_url),
    )
    if ends_with_input:
        end_with_input()
    try:
        run(settings, host, port, say=click.echo)
    except OSError as error:
        complain(
            f"the console cannot listen on {host}:{port}: {error.strerror}; take another --port"
        )
        raise SystemExit(1) from error
