"""The authorizer's rights of peers: decisions that are kept, and audit lines with a limit."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.broker.access import authorizer as authorizer_module
from sharegroup.broker.access.audit import LINES_PER_SECOND, PRINCIPALS_MAX, AuditLog
from sharegroup.broker.access.authorizer import DECISIONS_MAX, PRINCIPAL_DECISIONS_MAX, Authorizer
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.cluster.acl_entries import AclEntries
from sharegroup.broker.configuration.authorizer_settings import AuthorizerSettings
from sharegroup.broker.configuration.listeners import Listener, warn_if_everyone_is_allowed
from sharegroup.core.security.acls import Acl
from sharegroup.core.security.principal import Principal, canonical_address
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.steps import run_to_end
from sharegroup.testing import ManualClock

AUDIT = "sharegroup.broker.access.audit"
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE_TOPICS, PRODUCE = 19, 0


class Scene:
    """An authorizer, its ACLs and its audit log, on a manual clock."""

    def __init__(self, *super_users: str) -> None:
        self.clock = ManualClock()
        self.audit = AuditLog(self.clock)
        self.entries = AclEntries()
        settings = AuthorizerSettings(frozenset(super_users), allow_if_no_acl=False)
        self.authorizer = Authorizer(settings, self.entries, self.audit)

    def allow(self, user: str, operation: AclOperation, name: str, *, host: str = "*") -> None:
        acl = Acl(TOPIC, AclPatternType.LITERAL, name, user, host, operation, AclPermission.ALLOW)
        for event in self.entries.created([acl]):
            self.entries.replay(event)

    def peer(self, name: str, host: str = "10.0.0.1") -> Peer:
        peer = Peer(host, listener="OUTSIDE", principal=Principal("User", name))
        peer.rights = self.authorizer.rights_of(peer)
        return peer


@pytest.fixture
def scene() -> Scene:
    return Scene("User:root")


def test_a_change_of_acls_is_seen_by_open_connections(scene: Scene) -> None:
    rights = scene.peer("alice").rights
    assert not rights.may_see(READ, TOPIC, "orders")
    scene.allow("User:alice", READ, "orders")
    assert rights.may_see(READ, TOPIC, "orders")
    assert rights.authorized_operations(TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    assert run_to_end(rights.may_any(READ, TOPIC))
    assert not run_to_end(rights.may_any(READ, GROUP))
    (acl,) = scene.entries.acls.entries()
    for event in scene.entries.deleted([acl]):
        scene.entries.replay(event)
    assert not rights.may_see(READ, TOPIC, "orders")
    assert not run_to_end(rights.may_any(READ, TOPIC))


def test_a_repeated_question_is_not_decided_again(scene: Scene) -> None:
    scene.allow("User:alice", READ, "orders")
    rights = [scene.peer("alice").rights for _ in range(3)]
    assert scene.authorizer.decision_count == 0
    for each in rights * 5:
        assert each.may(READ, TOPIC, "orders")
        assert not each.may_see(WRITE, TOPIC, "orders")
    assert scene.authorizer.decision_count == 1, "one for all operations and connections"


def test_the_same_user_at_another_address_has_decisions_of_its_own(scene: Scene) -> None:
    scene.allow("User:alice", READ, "orders", host="10.0.0.1")
    assert scene.peer("alice", "10.0.0.1").rights.may_see(READ, TOPIC, "orders")
    assert scene.peer("alice", "::ffff:10.0.0.1").rights.may_see(READ, TOPIC, "orders")
    assert not scene.peer("alice", "10.0.0.2").rights.may_see(READ, TOPIC, "orders")


def test_decisions_that_are_kept_are_bounded_and_freed(scene: Scene) -> None:
    peers = [scene.peer(f"u{number}") for number in range(5)]
    for peer in peers:
        for number in range(PRINCIPAL_DECISIONS_MAX):
            assert not peer.rights.may_see(READ, TOPIC, f"t{number}")
            assert scene.authorizer.decision_count <= DECISIONS_MAX
    assert scene.authorizer.decision_count > 0
    rights = peers[0].rights
    for number in range(3 * PRINCIPAL_DECISIONS_MAX):
        assert not rights.may_see(READ, TOPIC, f"t{number}")
        assert scene.authorizer.decision_count <= DECISIONS_MAX
    assert not rights.may_see(READ, GROUP, "g" * 10_000), "long names are decided, not kept"
    del rights, peer
    peers.clear()
    assert scene.authorizer.decision_count == 0
    assert authorizer_module.NAME_CHARACTERS_MAX < 10_000


def test_a_super_user_is_unlimited(scene: Scene) -> None:
    rights = scene.peer("root").rights
    assert rights.is_unlimited
    assert rights.of_request(PRODUCE).may(WRITE, TOPIC, "orders")
    assert not scene.peer("alice").rights.is_unlimited


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("no:address", "no:address"),
    ],
)
def test_address_as_acls_have_it(host: str, plain: str) -> None:
    assert (canonical_address(host) or host) == plain


def test_denials_are_logged_with_a_limit_and_counted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    eve, bob = scene.peer("eve"), scene.peer("bob")
    with caplog.at_level(logging.INFO, AUDIT):
        for _ in range(LINES_PER_SECOND + 7):
            assert not eve.rights.of_request(PRODUCE).may(WRITE, TOPIC, "a\nb")
        assert not bob.rights.may(READ, TOPIC, "orders")
        lines = [record.getMessage() for record in caplog.records]
        assert lines[0] == (
            "event=denied principal='User:eve' host=10.0.0.1 listener=OUTSIDE api=produce "
            "operation=WRITE resource=TOPIC:'a\\nb'"
        )
        assert len(lines) == LINES_PER_SECOND + 1
        assert "User:bob" in lines[-1], "another principal has lines of its own"
        assert scene.audit.denials == {"OUTSIDE": LINES_PER_SECOND + 8}
        assert scene.audit.suppressed_count == 7
        caplog.clear()
        scene.audit.report()
        scene.audit.report()
        assert [record.getMessage() for record in caplog.records] == [
            "event=audit_lines_suppressed kind=denied principal='User:eve' count=7"
        ]
        caplog.clear()
        scene.clock.advance(1_000)
        assert not eve.rights.may(WRITE, TOPIC, "orders")
        assert len(caplog.records) == 1


def test_a_question_for_a_listing_is_no_denial(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, AUDIT):
        assert not scene.peer("eve").rights.may_see(DESCRIBE, TOPIC, "orders")
    assert (caplog.records, scene.audit.denials.total()) == ([], 0)


def test_the_counts_of_principals_are_bounded(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, AUDIT):
        for number in range(PRINCIPALS_MAX + 50):
            peer = scene.peer(f"u{number}")
            for _ in range(LINES_PER_SECOND + 1 if number == 0 else 1):
                assert not peer.rights.may(READ, TOPIC, "orders")
    suppressed = [r for r in caplog.records if "audit_lines_suppressed" in r.getMessage()]
    assert len(suppressed) == 1, "that of the first one, when it was forgotten"


def test_suppressed_lines_about_requests_that_were_carried_out_are_no_warning(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    request: Any = SimpleNamespace(topics=[SimpleNamespace(name="\x00" * 32_767)] * 30)
    with caplog.at_level(logging.INFO, AUDIT):
        for _ in range(LINES_PER_SECOND + 3):
            scene.audit.administered(scene.peer("ops"), CREATE_TOPICS, request)
        longest = max(len(record.getMessage()) for record in caplog.records)
        scene.audit.report()
    assert longest < 5_000, "names are cut with their escape sequences"
    assert [(r.levelname, r.getMessage()) for r in caplog.records][-1] == (
        "INFO",
        "event=audit_lines_suppressed kind=administered principal='User:ops' count=3",
    )


def test_a_line_about_a_large_administrative_request_names_the_first_subjects(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [SimpleNamespace(name=f"t{number:02}") for number in range(50)]
    request: Any = SimpleNamespace(topics=topics)
    with caplog.at_level(logging.INFO, AUDIT):
        scene.audit.administered(scene.peer("ops"), CREATE_TOPICS, request)
        scene.audit.administered(scene.peer("ops"), PRODUCE, request)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("t18,t19 and more'")
    assert "api=create_topics subjects='t00,t01," in line


@pytest.mark.parametrize(
    ("host", "allow_if_no_acl", "warns"),
    [("10.0.0.5", True, True), ("10.0.0.5", False, False), ("127.0.0.2", True, False)],
)
def test_listener_on_which_everyone_is_allowed_leads_to_a_warning(
    caplog: pytest.LogCaptureFixture, host: str, allow_if_no_acl: bool, warns: bool
) -> None:
    listener = Listener("CLIENTS", host, 9093, "", 0, is_narrowed=False, protocol="SASL_SSL")
    settings = AuthorizerSettings(frozenset(), allow_if_no_acl)
    warn_if_everyone_is_allowed(settings, [listener])
    assert ("event=everyone_allowed listeners=CLIENTS" in caplog.text) is warns
