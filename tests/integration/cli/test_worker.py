"""``sharegroup worker plan``, ``check`` and ``apply`` against a broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.cli.main import main
from sharegroup.testing import run_broker
from tests.docs.write_docs import JSON_KEYS
from tests.integration.cli.conftest import Run

APP = """
from sharegroup.worker import App

app = App("orders-service")

@app.share_group("{group}", topics="{group}.orders")
async def work(order: bytes) -> None: ...
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a command is given in; what it imports is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in ("orders", "other", "broken"):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_printed_keys_agree_with_the_document(project: Path, run: Run) -> None:
    write(project, "orders.py", APP.format(group="keys-of-a-plan"))
    for verb, code in (("plan", 0), ("check", 2), ("apply", 0)):
        printed = run(f"worker {verb} orders:app --json")
        assert printed.code == code, printed.err
        assert [" ".join(row) for row in printed.rows] == [JSON_KEYS[f"worker {verb}"]] * len(
            printed.rows
        )
        assert printed.rows
    assert run("worker plan orders:app").out == (
        "There are no differences.\n"
        "orders-service needs 10 topics (1 of the application, 8 for retries, 1 for dead letters) "
        "and 2 groups (1 share group, 1 retry scheduler).\n"
    )
    assert run("worker plan orders:app --json").rows == []


def test_a_broker_that_can_not_be_reached_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "orders.py", APP.format(group="billing"))
    write(project, "client.properties", "default.api.timeout.ms=100\n")
    words = "worker check orders:app --bootstrap 127.0.0.1:1 --command-config client.properties"
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "127.0.0.1:1" in line


def test_acls_are_listed_without_a_broker(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "orders.py", APP.format(group="billing"))
    with pytest.raises(SystemExit) as end:
        main("worker plan orders:app --acls --json --bootstrap 127.0.0.1:1".split())
    assert end.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert {" ".join(row) for row in rows} == {JSON_KEYS["worker plan --acls"]}
    assert ["READ", "TOPIC", "billing.orders", "LITERAL"] in [[*row.values()][:4] for row in rows]


def test_apply_creates_the_acls_of_a_user(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker with these ACLs and no others runs; docs/clusters.md says so and is tested."""
    write(project, "orders.py", APP.format(group="acls"))
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    words = "orders:app --acls-for User:billing --json"
    with run_broker(settings) as broker:

        def rows(verb: str, code: int) -> list[dict[str, Any]]:
            with pytest.raises(SystemExit) as end:
                main(f"worker {verb} {words} --bootstrap {broker.bootstrap_servers}".split())
            assert end.value.code == code
            listed = json.loads(capsys.readouterr().out)
            return [row for row in listed if row["resource"] == "acl"]

        missing = rows("check", 2)
        assert {"READ TOPIC LITERAL", "WRITE TOPIC PREFIXED", "READ GROUP LITERAL"} <= {
            row["setting"] for row in missing
        }
        assert {row["wanted"] for row in missing} == {"User:billing"}
        assert {row["status"] for row in rows("apply", 0)} == {"created"}
        assert rows("check", 0) == []


def test_acls_for_needs_a_principal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "orders.py", APP.format(group="billing"))
    with pytest.raises(SystemExit) as end:
        main("worker plan orders:app --acls-for billing".split())
    assert end.value.code == 2
    assert "a principal is like User:billing, not 'billing'" in capsys.readouterr().err
