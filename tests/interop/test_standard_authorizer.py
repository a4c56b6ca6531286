"""Decisions by ACLs beside Kafka's own `StandardAuthorizer`, run in Java on the same ACLs.

`tests/model/test_acls.py` compares more of them with a model in Python; this shows that the model
is Kafka's.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from sharegroup.core.security.acls import Acl, Acls
from sharegroup.core.security.standard_rules import StandardRules
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import run_to_end
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA)),
]
CASES = 1_500
SEED = 932

TYPES = (AclResourceType.TOPIC, AclResourceType.GROUP)
PATTERNS = (AclPatternType.LITERAL, AclPatternType.PREFIXED)
NAMES = ("*", "a", "ab", "abc", "abd", "b", "hard", "hardcode")
PRINCIPALS = ("User:alice", "User:alice", "User:bob", "User:*", "Group:alice", "User:root")
HOSTS = ("*", "*", "*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
NETWORKS = ("10.0.0.0/30", "10.0.0.9/8", "::/64")
"""Hosts of ACLs that Kafka has since 4.4."""
PEERS = ("10.0.0.1", "10.0.0.2", "10.7.0.1", "::1")
OPERATIONS = (*[AclOperation.ALL] * 6, *tuple(AclOperation)[2:])


class Question(NamedTuple):
    principal: str
    host: str
    resource_type: AclResourceType
    name: str

    def text(self) -> str:
        return f"{self.principal};{self.host};{self.resource_type.value};{self.name}"


class Case(NamedTuple):
    """ACLs and settings, and questions about them."""

    allow_if_no_acl: bool
    super_users: tuple[str, ...]
    acls: tuple[Acl, ...]
    questions: tuple[Question, ...]

    def line(self) -> str:
        """The case in the format of ``StandardAuthorizerDecisions.java``."""
        acls = " ".join(";".join(map(_code, acl)) for acl in self.acls)
        asked = " ".join(question.text() for question in self.questions)
        allow = str(self.allow_if_no_acl).lower()
        return "\t".join((allow, " ".join(self.super_users), acls, asked))

    def decisions(self) -> list[str]:
        """The decisions of our rules, in the format of Kafka's."""
        acls = Acls()
        for acl in self.acls:
            acls.add(acl)
        rules = StandardRules(acls, frozenset(self.super_users), self.allow_if_no_acl)
        return [self._decision(rules, question) for question in self.questions]

    def _decision(self, rules: StandardRules, question: Question) -> str:
        principal, host, resource_type, _ = question
        anywhere = sum(
            1 << operation
            for operation in tuple(AclOperation)[2:]
            if run_to_end(rules.may_any(principal, host, operation, resource_type))
        )
        return f"{rules.operations(*question)}/{anywhere}"


def _code(field: object) -> str:
    return str(int(field)) if isinstance(field, int) else str(field)


def generated(random_: random.Random) -> Case:
    hosts = HOSTS + NETWORKS if kafka_peer.KAFKA_VERSION >= "4.4" else HOSTS
    names = NAMES if random_.random() < 0.5 else NAMES[:3]
    acls = {
        Acl(
            random_.choice(TYPES),
            random_.choice(PATTERNS),
            random_.choice(names),
            random_.choice(PRINCIPALS),
            random_.choice(hosts),
            random_.choice(OPERATIONS),
            random_.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
        )
        for _ in range(random_.randint(0, 10))
    }
    questions = [
        Question(
            random_.choice(["User:alice", "User:bob", "Group:alice", "User:root"]),
            random_.choice(PEERS),
            random_.choice(TYPES),
            random_.choice([*NAMES, "abcd", "z"]),
        )
        for _ in range(8)
    ]
    super_users = ("User:root",) if random_.random() < 0.3 else ()
    return Case(random_.random() < 0.3, super_users, tuple(sorted(acls)), tuple(questions))


def test_decisions_are_those_of_kafkas_standard_authorizer() -> None:
    random_ = random.Random(SEED)
    cases = [generated(random_) for _ in range(CASES)]
    lines = (case.line() for case in cases)
    answers = printed_by(kafka_peer.kafka_libs(), "StandardAuthorizerDecisions", lines)
    assert len(answers) == CASES
    distinct = set()
    for case, answer in zip(cases, answers, strict=True):
        assert case.decisions() == answer.split(" "), case.line()
        distinct.update(answer.split(" "))
    assert len(distinct) > 50, "the cases are too similar to compare anything"
