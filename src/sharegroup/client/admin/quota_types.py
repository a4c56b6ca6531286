"""Quota entities: the users, client ids and addresses that quotas are for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class QuotaName(Enum):
    """What stands for a name in a quota entity, or in a filter for entities."""

    DEFAULT = "default"
    """All names that have no quota of their own."""
    ANY = "any"
    """In a filter: every name, and the default."""


Name: TypeAlias = str | QuotaName | None
"""The name of a user, client id or address; None: the entity has none."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota is for.

    For example, ``QuotaEntity(user="alice", client_id=QuotaName.DEFAULT)`` are the clients of alice
    whose client ids have no quota of their own.  An address cannot be combined with other names.
    """

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def named(self) -> tuple[tuple[str, str | QuotaName], ...]:
        """Return the kinds of names that the entity has, with their names."""
        names = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return tuple((kind, name) for kind, name in names if name is not None)

    def __str__(self) -> str:
        names = (
            f"{kind}={'<default>' if name is QuotaName.DEFAULT else name}"
            for kind, name in self.named()
        )
        return ", ".join(names)
