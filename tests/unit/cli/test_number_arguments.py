"""Numbers that no request can hold, and numbers that are none, are misuse: exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sharegroup.cli.main import main

DIGITS = "1" * 5_000
"""More digits than Python converts."""


def ended_with(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "t", "--partitions", str(2**31)],
        ["topics", "create", "t", "--replication-factor", str(2**15)],
        ["topics", "alter", "t", "--partitions", str(2**31)],
        ["topics", "delete-records", "--topic", f"t:{2**31}", "--before", "1"],
        ["topics", "delete-records", "--topic", f"t:{DIGITS}", "--before", "1"],
        ["topics", "delete-records", "--topic", "t", "--before", str(2**63)],
        ["groups", "reset-offsets", "g", "--topic", f"t:{DIGITS}", "--to-latest", "--dry-run"],
        ["dlq", "show", "t", "--at", f"0:{DIGITS}"],
        ["dlq", "show", "t", "--at", f"{2**31}:0"],
        ["dlq", "redrive", "t", "--rate", "nan"],
        ["dlq", "redrive", "t", "--rate", "inf"],
        ["topics", "list", "--watch", "nan"],
        ["quotas", "set", "--user", "a", "producer_byte_rate=nan"],
        ["quotas", "set", "--user", "a", "producer_byte_rate=1e400"],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_number_outside_of_its_limits_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = ended_with(arguments, capsys)
    assert (code, "Traceback" in text) == (2, False)


def test_partition_that_is_named_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deleted records do not come back, and nothing says which of the two offsets is meant."""
    file = tmp_path / "offsets.json"
    places = [{"topic": "t", "partition": 0, "offset": offset} for offset in (5, 500)]
    file.write_text(json.dumps({"version": 1, "partitions": places}))
    code, text = ended_with(["topics", "delete-records", "--offset-json-file", str(file)], capsys)
    assert (code, "a partition is named twice" in text) == (2, True)
