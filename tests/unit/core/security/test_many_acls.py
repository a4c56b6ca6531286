"""What 55,000 ACLs cost: no step of a search and no decision visits all of them.

The work is counted in entries that are looked at between two pauses, not in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from sharegroup.core.security.acls import (
    Acl,
    AclFilter,
    Acls,
    Granted,
    PatternAcls,
    ResourcePattern,
    find,
)
from sharegroup.core.security.standard_rules import StandardRules
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import STEP_ELEMENTS, Steps

ACLS = 55_000
TOPIC, LITERAL, ALLOW = AclResourceType.TOPIC, AclPatternType.LITERAL, AclPermission.ALLOW
READ, WRITE = AclOperation.READ, AclOperation.WRITE
EVERYTHING = AclFilter(
    AclResourceType.ANY, AclPatternType.ANY, None, None, None, AclOperation.ANY, AclPermission.ANY
)


class CountedPattern(PatternAcls):
    """ACLs of a pattern that count what is asked of all patterns."""

    __slots__ = ()
    count = 0

    def granted(self, principal: str, host: str) -> Granted:
        CountedPattern.count += 1
        return super().granted(principal, host)

    def entries(self, pattern: ResourcePattern) -> Iterator[Acl]:
        for acl in super().entries(pattern):
            CountedPattern.count += 1
            yield acl


def acl(name: str, principal: str, host: str = "*") -> Acl:
    return Acl(TOPIC, LITERAL, name, f"User:{principal}", host, READ, ALLOW)


SHAPES = {
    "one principal": lambda number: acl(f"t{number}", "ann"),
    "one topic": lambda number: acl("t", f"u{number}"),
    "one topic, one principal": lambda number: acl("t", "ann", f"host-{number}"),
    "all different": lambda number: acl(f"t{number}", f"u{number}"),
}


@pytest.fixture(scope="module", params=SHAPES)
def acls(request: pytest.FixtureRequest) -> Iterable[Acls]:
    make = SHAPES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sharegroup.core.security.acls.PatternAcls", CountedPattern)
        filled = Acls()
        for number in range(ACLS):
            filled.add(make(number))
        yield filled


def largest_step(steps: Steps[object]) -> int:
    """Return how many entries the largest step looks at."""
    largest, is_over = 0, False
    while not is_over:
        CountedPattern.count = 0
        try:
            next(steps)
        except StopIteration:
            is_over = True
        largest = max(largest, CountedPattern.count)
    return largest


@pytest.mark.parametrize(
    "filter_", [EVERYTHING, EVERYTHING._replace(principal="User:nobody")], ids=["all", "none"]
)
def test_a_search_pauses_after_few_entries(acls: Acls, filter_: AclFilter) -> None:
    assert largest_step(find(acls, filter_)) <= STEP_ELEMENTS


@pytest.mark.parametrize("principal", ["User:ann", "User:u7", "User:nobody"])
def test_whether_anything_is_allowed_is_decided_in_steps(acls: Acls, principal: str) -> None:
    rules = StandardRules(acls)
    assert largest_step(rules.may_any(principal, "10.0.0.1", WRITE, TOPIC)) <= STEP_ELEMENTS


def test_a_decision_looks_at_the_patterns_of_its_resource_alone(acls: Acls) -> None:
    CountedPattern.count = 0
    StandardRules(acls).operations("User:u7", "10.0.0.1", TOPIC, "t7")
    assert CountedPattern.count <= 1


def test_the_acls_of_other_principals_are_no_work(acls: Acls) -> None:
    CountedPattern.count = 0
    for _ in StandardRules(acls).may_any("User:u7", "10.0.0.1", WRITE, TOPIC):
        pass
    assert CountedPattern.count <= 2


def test_acls_may_change_between_the_steps_of_a_search(acls: Acls) -> None:
    added = [acl(f"added-{number}", f"added-{number}") for number in range(200)]
    steps = find(acls, EVERYTHING)
    for added_acl in added:
        next(steps)
        acls.add(added_acl)
    for added_acl in added:
        next(steps)
        acls.remove(added_acl)
    for _ in steps:
        pass
    assert len(acls) == ACLS
