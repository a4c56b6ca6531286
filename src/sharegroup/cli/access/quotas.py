"""``sharegroup quotas``: list, set and remove limits of users, client ids and addresses."""

from __future__ import annotations

import click

from sharegroup.cli.access.quota_entities import (
    alter,
    check_named,
    described,
    entity_options,
    limits_of,
    quota_listing,
)
from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    show,
)
from sharegroup.cli.common.output import Listing, done
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.quota_types import QuotaEntity


@click.group("quotas")
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
