"""The options that name resources, users and operations of ACLs, as in Kafka's ``kafka-acls``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from sharegroup.cli.common.name_arguments import complete_groups, complete_topics
from sharegroup.cli.common.options import Option, Verb, gathered
from sharegroup.client.admin.types import AclBinding, AclBindingFilter
from sharegroup.protocol_enums import (
    ACL_OPERATIONS,
    CLUSTER_NAME,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)

READ, WRITE = AclOperation.READ, AclOperation.WRITE
CREATE, DESCRIBE = AclOperation.CREATE, AclOperation.DESCRIBE

_BY_NAME = {
    operation.name.replace("_", "").lower(): operation
    for operation in AclOperation
    if operation is not AclOperation.ANY
}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a command line names."""

    pattern_type: AclPatternType
    names: Sequence[tuple[AclResourceType, str]]

    def filters(self) -> Iterator[AclBindingFilter]:
        """Yield a filter for each resource."""
        for resource_type, name in self.names:
            yield AclBindingFilter(resource_type, name, pattern_type=self.pattern_type)

    def of_types(self, *types: AclResourceType) -> list[tuple[AclResourceType, str]]:
        """Return the resources of these types."""
        return [resource for resource in self.names if resource[0] in types]

    def text(self) -> str:
        """Return the resources for a message."""
        return ", ".join(
            f"{kind.name.lower().replace('_', ' ')} {name!r}" for kind, name in self.names
        )


@dataclass(frozen=True, slots=True)
class Users:
    """The users and hosts that a command line allows and denies something."""

    allowed: Sequence[str]
    denied: Sequence[str]
    allowed_hosts: Sequence[str]
    denied_hosts: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.allowed or self.denied)

    def each(self) -> Iterator[tuple[AclPermission, str, str]]:
        """Yield each permission with its user and host."""
        for permission, users, hosts in (
            (AclPermission.ALLOW, self.allowed, self.allowed_hosts),
            (AclPermission.DENY, self.denied, self.denied_hosts),
        ):
            for user in users:
                for host in hosts or ("*",):
                    yield permission, user, host


@dataclass(frozen=True, slots=True)
class Roles:
    """The operations that a command line names, itself or by the roles of users."""

    operations: Sequence[AclOperation]
    """The named operations; without any, and without a role, all of them."""
    producer: bool
    consumer: bool
    idempotent: bool

    def on(self, resources: Resources) -> Iterator[tuple[AclResourceType, str, AclOperation]]:
        """Yield each resource with each of its operations."""
        topics = resources.of_types(AclResourceType.TOPIC)
        if self.producer:
            yield from _each(topics, (WRITE, DESCRIBE, CREATE))
            ids = resources.of_types(AclResourceType.TRANSACTIONAL_ID)
            yield from _each(ids, (WRITE, DESCRIBE))
            if self.idempotent:
                yield AclResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE
        if self.consumer:
            yield from _each(topics, (READ, DESCRIBE))
            yield from _each(resources.of_types(AclResourceType.GROUP), (READ,))
        if not (self.producer or self.consumer):
            yield from _each(resources.names, self.operations or (AclOperation.ALL,))


def _each(
    resources: Iterable[tuple[AclResourceType, str]], operations: Iterable[AclOperation]
) -> Iterator[tuple[AclResourceType, str, AclOperation]]:
    every = tuple(operations)
    for resource_type, name in resources:
        for operation in every:
            yield resource_type, name, operation


def bindings(resources: Resources, users: Users, roles: Roles) -> list[AclBinding]:
    """Return the ACLs that a command line describes, each once."""
    found = {
        AclBinding(
            resource_type,
            name,
            user,
            operation,
            permission,
            AclPatternType.LITERAL
            if resource_type is AclResourceType.CLUSTER
            else resources.pattern_type,
            host,
        ): None
        for resource_type, name, operation in roles.on(resources)
        for permission, user, host in users.each()
    }
    return list(found)


def _text(operation: AclOperation) -> str:
    """Return an operation as Kafka's tools write it: DescribeConfigs."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def _operations(
    _ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[AclOperation, ...]:
    found = []
    for text in texts:
        name = text.strip().replace("_", "").replace("-", "").lower()
        if name not in _BY_NAME:
            possible = ", ".join(sorted(map(_text, _BY_NAME.values())))
            raise click.BadParameter(f"{text!r}: expected one of {possible}")
        found.append(_BY_NAME[name])
    return tuple(dict.fromkeys(found))


def _principals(
    _ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    for text in texts:
        kind, colon, name = text.strip().partition(":")
        if not (kind and colon and name):
            raise click.BadParameter(f"{text!r}: expected a type and a name, as in User:alice")
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _name_option(
    option: str, resource_type: AclResourceType, metavar: str, text: str, **settings: Any
) -> Option:
    """Return an option with names of resources of this type, by which its parameter is named."""
    parameter = resource_type.name.lower()
    return click.option(option, parameter, metavar=metavar, multiple=True, help=text, **settings)


def _resources(*, pattern_type: str, **named: Any) -> Resources:
    named["cluster"] = (CLUSTER_NAME,) if named["cluster"] else ()
    resources = [
        (AclResourceType[parameter.upper()], name.strip())
        for parameter, names in named.items()
        for name in names
    ]
    return Resources(AclPatternType[pattern_type.upper()], list(dict.fromkeys(resources)))


resource_options = gathered(
    "resources",
    _resources,
    _name_option(
        *("--topic", AclResourceType.TOPIC, "TOPIC", "Topic; * means all."),
        shell_complete=complete_topics,
    ),
    _name_option(
        *("--group", AclResourceType.GROUP, "GROUP", "Group of any type; * means all."),
        shell_complete=complete_groups,
    ),
    click.option("--cluster", is_flag=True, help="The cluster."),
    _name_option("--transactional-id", AclResourceType.TRANSACTIONAL_ID, "ID", "Transactional id."),
    _name_option("--delegation-token", AclResourceType.DELEGATION_TOKEN, "ID", "Delegation token."),
    _name_option("--user-principal", AclResourceType.USER, "USER", "User as a resource."),
    click.option(
        "--resource-pattern-type",
        "pattern_type",
        type=click.Choice(["literal", "prefixed", "any", "match"], case_sensitive=False),
        default="literal",
        show_default=True,
        help="Whether a name is meant literally or as a prefix. To list and remove: any is "
        "both, and match finds all patterns that apply to the resource.",
    ),
)
"""Adds the options that name resources to a verb, which is called with ``resources``."""


def _users(
    *,
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    denied_hosts: tuple[str, ...],
) -> Users:
    for hosts, users, word in ((allowed_hosts, allowed, "allow"), (denied_hosts, denied, "deny")):
        if hosts and not users:
            raise click.UsageError(f"--{word}-host needs --{word}-principal")
    return Users(allowed, denied, allowed_hosts, denied_hosts)


user_options = gathered(
    "users",
    _users,
    click.option(
        "--allow-principal",
        "allowed",
        metavar="User:NAME",
        multiple=True,
        callback=_principals,
        help="User that may; User:* means everyone.",
    ),
    click.option(
        "--deny-principal",
        "denied",
        metavar="User:NAME",
        multiple=True,
        callback=_principals,
        help="User that may not; a denial takes precedence.",
    ),
    click.option(
        "--allow-host",
        "allowed_hosts",
        metavar="ADDRESS",
        multiple=True,
        help="Address or network of --allow-principal.  [default: *]",
    ),
    click.option(
        "--deny-host",
        "denied_hosts",
        metavar="ADDRESS",
        multiple=True,
        help="Address or network of --deny-principal.  [default: *]",
    ),
)
"""Adds the options of users to a verb, which is called with ``users``."""

role_options = gathered(
    "roles",
    Roles,
    click.option(
        "--operation",
        "operations",
        metavar="OPERATION",
        multiple=True,
        callback=_operations,
        help=f"One of {', '.join(sorted(map(_text, AclOperation)))}.  [default: All]",
    ),
    click.option("--producer", is_flag=True, help="All that a producer needs."),
    click.option("--consumer", is_flag=True, help="All that a consumer needs."),
    click.option("--idempotent", is_flag=True, help="With --producer: an idempotent one."),
)
"""Adds the options of operations to a verb, which is called with ``roles``."""


def check_roles(users: Users, roles: Roles) -> None:
    """Raise click.UsageError if a role is named with what it stands for."""
    if roles.producer or roles.consumer:
        role = "--producer" if roles.producer else "--consumer"
        if roles.operations or users.denied:
            raise click.UsageError(
                f"{role} stands for its operations: leave out --operation, --deny-principal "
                "and --deny-host"
            )
    if roles.idempotent and not roles.producer:
        raise click.UsageError("--idempotent needs --producer")


def check_operations(resources: Resources, roles: Roles) -> None:
    """Raise click.UsageError if an operation does not exist for a resource."""
    for resource_type, _, operation in roles.on(resources):
        if operation is AclOperation.ALL:
            continue
        if operation not in ACL_OPERATIONS[resource_type]:
            possible = ", ".join(map(_text, (*ACL_OPERATIONS[resource_type], AclOperation.ALL)))
            raise click.UsageError(
                f"{_text(operation)} does not exist for {resource_type.name.lower()}; use one of "
                f"{possible}"
            )


def principals_option(verb: Verb) -> Verb:
    """Add ``--principal`` to a verb, which is called with ``principals``."""
    return click.option(
        "--principal",
        "principals",
        metavar="User:NAME",
        multiple=True,
        callback=_principals,
        help="List only the ACLs of this user.",
    )(verb)
