"""``sharegroup quotas``, and the quotas of ``sharegroup configs``, against a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run


def quotas(run: Run, options: str) -> list[tuple[str | None, str | None, str | None, str, float]]:
    rows = run(f"quotas list {options} --json").rows
    return [(r["user"], r["client_id"], r["ip"], r["key"], r["value"]) for r in rows]


def test_limits_are_set_listed_and_removed(run: Run) -> None:
    assert run("quotas set --user ann producer_byte_rate=1024 request_percentage=12.5").code == 0
    assert run("quotas set --user ann --client-defaults consumer_byte_rate=10").code == 0
    assert quotas(run, "--user ann") == [
        ("ann", None, None, "producer_byte_rate", 1024),
        ("ann", None, None, "request_percentage", 12.5),
        ("ann", "<default>", None, "consumer_byte_rate", 10),
    ]
    assert quotas(run, "--user ann --client-defaults") == [
        ("ann", "<default>", None, "consumer_byte_rate", 10)
    ]
    assert run("quotas list --user ann --strict").lines == [
        ["USER", "KEY", "VALUE"],
        ["ann", "producer_byte_rate", "1024"],
        ["ann", "request_percentage", "12.5"],
    ]
    assert run("quotas remove --user ann producer_byte_rate").code == 0
    assert quotas(run, "--user ann --strict") == [("ann", None, None, "request_percentage", 12.5)]
    assert run("quotas remove --user ann").code == 0
    assert run("quotas remove --user ann --client-defaults").code == 0
    assert run("quotas list --user ann").out == "No quotas are set.\n"


def test_removing_what_is_not_set_is_no_failure(run: Run) -> None:
    removed = run("quotas remove --client nobody")
    assert (removed.code, removed.out) == (0, "removed quotas of client-id=nobody: none was set\n")


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        ("quotas set producer_byte_rate=1", 2, "give --user, --client or --ip"),
        ("quotas set --user a producer_byte_rate=many", 2, "expected a number, not 'many'"),
        ("quotas set --user a --user-defaults producer_byte_rate=1", 2, "give either --user or"),
        ("quotas set --user a", 2, "Missing argument"),
        ("quotas set --user a bananas=1", 1, "no key 'bananas'"),
        ("quotas set --ip nowhere connection_creation_rate=1", 1, "is not an IP address"),
        ("quotas list --ip 127.0.0.1 --user a", 1, "an ip cannot be combined"),
        ("configs --alter --entity-type users --add-config producer_byte_rate=1", 2, "--entity-n"),
        ("configs --alter --entity-type users --entity-name a", 2, "nothing to change"),
    ],
)
def test_misuse_and_refusals_say_what_is_wrong(run: Run, line: str, code: int, reason: str) -> None:
    failed = run(line)
    assert failed.code == code
    assert reason in failed.err


def test_options_of_kafka_configs_are_accepted(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    file.write_text("request_percentage=50\n")
    many = "producer_byte_rate=1,consumer_byte_rate=2"
    kim = "--entity-type users --entity-name kim"
    default_of_kim = f"{kim} --entity-type clients --entity-default"
    etl_of_all = "--entity-type=users --entity-default --entity-type=clients --entity-name=etl"
    for line in (
        f"--alter --add-config {many} {kim}",
        f"--alter {default_of_kim} --add-config producer_byte_rate=3",
        f"--alter {etl_of_all} --add-config-file {file}",
        "--alter --client kim-etl --add-config controller_mutation_rate=4",
        f"--alter {kim} --delete-config consumer_byte_rate",
    ):
        assert run(f"configs {line}").code == 0, line
    assert quotas(run, "--user kim") == [
        ("kim", None, None, "producer_byte_rate", 1),
        ("kim", "<default>", None, "producer_byte_rate", 3),
    ]
    assert quotas(run, "--user-defaults") == [("<default>", "etl", None, "request_percentage", 50)]
    described = run("configs --describe --entity-type clients --json").rows
    assert [(row["client_id"], row["value"]) for row in described] == [("kim-etl", 4)]
    described = run("configs describe --user kim --json").rows
    assert [(row["user"], row["value"]) for row in described] == [("kim", 1)]


def test_defaults_of_addresses_are_set(run: Run) -> None:
    assert run("quotas set --ip-defaults connection_creation_rate=100000").code == 0
    assert quotas(run, "--ip-defaults") == [
        (None, None, "<default>", "connection_creation_rate", 100_000)
    ]
    assert run("quotas remove --ip-defaults").code == 0
