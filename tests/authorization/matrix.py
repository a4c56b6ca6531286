"""The matrix: every probe and each of its needs, with the ACLs of six variants.

A case has a principal of its own.  The principal has ACLs for all needs of the probe but one, and
for that one the ACLs of the variant.  So the outcome shows whether the broker checks this
operation on this resource, and what it answers if the check fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from tests.authorization import cluster_probes, data_probes, group_probes
from tests.authorization.messages import Outcome
from tests.authorization.probe import Names, Need, Probe

PROBES: tuple[Probe, ...] = (*data_probes.PROBES, *group_probes.PROBES, *cluster_probes.PROBES)
TOPIC = "matrix.orders"
OTHER_HOST = "192.0.2.1"


class Variant(Enum):
    """The ACLs for the need of a case."""

    ALLOWED = "allowed"
    NONE_FOR_IT = "no ACL for it"
    PREFIXED = "prefixed"
    DENY_WINS = "deny wins"
    OTHER_HOST = "other host"
    NO_ACL = "no ACL"
    """The principal has no ACL at all, also for the other needs."""


IS_ALLOWED = (Variant.ALLOWED, Variant.PREFIXED)


class Acl(NamedTuple):
    """One ACL to create."""

    resource_type: AclResourceType
    name: str
    pattern: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


@dataclass(frozen=True)
class Case:
    """A probe with the ACLs of one principal."""

    number: int
    probe: Probe
    need: Need
    variant: Variant

    @property
    def title(self) -> str:
        """The case in words."""
        need = self.need
        where = f"{need.operation.name} on {need.resource_type.name} {need.name}"
        return f"{self.probe.title} | {where} | {self.variant.value}"

    @property
    def user(self) -> str:
        """The name of the principal."""
        return f"user{self.number}"

    @property
    def is_allowed(self) -> bool:
        """Whether the principal may do what the need says."""
        return self.variant in IS_ALLOWED or (
            self.need.on_any_name and self.variant is Variant.DENY_WINS
        )

    def names(self, topic_id: UUID, own_id: UUID | None) -> Names:
        """Return the names of the case."""
        return Names(f"matrix{self.number}", TOPIC, topic_id, own_id)

    def acls(self, names: Names) -> Iterator[Acl]:
        """Yield the ACLs of the principal."""
        if self.variant is Variant.NO_ACL:
            return
        for need in self.probe.needs:
            name = getattr(names, need.name)
            yield from self._acls_for(need, name, self._variant_of(need))

    def _variant_of(self, need: Need) -> Variant:
        return self.variant if need is self.need else Variant.ALLOWED

    def _acls_for(self, need: Need, name: str, variant: Variant) -> Iterator[Acl]:
        literal = Acl(
            need.resource_type,
            name,
            AclPatternType.LITERAL,
            f"User:{self.user}",
            "*",
            need.operation,
            AclPermission.ALLOW,
        )
        is_cluster = (
            need.resource_type is AclResourceType.CLUSTER
        )  # It has one name, in all patterns.
        prefix = name if is_cluster else name[:-1]
        prefixed = literal._replace(name=prefix, pattern=AclPatternType.PREFIXED)
        match variant:
            case Variant.ALLOWED:
                yield literal
            case Variant.PREFIXED:
                yield prefixed
            case Variant.DENY_WINS:
                yield prefixed
                yield literal._replace(permission=AclPermission.DENY)
            case Variant.OTHER_HOST:
                yield literal._replace(host=OTHER_HOST)


def cases() -> list[Case]:
    """Return all cases.  Without any ACL only the first need of a probe matters."""
    found: list[Case] = []
    for probe in PROBES:
        for need in probe.needs:
            for variant in Variant:
                if variant is not Variant.NO_ACL or need is probe.needs[0]:
                    found.append(Case(len(found), probe, need, variant))
    return found


WATCHED = ("topic", "topic_id", "own", "own_id", "classic", "modern", "sharing", "ledger")


def faults(
    case: Case, names: Names, request: Outcome, response: Outcome, *, is_ours: bool
) -> Iterator[str]:
    """Yield what is wrong with the response of a case."""
    probe, need = case.probe, case.need
    if case.is_allowed:
        errors = probe.allowed if probe.ours is None or not is_ours else probe.ours
        operations = probe.operations
        shown = [*need.hides, *probe.reveals]
    else:
        errors = need.refused if need.ours is None or not is_ours else need.ours
        operations, shown = need.operations, []
    if response.errors != errors:
        yield f"errors {sorted(errors)} expected, {sorted(response.errors)} found"
    if operations and response.operations != operations:
        yield f"operations {set(operations)} expected, {set(response.operations)} found"
    for attribute in shown:
        if getattr(names, attribute) not in response.names:
            yield f"{attribute} is missing in the response"
    if not case.is_allowed and (need.hides or need.refused):
        for attribute in need.hides or _hidden(case):
            name = getattr(names, attribute)
            if name in response.names - request.names and (is_ours or attribute not in probe.leaks):
                yield f"{attribute} is in the response"


def _hidden(case: Case) -> Iterator[str]:
    """Yield the names that a refused response must not contain unless its request does."""
    if case.variant is Variant.DENY_WINS and case.need.operation is not AclOperation.DESCRIBE:
        return  # The wider ACL also allows DESCRIBE.
    permitted = {need.name for need in case.probe.needs if need is not case.need}
    yield from (attribute for attribute in WATCHED if attribute not in permitted)
