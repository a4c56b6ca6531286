"""``sharegroup configs``: show and change settings of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sharegroup.cli.asking import (
    ask,
    bootstrap_option,
    json_option,
    pairs,
    refuse_errors,
    timeout_option,
)
from sharegroup.cli.output import Row, done, listing
from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    AlterConfig,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)

ALL_BROKERS = "default"
HIDDEN = "(hidden)"


def resource_options(verb: Callable[..., None]) -> Callable[..., Any]:
    """The options of which exactly one says whose settings are meant."""
    for option in (
        click.option("--broker", metavar="ID", help=f"A broker; {ALL_BROKERS!r} is all of them."),
        click.option("--group", metavar="GROUP", help="A share group."),
        click.option("--topic", metavar="TOPIC", help="A topic."),
    ):
        verb = option(verb)
    return verb


@click.group("configs")
def command() -> None:
    """Show and change settings of topics, groups and the broker."""


@command.command("describe")
@resource_options
@click.option("--all", "everything", is_flag=True, help="Also what nobody has set.")
@bootstrap_option
@timeout_option
@json_option
def describe(  # One option each.
    *,
    topic: str | None,
    group: str | None,
    broker: str | None,
    everything: bool,
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """The settings of one topic, group or broker, and where each value comes from."""
    resource = _resource(topic, group, broker)

    async def entries(admin: AdminClient) -> list[Row]:
        results = await admin.describe_configs([resource])
        refuse_errors(results)
        found = results[resource]
        assert isinstance(found, dict)
        return [
            _row(entry) for _, entry in sorted(found.items()) if everything or not entry.is_default
        ]

    rows = ask(bootstrap, timeout_ms, entries)
    listing(
        rows,
        columns=("name", "value", "source"),
        as_json=as_json,
        empty="Nothing is set; --all shows the defaults.",
    )


@command.command("alter")
@resource_options
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A new value.")
@click.option("--delete", "deleted", metavar="KEY", multiple=True, help="Back to the default.")
@bootstrap_option
@timeout_option
@json_option
def alter(  # One option each.
    *,
    topic: str | None,
    group: str | None,
    broker: str | None,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Change settings of one topic, group or broker: all that are named, or none."""
    resource = _resource(topic, group, broker)
    values = pairs(settings, "--set")
    if not values and not deleted:
        raise click.UsageError("nothing to change: give --set KEY=VALUE or --delete KEY")
    changes = [AlterConfig(key, value) for key, value in values.items()]
    changes += [AlterConfig(key, None, ConfigOperation.DELETE) for key in deleted]
    refuse_errors(
        ask(
            bootstrap,
            timeout_ms,
            lambda admin: admin.incremental_alter_configs({resource: changes}),
        )
    )
    what = f"{resource.type.name.lower()} {resource.name or ALL_BROKERS}"
    done(f"changed {what}", as_json=as_json, set=values, deleted=list(deleted))


def _resource(topic: str | None, group: str | None, broker: str | None) -> ConfigResource:
    named = [
        ConfigResource(kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.BROKER, "" if broker == ALL_BROKERS else broker),
        )
        if name is not None
    ]
    if len(named) != 1:
        raise click.UsageError("name one of --topic, --group and --broker")
    if broker not in (None, ALL_BROKERS) and not str(broker).isdigit():
        raise click.BadParameter(
            f"{broker!r}: expected a node id or {ALL_BROKERS!r}", param_hint="--broker"
        )
    return named[0]


def _row(entry: ConfigEntry) -> Row:
    return {
        "name": entry.name,
        "value": HIDDEN if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.is_read_only,
    }
