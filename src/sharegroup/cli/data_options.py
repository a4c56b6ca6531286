"""Options that the verbs which move records have in common, named as Kafka's tools name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import click

from sharegroup.cli.asking import Access, Verb, kept_pairs
from sharegroup.cli.naming import complete_groups

command_property_option = click.option(
    "--command-property",
    "command_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A client property; goes before those of --command-config.",
)
compression_option = click.option(
    "--compression",
    "--compression-codec",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="[default: none]",
)
acks_option = click.option(
    "--acks",
    "--request-required-acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    help="Who must have a record before it counts as sent.  [default: all]",
)


def group_option(default: str) -> Callable[[Verb], Verb]:
    """``--group``; what it means without it is for `group_of` to say."""
    return click.option(
        "--group",
        shell_complete=complete_groups,
        help=f"The share group.  [default: the property group.id, or {default}]",
    )


def group_of(access: Access, group: str | None, default: str) -> str:
    """The share group; to consume as another one than was meant would settle its records."""
    named = access.properties.get("group.id")
    if group is not None and named is not None and group != named:
        raise click.UsageError(f"--group {group!r} and the property group.id={named!r} differ")
    return group or named or default


def with_properties(access: Access, texts: Iterable[str]) -> Access:
    """The same access with these client properties over its own."""
    more = dict(kept_pairs(texts, "--command-property"))
    bootstrap = more.pop("bootstrap.servers", access.bootstrap)
    return replace(access, bootstrap=bootstrap, properties={**access.properties, **more})


def producer_options(compression: str | None, acks: str | None) -> dict[str, Any]:
    """What of these two was chosen, as options of a Producer."""
    chosen: dict[str, Any] = {}
    if compression is not None:
        chosen["compression"] = None if compression == "none" else compression
    if acks is not None:
        durable = acks in ("all", "-1")
        chosen |= {"acks": "all"} if durable else {"acks": int(acks), "idempotent": False}
    return chosen
