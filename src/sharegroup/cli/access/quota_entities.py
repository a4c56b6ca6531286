"""The options that name a quota entity, and the rows and changes of its limits."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import click

from sharegroup.cli.common.cluster_access import Access, Verb, ask, pairs, refuse_errors
from sharegroup.cli.common.output import Listing, Row
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.quota_types import Name, QuotaEntity, QuotaName

DEFAULT_TEXT = "<default>"

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""The keys that brokers know; others are sent, too, because newer brokers may know more."""


def entity_options(verb: Verb) -> Verb:
    """Add options that name a user, a client id or an address; the verb gets ``entity``."""

    @functools.wraps(verb)
    def with_entity(
        *,
        user: str | None,
        client: str | None,
        ip: str | None,
        user_defaults: bool,
        client_defaults: bool,
        ip_defaults: bool,
        **rest: Any,
    ) -> Any:
        entity = QuotaEntity(
            _name("user", user, is_default=user_defaults),
            _name("client", client, is_default=client_defaults),
            _name("ip", ip, is_default=ip_defaults),
        )
        return verb(entity=entity, **rest)

    for option in (
        click.option("--ip-defaults", is_flag=True, help="All addresses without own limits."),
        click.option("--ip", metavar="ADDRESS", help="Address of clients."),
        click.option("--client-defaults", is_flag=True, help="All client ids without own limits."),
        click.option("--client", "--client-id", "client", metavar="ID", help="Client id."),
        click.option("--user-defaults", is_flag=True, help="All users without own limits."),
        click.option("--user", metavar="NAME", help="User, without `User:`."),
    ):
        with_entity = option(with_entity)
    return with_entity


def check_named(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity; raise UsageError if it has no name."""
    if not entity.named():
        raise click.UsageError("give --user, --client or --ip, or one of their defaults")
    return entity


def quota_listing(admin_limits: Mapping[QuotaEntity, Mapping[str, float]]) -> Listing:
    """Return a listing with a row for each limit."""
    rows = [
        _row(entity, key, value)
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
        except ValueError:
            raise click.BadParameter(
                f"{key}: expected a number, not {text!r}", param_hint=option
            ) from None
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


def _name(option: str, name: str | None, *, is_default: bool) -> Name:
    if is_default and name is not None:
        raise click.UsageError(f"give either --{option} or --{option}-defaults")
    return QuotaName.DEFAULT if is_default else name


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
