"""``sharegroup acls``: list, add and remove access control lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields

import click

from sharegroup.cli.access.acl_options import (
    Resources,
    Roles,
    Users,
    bindings,
    check_operations,
    check_roles,
    principals_option,
    resource_options,
    role_options,
    user_options,
)
from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    refuse_errors,
    show,
)
from sharegroup.cli.common.output import Listing, Row, done, printable
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import AclBinding, AclBindingFilter
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import CLUSTER_NAME, AclPatternType, AclResourceType

SPARE = ("host", "pattern")
COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
ADDABLE = (AclPatternType.LITERAL, AclPatternType.PREFIXED)


@click.group("acls", cls=VerbsAsOptions)
def command() -> None:
    """List, add and remove access control lists.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup acls --add --allow-principal User:alice --consumer --topic orders --group billing
    """


@command.command("list")
@resource_options
@principals_option
@cluster_options
@listing_options
@leaves_out(SPARE)
def list_(*, resources: Resources, principals: tuple[str, ...], access: Access, form: Form) -> None:
    """List the ACLs of resources and users; without options, all."""
    filters = tuple(resources.filters()) or (AclBindingFilter(),)

    async def listing(admin: AdminClient) -> Listing:
        found: dict[AclBinding, None] = {}
        for filter_ in filters:
            found |= dict.fromkeys(await admin.describe_acls(filter_))
        shown = [acl for acl in sorted(found) if not principals or acl.principal in principals]
        rows = [_row(acl) for acl in shown]
        return Listing(rows, COLUMNS, "There are no such ACLs.", spare=SPARE)

    show(access, form, listing)


@command.command("add")
@resource_options
@user_options
@role_options
@click.option("--force", is_flag=True, hidden=True, help="For the syntax of Kafka's tools.")
@cluster_options
@json_option
def add(
    *,
    resources: Resources,
    users: Users,
    roles: Roles,
    force: bool,  # noqa: ARG001  Nothing is asked here.
    access: Access,
    as_json: bool,
) -> None:
    """Add ACLs; those that exist already stay."""
    if resources.pattern_type not in ADDABLE:
        raise click.UsageError("an ACL can be added with the pattern type literal or prefixed")
    if not users:
        raise click.UsageError("give --allow-principal or --deny-principal")
    wanted = _checked(resources, users, roles)
    refuse_errors(ask(access, lambda admin: admin.create_acls(wanted)))
    _report("added", wanted, as_json=as_json)


@command.command("remove")
@resource_options
@user_options
@role_options
@click.option("--force", is_flag=True, help="Do not ask before all ACLs of a resource go.")
@cluster_options
@json_option
def remove(
    *,
    resources: Resources,
    users: Users,
    roles: Roles,
    force: bool,
    access: Access,
    as_json: bool,
) -> None:
    """Remove ACLs: those of these users, or without users all of the resources."""
    filters = list(map(_exactly, _checked(resources, users, roles))) if users else []
    if not users:
        _check_named(resources, users, roles)
        filters = list(resources.filters())
        if not force:
            _confirm(resources)
    results = ask(access, lambda admin: admin.delete_acls(filters))
    removed = {
        acl: None
        for found in results.values()
        if not isinstance(found, KafkaError)
        for acl in found
    }
    # Also if some filters were refused: the ACLs of the others are gone.
    _report("removed", sorted(removed), as_json=as_json)
    refuse_errors(results)


def _checked(resources: Resources, users: Users, roles: Roles) -> list[AclBinding]:
    """Return the ACLs that a command line describes, after its options are checked."""
    _check_named(resources, users, roles)
    check_operations(resources, roles)
    return bindings(resources, users, roles)


def _check_named(resources: Resources, users: Users, roles: Roles) -> None:
    check_roles(users, roles)
    types = {kind for kind, _ in resources.names}
    if not types:
        raise click.UsageError(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token "
            "or --user-principal"
        )
    if (roles.producer or roles.consumer) and AclResourceType.TOPIC not in types:
        raise click.UsageError("--producer and --consumer need --topic")
    if roles.consumer and AclResourceType.GROUP not in types:
        raise click.UsageError("--consumer needs --group")
    if resources.pattern_type is not AclPatternType.LITERAL and types == {AclResourceType.CLUSTER}:
        raise click.UsageError(f"the only cluster is {CLUSTER_NAME!r}: leave out the pattern type")


def _exactly(acl: AclBinding) -> AclBindingFilter:
    """Return the filter that matches one ACL."""
    return AclBindingFilter(**{field.name: getattr(acl, field.name) for field in fields(acl)})


def _confirm(resources: Resources) -> None:
    question = f"remove all ACLs of {resources.text()} ({resources.pattern_type.name})"
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would {question}; add --force, or name users with --allow-principal"
        )
    click.confirm(printable(f"{question[0].upper()}{question[1:]}?"), abort=True)


def _report(verb: str, acls: Iterable[AclBinding], *, as_json: bool) -> None:
    every = list(acls)
    lines = [f"{verb} {acl}" for acl in every] or [f"{verb} nothing: there is no such ACL"]
    if as_json:
        done("", as_json=True, **{verb: [_row(acl) for acl in every]})
        return
    for line in lines:
        done(line, as_json=False)


def _row(acl: AclBinding) -> Row:
    return {
        "resource": acl.resource_type.name,
        "name": acl.name,
        "pattern": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
