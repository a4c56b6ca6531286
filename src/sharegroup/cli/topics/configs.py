"""``sharegroup configs``: show and change settings of topics, groups and brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from sharegroup.cli.access.quotas import ConfigVerbs, alter_quotas, describe_quotas
from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    list_group_names,
    list_topic_names,
    listing_options,
    pairs,
    refuse_errors,
    show,
)
from sharegroup.cli.common.name_arguments import complete_groups, complete_topics
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import Listing, Row, done
from sharegroup.cli.common.properties import read_properties
from sharegroup.cli.common.tables import leaves_out
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import AlterConfig, ConfigEntry, ConfigResource
from sharegroup.errors import (
    GroupIdNotFound,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.protocol_enums import ConfigOperation, ConfigSource, ResourceType

ALL_BROKERS = "default"
SPARE = ("source",)
HIDDEN = "(hidden)"
SECRETS = re.compile(r"password|secret|jaas\.config|keystore\.key")
"""Names of settings that a file with new values may have, and that output must not repeat."""
ENTITY_TYPES = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "brokers": ResourceType.BROKER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "broker-loggers": ResourceType.BROKER_LOGGER,
}
ONE_RESOURCE = "give one of --topic, --group, --broker and --entity-type with --entity-name"
OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
"""The commas that separate settings, as in ``a=1,b=[2,3]``; not those inside brackets."""


def _resource(
    *,
    topic: str | None,
    group: str | None,
    broker: str | None,
    broker_defaults: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
) -> ConfigResource | ResourceType:
    """Return the named resource, or the type of which none is named."""
    candidates: list[tuple[ResourceType, str | None]] = [
        (ResourceType.TOPIC, topic),
        (ResourceType.GROUP, group),
        (ResourceType.BROKER, broker),
        (ResourceType.BROKER, ALL_BROKERS if broker_defaults else None),
    ]
    if entity_type:
        candidates.append(
            (ENTITY_TYPES[entity_type], ALL_BROKERS if entity_default else entity_name)
        )
    elif entity_name or entity_default:
        raise click.UsageError("--entity-name and --entity-default need --entity-type")
    if entity_type and not any(candidate[1] for candidate in candidates):
        return ENTITY_TYPES[entity_type]
    resources = [(kind, name) for kind, name in candidates if name is not None]
    if len(resources) != 1:
        raise click.UsageError(ONE_RESOURCE)
    ((kind, name),) = resources
    if kind is not ResourceType.BROKER:
        return ConfigResource(kind, name)
    if name != ALL_BROKERS and not name.isdigit():
        raise click.BadParameter(
            f"{name!r}: expected a node id or {ALL_BROKERS!r}", param_hint="--broker"
        )
    return ConfigResource(kind, "" if name == ALL_BROKERS else name)


resource_options = gathered(
    "resource",
    _resource,
    click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Topic."),
    click.option("--group", metavar="GROUP", shell_complete=complete_groups, help="Group."),
    click.option(
        "--broker", metavar="ID", help=f"Broker; {ALL_BROKERS!r}: defaults of all brokers."
    ),
    click.option("--broker-defaults", is_flag=True, help="Defaults of all brokers."),
    click.option(
        "--entity-type", type=click.Choice(list(ENTITY_TYPES)), help="Type of --entity-name."
    ),
    click.option("--entity-name", metavar="NAME", help="Name, as in Kafka's tools."),
    click.option("--entity-default", is_flag=True, help="Like --broker default."),
)
"""Adds the options that name a resource to a verb, which is called with ``resource``."""


@click.group("configs", cls=ConfigVerbs)
def command() -> None:
    """Show and change settings of topics, groups and brokers.

    Users, clients and ips have quotas instead of settings; `sharegroup quotas` shows them, too.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup configs --alter --entity-type groups --entity-name billing
            --add-config share.record.lock.duration.ms=60000
    """


command.add_command(describe_quotas)
command.add_command(alter_quotas)


@command.command("describe")
@resource_options
@click.option(
    "--all", "everything", is_flag=True, help="Include settings with their default value."
)
@cluster_options
@listing_options
@leaves_out(SPARE)
def describe(
    *, resource: ConfigResource | ResourceType, everything: bool, access: Access, form: Form
) -> None:
    """Show settings and the source of each value.

    --entity-type without a name shows the settings of all groups, topics, brokers or
    client-metrics.
    """

    # What all groups have from the broker is not repeated for each.
    is_of_groups = resource is ResourceType.GROUP

    def is_shown(entry: ConfigEntry) -> bool:
        return entry.source is ConfigSource.GROUP if is_of_groups else not entry.is_default

    async def entries(admin: AdminClient) -> Listing:
        if isinstance(resource, ConfigResource):
            results = await admin.describe_configs([resource])
        else:
            results = await _configs_of_all(admin, resource)
        refuse_errors(results)
        rows = [
            _row(entry) if resource == described else {"entity": described.name, **_row(entry)}
            for described, entries_by_name in results.items()
            if isinstance(entries_by_name, dict)
            for _, entry in sorted(entries_by_name.items())
            if everything or is_shown(entry)
        ]
        columns: tuple[str, ...] = ("name", "value", "source")
        if not isinstance(resource, ConfigResource):
            columns = ("entity", *columns)
        nothing = "No settings have been changed; --all shows the defaults."
        return Listing(rows, columns, nothing, spare=SPARE)

    show(access, form, entries)


async def _configs_of_all(
    admin: AdminClient, kind: ResourceType
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    """Return the configs of all resources of a type."""
    names = sorted(await _names_of_all(admin, kind))
    results = await admin.describe_configs([ConfigResource(kind, name) for name in names])
    # One that is unknown by now was deleted since it was listed.
    gone = (UnknownTopicOrPartition, GroupIdNotFound)
    return {
        resource: configs for resource, configs in results.items() if not isinstance(configs, gone)
    }


async def _names_of_all(admin: AdminClient, kind: ResourceType) -> set[str]:
    """Return the names of all resources of a type, of groups also those that do not exist."""
    match kind:
        case ResourceType.TOPIC:
            return set(await list_topic_names(admin))
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            cluster = await admin.describe_cluster()
            return {str(node.node_id) for node in cluster.nodes}
        case ResourceType.GROUP:
            existing = set(await list_group_names(admin))
        case _:
            existing = set()
    try:
        configured = await admin.list_config_resources([kind])
    except UnsupportedVersion:  # Before Kafka 4.1: groups with settings alone cannot be listed.
        return existing
    return existing | {resource.name for resource in configured}


class SettingChanges(NamedTuple):
    """New values of settings, and the settings to reset."""

    values: Mapping[str, str]
    deleted: Sequence[str]


def _changes(
    *,
    settings: tuple[str, ...],
    lists: tuple[str, ...],
    file: Path | None,
    deleted: tuple[str, ...],
) -> SettingChanges:
    values = {
        **(dict(read_properties(file)) if file else {}),
        **_values(lists),
        **pairs(settings, "--set"),
    }
    keys = [key.strip() for text in deleted for key in text.split(",") if key.strip()]
    if not values and not keys:
        raise click.UsageError("nothing to change: give --set KEY=VALUE or --delete KEY")
    return SettingChanges(values, keys)


def _values(lists: Iterable[str]) -> dict[str, str]:
    """Parse lists of settings like ``a=1,b=[2,3]``."""
    texts = [part for text in lists for part in OUTSIDE_BRACKETS.split(text)]
    settings = pairs(texts, "--add-config")
    return {
        key: value[1:-1] if value.startswith("[") and value.endswith("]") else value
        for key, value in settings.items()
    }


change_options = gathered(
    "changes",
    _changes,
    click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help="New value of a setting."
    ),
    click.option(
        "--add-config",
        "lists",
        metavar="KEY=VALUE,...",
        multiple=True,
        help="New values of settings; a value with commas is enclosed in [ ].",
    ),
    click.option(
        "--add-config-file",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Properties file with new values.",
    ),
    click.option(
        "--delete",
        "--delete-config",
        "deleted",
        metavar="KEY,...",
        multiple=True,
        help="Reset settings to their default.",
    ),
)
"""Adds the options that change settings to a verb, which is called with ``changes``."""


@command.command("alter")
@resource_options
@change_options
@cluster_options
@json_option
def alter(
    *,
    resource: ConfigResource | ResourceType,
    changes: SettingChanges,
    access: Access,
    as_json: bool,
) -> None:
    """Change settings; if one change is invalid, none is made."""
    if not isinstance(resource, ConfigResource):
        raise click.UsageError(ONE_RESOURCE)
    values, deleted = changes
    altered = [AlterConfig(key, value) for key, value in values.items()]
    altered += [AlterConfig(key, None, ConfigOperation.DELETE) for key in deleted]
    refuse_errors(ask(access, lambda admin: admin.incremental_alter_configs({resource: altered})))
    resource_name = f"{resource.type.name.lower().replace('_', ' ')} {resource.name or ALL_BROKERS}"
    done(f"changed {resource_name}", as_json=as_json, set=shown(values), deleted=list(deleted))


def shown(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for output, with secrets hidden as in ``describe``.

    >>> shown({"ssl.keystore.password": "hunter2", "retention.ms": "5"})
    {'ssl.keystore.password': '(hidden)', 'retention.ms': '5'}
    """
    return {key: HIDDEN if SECRETS.search(key) else value for key, value in values.items()}


def _row(entry: ConfigEntry) -> Row:
    return {
        "name": entry.name,
        # Brokers send no value of a secret; without a word here it would look unset.
        "value": HIDDEN if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
