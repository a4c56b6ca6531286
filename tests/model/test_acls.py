"""The index of ACLs against a list of them that each decision scans from end to end.

The model says what Kafka's documentation and `StandardAuthorizerData` say, entry by entry.  ACLs
are added and removed; after every step, decisions about names that the patterns of the ACLs
nearly match are compared, and so is what filters find.
Run longer: ``MODEL_EXAMPLES=5000 pytest tests/model/test_acls.py``.
"""

from __future__ import annotations

import os
from ipaddress import ip_address, ip_network

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sharegroup.core.security.acls import Acl, AclFilter, Acls, find
from sharegroup.core.security.standard_rules import StandardRules
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import run_to_end

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "60"))

NAMES = ("*", "a", "ab", "abc", "abd", "b", "hardcode", "hard")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:root")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "10.0.0.0/30", "10.0.0.9/8", "::1", "0:0:0:0:0:0:0:1")
PEERS = ("10.0.0.1", "10.0.0.2", "10.7.0.1", "::1", "192.168.0.1")
TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP)
OPERATIONS = (*[AclOperation.ALL] * 6, *tuple(AclOperation)[2:])
ASKED = tuple(AclOperation)[2:]
SUPER_USERS = frozenset({"User:root"})

acls = st.builds(
    Acl,
    st.sampled_from(TYPES),
    st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(["*", "*", "*", *HOSTS]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
)
close_acls = st.builds(
    Acl,
    st.just(AclResourceType.TOPIC),
    st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    st.sampled_from(["*", "a", "ab"]),
    st.sampled_from(["User:alice", "User:*"]),
    st.sampled_from(["*", "*", "10.0.0.1", "10.0.0.0/30"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
"""ACLs that mostly apply to the same resources, so that they contradict each other."""
filters = st.builds(
    AclFilter,
    st.sampled_from([AclResourceType.ANY, *TYPES]),
    st.sampled_from(list(AclPatternType)),
    st.sampled_from([None, *NAMES, "abcd"]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([AclOperation.ANY, *OPERATIONS]),
    st.sampled_from([AclPermission.ANY, AclPermission.ALLOW, AclPermission.DENY]),
)

IMPLIED_BY = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def is_of_peer(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, "User:*"):
        return False
    if acl.host in ("*", host):
        return True
    if "/" in acl.host:
        return ip_address(host) in ip_network(acl.host, strict=False)
    return ":" in acl.host and ip_address(acl.host) == ip_address(host)


def is_of_resource(acl: Acl, resource_type: AclResourceType, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == AclPatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


class Model:
    """All ACLs in a list, scanned for every question."""

    def __init__(self, *, allow_if_no_acl: bool) -> None:
        self.acls: list[Acl] = []
        self.allow_if_no_acl = allow_if_no_acl

    def may(
        self, principal: str, host: str, operation: AclOperation, type_: AclResourceType, name: str
    ) -> bool:
        if principal in SUPER_USERS:
            return True
        of_resource = [acl for acl in self.acls if is_of_resource(acl, type_, name)]
        if not of_resource:
            return self.allow_if_no_acl
        of_peer = [acl for acl in of_resource if is_of_peer(acl, principal, host)]
        denied = [acl for acl in of_peer if acl.permission == AclPermission.DENY]
        allowed = [acl for acl in of_peer if acl.permission == AclPermission.ALLOW]
        if any(acl.operation in (operation, AclOperation.ALL) for acl in denied):
            return False
        sufficient = {operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}
        return any(acl.operation in sufficient for acl in allowed)

    def may_any(
        self, principal: str, host: str, operation: AclOperation, type_: AclResourceType
    ) -> bool:
        if self.may(principal, host, operation, type_, "hardcode"):
            return True
        mine = [
            acl
            for acl in self.acls
            if acl.resource_type == type_
            and is_of_peer(acl, principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl.pattern[1:] for acl in mine if acl.permission == AclPermission.DENY]
        allowed = [acl.pattern[1:] for acl in mine if acl.permission == AclPermission.ALLOW]
        literal, prefixed = AclPatternType.LITERAL, AclPatternType.PREFIXED
        if (literal, "*") in denied:
            return False
        if (literal, "*") in allowed:
            return True
        for kind, name in allowed:
            is_denied = kind == literal and (kind, name) in denied
            if not is_denied and not any(
                other == prefixed and name.startswith(prefix) for other, prefix in denied
            ):
                return True
        return False


class AclsMachine(RuleBasedStateMachine):
    """Adds and removes ACLs in the index and in the list."""

    def __init__(self) -> None:
        super().__init__()
        self.acls = Acls()
        self.models = [Model(allow_if_no_acl=False), Model(allow_if_no_acl=True)]

    @rule(acl=acls)
    def add(self, acl: Acl) -> None:
        self.acls.add(acl)
        for model in self.models:
            if acl not in model.acls:
                model.acls.append(acl)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        acl = data.draw(st.sampled_from(self.models[0].acls) if self.models[0].acls else acls)
        self.acls.remove(acl)
        for model in self.models:
            if acl in model.acls:
                model.acls.remove(acl)

    @rule(filter_=filters)
    def find(self, filter_: AclFilter) -> None:
        found = run_to_end(find(self.acls, filter_))
        assert len(found) == len(set(found))
        assert set(found) == {acl for acl in self.models[0].acls if filter_.matches(acl)}

    @rule(
        principal=st.sampled_from(["User:alice", "User:bob", "Group:alice", "User:root", "User:*"]),
        host=st.sampled_from(PEERS),
        type_=st.sampled_from(TYPES),
        name=st.sampled_from([*NAMES, "abcd", "z"]),
    )
    def decide(self, principal: str, host: str, type_: AclResourceType, name: str) -> None:
        for model in self.models:
            rules = StandardRules(self.acls, SUPER_USERS, model.allow_if_no_acl)
            operations = rules.operations(principal, host, type_, name)
            assert {operation for operation in ASKED if operations >> operation & 1} == {
                operation
                for operation in ASKED
                if model.may(principal, host, operation, type_, name)
            }
            for operation in ASKED[:6]:
                found = run_to_end(rules.may_any(principal, host, operation, type_))
                assert found == model.may_any(principal, host, operation, type_)

    @invariant()
    def same_acls(self) -> None:
        entries = list(self.acls.entries())
        assert len(entries) == len(self.acls) == len(self.models[0].acls)
        assert set(entries) == set(self.models[0].acls)
        for acl in entries:
            assert acl in self.acls


TestAcls = AclsMachine.TestCase
TestAcls.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)


@settings(max_examples=EXAMPLES * 5, deadline=None)
@given(st.lists(close_acls, max_size=8), st.sampled_from(PEERS), st.booleans())
def test_decisions_about_lists_of_acls_are_those_of_a_scan(
    entries: list[Acl], host: str, allow_if_no_acl: bool
) -> None:
    index, model = Acls(), Model(allow_if_no_acl=allow_if_no_acl)
    model.acls = entries
    for acl in entries:
        index.add(acl)
    rules = StandardRules(index, SUPER_USERS, allow_if_no_acl)
    for name in NAMES:
        operations = rules.operations("User:alice", host, AclResourceType.TOPIC, name)
        for operation in ASKED:
            expected = model.may("User:alice", host, operation, AclResourceType.TOPIC, name)
            assert bool(operations >> operation & 1) == expected, (name, operation)
    for operation in ASKED:
        asked = "User:alice", host, operation, AclResourceType.TOPIC
        assert run_to_end(rules.may_any(*asked)) == model.may_any(*asked)
