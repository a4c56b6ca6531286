"""Common options of the verbs that move records, with the names of Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from sharegroup.cli.common.cluster_access import PROPERTY_OPTION, Access, kept_pairs
from sharegroup.cli.common.name_arguments import complete_groups
from sharegroup.cli.common.options import Verb, gathered

command_property_option = click.option(
    PROPERTY_OPTION,
    "command_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Client property; overrides --command-config and the profile.",
)
consumer_property_option = click.option(
    PROPERTY_OPTION,
    "--consumer-property",
    "command_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Client property; overrides --command-config and the profile.",
)
"""The same with the former name in Kafka's console consumers."""


def group_option(default: str) -> Callable[[Verb], Verb]:
    """Create the option ``--group``; `group_of` finds the group if the option is missing."""
    return click.option(
        "--group",
        shell_complete=complete_groups,
        help=f"Group.  [default: the property group.id, or {default}]",
    )


def group_of(access: Access, group: str | None, default: str) -> str:
    """Return the group of ``--group``, else of the property group.id, else the default.

    Refuses two different groups, because consuming in the wrong group settles its records
    or moves its offsets.
    """
    property_group = access.properties.get("group.id")
    if group is not None and property_group is not None and group != property_group:
        raise click.UsageError(
            f"--group {group!r} and the property group.id={property_group!r} differ"
        )
    return group or property_group or default


def with_properties(access: Access, texts: Iterable[str]) -> Access:
    """Return the access with these client properties, which override its own."""
    return access.with_properties(kept_pairs(texts, PROPERTY_OPTION))


def _producer_options(*, compression: str | None, acks: str | None) -> dict[str, Any]:
    """Return those of the two options that were given, as options of a Producer."""
    options: dict[str, Any] = {}
    if compression is not None:
        options["compression"] = None if compression == "none" else compression
    if acks is not None:
        durable = acks in ("all", "-1")
        # An idempotent producer needs acks=all.
        options |= {"acks": "all"} if durable else {"acks": int(acks), "idempotent": False}
    return options


producer_options = gathered(
    "producer_options",
    _producer_options,
    click.option(
        "--compression",
        "--compression-codec",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        help="[default: none]",
    ),
    click.option(
        "--acks",
        "--request-required-acks",
        type=click.Choice(["all", "-1", "1", "0"]),
        help="Replicas that must have a record before it is acknowledged.  [default: all]",
    ),
)
"""Adds ``--compression`` and ``--acks`` to a verb, which is called with ``producer_options``."""
