"""Roles, what they allow, and the file that has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sharegroup.console.access.masks import Segment
from sharegroup.console.access.roles import (
    NEEDED,
    Change,
    Grant,
    Rights,
    Role,
    Roles,
    User,
    Visible,
)
from sharegroup.console.access.roles_file import read_roles
from sharegroup.errors import InvalidConfig

BILLING = Grant(role=Role.OPERATOR, groups=("billing-*",), topics=("orders",), values=True)
PAYMENTS = Grant(role=Role.VIEWER, groups=("pay",), topics=("payments*",))


def rights(*grants: Grant, visible: Visible | None = None) -> Rights:
    return Rights(grants=grants, visible=visible, allow_changes=True)


def test_patterns_of_all_grants_count() -> None:
    own = rights(BILLING, PAYMENTS)
    groups = ["billing-1", "billing", "pay", "pay2", "BILLING-1"]
    assert [own.may_see_group(name) for name in groups] == [True, False, True, False, False]
    topics = ["orders", "orders.v2", "payments.v2"]
    assert [own.may_see_topic(name) for name in topics] == [True, False, True]
    assert [own.may_see_values(name) for name in topics] == [True, False, False]
    assert not rights().may_see_group("billing-1")


def test_what_the_users_own_connection_does_not_list_is_hidden() -> None:
    visible = Visible(frozenset({"billing-1"}), frozenset({"payments"}))
    own = rights(BILLING, PAYMENTS, visible=visible)
    assert own.may_see_group("billing-1")
    assert not own.may_see_group("billing-2")
    assert not own.may_see_topic("orders")
    assert not own.may_see_values("orders")
    assert not own.may_change(Change.REDRIVE, topic="orders")
    assert not own.sees_every_name


@pytest.mark.parametrize(
    ("role", "changes"),
    [
        (Role.VIEWER, set()),
        (Role.OPERATOR, {"redrive", "produce", "abort", "resume", "steer"}),
        (
            Role.ADMIN,
            {"redrive", "produce", "abort", "resume", "steer", "purge", "reset", "delete"},
        ),
    ],
)
def test_each_role_has_its_changes(role: Role, changes: set[str]) -> None:
    own = rights(Grant(role=role))
    assert {kind.value for kind in Change if own.may_change(kind, topic="orders")} == changes
    assert set(NEEDED) == set(Change)


def test_two_grants_do_not_add_up_to_a_third() -> None:
    own = rights(
        Grant(role=Role.ADMIN, groups=("a",), topics=("x",)),
        Grant(role=Role.ADMIN, groups=("b",), topics=("y",)),
    )
    assert own.may_change(Change.RESET, group="a", topic="x")
    assert own.may_change(Change.RESET, group="b", topic="y")
    assert not own.may_change(Change.RESET, group="a", topic="y")
    assert not own.may_change(Change.RESET)


def test_without_leave_for_changes_nobody_changes_anything() -> None:
    own = Rights(grants=(Grant(role=Role.ADMIN),), allow_changes=False)
    assert not own.may_change(Change.ABORT, topic="orders")
    assert "--allow-changes" in own.why_not(Change.ABORT, topic="orders")
    refused = rights(PAYMENTS).why_not(Change.PURGE, topic="payments")
    assert refused.startswith("purge of topic 'payments' needs the role admin")


def test_hidden_values_are_hidden_from_everybody() -> None:
    own = Rights(grants=(Grant(role=Role.ADMIN, values=True),), show_values=False)
    assert own.may_see_topic("orders")
    assert not own.may_see_values("orders")


FILE = """
[[grants]]
users = ["ada", "User:ops-*"]
role = "operator"
groups = ["billing-*"]
topics = ["orders"]
values = true

[[grants]]

[[masks]]
topics = ["orders*"]
values = ["$.card.number"]
headers = ["authorization"]
"""


def test_file_gives_users_their_grants(tmp_path: Path) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(FILE)
    roles = read_roles(path)
    assert roles.of(User("ada")) == (BILLING, Grant())
    assert roles.of(User("User:ops-7")) == (BILLING, Grant())
    assert roles.of(User("eve")) == (Grant(),)
    assert roles.of(User("ada", ())) == ()
    mask = roles.masks.of("orders.v2")
    assert mask.paths == {(Segment("card"), Segment("number"))}
    assert mask.headers == ("authorization",)


def test_file_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    path.write_text(json.dumps({"grants": [{"role": "admin", "groups": ["a"]}]}))
    assert read_roles(path).of(User("ada")) == (Grant(role=Role.ADMIN, groups=("a",)),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected at least one [[grants]]"),
        ("grants = 1", "grants: expected a list of at most 1000 tables, as [[grants]]"),
        ("[[grant]]", "the document: there is no key 'grant'; expected grants, masks"),
        ("[[grants]]\n[[grants]]\nrole = 'root'", "grants 2.role = 'root': expected one of viewer"),
        ("[[grants]]\ngroup = ['a']", "did you mean 'groups'?"),
        ("[[grants]]\ngroups = 'a'", "grants 1.groups = 'a': expected a list of texts"),
        ("[[grants]]\ngroups = [1]", "grants 1.groups = [1]: expected a list of texts"),
        ("[[grants]]\nvalues = 'yes'", "grants 1.values = 'yes': expected true or false"),
        ("[[grants]]\n[[masks]]\nvalues=['card']", "masks 1.values: 'card': expected a path that"),
        ("[[grants]]\n[[masks]]\nvalues=['$.a b']", "' b' is no step"),
        ("[[grants]\n", "at line 1"),
    ],
)
def test_wrong_file_says_which_key_or_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfig) as raised:
        read_roles(path)
    assert str(path) in str(raised.value)
    assert problem in str(raised.value)


def test_unreadable_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        read_roles(tmp_path / "none.toml")
    path = tmp_path / "roles.json"
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidConfig, match="utf-8"):
        read_roles(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidConfig):
        read_roles(path)
    path.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(InvalidConfig, match="at most"):
        read_roles(path)


def test_names_with_odd_characters_match_as_they_are() -> None:
    odd = "billing-\x1b[31m\n\u202e"
    assert rights(BILLING).may_see_group(odd)
    assert Roles(grants=()).of(User(odd)) == ()


def test_example_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "console.md").read_text()
    path = tmp_path / "roles.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    roles = read_roles(path)
    ops = Rights(grants=roles.of(User("User:ops-1")), masks=roles.masks, allow_changes=True)
    assert ops.may_see_group("billing-1")
    assert ops.may_see_values("orders.eu")
    assert ops.may_change(Change.REDRIVE, group="billing-1", topic="orders")
    assert not ops.may_change(Change.PURGE, topic="orders")
    assert ops.masked("orders", {"to": {"email": "a@b"}}) == {"to": {"email": "•••"}}
    others = Rights(grants=roles.of(User("eve")))
    assert not others.may_see_values("orders")
