"""``sharegroup topics delete-records`` against a broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run, produce


@pytest.fixture
def produced(request: pytest.FixtureRequest, run: Run, bootstrap: str) -> str:
    """A topic with four records in its only partition."""
    name = request.node.name.removeprefix("test_")[:60]
    run(f"topics create {name} --partitions 1")
    asyncio.run(produce(bootstrap, name))
    return name


def test_records_below_an_offset_are_deleted(produced: str, run: Run) -> None:
    assert run(f"topics delete-records --topic {produced} --before 3").lines == [
        ["TOPIC", "PARTITION", "LOW-WATERMARK"],
        [produced, "0", "3"],
    ]
    assert run(f"topics describe {produced} --json").rows[0]["start_offset"] == 3


def test_all_records_are_deleted_by_minus_one(produced: str, run: Run) -> None:
    rows = run(f"topics delete-records --topic {produced}:0 --before -1 --json").rows
    assert rows == [{"topic": produced, "partition": 0, "low_watermark": 4}]


def test_offset_json_file_of_kafka_is_accepted(produced: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    before = {"topic": produced, "partition": 0, "offset": 2}
    file.write_text(json.dumps({"version": 1, "partitions": [before]}))
    rows = run("topics delete-records --json --offset-json-file", str(file)).rows
    assert rows == [{"topic": produced, "partition": 0, "low_watermark": 2}]


def test_offset_beyond_the_log_is_refused(produced: str, run: Run) -> None:
    refused = run(f"topics delete-records --topic {produced} --before 5")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: OffsetOutOfRange: ")
    assert f"'{produced}'" in refused.err


@pytest.mark.parametrize("words", ["", "--topic t", "--before 1"])
def test_misuse_exits_with_2_and_an_explanation(words: str, run: Run) -> None:
    refused = run(f"topics delete-records {words}")
    assert refused.code == 2
    assert "give --topic and --before, or --offset-json-file" in refused.err


ENTRY = '{"partitions": [{"topic": "t", "partition": %s, "offset": %s}]}'


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"partitions": 7}',
        '{"partitions": [7]}',
        '{"partitions": [{"topic": "t", "partition": 0}]}',
        "[" * 100_000,
        ENTRY % (0, 5.9),  # All records below 5 would be deleted.
        ENTRY % (0, "true"),
        ENTRY % (0, -2),
        ENTRY % (0, 2**63),
        ENTRY % (0, "1e999"),
        ENTRY % (2**31, 0),
        ENTRY % (-1, 0),
    ],
)
def test_file_of_another_form_is_refused(content: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    refused = run("topics delete-records --offset-json-file", str(file))
    assert refused.code == 2
    assert "expected the JSON format that --help shows" in refused.err
