"""``sharegroup quotas``: list, set and remove limits of users, client ids and addresses."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    pairs,
    refuse_errors,
    show,
)
from sharegroup.cli.common.options import Verb, gathered
from sharegroup.cli.common.output import Listing, Row, done
from sharegroup.cli.common.properties import read_properties
from sharegroup.cli.common.verb_groups import VerbGroup, VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.quotas import Name, QuotaEntity, QuotaName

# The options that name a quota entity, and the rows and changes of its limits.


DEFAULT_TEXT = "<default>"

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""The keys that brokers know; others are sent, too, because newer brokers may know more."""


def _name(option: str, name: str | None, *, is_default: bool) -> Name:
    if is_default and name is not None:
        raise click.UsageError(f"give either --{option} or --{option}-defaults")
    return QuotaName.DEFAULT if is_default else name


def _entity(**values: Any) -> QuotaEntity:
    user, client, ip = (
        _name(option, values[option], is_default=values[f"{option}_defaults"])
        for option in ("user", "client", "ip")
    )
    return QuotaEntity(user, client, ip)


entity_options = gathered(
    "entity",
    _entity,
    click.option("--user", metavar="NAME", help="User, without `User:`."),
    click.option("--user-defaults", is_flag=True, help="All users without own limits."),
    click.option("--client", "--client-id", "client", metavar="ID", help="Client id."),
    click.option("--client-defaults", is_flag=True, help="All client ids without own limits."),
    click.option("--ip", metavar="ADDRESS", help="Address of clients."),
    click.option("--ip-defaults", is_flag=True, help="All addresses without own limits."),
)
"""Adds options that name a user, a client id or an address; the verb gets ``entity``."""


def check_named(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity; raise UsageError if it has no name."""
    if not entity.named():
        raise click.UsageError("give --user, --client or --ip, or one of their defaults")
    return entity


def quota_listing(admin_limits: Mapping[QuotaEntity, Mapping[str, float]]) -> Listing:
    """Return a listing with a row for each limit."""
    rows = [
        _row(entity, key, value)
        # By their texts, because the default's name and the others do not compare.
        for entity, limits in sorted(admin_limits.items(), key=lambda item: str(item[0]))
        for key, value in sorted(limits.items())
    ]
    columns = [name for name in ("user", "client_id", "ip") if any(row[name] for row in rows)]
    return Listing(rows, (*columns, "key", "value"), "No quotas are set.")


def limits_of(texts: Iterable[str], option: str) -> dict[str, float | None]:
    """Parse ``KEY=NUMBER`` texts."""
    limits: dict[str, float | None] = {}
    values = pairs(texts, option)
    refuse_credentials(values)
    for key, text in values.items():
        try:
            limits[key] = float(text)
            is_number = math.isfinite(limits[key] or 0)
        except ValueError:
            is_number = False
        if not is_number:
            raise click.BadParameter(f"{key}: expected a number, not {text!r}", param_hint=option)
    return limits


def refuse_credentials(keys: Iterable[str]) -> None:
    """Refuse the keys of passwords in Kafka's tools, without showing their values."""
    for key in keys:
        if key.upper().startswith("SCRAM-"):
            raise click.UsageError(
                f"{key} is a password: use sharegroup users add NAME, which asks for it, or "
                "sharegroup users remove NAME; everybody on this machine can read a command line"
            )


def alter(access: Access, entity: QuotaEntity, limits: Mapping[str, float | None]) -> None:
    """Set and remove limits; fail with one line if the broker refuses."""
    changes = {check_named(entity): limits}
    refuse_errors(ask(access, lambda admin: admin.alter_client_quotas(changes)))


async def described(
    admin: AdminClient, entity: QuotaEntity, *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the limits of the entities that match."""
    return await admin.describe_client_quotas(
        user=entity.user, client_id=entity.client_id, ip=entity.ip, strict=strict
    )


def _row(entity: QuotaEntity, key: str, value: float) -> Row:
    return {
        "user": _shown(entity.user),
        "client_id": _shown(entity.client_id),
        "ip": _shown(entity.ip),
        "key": key,
        "value": int(value) if value == int(value) else value,
    }


def _shown(name: Name) -> str | None:
    return DEFAULT_TEXT if isinstance(name, QuotaName) else name


# Quotas in the syntax of ``kafka-configs``, as verbs of ``sharegroup configs``.
#
# ``--entity-type users``, ``clients`` and ``ips``, and the short forms ``--user``, ``--client`` and
# ``--ip``, name quota entities; all other types are resources with settings. ``kafka-configs``
# gives the names of several types by their order, so ``--entity-default`` is a name like the others
# here.


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


@click.group("quotas", cls=VerbGroup)
def command() -> None:
    """List, set and remove limits of users, client ids and addresses."""


@command.command("list")
@entity_options
@click.option(
    "--strict", is_flag=True, help="Only entities that have the given names and no others."
)
@cluster_options
@listing_options
def list_quotas(*, entity: QuotaEntity, strict: bool, access: Access, form: Form) -> None:
    """List limits; without a name, those of all users, client ids and addresses."""

    async def limits(admin: AdminClient) -> Listing:
        return quota_listing(await described(admin, entity, strict=strict))

    show(access, form, limits)


@command.command("set")
@entity_options
@click.argument("limits", metavar="KEY=NUMBER...", nargs=-1, required=True)
@cluster_options
@json_option
def set_quotas(
    *, entity: QuotaEntity, limits: tuple[str, ...], access: Access, as_json: bool
) -> None:
    """Set limits; the others of the same user, client id or address remain.

    \b
        sharegroup quotas set --user alice producer_byte_rate=1048576
        sharegroup quotas set --client-defaults consumer_byte_rate=10000000

    The keys are producer_byte_rate, consumer_byte_rate, request_percentage and
    controller_mutation_rate; for addresses connection_creation_rate.
    """
    changes = limits_of(limits, "KEY=NUMBER")
    alter(access, entity, changes)
    done(f"set quotas of {entity}", as_json=as_json, set=changes)


@command.command("remove")
@entity_options
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@cluster_options
@json_option
def remove_quotas(
    *, entity: QuotaEntity, keys: tuple[str, ...], access: Access, as_json: bool
) -> None:
    """Remove limits; without a key, all limits of this user, client id or address."""
    check_named(entity)
    removed = list(keys)
    if not removed:
        found = ask(access, lambda admin: described(admin, entity, strict=True))
        removed = sorted(found.get(entity, ()))
    if removed:
        alter(access, entity, dict.fromkeys(removed))
    text = ", ".join(removed) or "none was set"
    done(f"removed quotas of {entity}: {text}", as_json=as_json, removed=removed)
