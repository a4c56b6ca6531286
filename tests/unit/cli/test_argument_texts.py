"""Arguments and variables that are not UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharegroup.cli.main import main

BYTES = os.fsdecode(b"orders-\xff")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list", "--bootstrap-server", f"{BYTES}:9092"],
        ["tail", BYTES],
        ["topics", "create", BYTES],
        ["groups", "describe", BYTES],
        ["consume", "orders", "--group", BYTES],
        ["produce", "orders", "--key", BYTES],
        ["serve", "--set", f"log.dirs={BYTES}"],
        ["configs", "alter", "--topic", BYTES, "--add-config", "retention.ms=1"],
        ["acls", "add", "--allow-principal", f"User:{BYTES}", "--topic", "orders"],
        ["dlq", "list", BYTES],
        ["quotas", "set", "--user", BYTES],
        ["worker", "run", BYTES],
    ],
)
def test_text_that_is_not_utf_8_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert r"orders-\udcff" in said


def test_variable_that_is_not_utf_8_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", BYTES)
    with pytest.raises(SystemExit) as ended:
        main(["topics", "list"])
    assert ended.value.code == 2
    assert r"SHAREGROUP_BOOTSTRAP: bootstrap server 'orders-\udcff'" in capsys.readouterr().err


def test_path_of_a_file_may_be_any_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / os.fsdecode(b"settings-\xff.properties")
    file.write_text("no.such.key=1\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--config", str(file)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "unknown configuration key 'no.such.key'" in said
    assert r"properties, line 1" in said
