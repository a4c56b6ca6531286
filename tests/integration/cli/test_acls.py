"""``sharegroup acls`` against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.cli.main import main
from sharegroup.testing import run_broker
from tests.docs.snippets.page_blocks import ROOT, blocks
from tests.integration.cli.conftest import Printed, Run
from tests.integration.cli.test_json_keys import keys_of, promised
from tests.support.chosen_broker import KAFKA, chosen, running, when_heard

USER_P = ("--allow-principal", "User:p")
KEYS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
HEADINGS = [key.upper() for key in KEYS]
SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if chosen() == KAFKA:
        with running(KAFKA, tmp_path_factory.mktemp("acls"), SECURED) as kafka:
            yield kafka.bootstrap_servers
    else:
        with run_broker(SECURED) as broker:
            yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def no_acls(run: Run) -> Iterator[None]:
    """Every test begins and ends without ACLs."""
    yield
    for option in ("--topic", "--group", "--transactional-id"):
        names = {row["name"] for row in run("acls list --json").rows}
        for name in names:
            run(f"acls remove {option} {name} --resource-pattern-type any --force")
    run("acls remove --cluster --force")
    assert listed(run, 0) == []


def listed(run: Run, count: int, options: str = "") -> list[list[str]]:
    """The rows of a listing without its head, when there are so many."""

    def rows() -> list[dict[str, str]]:
        found: list[dict[str, str]] = run(f"acls list --json {options}").rows
        return found

    found = when_heard(rows, lambda rows: len(rows) == count)
    return [list(row.values()) for row in found]


def refused(printed: Printed, text: str) -> bool:
    return printed.code == 2 and text in printed.err


def test_an_added_acl_is_listed_until_it_is_removed(run: Run) -> None:
    orders = "--topic orders --allow-principal User:alice --operation read"
    added = run(f"acls add {orders}")
    assert (added.code, added.out) == (
        0,
        "added User:alice from * may READ TOPIC 'orders' (LITERAL)\n",
    )
    again = run(f"acls add {orders} --json")
    assert again.code == 0, "it is there already"
    assert keys_of(again.rows) == promised("acls add")
    assert keys_of(again.rows["added"]) == promised("acls list") == list(KEYS)
    row = ["TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"]
    assert listed(run, 1) == [row]
    assert run("acls list").lines == [HEADINGS, row]
    assert keys_of(run("acls list --json").rows) == promised("acls list")
    removed = run(f"acls remove {orders} --json")
    assert keys_of(removed.rows) == promised("acls remove")
    assert removed.rows == {"removed": [dict(zip(KEYS, row, strict=True))]}
    assert listed(run, 0) == []
    assert run("acls list").out == "There are no such ACLs.\n"
    assert "removed nothing" in run(f"acls remove {orders}").out


def test_roles_stand_for_their_operations(run: Run) -> None:
    run("acls add --producer --idempotent --topic out --transactional-id tx", *USER_P)
    assert {tuple(row[:3] + row[5:6]) for row in listed(run, 6)} == {
        ("TOPIC", "out", "LITERAL", "WRITE"),
        ("TOPIC", "out", "LITERAL", "DESCRIBE"),
        ("TOPIC", "out", "LITERAL", "CREATE"),
        ("TRANSACTIONAL_ID", "tx", "LITERAL", "WRITE"),
        ("TRANSACTIONAL_ID", "tx", "LITERAL", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "IDEMPOTENT_WRITE"),
    }
    consumer = "--consumer --topic in --group g --allow-principal User:c"
    run(f"acls add {consumer} --resource-pattern-type prefixed --allow-host 10.0.0.1")
    assert listed(run, 3, "--principal User:c") == [
        ["TOPIC", "in", "PREFIXED", "User:c", "10.0.0.1", "READ", "ALLOW"],
        ["TOPIC", "in", "PREFIXED", "User:c", "10.0.0.1", "DESCRIBE", "ALLOW"],
        ["GROUP", "g", "PREFIXED", "User:c", "10.0.0.1", "READ", "ALLOW"],
    ]


def test_syntax_of_kafka_acls(run: Run) -> None:
    words = "--add --allow-principal User:a --allow-principal User:b --deny-principal User:c"
    assert run(f"acls {words} --operation DescribeConfigs --operation Write --topic t").code == 0
    assert len(listed(run, 6)) == 6
    denied = [row for row in listed(run, 6) if row[-1] == "DENY"]
    assert {(row[3], row[5]) for row in denied} == {
        ("User:c", "WRITE"),
        ("User:c", "DESCRIBE_CONFIGS"),
    }
    assert len(run("acls --list --topic t --principal User:a --json").rows) == 2
    remove = "acls --remove --allow-principal User:a --operation All --topic t"
    assert run(remove).code == 0
    assert len(listed(run, 6)) == 6, "no ACL has the operation All"
    assert run("acls --remove --topic t --force").code == 0
    assert listed(run, 0) == []


def test_match_finds_all_patterns_that_apply_to_a_resource(run: Run) -> None:
    for options in (
        "--topic orders",
        "--topic ord --resource-pattern-type prefixed",
        "--topic *",
        "--topic other",
    ):
        run(f"acls add {options} --allow-principal User:a --operation Read")
    assert len(listed(run, 4)) == 4
    names = [row[1] for row in listed(run, 3, "--topic orders --resource-pattern-type match")]
    assert sorted(names) == ["*", "ord", "orders"]
    assert [row[1] for row in listed(run, 1, "--topic orders")] == ["orders"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("add --topic t", "--allow-principal or --deny-principal"),
        ("add --allow-principal User:a", "name a resource"),
        ("add --topic t --allow-principal alice", "as in User:alice"),
        ("add --topic t --allow-principal User:a --operation Fly", "expected one of All, Alter"),
        ("add --group g --allow-principal User:a --operation Write", "does not exist for group"),
        ("add --topic t --allow-principal User:a --resource-pattern-type match", "literal or"),
        ("add --consumer --topic t --allow-principal User:a", "needs --group"),
        ("add --producer --group g --allow-principal User:a", "need --topic"),
        ("add --producer --topic t --deny-principal User:a", "stands for its operations"),
        ("add --idempotent --topic t --allow-principal User:a", "needs --producer"),
        ("add --topic t --deny-principal User:a --allow-host 1.2.3.4", "needs --allow-principal"),
        ("remove --topic t", "add --force"),
        ("remove", "name a resource"),
        ("--add --list", "give only one of"),
    ],
)
def test_misuse_is_explained(run: Run, words: str, text: str) -> None:
    assert refused(run(f"acls {words}"), text), run(f"acls {words}").err
    assert listed(run, 0) == []


def test_a_broker_without_an_authorizer_says_so(capsys: pytest.CaptureFixture[str]) -> None:

    with run_broker() as broker, pytest.raises(SystemExit) as end:
        main(["acls", "list", "--bootstrap", broker.bootstrap_servers])
    assert end.value.code == 1
    assert "authorizer.class.name" in capsys.readouterr().err


def test_json_of_an_empty_list(run: Run) -> None:
    assert json.loads(run("acls list --json").out) == []


def test_commands_of_the_page_add_list_and_remove(run: Run) -> None:
    (block,) = [
        block
        for block in blocks(ROOT / "docs" / "security.md")
        if block.how == "run by" and block.reason in __file__
    ]
    # This broker needs no login, so the file with the login is left out.
    words = [
        step.command.removeprefix("sharegroup ").removesuffix("--command-config admin.properties")
        for step in block.steps()
    ]
    consumer, producer, listing, removal = words
    assert run(consumer).code == 0
    assert run(producer).code == 0
    found = {(row[3], row[4], row[5]) for row in listed(run, 6)}
    assert ("User:alice", "*", "READ") in found
    assert ("User:shop", "10.0.0.0/8", "WRITE") in found
    assert "User:shop" in run(listing).out
    assert run(removal).code == 0
    assert [row[:2] for row in listed(run, 1)] == [["GROUP", "billing"]]
