"""Quotas in the syntax of ``kafka-configs``, as verbs of ``sharegroup configs``.

``--entity-type users``, ``clients`` and ``ips``, and the short forms ``--user``, ``--client`` and
``--ip``, name quota entities; all other types are resources with settings.  ``kafka-configs`` gives
the names of several types by their order, so ``--entity-default`` is a name like the others here.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.access.quota_entities import (
    alter,
    described,
    entity_options,
    limits_of,
    quota_listing,
    refuse_credentials,
)
from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    Verb,
    cluster_options,
    json_option,
    listing_options,
    show,
)
from sharegroup.cli.common.name_arguments import VerbsAsOptions
from sharegroup.cli.common.output import Listing, done
from sharegroup.cli.common.properties import read_properties
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.quota_types import Name, QuotaEntity, QuotaName

QUOTA_TYPES = {"users": "user", "clients": "client_id", "ips": "ip"}
"""The types of entities that have quotas, and the fields of `QuotaEntity` for them."""

SHORT_FORMS = frozenset(
    {"--user", "--user-defaults", "--client", "--client-defaults", "--ip", "--ip-defaults"}
)

DEFAULT_MARK = "\0default"
"""Stands for ``--entity-default`` among the names; no name can have this character."""

VERBS = {
    "describe": "describe-quotas",
    "--describe": "--describe-quotas",
    "alter": "alter-quotas",
    "--alter": "--alter-quotas",
}
"""The hidden verbs that take the place of verbs for resources, as words and as options."""


class ConfigVerbs(VerbsAsOptions):
    """The verbs of ``sharegroup configs``; those for quota entities are chosen by the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace the verb if the options name a quota entity."""
        args = _split(args)
        if names_quotas(args):
            args = [
                VERBS.get(arg, arg) if place == 0 or arg.startswith("--") else arg
                for place, arg in enumerate(args)
            ]
        return super().parse_args(ctx, args)


class QuotaVerb(click.Command):
    """A verb whose ``--entity-default`` is one of the names, at its place among them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        marked: list[str] = []
        for arg in args:
            marked += ["--entity-name", DEFAULT_MARK] if arg == "--entity-default" else [arg]
        return super().parse_args(ctx, marked)


def names_quotas(args: list[str]) -> bool:
    """Return whether the options name a user, a client id or an address."""
    types = {value for option, value in pairwise(args) if option == "--entity-type"}
    return bool(types & QUOTA_TYPES.keys()) or not SHORT_FORMS.isdisjoint(args)


def quota_entity_options(verb: Verb) -> Verb:
    """Add the options of ``kafka-configs`` that name a quota entity."""

    @functools.wraps(verb)
    def with_types(
        *,
        entity: QuotaEntity,
        entity_type: tuple[str, ...],
        entity_name: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        if entity_type and entity.named():
            raise click.UsageError("give either --entity-type or --user, --client and --ip")
        if len(entity_name) > len(entity_type) and entity_type:
            raise click.UsageError("give one --entity-name or --entity-default for each type")
        if entity_type:
            names: dict[str, Name] = {QUOTA_TYPES[kind]: QuotaName.ANY for kind in entity_type}
            for kind, name in zip(entity_type, entity_name, strict=False):
                names[QUOTA_TYPES[kind]] = QuotaName.DEFAULT if name == DEFAULT_MARK else name
            entity = QuotaEntity(**names)
        return verb(entity=entity, **rest)

    for option in (
        click.option("--entity-name", multiple=True, metavar="NAME", help="Name of an entity."),
        click.option(
            "--entity-type",
            multiple=True,
            type=click.Choice(list(QUOTA_TYPES)),
            help="Type of an entity.",
        ),
    ):
        with_types = option(with_types)
    return entity_options(with_types)


@click.command("describe-quotas", cls=QuotaVerb, hidden=True)
@quota_entity_options
@cluster_options
@listing_options
def describe_quotas(*, entity: QuotaEntity, access: Access, form: Form) -> None:
    """Show the quotas of users, client ids and addresses."""

    async def limits(admin: AdminClient) -> Listing:
        return quota_listing(await described(admin, entity, strict=True))

    show(access, form, limits)


@click.command("alter-quotas", cls=QuotaVerb, hidden=True)
@quota_entity_options
@click.option("--add-config", "lists", multiple=True, metavar="KEY=NUMBER,...")
@click.option(
    "--add-config-file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY,...")
@cluster_options
@json_option
def alter_quotas(
    *,
    entity: QuotaEntity,
    lists: tuple[str, ...],
    file: Path | None,
    deleted: tuple[str, ...],
    access: Access,
    as_json: bool,
) -> None:
    """Set and remove the quotas of a user, client id or address."""
    if any(name is QuotaName.ANY for _, name in entity.named()):
        raise click.UsageError("give --entity-name or --entity-default for each --entity-type")
    texts = [part for text in lists for part in text.split(",")]
    texts += [
        f"{key}={value}" for key, value in dict(read_properties(file) if file else ()).items()
    ]
    changes = limits_of(texts, "--add-config")
    keys = [key.strip() for text in deleted for key in text.split(",") if key.strip()]
    refuse_credentials(keys)
    if not changes and not keys:
        raise click.UsageError("nothing to change: give --add-config or --delete-config")
    alter(access, entity, {**dict.fromkeys(keys), **changes})
    done(f"changed quotas of {entity}", as_json=as_json, set=changes, deleted=keys)


def _split(args: list[str]) -> list[str]:
    """Return ``--entity-type=users`` as two words, and the same for names."""
    words: list[str] = []
    for arg in args:
        option, sign, value = arg.partition("=")
        is_entity = sign and option in {"--entity-type", "--entity-name"}
        words += [option, value] if is_entity else [arg]
    return words
