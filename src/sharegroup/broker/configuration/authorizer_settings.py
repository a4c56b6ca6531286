"""The settings of the authorizer, which decides by ACLs what users may do."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.configuration.server_config import ServerConfig
from sharegroup.core.security.principal import parse_principal
from sharegroup.errors import InvalidConfig, InvalidRequest

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's authorizer by ACLs, whose rules this broker's authorizer follows."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """The settings of an authorizer that is on."""

    super_users: frozenset[str]
    """The principals that may do everything, as text."""
    allow_if_no_acl: bool
    """Whether everyone may use a resource that no ACL applies to."""


def parse_authorizer(server: ServerConfig) -> AuthorizerSettings | None:
    """Return the settings of the authorizer, or None if it is off; InvalidConfig for bad ones."""
    name = server.authorizer_class.strip()
    if name not in ("", STANDARD_AUTHORIZER):
        raise InvalidConfig(
            f"authorizer.class.name={name!r}: a Java class cannot run in this broker; its own "
            f"authorizer has the rules of {STANDARD_AUTHORIZER}, which is the only other value"
        )
    super_users = _super_users(server.super_users)
    return AuthorizerSettings(super_users, server.allow_if_no_acl) if name else None


def _super_users(text: str) -> frozenset[str]:
    """Return the principals of ``super.users``, which separates them with semicolons."""
    found = set()
    for part in text.split(";"):
        if not (user := part.strip()):
            continue
        try:
            found.add(str(parse_principal(user)))
        except InvalidRequest as error:
            raise InvalidConfig(
                f"super.users={text!r}: {error}; separate principals with semicolons"
            ) from error
    return frozenset(found)
